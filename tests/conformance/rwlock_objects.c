/* Readers-writer locks: initialisers, attributes, many of them, the old names, errno, locks between processes. */
#include "rwlock.h"

#include <sys/mman.h>
#include <sys/wait.h>

/* ---- Initialisers and attributes ---- */

static pthread_rwlock_t zeroed;
static pthread_rwlock_t writers_first = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

CHECK(rwlock, zeroed_memory_is_a_free_lock)
{
    rw_is_free(&zeroed);
    rw_check_excludes(&zeroed, 4, 30, pthread_rwlock_rdlock, pthread_rwlock_wrlock);
}

CHECK(rwlock, static_initialiser_of_kind_2_prefers_writers)
{
    struct rw_user reader, writer;
    rw_is_free(&writers_first);
    rw_start_held(&reader, &writers_first, pthread_rwlock_rdlock);
    rw_start(&writer, &writers_first, pthread_rwlock_wrlock);
    while (rw_elsewhere(pthread_rwlock_tryrdlock, &writers_first) == 0) nap_us(100); /* until the writer has come */
    rw_finish(&reader);
    gate_wait(&writer.got, 1);
    rw_finish(&writer);
    rw_is_free(&writers_first);
}

CHECK(rwlock, a_destroyed_lock_can_be_initialised_again)
{
    pthread_rwlock_t lock;
    for (int i = 0; i < 1000; i++) {
        rw_make(&lock, i % 3);
        CHECK_OK(pthread_rwlock_rdlock(&lock));
        CHECK_OK(pthread_rwlock_unlock(&lock));
        CHECK_OK(pthread_rwlock_wrlock(&lock));
        CHECK_OK(pthread_rwlock_unlock(&lock));
        CHECK_OK(pthread_rwlock_destroy(&lock));
        memset(&lock, 0xa5, sizeof lock);
    }
}

CHECK(rwlock, a_lock_may_lie_anywhere_its_alignment_allows)
{
    static char memory[4096] __attribute__((aligned(64)));
    for (size_t at = 0; at < 128; at += _Alignof(pthread_rwlock_t)) {
        pthread_rwlock_t *lock = (pthread_rwlock_t *)(memory + at);
        memset(memory, 0, sizeof memory);
        rw_check_excludes(lock, 2, 3, pthread_rwlock_rdlock, pthread_rwlock_wrlock);
        for (size_t i = 0; i < sizeof memory; i++)
            CHECK_TRUE(memory[i] == 0 || (i >= at && i < at + sizeof *lock), "byte %zu beside a lock at %zu", i, at);
    }
}

