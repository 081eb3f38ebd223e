/*
 * Mutexes in slow motion: the holder stopped at any instruction of its unlock, a waiter at any of its lock, timed lock
 * or time-out, or two of them, with three more waiters beside. See slow_crowd.h.
 */
#include "slow_crowd.h"

static pthread_mutex_t mutex;
static atomic_bool held;
static _Thread_local bool holds;

static void has_it(void)
{
    if (atomic_exchange(&held, true)) FAIL("two hold the mutex");
    holds = true;
}

static void lock(void)
{
    HOT_OK(pthread_mutex_lock(&mutex));
    has_it();
}

static void lock_until_far(void)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    HOT_OK(pthread_mutex_timedlock(&mutex, &far));
    has_it();
}

/* Out of time, unless the mutex is to be had at once. */
static void lock_or_not(void)
{
    struct timespec past = {1, 0};
    int rc = pthread_mutex_timedlock(&mutex, &past);
    if (rc == 0)
        has_it();
    else
        HOT_RC(rc, ETIMEDOUT);
}

static void unlock(void)
{
    if (!holds) return;
    holds = false;
    atomic_store(&held, false);
    HOT_OK(pthread_mutex_unlock(&mutex));
}

static void once(void)
{
    lock();
    unlock();
}

static void once_timed(void)
{
    lock_until_far();
    unlock();
}

static const struct slow_deed deeds[] = {
    {"lock", NULL, lock, unlock, false},
    {"timedlock", NULL, lock_until_far, unlock, false},
    {"a time-out", NULL, lock_or_not, unlock, false},
    {"unlock", lock, unlock, NULL, true},
};

static void make(void)
{
    mutex_make(&mutex, KIND_DEFAULT);
}

/* Or soon: a lock may be handed on by waiters that gave up. */
static void must_be_free(void)
{
    once();
}

static const struct slow_scene scene = {
    deeds, sizeof deeds / sizeof *deeds, make, {lock, lock}, unlock, {once, once_timed, once}, must_be_free,
};

CHECK(slow_motion, unlock_stopped_anywhere_loses_nobody) { slow_one_stopped(&scene, 3); }
CHECK(slow_motion, unlock_and_another_stopped_anywhere_lose_nobody) { slow_two_stopped(&scene, 3, 3); }
CHECK(slow_motion, time_out_and_another_stopped_anywhere_lose_nobody) { slow_two_stopped(&scene, 2, 2); }
