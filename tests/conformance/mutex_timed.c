/* pthread_mutex_timedlock and pthread_mutex_clocklock: deadlines, what counts as one, and leaving a queue. */
#include "conformance.h"

#include <stdio.h>

/* How a check locks with a deadline: both calls, both clocks. */
struct way {
    const char *name;
    clockid_t clock;
    bool clocklock;
};
static const struct way timedlock = {"timedlock", CLOCK_REALTIME, false};
static const struct way clocklock_realtime = {"clocklock(REALTIME)", CLOCK_REALTIME, true};
static const struct way clocklock_monotonic = {"clocklock(MONOTONIC)", CLOCK_MONOTONIC, true};
static const struct way *const ways[] = {&timedlock, &clocklock_realtime, &clocklock_monotonic};
#define WAYS(i) for (size_t i = 0; i < 3; i++)

static int lock_until(const struct way *way, pthread_mutex_t *mutex, struct timespec deadline)
{
    return way->clocklock ? pthread_mutex_clocklock(mutex, way->clock, &deadline)
                          : pthread_mutex_timedlock(mutex, &deadline);
}

/* Locks with a deadline 20 ms from now, which must pass. */
static void must_time_out(const struct way *way, pthread_mutex_t *mutex)
{
    struct timespec deadline = time_after_ms(way->clock, 20);
    CHECK_RC(lock_until(way, mutex, deadline), ETIMEDOUT);
    CHECK_REACHED(way->clock, deadline);
}

struct attempt {
    const struct way *way;
    pthread_mutex_t *mutex;
    struct timespec deadline;
    int expected;
};

static void *attempt_body(void *argument)
{
    struct attempt *a = argument;
    CHECK_RC(lock_until(a->way, a->mutex, a->deadline), a->expected);
    if (a->expected == ETIMEDOUT) CHECK_REACHED(a->way->clock, a->deadline);
    if (a->expected == 0) CHECK_OK(pthread_mutex_unlock(a->mutex));
    return NULL;
}

/* The same from another thread than the caller's. */
static void attempt_elsewhere(const struct way *way, pthread_mutex_t *mutex, struct timespec deadline, int expected)
{
    struct attempt attempt = {way, mutex, deadline, expected};
    thread_join(thread_start(attempt_body, &attempt));
}

/* ---- For every kind ---- */

