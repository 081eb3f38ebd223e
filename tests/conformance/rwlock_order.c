/* Readers-writer locks: which thread goes before which, where a program may rely on it. */
#include "rwlock.h"

/* ---- Readers that hold the lock already pass writers that wait ---- */

#define EVERY_RECURSIVE_KIND(title, kind)                                                           \
    CHECK(rwlock_order, title##_recursive_reader_passes_a_writer) { recursive(kind); }              \
    CHECK(rwlock_order, title##_recursive_reader_passes_ten_writers) { recursive_past_many(kind); } \
    CHECK(rwlock_order, title##_reader_that_another_reader_waits_for) { chained(kind, 1); }         \
    CHECK(rwlock_order, title##_readers_that_another_reader_waits_for) { chained(kind, 5); }        \
    CHECK(rwlock_order, title##_tryrdlock_passes_a_writer) { tries(kind); }                         \
    CHECK(rwlock_order, title##_late_reader_passes_a_writer) { late(kind); }

#define RECURSIVE_KINDS(M)                                                                          \
    M(static, RW_STATIC)                                                                            \
    M(kind_0, PTHREAD_RWLOCK_PREFER_READER_NP)                                                      \
    M(kind_1, PTHREAD_RWLOCK_PREFER_WRITER_NP)

static void recursive(int kind)
{
    pthread_rwlock_t lock;
    struct rw_user writer;
    rw_make(&lock, kind);
    CHECK_OK(pthread_rwlock_rdlock(&lock));
    rw_start(&writer, &lock, pthread_rwlock_wrlock);
    for (int i = 0; i < 100; i++) CHECK_OK(pthread_rwlock_rdlock(&lock));
    CHECK_TRUE(!rw_has_it(&writer), "a writer got in beside a reader");
    for (int i = 0; i < 101; i++) CHECK_OK(pthread_rwlock_unlock(&lock));
    gate_wait(&writer.got, 1);
    rw_finish(&writer);
    rw_is_free(&lock);
}

static void recursive_past_many(int kind)
{
    pthread_rwlock_t lock, others[20];
    struct rw_user writers[10];
    rw_make(&lock, kind);
    CHECK_OK(pthread_rwlock_rdlock(&lock));
    for (int i = 0; i < 10; i++) rw_start(&writers[i], &lock, pthread_rwlock_wrlock);
    /* It holds more locks than anybody could wish to remember. */
    for (int i = 0; i < 20; i++) {
        rw_make(&others[i], kind);
        CHECK_OK(pthread_rwlock_rdlock(&others[i]));
    }
    for (int i = 0; i < 3; i++) CHECK_OK(pthread_rwlock_rdlock(&lock));
    for (int i = 0; i < 20; i++) CHECK_OK(pthread_rwlock_unlock(&others[i]));
    for (int i = 0; i < 10; i++) CHECK_TRUE(!rw_has_it(&writers[i]), "a writer got in beside a reader");
    for (int i = 0; i < 4; i++) CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_finish_all(writers, 10);
    rw_is_free(&lock);
}

/* A reader waits, while it holds the lock, for others that have yet to get it, and a writer waits. */
static void chained(int kind, int count)
{
    pthread_rwlock_t lock;
    struct rw_user first, writer, others[5];
    rw_make(&lock, kind);
    rw_start_held(&first, &lock, pthread_rwlock_rdlock);
    rw_start(&writer, &lock, pthread_rwlock_wrlock);
    for (int i = 0; i < count; i++) rw_start(&others[i], &lock, pthread_rwlock_rdlock);
    for (int i = 0; i < count; i++) gate_wait(&others[i].got, 1);
    CHECK_TRUE(!rw_has_it(&writer), "a writer got in beside readers");
    rw_finish_all(others, count);
    rw_finish(&first);
    gate_wait(&writer.got, 1);
    rw_finish(&writer);
    rw_is_free(&lock);
}

static void tries(int kind)
{
    pthread_rwlock_t lock;
    struct rw_user writer;
    rw_make(&lock, kind);
    CHECK_OK(pthread_rwlock_rdlock(&lock));
    rw_start(&writer, &lock, pthread_rwlock_wrlock);
    for (int i = 0; i < 20; i++) CHECK_OK(rw_elsewhere(pthread_rwlock_tryrdlock, &lock));
    CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_finish(&writer);
}

static void *read_late(void *lock)
{
    struct timespec passed = {1, 0};
    CHECK_OK(pthread_rwlock_timedrdlock(lock, &passed));
    CHECK_OK(pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &passed));
    CHECK_OK(pthread_rwlock_unlock(lock));
    CHECK_OK(pthread_rwlock_unlock(lock));
    return NULL;
}

/* No thread holds it for writing, so a reader gets it, deadline or not. */
static void late(int kind)
{
    pthread_rwlock_t lock;
    struct rw_user writer;
    rw_make(&lock, kind);
    CHECK_OK(pthread_rwlock_rdlock(&lock));
    rw_start(&writer, &lock, pthread_rwlock_wrlock);
    for (int i = 0; i < 5; i++) thread_join(thread_start(read_late, &lock));
    CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_finish(&writer);
}

RECURSIVE_KINDS(EVERY_RECURSIVE_KIND)

/* ---- Where writers are preferred ---- */

CHECK(rwlock_order, kind_2_reader_waits_for_a_writer_that_waits)
{
    pthread_rwlock_t lock;
    struct rw_user reader, writer, late;
    rw_make(&lock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    rw_start_held(&reader, &lock, pthread_rwlock_rdlock);
    rw_start(&writer, &lock, pthread_rwlock_wrlock);
    while (rw_elsewhere(pthread_rwlock_tryrdlock, &lock) == 0) nap_us(100); /* until the writer has come */
    for (int i = 0; i < 20; i++) CHECK_RC(rw_elsewhere(pthread_rwlock_tryrdlock, &lock), EBUSY);
    struct timespec soon = time_after_ms(CLOCK_REALTIME, 20);
    rw_start(&late, &lock, pthread_rwlock_rdlock);
    CHECK_RC(pthread_rwlock_timedrdlock(&lock, &soon), ETIMEDOUT);
    CHECK_REACHED(CLOCK_REALTIME, soon);
    CHECK_TRUE(!rw_has_it(&late) && !rw_has_it(&writer), "somebody got in");
    rw_finish(&reader);
    gate_wait(&writer.got, 1);
    CHECK_TRUE(!rw_has_it(&late), "a reader got in beside a writer");
    rw_finish(&writer);
    gate_wait(&late.got, 1);
    rw_finish(&late);
    rw_is_free(&lock);
}

CHECK(rwlock_order, kind_2_readers_come_in_when_the_writer_gives_up)
{
    pthread_rwlock_t lock;
    struct rw_user reader, late[3];
    rw_make(&lock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    rw_start_held(&reader, &lock, pthread_rwlock_rdlock);
    struct timespec soon = time_after_ms(CLOCK_REALTIME, 60);
    for (int i = 0; i < 3; i++) rw_start(&late[i], &lock, pthread_rwlock_rdlock);
    CHECK_RC(pthread_rwlock_timedwrlock(&lock, &soon), ETIMEDOUT);
    for (int i = 0; i < 3; i++) gate_wait(&late[i].got, 1);
    rw_finish_all(late, 3);
    rw_finish(&reader);
    rw_is_free(&lock);
}

/* ---- No thread starves for ever ---- */

struct flood {
    pthread_rwlock_t lock;
    atomic_bool over;
};

static void *read_all_the_time(void *argument)
{
    struct flood *f = argument;
    while (!atomic_load(&f->over)) {
        HOT_OK(pthread_rwlock_rdlock(&f->lock));
        nap_us(100);
        HOT_OK(pthread_rwlock_unlock(&f->lock));
    }
    return NULL;
}

static void *write_all_the_time(void *argument)
{
    struct flood *f = argument;
    while (!atomic_load(&f->over)) {
        HOT_OK(pthread_rwlock_wrlock(&f->lock));
        HOT_OK(pthread_rwlock_unlock(&f->lock));
    }
    return NULL;
}

static void against(void *(*body)(void *), rw_call *call, int kind, int times)
{
    struct flood f = {.over = false};
    pthread_t threads[4];
    rw_make(&f.lock, kind);
    for (int i = 0; i < 4; i++) threads[i] = thread_start(body, &f);
    for (int i = 0; i < times && !time_is_short(); i++) {
        CHECK_OK(call(&f.lock));
        CHECK_OK(pthread_rwlock_unlock(&f.lock));
        nap_us(500);
    }
    atomic_store(&f.over, true);
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
    rw_is_free(&f.lock);
}

CHECK(rwlock_order, kind_2_writers_get_in_among_many_readers)
{
    against(read_all_the_time, pthread_rwlock_wrlock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, 50);
}

CHECK(rwlock_order, kind_0_readers_get_in_among_many_writers)
{
    against(write_all_the_time, pthread_rwlock_rdlock, PTHREAD_RWLOCK_PREFER_READER_NP, 50);
}

CHECK(rwlock_order, kind_2_readers_get_in_among_few_writers)
{
    struct flood f = {.over = false};
    rw_make(&f.lock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_t writer = thread_start(write_all_the_time, &f);
    for (int i = 0; i < 50 && !time_is_short(); i++) {
        CHECK_OK(pthread_rwlock_rdlock(&f.lock));
        CHECK_OK(pthread_rwlock_unlock(&f.lock));
    }
    atomic_store(&f.over, true);
    thread_join(writer);
}

/* glibc lets readers that overlap each other starve a writer for ever where readers are preferred; a replacement that
   claims better shows it here. */
CHECK(rwlock_order, kind_0_writers_get_in_among_many_readers)
{
    GLIBC_CANNOT("glibc's readers starve writers");
    against(read_all_the_time, pthread_rwlock_wrlock, PTHREAD_RWLOCK_PREFER_READER_NP, 50);
}

static void *read_for_long(void *argument)
{
    struct flood *f = argument;
    while (!atomic_load(&f->over)) {
        HOT_OK(pthread_rwlock_rdlock(&f->lock));
        nap_us(3000);
        HOT_OK(pthread_rwlock_unlock(&f->lock));
    }
    return NULL;
}

CHECK(rwlock_order, kind_0_writer_gets_in_among_readers_that_overlap_for_long)
{
    GLIBC_CANNOT("glibc's readers starve writers");
    against(read_for_long, pthread_rwlock_wrlock, PTHREAD_RWLOCK_PREFER_READER_NP, 5);
}
