/* Readers-writer locks: what every call answers, for every kind, and when; the lock excludes. */
#include "rwlock.h"

/* ---- Every kind ---- */

#define EVERY_KIND(title, kind)                                                                     \
    CHECK(rwlock, title##_reads_and_writes) { reads_and_writes(kind); }                             \
    CHECK(rwlock, title##_readers_share_and_writers_do_not) { shares(kind); }                       \
    CHECK(rwlock, title##_writer_is_told_of_its_deadlock) { own_deadlock(kind); }                   \
    CHECK(rwlock, title##_times_out) { times_out(kind); }                                           \
    CHECK(rwlock, title##_gets_a_free_lock_after_the_deadline) { late_but_free(kind); }             \
    CHECK(rwlock, title##_refuses_nonsense) { nonsense(kind); }                                     \
    CHECK(rwlock, title##_excludes) { excludes(kind, 4); }                                          \
    CHECK(rwlock, title##_excludes_32_threads) { excludes(kind, 32); }                              \
    CHECK(rwlock, title##_excludes_with_deadlines) { timed_excludes(kind); }                        \
    CHECK(rwlock, title##_excludes_with_trylocks) { try_excludes(kind); }

static void reads_and_writes(int kind)
{
    pthread_rwlock_t lock;
    rw_make(&lock, kind);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(pthread_rwlock_rdlock(&lock));
        rw_is_read(&lock);
        CHECK_OK(pthread_rwlock_unlock(&lock));
        CHECK_OK(pthread_rwlock_tryrdlock(&lock));
        rw_is_read(&lock);
        CHECK_OK(pthread_rwlock_unlock(&lock));
        CHECK_OK(pthread_rwlock_wrlock(&lock));
        rw_is_written(&lock);
        CHECK_OK(pthread_rwlock_unlock(&lock));
        CHECK_OK(pthread_rwlock_trywrlock(&lock));
        rw_is_written(&lock);
        CHECK_OK(pthread_rwlock_unlock(&lock));
        rw_is_free(&lock);
    }
    CHECK_OK(pthread_rwlock_destroy(&lock));
}

static void shares(int kind)
{
    pthread_rwlock_t lock;
    struct rw_user readers[5], writer;
    rw_make(&lock, kind);
    for (int i = 0; i < 5; i++) rw_start_held(&readers[i], &lock, pthread_rwlock_rdlock);
    rw_start(&writer, &lock, pthread_rwlock_wrlock);
    for (int i = 0; i < 5; i++) {
        CHECK_TRUE(!rw_has_it(&writer), "a writer got in beside %d readers", 5 - i);
        rw_finish(&readers[i]);
    }
    gate_wait(&writer.got, 1);
    for (int i = 0; i < 5; i++) rw_start(&readers[i], &lock, pthread_rwlock_rdlock);
    for (int i = 0; i < 5; i++) CHECK_TRUE(!rw_has_it(&readers[i]), "a reader got in beside a writer");
    rw_finish(&writer);
    for (int i = 0; i < 5; i++) gate_wait(&readers[i].got, 1); /* all at once */
    for (int i = 0; i < 5; i++) rw_finish(&readers[i]);
    rw_is_free(&lock);
    CHECK_OK(pthread_rwlock_destroy(&lock));
}

static void own_deadlock(int kind)
{
    pthread_rwlock_t lock;
    struct timespec far = time_far(CLOCK_REALTIME), far_monotonic = time_far(CLOCK_MONOTONIC);
    rw_make(&lock, kind);
    CHECK_OK(pthread_rwlock_wrlock(&lock));
    CHECK_RC(pthread_rwlock_wrlock(&lock), EDEADLK);
    CHECK_RC(pthread_rwlock_rdlock(&lock), EDEADLK);
    CHECK_RC(pthread_rwlock_timedwrlock(&lock, &far), EDEADLK);
    CHECK_RC(pthread_rwlock_timedrdlock(&lock, &far), EDEADLK);
    CHECK_RC(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &far_monotonic), EDEADLK);
    CHECK_RC(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &far_monotonic), EDEADLK);
    CHECK_RC(pthread_rwlock_trywrlock(&lock), EBUSY);
    CHECK_RC(pthread_rwlock_tryrdlock(&lock), EBUSY);
    rw_is_written(&lock);
    CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_is_free(&lock);
    /* Not any more. */
    CHECK_OK(pthread_rwlock_rdlock(&lock));
    CHECK_OK(pthread_rwlock_rdlock(&lock));
    CHECK_OK(pthread_rwlock_unlock(&lock));
    CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_is_free(&lock);
}

/* How a check acquires with a deadline. */
struct way {
    clockid_t clock;
    bool clocked, write;
};
static const struct way ways[] = {
    {CLOCK_REALTIME, false, false}, {CLOCK_REALTIME, true, false}, {CLOCK_MONOTONIC, true, false},
    {CLOCK_REALTIME, false, true},  {CLOCK_REALTIME, true, true},  {CLOCK_MONOTONIC, true, true},
};
#define WAYS(i) for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)

static int acquire(const struct way *way, pthread_rwlock_t *lock, struct timespec until)
{
    if (way->clocked)
        return way->write ? pthread_rwlock_clockwrlock(lock, way->clock, &until)
                          : pthread_rwlock_clockrdlock(lock, way->clock, &until);
    return way->write ? pthread_rwlock_timedwrlock(lock, &until) : pthread_rwlock_timedrdlock(lock, &until);
}

static void must_time_out(const struct way *way, pthread_rwlock_t *lock)
{
    struct timespec until = time_after_ms(way->clock, 15);
    CHECK_RC(acquire(way, lock, until), ETIMEDOUT);
    CHECK_REACHED(way->clock, until);
    until = (struct timespec){1, 0};
    CHECK_RC(acquire(way, lock, until), ETIMEDOUT);
    until = (struct timespec){-1, 0};
    CHECK_RC(acquire(way, lock, until), ETIMEDOUT);
}

static void times_out(int kind)
{
    pthread_rwlock_t lock;
    struct rw_user user;
    rw_make(&lock, kind);
    rw_start_held(&user, &lock, pthread_rwlock_wrlock);
    WAYS(i) must_time_out(&ways[i], &lock);
    rw_is_written(&lock);
    rw_finish(&user);
    rw_start_held(&user, &lock, pthread_rwlock_rdlock);
    WAYS(i) if (ways[i].write) must_time_out(&ways[i], &lock);
    rw_is_read(&lock); /* no thread waits any more */
    rw_finish(&user);
    rw_is_free(&lock);
    CHECK_OK(pthread_rwlock_destroy(&lock));
}

static void late_but_free(int kind)
{
    pthread_rwlock_t lock;
    rw_make(&lock, kind);
    WAYS(i)
    {
        const struct timespec deadlines[] = {time_far(ways[i].clock), {1, 0}, {-1, 0}};
        for (int d = 0; d < 3; d++) {
            CHECK_OK(acquire(&ways[i], &lock, deadlines[d]));
            if (ways[i].write)
                rw_is_written(&lock);
            else
                rw_is_read(&lock);
            CHECK_OK(pthread_rwlock_unlock(&lock));
        }
    }
    rw_is_free(&lock);
}

/* Unlike a mutex, a readers-writer lock looks at the deadline first. */
static void nonsense(int kind)
{
    static const struct timespec bad[] = {{1, -1}, {1, 1000000000}};
    pthread_rwlock_t lock;
    struct timespec far = time_far(CLOCK_REALTIME);
    rw_make(&lock, kind);
    WAYS(i)
    {
        CHECK_RC(acquire(&ways[i], &lock, bad[0]), EINVAL);
        CHECK_RC(acquire(&ways[i], &lock, bad[1]), EINVAL);
    }
    static const clockid_t clocks[] = {CLOCK_PROCESS_CPUTIME_ID, -1, 99};
    for (int i = 0; i < 3; i++) {
        CHECK_RC(pthread_rwlock_clockrdlock(&lock, clocks[i], &far), EINVAL);
        CHECK_RC(pthread_rwlock_clockwrlock(&lock, clocks[i], &far), EINVAL);
    }
    rw_is_free(&lock);
}

static void excludes(int kind, int threads)
{
    pthread_rwlock_t lock;
    rw_make(&lock, kind);
    rw_check_excludes(&lock, threads, 60, pthread_rwlock_rdlock, pthread_rwlock_wrlock);
    rw_is_free(&lock);
    CHECK_OK(pthread_rwlock_destroy(&lock));
}

/* With a deadline that passes now and then, after which it tries again. */
static int insist(int (*timed)(pthread_rwlock_t *, clockid_t, const struct timespec *), pthread_rwlock_t *lock)
{
    for (int rc;;) {
        struct timespec until = time_after_ms(CLOCK_MONOTONIC, 0);
        until.tv_nsec += 50000;
        if (until.tv_nsec >= 1000000000) until = time_after_ms(CLOCK_MONOTONIC, 1);
        if ((rc = timed(lock, CLOCK_MONOTONIC, &until)) != ETIMEDOUT) return rc;
    }
}

static int insist_read(pthread_rwlock_t *lock)
{
    return insist(pthread_rwlock_clockrdlock, lock);
}

static int insist_write(pthread_rwlock_t *lock)
{
    return insist(pthread_rwlock_clockwrlock, lock);
}

/* With these kinds, a glibc writer whose deadline passes hands its turn to another writer. That one may find the write
   phase already begun, and not wait for the last reader to say so: the reader then says so after the phase is over, and
   all that come after wait for its end. */
static bool glibc_may_hang(int kind)
{
    return kind == PTHREAD_RWLOCK_PREFER_WRITER_NP || kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
}

static void timed_excludes(int kind)
{
    if (glibc_may_hang(kind))
        GLIBC_CANNOT("glibc's writers, when they prefer each other and have deadlines, may leave all threads waiting");
    pthread_rwlock_t lock;
    rw_make(&lock, kind);
    rw_check_excludes(&lock, 8, 80, insist_read, insist_write);
    rw_is_free(&lock);
}

static int try_read(pthread_rwlock_t *lock)
{
    while (pthread_rwlock_tryrdlock(lock) == EBUSY) sched_yield();
    return 0;
}

static int try_write(pthread_rwlock_t *lock)
{
    for (int i = 0; i < 20; i++) {
        if (pthread_rwlock_trywrlock(lock) == 0) return 0;
        sched_yield();
    }
    return pthread_rwlock_wrlock(lock);
}

static void try_excludes(int kind)
{
    pthread_rwlock_t lock;
    rw_make(&lock, kind);
    rw_check_excludes(&lock, 4, 60, try_read, try_write);
    rw_is_free(&lock);
}

KINDS_RW(EVERY_KIND)
