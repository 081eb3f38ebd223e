/* Waiters in slow motion: stopped at any instruction of their lock, or arriving at any instruction of another thread's
 * unlock. */
#include "slow_motion.h"

#include <dlfcn.h>

static int timedlock_far(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return pthread_mutex_timedlock(mutex, &far);
}

/* ---- A waiter stopped at any instruction of its lock ---- */

struct stop {
    pthread_mutex_t *mutex;
    mutex_call *lock;
    struct gate got;
    int which;
};

static void *lock_and_be_stopped(void *argument)
{
    struct stop *s = argument;
    slow_is(s->which);
    slow_begin(slow_stop);
    int rc = s->lock(s->mutex);
    slow_end();
    CHECK_OK(rc);
    gate_open(&s->got);
    CHECK_OK(pthread_mutex_unlock(s->mutex));
    return NULL;
}

/* With the mutex held here, stops a waiter at one instruction after another and runs `meanwhile`, which ends
 * unlocked. */
static void stop_everywhere(int kind, mutex_call *lock, void (*meanwhile)(pthread_mutex_t *))
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    CHECK_OK(lock(&mutex)); /* at full speed first: lazy binding */
    CHECK_OK(pthread_mutex_unlock(&mutex));
    bool more = true;
    for (long at = 1; more && !time_is_short(); at += 1 + at / 16) {
        slow_stop_at(at);
        struct stop s = {.mutex = &mutex, .lock = lock};
        CHECK_OK(pthread_mutex_lock(&mutex));
        pthread_t thread = thread_start(lock_and_be_stopped, &s);
        more = slow_await_stop();
        if (!more) slow_stop_at(0); /* asleep: woken, it owes it to the others to go on */
        meanwhile(&mutex);
        if (more) CHECK_EQ(gate_count(&s.got), 0);
        slow_go_on();
        thread_join(thread);
    }
}

static void others_get_on(pthread_mutex_t *mutex)
{
    struct locker waiter;
    locker_start(&waiter, mutex, NULL, NULL);
    CHECK_OK(pthread_mutex_unlock(mutex));
    locker_join(&waiter);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(pthread_mutex_lock(mutex));
        CHECK_OK(pthread_mutex_unlock(mutex));
    }
}

CHECK(slow_motion, waiter_stopped_anywhere_stops_nobody_else)
{
    stop_everywhere(KIND_DEFAULT, pthread_mutex_lock, others_get_on);
}

CHECK(slow_motion, recursive_waiter_stopped_anywhere_stops_nobody_else)
{
    stop_everywhere(PTHREAD_MUTEX_RECURSIVE, pthread_mutex_lock, others_get_on);
}

CHECK(slow_motion, timed_waiter_stopped_anywhere_stops_nobody_else)
{
    stop_everywhere(KIND_DEFAULT, timedlock_far, others_get_on);
}

/* Two, one behind the other, at any two of their instructions; with several more behind them. Pairs are drawn, the same
   in each run, or each has its turn. */
static long stop_two(pthread_mutex_t *mutex, mutex_call *lock, const long at[2])
{
    enum { MORE = 3 };
    struct stop stops[2];
    struct locker more[MORE];
    pthread_t threads[2];
    bool stopped[2];
    CHECK_OK(pthread_mutex_lock(mutex));
    for (int i = 0; i < 2; i++) {
        stops[i] = (struct stop){.mutex = mutex, .lock = lock, .which = i};
        slow_stop_at_of(i, at[i]);
        threads[i] = thread_start(lock_and_be_stopped, &stops[i]);
        stopped[i] = slow_await_stop_of(i);
        if (!stopped[i]) slow_stop_at_of(i, 0); /* asleep: woken, it owes it to the others to go on */
    }
    for (int i = 0; i < MORE; i++) locker_start(&more[i], mutex, NULL, NULL);
    others_get_on(mutex);
    for (int i = 0; i < MORE; i++) locker_join(&more[i]);
    long steps = slow_steps_of(0);
    for (int i = 0; i < 2; i++) {
        if (stopped[i]) CHECK_EQ(gate_count(&stops[i].got), 0);
        slow_let_go_of(i);
        slow_go_on_of(i);
        thread_join(threads[i]);
    }
    return steps;
}

/* A lock whose waiters go on polling is stopped before that. */
enum { LONGEST = 4000 };

static void stop_two_everywhere(mutex_call *lock)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, KIND_DEFAULT);
    CHECK_OK(lock(&mutex)); /* at full speed first: lazy binding */
    CHECK_OK(pthread_mutex_unlock(&mutex));
    long length = stop_two(&mutex, lock, (long[]){LONGEST, LONGEST});
    length = length < LONGEST ? length : LONGEST;
    if (slow_everything()) {
        for (long i = 0; i < length * length; i++)
            stop_two(&mutex, lock, (long[]){1 + i / length, 1 + i % length});
        return;
    }
    for (uint32_t random = 1; !time_is_short();) {
        long at[2] = {1 + random_next(&random) % length, 1 + random_next(&random) % length};
        stop_two(&mutex, lock, at);
    }
}

CHECK(slow_motion, waiter_and_another_stopped_anywhere_stops_nobody_else) { stop_two_everywhere(pthread_mutex_lock); }

CHECK(slow_motion, timed_waiter_and_another_stopped_anywhere_stops_nobody_else) { stop_two_everywhere(timedlock_far); }

