/*
 * Threads of unlike priority under SCHED_FIFO on one CPU: a thread that waits for one that it outranks must sleep,
 * because the other does not run until it sleeps. One of the two is slowed, so that the other finds it at any
 * instruction. Skipped where the system refuses SCHED_FIFO.
 *
 * What fails here is a thread that polls until the other one has done something. One that polls for a while and then
 * sleeps passes, though it waits. The models show that a release waits for no thread (model/tests/shuttle/unwaited.rs).
 */
#include "slow_motion.h"

#include <poll.h>
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

/* The slow thread, which is outranked, wakes the other one at one of its instructions, and so loses the CPU there. */
static int woken[2];
static atomic_long wakes_at;

static void wake_there(void)
{
    char now = 0;
    if (slow_steps() == atomic_load(&wakes_at)) HOT_RC((int)write(woken[1], &now, 1), 1);
}

/* Sleeps until then; or for a while, if it does not get there, for it sleeps itself, or has ended. Whether it got
 * there. */
static bool sleep_until_there(void)
{
    struct pollfd end = {.fd = woken[0], .events = POLLIN};
    char now;
    return poll(&end, 1, 200) == 1 && read(woken[0], &now, 1) == 1;
}

static pthread_mutex_t contended;
static struct gate holds;

static void *lock_slowly(void *unused)
{
    run_as(1);
    slow_begin(wake_there);
    int rc = pthread_mutex_lock(&contended);
    slow_end();
    CHECK_OK(rc);
    CHECK_OK(pthread_mutex_unlock(&contended));
    return unused;
}

static void *hold_and_unlock_slowly(void *unused)
{
    run_as(1);
    CHECK_OK(pthread_mutex_lock(&contended));
    gate_open(&holds);
    slow_begin(wake_there);
    int rc = pthread_mutex_unlock(&contended);
    slow_end();
    CHECK_OK(rc);
    return unused;
}

static void begin(void)
{
    CHECK_EQ(pipe(woken), 0);
    stay_on_one_cpu();
    run_as(2);
    mutex_make(&contended, KIND_DEFAULT);
    CHECK_OK(pthread_mutex_lock(&contended)); /* lazy binding */
    CHECK_OK(pthread_mutex_unlock(&contended));
}

/* The holder releases while a thread that it outranks stands at any instruction of its lock. */
CHECK(real_time, holder_outranks_who_joins)
{
    begin();
    bool more = true;
    for (long at = 1; more && !time_is_short(); at += 1 + at / 32) {
        atomic_store(&wakes_at, at);
        CHECK_OK(pthread_mutex_lock(&contended));
        pthread_t joiner = thread_start(lock_slowly, NULL);
        more = sleep_until_there();
        CHECK_OK(pthread_mutex_unlock(&contended));
        thread_join(joiner);
        while (!more && poll(&(struct pollfd){.fd = woken[0], .events = POLLIN}, 1, 0) == 1) sleep_until_there();
    }
}

/* A thread wants the lock while another one, which it outranks, stands at any instruction of its unlock. */
CHECK(real_time, who_joins_outranks_the_holder)
{
    begin();
    bool more = true;
    for (long at = 1; more && !time_is_short(); at += 1 + at / 32) {
        holds = (struct gate){0};
        atomic_store(&wakes_at, at);
        pthread_t holder = thread_start(hold_and_unlock_slowly, NULL);
        gate_wait(&holds, 1);
        more = sleep_until_there();
        CHECK_OK(pthread_mutex_lock(&contended));
        CHECK_OK(pthread_mutex_unlock(&contended));
        thread_join(holder);
    }
}