#define TIMED(title, kind)                                                                          \
    CHECK(mutex_timed, title##_times_out_when_held_elsewhere) { times_out(kind); }                  \
    CHECK(mutex_timed, title##_gets_a_free_mutex) { gets_free(kind); }                              \
    CHECK(mutex_timed, title##_excludes) { timed_excludes(kind); }

static void times_out(int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_lock(&mutex));
    WAYS(i) attempt_elsewhere(ways[i], &mutex, time_after_ms(ways[i]->clock, 20), ETIMEDOUT);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(trylock_elsewhere(&mutex));
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

/* A deadline, even a passed or a meaningless one, matters only to a call that must block. */
static void gets_free(int kind)
{
    static const struct timespec passed = {1, 0}, before_time = {-1, 0}, nonsense[] = {{1, -1}, {1, 1000000000}};
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    WAYS(i)
    {
        const struct timespec deadlines[] = {time_far(ways[i]->clock), passed, before_time, nonsense[0], nonsense[1]};
        for (int d = 0; d < 5; d++) {
            CHECK_OK(lock_until(ways[i], &mutex, deadlines[d]));
            CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
            CHECK_OK(pthread_mutex_unlock(&mutex));
        }
    }
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

static int lock_far(pthread_mutex_t *mutex)
{
    return lock_until(&timedlock, mutex, time_far(CLOCK_REALTIME));
}

static int lock_impatiently(pthread_mutex_t *mutex)
{
    int rc;
    while ((rc = lock_until(&clocklock_monotonic, mutex, time_after_ms(CLOCK_MONOTONIC, 0))) == ETIMEDOUT)
        ;
    return rc;
}

static void timed_excludes(int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    struct exclusion x = {.mutex = &mutex,
                          .lock = {lock_far, lock_impatiently},
                          .unlock = {pthread_mutex_unlock, pthread_mutex_unlock},
                          .threads = 4,
                          .ms = 60};
    exclusion_run(&x);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

KINDS(TIMED)

/* ---- By the owner itself ---- */

#define SELF_DEADLOCK(title, kind)                                                                  \
    CHECK(mutex_timed, title##_relock_by_owner_times_out) { relock_times_out(kind); }

static void relock_times_out(int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_lock(&mutex));
    WAYS(i) must_time_out(ways[i], &mutex);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(trylock_elsewhere(&mutex));
}

OWNERLESS_KINDS(SELF_DEADLOCK)

CHECK(mutex_timed, errorcheck_relock_by_owner_is_edeadlk)
{
    pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    WAYS(i)
    {
        CHECK_OK(lock_until(ways[i], &mutex, time_far(ways[i]->clock)));
        CHECK_RC(lock_until(ways[i], &mutex, time_far(ways[i]->clock)), EDEADLK);
        CHECK_RC(lock_until(ways[i], &mutex, (struct timespec){1, 0}), EDEADLK);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
    }
}

CHECK(mutex_timed, recursive_relock_by_owner_counts)
{
    pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    CHECK_OK(pthread_mutex_lock(&mutex));
    WAYS(i) CHECK_OK(lock_until(ways[i], &mutex, (struct timespec){1, 0}));
    for (int i = 0; i < 4; i++) {
        CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
        CHECK_OK(pthread_mutex_unlock(&mutex));
    }
    CHECK_OK(trylock_elsewhere(&mutex));
}

/* ---- Deadlines ---- */

CHECK(mutex_timed, passed_deadline_on_held_mutex_times_out)
{
    static const struct timespec deadlines[] = {{0, 0}, {1, 999999999}, {-1, 0}, {-1000000000, 5}};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&mutex));
    WAYS(i) for (int d = 0; d < 4; d++)
        CHECK_RC(lock_until(ways[i], &mutex, deadlines[d]), ETIMEDOUT);
}

/* Not even a waiter behind others waits: the quickest of some tries tells it from a machine that is busy. */
CHECK(mutex_timed, passed_deadline_behind_a_waiter_times_out_at_once)
{
    static const struct timespec deadlines[] = {
        {0, 0}, {1, 999999999}, {-1, 0}, {INT64_MIN, 0}, {INT64_MIN, 999999999}, {INT64_MIN + 1, 5}};
    enum { TRIES = 20, SOON_US = 10000 };
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct locker first;
    CHECK_OK(pthread_mutex_lock(&mutex));
    locker_start(&first, &mutex, NULL, NULL);
    /* glibc before 2.34 computes relative times, which overflow for the first second of all, and then waits for
     * ever. */
    int known = glibc_is_at_least(34) ? 6 : 3;
    WAYS(i) for (int d = 0; d < known; d++)
    {
        long took_us = LONG_MAX;
        for (int try = 0; try < TRIES && took_us > SOON_US; try++) {
            struct timespec begun = time_after_ms(CLOCK_MONOTONIC, 0);
            CHECK_RC(lock_until(ways[i], &mutex, deadlines[d]), ETIMEDOUT);
            took_us = -time_missing_us(CLOCK_MONOTONIC, begun);
        }
        CHECK_TRUE(took_us <= SOON_US, "%s until second %lld waits for %ld us", ways[i]->name,
                   (long long)deadlines[d].tv_sec, took_us);
    }
    CHECK_TRUE(!locker_got_it(&first), "a held mutex was got");
    CHECK_OK(pthread_mutex_unlock(&mutex));
    locker_join(&first);
}

CHECK(mutex_timed, bad_nanoseconds_on_held_mutex_are_einval)
{
    static const long nanoseconds[] = {-1, 1000000000, LONG_MAX, LONG_MIN};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&mutex));
    WAYS(i) for (int d = 0; d < 4; d++)
    {
        struct timespec deadline = time_far(ways[i]->clock);
        deadline.tv_nsec = nanoseconds[d];
        CHECK_RC(lock_until(ways[i], &mutex, deadline), EINVAL);
    }
    CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(trylock_elsewhere(&mutex));
}

CHECK(mutex_timed, unknown_clock_is_einval_even_when_free)
{
    static const clockid_t clocks[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_BOOTTIME, -1, 1000};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 5; i++) {
        struct timespec deadline = time_far(CLOCK_REALTIME);
        CHECK_RC(pthread_mutex_clocklock(&mutex, clocks[i], &deadline), EINVAL);
        CHECK_OK(trylock_elsewhere(&mutex));
    }
}

/* Far enough that a deadline turned into nanoseconds from now overflows 64 bits. */
CHECK(mutex_timed, huge_deadline_waits_for_the_release)
{
    static const time_t seconds[] = {INT32_MAX, 1L << 40, INT64_MAX / 1000000000, INT64_MAX};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct attempt attempts[12];
    pthread_t threads[12];
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 12; i++) {
        attempts[i] = (struct attempt){ways[i / 4], &mutex, {seconds[i % 4], 999999999}, 0};
        threads[i] = thread_start(attempt_body, &attempts[i]);
    }
    nap_ms(20);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 12; i++) thread_join(threads[i]);
}

