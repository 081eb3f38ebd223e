/*
 * Readers-writer locks in slow motion: one thread, or two, stopped at any instruction of an acquisition, of one that
 * times out, or of a release, with two readers and two writers beside. See slow_crowd.h.
 */
#include "rwlock.h"
#include "slow_crowd.h"

static pthread_rwlock_t lock;
static atomic_int readers, writers;
static _Thread_local bool reads, writes; /* what this thread has to release */

static void now_reads(void)
{
    atomic_fetch_add(&readers, 1);
    if (atomic_load(&writers)) FAIL("a reader beside a writer");
    reads = true;
}

static void now_writes(void)
{
    if (atomic_fetch_add(&writers, 1) || atomic_load(&readers)) FAIL("a writer is not alone");
    writes = true;
}

static void about_to_release(void)
{
    if (reads) atomic_fetch_sub(&readers, 1);
    if (writes) atomic_fetch_sub(&writers, 1);
    reads = writes = false;
}

/* ---- What threads do ---- */

static void read_it(void)
{
    HOT_OK(pthread_rwlock_rdlock(&lock));
    now_reads();
}

static void write_it(void)
{
    HOT_OK(pthread_rwlock_wrlock(&lock));
    now_writes();
}

static void read_until_far(void)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    HOT_OK(pthread_rwlock_timedrdlock(&lock, &far));
    now_reads();
}

static void write_until_far(void)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    HOT_OK(pthread_rwlock_timedwrlock(&lock, &far));
    now_writes();
}

/* Out of time, unless the lock is to be had at once. */
static void read_or_not(void)
{
    struct timespec past = {1, 0};
    int rc = pthread_rwlock_timedrdlock(&lock, &past);
    if (rc == 0)
        now_reads();
    else
        HOT_RC(rc, ETIMEDOUT);
}

static void write_or_not(void)
{
    struct timespec past = {1, 0};
    int rc = pthread_rwlock_timedwrlock(&lock, &past);
    if (rc == 0)
        now_writes();
    else
        HOT_RC(rc, ETIMEDOUT);
}

static void release(void)
{
    if (!reads && !writes) return;
    about_to_release();
    HOT_OK(pthread_rwlock_unlock(&lock));
}

static void read_once(void)
{
    read_it();
    release();
}

static void write_once(void)
{
    write_it();
    release();
}

static const struct slow_deed deeds[] = {
    {"rdlock", NULL, read_it, release, false},
    {"timedrdlock", NULL, read_until_far, release, false},
    {"a reader's time-out", NULL, read_or_not, release, false},
    {"wrlock", NULL, write_it, release, false},
    {"timedwrlock", NULL, write_until_far, release, false},
    {"a writer's time-out", NULL, write_or_not, release, false},
    {"a reader's unlock", read_it, release, NULL, false},
    {"a writer's unlock", write_it, release, NULL, true},
};

static void must_be_free(void)
{
    HOT_OK(pthread_rwlock_trywrlock(&lock));
    HOT_OK(pthread_rwlock_unlock(&lock));
}

static void make_static(void)
{
    rw_make(&lock, RW_STATIC);
}

static void make_for_writers(void)
{
    rw_make(&lock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
}

#define SCENE(make)                                                                                             \
    {                                                                                                           \
        deeds, sizeof deeds / sizeof *deeds, make, {write_it, read_it}, release,                                \
            {read_once, write_once, read_once, write_once}, must_be_free                                        \
    }
static const struct slow_scene scene = SCENE(make_static), for_writers = SCENE(make_for_writers);

#define STOPPED(title, index)                                                                       \
    CHECK(slow_motion, rw_##title##_stopped_anywhere) { slow_one_stopped(&scene, index); }

STOPPED(rdlock, 0)
STOPPED(timedrdlock, 1)
STOPPED(time_out_of_a_reader, 2)
STOPPED(wrlock, 3)
STOPPED(timedwrlock, 4)
STOPPED(time_out_of_a_writer, 5)
STOPPED(unlock_of_a_reader, 6)
STOPPED(unlock_of_a_writer, 7)

CHECK(slow_motion, rw_reader_and_another_stopped_anywhere) { slow_two_stopped(&scene, 0, 2); }
CHECK(slow_motion, rw_writer_and_another_stopped_anywhere) { slow_two_stopped(&scene, 3, 5); }
CHECK(slow_motion, rw_unlock_and_another_stopped_anywhere) { slow_two_stopped(&scene, 6, 7); }

CHECK(slow_motion, rw_preferring_writers_unlock_and_another_stopped_anywhere)
{
    GLIBC_CANNOT("its writers with deadlines leave others asleep where writers are preferred");
    slow_two_stopped(&for_writers, 6, 7);
}