/* One unlock and no more: nothing later makes good a release that went unnoticed. */
static void release_once(pthread_mutex_t *mutex)
{
    CHECK_OK(pthread_mutex_unlock(mutex));
}

static mutex_call *foreign_unlock;

static void release_foreignly(pthread_mutex_t *mutex)
{
    CHECK_OK(foreign_unlock(mutex));
}

CHECK(slow_motion, release_at_any_point_of_a_lock) { stop_everywhere(KIND_DEFAULT, pthread_mutex_lock, release_once); }

CHECK(slow_motion, release_at_any_point_of_an_errorcheck_lock)
{
    stop_everywhere(PTHREAD_MUTEX_ERRORCHECK, pthread_mutex_lock, release_once);
}

CHECK(slow_motion, release_at_any_point_of_a_timedlock) { stop_everywhere(KIND_DEFAULT, timedlock_far, release_once); }

static void fork_and_use(pthread_mutex_t *mutex)
{
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_OK(pthread_mutex_unlock(mutex));
        CHECK_OK(pthread_mutex_lock(mutex));
        others_get_on(mutex);
        _exit(0);
    }
    CHECK_EQ(process_status(pid), 0);
    CHECK_OK(pthread_mutex_unlock(mutex));
}

CHECK(slow_motion, fork_with_a_waiter_anywhere) { stop_everywhere(KIND_DEFAULT, pthread_mutex_lock, fork_and_use); }

/* ---- A waiter that arrives at any instruction of the unlock ---- */

static struct gate arrive;
static atomic_long arrive_at;

static void let_arrive(void)
{
    if (slow_steps() != atomic_load(&arrive_at)) return;
    gate_open(&arrive);
    nap_us(300);
}

static mutex_call *foreign_lock; /* the C library's own, past any interposition */

static int lock_on_arrival(pthread_mutex_t *mutex)
{
    gate_wait(&arrive, 1);
    return pthread_mutex_lock(mutex);
}

static int foreign_lock_on_arrival(pthread_mutex_t *mutex)
{
    gate_wait(&arrive, 1);
    return foreign_lock(mutex);
}

static int timedlock_on_arrival(pthread_mutex_t *mutex)
{
    gate_wait(&arrive, 1);
    return timedlock_far(mutex);
}

/* With `crowd`, another waits already. No thread unlocks again: a waiter that is overlooked waits for ever. */
static void arrive_everywhere(int kind, mutex_call *lock, mutex_call *unlock, bool crowd)
{
    pthread_mutex_t mutex;
    long steps = LONG_MAX;
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_OK(unlock(&mutex));
    for (long at = 1; at <= steps && !time_is_short(); at += 1 + at / 32) {
        struct locker early, late;
        arrive = (struct gate){0};
        atomic_store(&arrive_at, at);
        CHECK_OK(pthread_mutex_lock(&mutex));
        if (crowd) locker_start(&early, &mutex, NULL, NULL);
        locker_start(&late, &mutex, lock, NULL);
        slow_begin(let_arrive);
        int rc = unlock(&mutex);
        steps = slow_end();
        CHECK_OK(rc);
        gate_open(&arrive);
        locker_join(&late);
        if (crowd) locker_join(&early);
    }
}

#define ARRIVES(title, kind)                                                                        \
    CHECK(slow_motion, arrival_at_any_point_of_unlock_##title)                                      \
    {                                                                                               \
        arrive_everywhere(kind, lock_on_arrival, pthread_mutex_unlock, false);                      \
    }
KINDS(ARRIVES)

CHECK(slow_motion, timed_arrival_at_any_point_of_unlock)
{
    arrive_everywhere(KIND_DEFAULT, timedlock_on_arrival, pthread_mutex_unlock, false);
}

CHECK(slow_motion, second_arrival_at_any_point_of_unlock)
{
    arrive_everywhere(KIND_DEFAULT, lock_on_arrival, pthread_mutex_unlock, true);
}

/* Company, as in mutex_foreign.c: one side's waiter arrives during the other side's unlock. */
static mutex_call *libc_call(const char *name)
{
    void *libc = dlopen(LOCKS_LIBRARY, RTLD_NOW);
    if (!libc) FAIL("%s", dlerror());
    return (mutex_call *)dlsym(libc, name);
}

CHECK(slow_motion, foreign_arrival_at_any_point_of_unlock)
{
    foreign_lock = libc_call("pthread_mutex_lock");
    arrive_everywhere(KIND_DEFAULT, foreign_lock_on_arrival, pthread_mutex_unlock, false);
    arrive_everywhere(KIND_DEFAULT, foreign_lock_on_arrival, pthread_mutex_unlock, true);
}

CHECK(slow_motion, arrival_at_any_point_of_foreign_unlock)
{
    mutex_call *unlock = libc_call("pthread_mutex_unlock");
    arrive_everywhere(KIND_DEFAULT, lock_on_arrival, unlock, false);
    arrive_everywhere(KIND_DEFAULT, lock_on_arrival, unlock, true);
}

CHECK(slow_motion, foreign_release_at_any_point_of_a_lock)
{
    foreign_unlock = libc_call("pthread_mutex_unlock");
    stop_everywhere(KIND_DEFAULT, pthread_mutex_lock, release_foreignly);
}

CHECK(slow_motion, release_at_any_point_of_a_foreign_lock)
{
    foreign_lock = libc_call("pthread_mutex_lock");
    stop_everywhere(KIND_DEFAULT, foreign_lock, release_once);
}