CHECK(mutex_timed, waiters_time_out_each_at_its_deadline)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct attempt attempts[9];
    pthread_t threads[9];
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 9; i++) {
        const struct way *way = ways[i % 3];
        attempts[i] = (struct attempt){way, &mutex, time_after_ms(way->clock, 10 + i * 37 % 90), ETIMEDOUT};
        threads[i] = thread_start(attempt_body, &attempts[i]);
    }
    for (int i = 0; i < 9; i++) thread_join(threads[i]);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(trylock_elsewhere(&mutex));
}

/* ---- Leaving the queue ---- */

/* Between two patient waiters stand some that give up: the patient ones must still be served. */
CHECK(mutex_timed, patient_waiters_survive_those_who_leave)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct locker patient[3];
    for (int round = 0; round < 5; round++) {
        struct attempt attempts[3];
        pthread_t leaving[3];
        CHECK_OK(pthread_mutex_lock(&mutex));
        for (int i = 0; i < 3; i++) {
            locker_start(&patient[i], &mutex, NULL, NULL);
            attempts[i] = (struct attempt){ways[i], &mutex, time_after_ms(ways[i]->clock, 15), ETIMEDOUT};
            leaving[i] = thread_start(attempt_body, &attempts[i]);
        }
        for (int i = 0; i < 3; i++) thread_join(leaving[i]);
        for (int i = 0; i < 3; i++) CHECK_TRUE(!locker_got_it(&patient[i]), "a held mutex was got");
        CHECK_OK(pthread_mutex_unlock(&mutex));
        for (int i = 0; i < 3; i++) locker_join(&patient[i]);
    }
    check_excludes(&mutex);
}

enum { RACES = 300 };

struct race {
    pthread_mutex_t mutex;
    struct timespec deadline;
    struct gate begin, done;
    bool over;
};

static void *race_body(void *argument)
{
    struct race *race = argument;
    for (int i = 0;; i++) {
        gate_wait(&race->begin, i + 1);
        if (race->over) return NULL;
        int rc = lock_until(&clocklock_monotonic, &race->mutex, race->deadline);
        if (rc != ETIMEDOUT) HOT_OK(rc);
        HOT_RC(pthread_mutex_unlock(&race->mutex), rc == 0 ? 0 : EPERM);
        gate_open(&race->done);
    }
}

/* Released at about the deadline: whatever the answer, it must be the truth. */
CHECK(mutex_timed, release_at_the_deadline_is_answered_truly)
{
    struct race race = {.mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP};
    pthread_t racer = thread_start(race_body, &race);
    for (int i = 0; i < RACES && !time_is_short(); i++) {
        HOT_OK(pthread_mutex_lock(&race.mutex));
        race.deadline = time_after_ms(CLOCK_MONOTONIC, 1);
        gate_open(&race.begin);
        while (time_missing_us(CLOCK_MONOTONIC, race.deadline) > 100 - i)
            ;
        HOT_OK(pthread_mutex_unlock(&race.mutex));
        gate_wait(&race.done, i + 1);
        HOT_OK(pthread_mutex_trylock(&race.mutex));
        HOT_OK(pthread_mutex_unlock(&race.mutex));
    }
    race.over = true;
    gate_open(&race.begin);
    thread_join(racer);
}

struct storm {
    pthread_mutex_t mutex;
    long inside;
    atomic_long successes;
    atomic_int tickets;
};

static void *storm_body(void *argument)
{
    struct storm *storm = argument;
    uint32_t random = atomic_fetch_add(&storm->tickets, 1) + 1;
    for (int i = 0; i < 400 && !time_is_short(); i++) {
        const struct way *way = ways[random_next(&random) % 3];
        struct timespec deadline = time_after_ms(way->clock, random_next(&random) % 3);
        int rc = lock_until(way, &storm->mutex, deadline);
        if (rc == ETIMEDOUT) {
            if (!time_reached(way->clock, deadline)) FAIL("%s timed out early", way->name);
            continue;
        }
        HOT_OK(rc);
        long seen = storm->inside;
        if (random_next(&random) % 8 == 0) nap_us(random_next(&random) % 1500);
        storm->inside = seen + 1;
        HOT_OK(pthread_mutex_unlock(&storm->mutex));
        atomic_fetch_add(&storm->successes, 1);
    }
    return NULL;
}

CHECK(mutex_timed, storm_of_timeouts_loses_nothing)
{
    struct storm storm = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    threads_run(8, storm_body, &storm);
    CHECK_EQ(storm.inside, atomic_load(&storm.successes));
    CHECK_OK(trylock_elsewhere(&storm.mutex));
    CHECK_OK(pthread_mutex_destroy(&storm.mutex));
}