CHECK(rwlock, attributes_keep_what_they_are_told)
{
    pthread_rwlockattr_t attr;
    int value;
    CHECK_OK(pthread_rwlockattr_init(&attr));
    for (int kind = 0; kind < 3; kind++) {
        CHECK_OK(pthread_rwlockattr_setkind_np(&attr, kind));
        CHECK_OK(pthread_rwlockattr_getkind_np(&attr, &value));
        CHECK_EQ(value, kind);
    }
    CHECK_RC(pthread_rwlockattr_setkind_np(&attr, 3), EINVAL);
    CHECK_OK(pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    CHECK_OK(pthread_rwlockattr_getpshared(&attr, &value));
    CHECK_EQ(value, PTHREAD_PROCESS_SHARED);
    CHECK_OK(pthread_rwlockattr_destroy(&attr));
}

/* ---- Many ---- */

CHECK(rwlock, a_thread_reads_many_locks_at_once)
{
    static pthread_rwlock_t locks[1000];
    for (int i = 0; i < 1000; i++) CHECK_OK(pthread_rwlock_rdlock(&locks[i]));
    rw_is_read(&locks[0]);
    for (int i = 0; i < 1000; i += 2) CHECK_OK(pthread_rwlock_unlock(&locks[i]));
    for (int i = 999; i > 0; i -= 2) CHECK_OK(pthread_rwlock_unlock(&locks[i]));
    for (int i = 0; i < 1000; i += 50) rw_is_free(&locks[i]);
}

CHECK(rwlock, a_thread_reads_one_lock_many_times)
{
    for (int i = 0; i < 100000; i++) HOT_OK(pthread_rwlock_rdlock(&zeroed));
    rw_is_read(&zeroed);
    for (int i = 0; i < 100000; i++) HOT_OK(pthread_rwlock_unlock(&zeroed));
    rw_is_free(&zeroed);
}

CHECK(rwlock, locks_beside_each_other_are_apart)
{
    static pthread_rwlock_t locks[64];
    for (int i = 0; i < 64; i++) CHECK_OK(i % 2 ? pthread_rwlock_wrlock(&locks[i]) : pthread_rwlock_rdlock(&locks[i]));
    for (int i = 0; i < 64; i++) i % 2 ? rw_is_written(&locks[i]) : rw_is_read(&locks[i]);
    for (int i = 0; i < 64; i++) CHECK_OK(pthread_rwlock_unlock(&locks[i]));
    for (int i = 0; i < 64; i++) rw_is_free(&locks[i]);
}

/* glibc counts to 2^29, others to less: a lock that answers EAGAIN must count right until then, and go on to do so
 * afterwards. */
CHECK(rwlock, too_many_readers_are_refused)
{
    enum { FEW = 3 };
    long held = 0;
    int rc = 0;
    while (!time_is_short() && (rc = pthread_rwlock_rdlock(&zeroed)) == 0) held++;
    if (rc != 0) {
        CHECK_RC(rc, EAGAIN);
        for (int i = 0; i < FEW; i++) CHECK_RC(pthread_rwlock_rdlock(&zeroed), EAGAIN);
        for (int i = 0; i < FEW; i++) CHECK_RC(pthread_rwlock_tryrdlock(&zeroed), EAGAIN);
        CHECK_RC(pthread_rwlock_trywrlock(&zeroed), EBUSY);
        CHECK_OK(pthread_rwlock_unlock(&zeroed));
        CHECK_OK(pthread_rwlock_rdlock(&zeroed));
    }
    while (held-- > 0) HOT_OK(pthread_rwlock_unlock(&zeroed));
    rw_is_free(&zeroed);
}

/* ---- The old names ---- */

/* Programs linked long ago ask for this version; one that is linked today would not find the names without it. */
#ifdef __x86_64__
#define OLD(name)                                                                                   \
    int old_##name(pthread_rwlock_t *);                                                             \
    __asm__(".symver old_" #name ",__pthread_rwlock_" #name "@GLIBC_2.2.5");
OLD(rdlock)
OLD(wrlock)
OLD(unlock)
OLD(tryrdlock)
OLD(trywrlock)
OLD(destroy)
int old_init(pthread_rwlock_t *, void *);
__asm__(".symver old_init,__pthread_rwlock_init@GLIBC_2.2.5");

CHECK(rwlock, old_names_are_the_same_lock)
{
    pthread_rwlock_t lock;
    memset(&lock, 0xa5, sizeof lock);
    CHECK_OK(old_init(&lock, NULL));
    CHECK_OK(old_wrlock(&lock));
    rw_is_written(&lock);
    CHECK_RC(old_tryrdlock(&lock), EBUSY);
    CHECK_OK(old_unlock(&lock));
    CHECK_OK(old_rdlock(&lock));
    rw_is_read(&lock);
    CHECK_OK(old_tryrdlock(&lock));
    CHECK_RC(old_trywrlock(&lock), EBUSY);
    CHECK_OK(pthread_rwlock_unlock(&lock));
    CHECK_OK(old_unlock(&lock));
    rw_check_excludes(&lock, 4, 30, old_rdlock, pthread_rwlock_wrlock);
    rw_check_excludes(&lock, 4, 30, pthread_rwlock_rdlock, old_wrlock);
    CHECK_OK(old_destroy(&lock));
}
#endif

/* ---- errno ---- */

#define QUIET(call, expected)                                                                       \
    do {                                                                                            \
        errno = 4242;                                                                               \
        int result_ = (call), errno_ = errno;                                                       \
        CHECK_TRUE(result_ == (expected), "%s returned %s, expected %s", #call, code_name(result_), \
                   code_name(expected));                                                            \
        CHECK_TRUE(errno_ == 4242, "%s changed errno to %s", #call, code_name(errno_));             \
    } while (0)

CHECK(rwlock, errno_is_left_alone)
{
    struct timespec bad = {1, -1}, passed = {1, 0}, soon = time_after_ms(CLOCK_MONOTONIC, 5);
    struct rw_user user;
    QUIET(pthread_rwlock_rdlock(&zeroed), 0);
    QUIET(pthread_rwlock_trywrlock(&zeroed), EBUSY);
    QUIET(pthread_rwlock_timedwrlock(&zeroed, &passed), ETIMEDOUT);
    QUIET(pthread_rwlock_timedrdlock(&zeroed, &bad), EINVAL);
    QUIET(pthread_rwlock_unlock(&zeroed), 0);
    QUIET(pthread_rwlock_wrlock(&zeroed), 0);
    QUIET(pthread_rwlock_wrlock(&zeroed), EDEADLK);
    QUIET(pthread_rwlock_unlock(&zeroed), 0);
    rw_start_held(&user, &zeroed, pthread_rwlock_wrlock);
    QUIET(pthread_rwlock_clockrdlock(&zeroed, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
    soon = time_after_ms(CLOCK_MONOTONIC, 5);
    QUIET(pthread_rwlock_clockwrlock(&zeroed, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
    gate_open(&user.release);
    QUIET(pthread_rwlock_wrlock(&zeroed), 0); /* may have to wait */
    QUIET(pthread_rwlock_unlock(&zeroed), 0);
    QUIET(pthread_rwlock_destroy(&zeroed), 0);
    thread_join(user.thread);
}

/* ---- Between processes ---- */

struct common {
    pthread_rwlock_t lock;
    volatile long first, second;
};

static void use_common(struct common *c)
{
    for (int i = 0; i < 3000 && (i % 64 || !time_is_short()); i++) {
        HOT_OK(pthread_rwlock_wrlock(&c->lock));
        c->first++;
        if (i % 128 == 0) sched_yield();
        c->second++;
        HOT_OK(pthread_rwlock_unlock(&c->lock));
        HOT_OK(pthread_rwlock_rdlock(&c->lock));
        if (c->first != c->second) FAIL("a reader saw %ld and %ld", c->first, c->second);
        HOT_OK(pthread_rwlock_unlock(&c->lock));
    }
}

CHECK(rwlock, shared_excludes_between_processes)
{
    struct common *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_TRUE(c != MAP_FAILED, "mmap: %s", code_name(errno));
    pthread_rwlockattr_t attr;
    CHECK_OK(pthread_rwlockattr_init(&attr));
    CHECK_OK(pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    CHECK_OK(pthread_rwlock_init(&c->lock, &attr));
    pid_t pid = fork();
    if (pid == 0) {
        use_common(c);
        CHECK_OK(pthread_rwlock_rdlock(&c->lock));
        CHECK_RC(pthread_rwlock_trywrlock(&c->lock), EBUSY);
        CHECK_OK(pthread_rwlock_unlock(&c->lock));
        _exit(0);
    }
    use_common(c);
    CHECK_EQ(process_status(pid), 0);
    CHECK_EQ(c->first, c->second);
    struct timespec passed = {1, 0};
    CHECK_OK(pthread_rwlock_timedwrlock(&c->lock, &passed));
    CHECK_RC(pthread_rwlock_clockrdlock(&c->lock, CLOCK_MONOTONIC, &passed), EDEADLK);
    CHECK_OK(pthread_rwlock_unlock(&c->lock));
    CHECK_OK(pthread_rwlock_destroy(&c->lock));
}
