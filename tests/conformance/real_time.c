/*
 * Threads of unlike priority under SCHED_FIFO on one CPU: whoever waits for one that it outranks must sleep, for that one does not run as long as it does not.
 * One of the two is slowed, so that the other finds it at any instruction. Skipped where the system refuses SCHED_FIFO.
 */
#include "slow_motion.h"

#include <sched.h>

static void run_as(int priority)
{
    struct sched_param p = {.sched_priority = priority};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &p) != 0) SKIP("SCHED_FIFO is refused");
}

static void stay_on_one_cpu(void)
{
    cpu_set_t all, one;
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

static void no_hook(void) {}

static void *lock_slowly(void *mutex)
{
    run_as(1);
    slow_begin(no_hook);
    int rc = pthread_mutex_lock(mutex);
    slow_end();
    CHECK_OK(rc);
    CHECK_OK(pthread_mutex_unlock(mutex));
    return NULL;
}

/* The holder wakes up while somebody whom it outranks is queueing, and releases. */
CHECK(real_time, holder_outranks_who_joins)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    stay_on_one_cpu();
    run_as(2);
    for (int round = 0; round < 200 && !time_is_short(); round++) {
        CHECK_OK(pthread_mutex_lock(&mutex));
        pthread_t joiner = thread_start(lock_slowly, &mutex);
        nap_us(20 + 7 * round);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        thread_join(joiner);
    }
}

static atomic_bool holds;

static void *hold_and_unlock_slowly(void *mutex)
{
    run_as(1);
    CHECK_OK(pthread_mutex_lock(mutex));
    atomic_store(&holds, true);
    slow_begin(no_hook);
    int rc = pthread_mutex_unlock(mutex);
    slow_end();
    CHECK_OK(rc);
    return NULL;
}

/* Somebody wakes up while one whom it outranks releases, and wants the lock. */
CHECK(real_time, who_joins_outranks_the_holder)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    stay_on_one_cpu();
    run_as(2);
    for (int round = 0; round < 200 && !time_is_short(); round++) {
        atomic_store(&holds, false);
        pthread_t holder = thread_start(hold_and_unlock_slowly, &mutex);
        while (!atomic_load(&holds)) nap_us(20);
        nap_us(5 * round);
        CHECK_OK(pthread_mutex_lock(&mutex));
        CHECK_OK(pthread_mutex_unlock(&mutex));
        thread_join(holder);
    }
}
