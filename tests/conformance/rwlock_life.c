/* Readers-writer locks: their end, fork, threads that do not run, and use before main. */
#include "lost.h"
#include "rwlock.h"

#include <sys/mman.h>

/* ---- The last of N owners ends the lock ---- */

struct estate {
    pthread_rwlock_t lock;
    atomic_int heirs;
    volatile long value;
};

struct last_out {
    int kind, threads, rounds;
    bool unmap;
    int writers; /* of each ten */
    struct estate *estate;
    struct gate begin, left;
    bool over;
    atomic_int tickets;
};

static void *take_share(void *argument)
{
    struct last_out *l = argument;
    int me = atomic_fetch_add(&l->tickets, 1);
    for (int round = 1;; round++) {
        gate_wait(&l->begin, round);
        if (l->over) return NULL;
        struct estate *estate = l->estate;
        bool write = (me + round) % 10 < l->writers;
        HOT_OK(write ? pthread_rwlock_wrlock(&estate->lock) : pthread_rwlock_rdlock(&estate->lock));
        if (write) estate->value++;
        /* The thread that counts down last is alone with it once it has the lock for writing. */
        bool last = atomic_fetch_sub(&estate->heirs, 1) == 1;
        HOT_OK(pthread_rwlock_unlock(&estate->lock));
        if (last) {
            HOT_OK(pthread_rwlock_wrlock(&estate->lock));
            HOT_OK(pthread_rwlock_unlock(&estate->lock));
            HOT_OK(pthread_rwlock_destroy(&estate->lock));
            if (l->unmap)
                HOT_OK(munmap(estate, 4096));
            else
                memset(estate, 0xdb, 4096);
        }
        gate_open(&l->left);
    }
}

static void last_out_ends_it(struct last_out l)
{
    pthread_t threads[8];
    unsigned char *page = NULL;
    for (int i = 0; i < l.threads; i++) threads[i] = thread_start(take_share, &l);
    for (int round = 1; round <= l.rounds && !time_is_short(); round++) {
        if (l.unmap || !page) page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK_TRUE(page != MAP_FAILED, "mmap: %s", code_name(errno));
        l.estate = (struct estate *)page;
        rw_make(&l.estate->lock, l.kind);
        atomic_store(&l.estate->heirs, l.threads);
        l.estate->value = 0;
        gate_open(&l.begin);
        gate_wait(&l.left, round * l.threads);
        if (l.unmap) continue;
        for (int i = 0; i < 256; i++)
            if (page[i] != 0xdb) FAIL("byte %d of a dead lock was written: 0x%02x", i, page[i]);
    }
    l.over = true;
    gate_open(&l.begin);
    for (int i = 0; i < l.threads; i++) thread_join(threads[i]);
}

#define LIFE(title, kind_, end, threads_, unmap_, writers_)                                         \
    CHECK(rwlock_life, title##_##end)                                                               \
    {                                                                                               \
        last_out_ends_it((struct last_out){                                                         \
            .kind = kind_, .threads = threads_, .rounds = 2000, .unmap = unmap_, .writers = writers_}); \
    }
#define LIVES(title, kind)                                                                          \
    LIFE(title, kind, last_of_writers_unmaps_it, 4, true, 10)                                       \
    LIFE(title, kind, last_of_readers_unmaps_it, 4, true, 0)                                        \
    LIFE(title, kind, last_of_both_unmaps_it, 4, true, 5)                                           \
    LIFE(title, kind, last_of_eight_scribbles, 8, false, 3)

KINDS_RW(LIVES)

/* The owner that comes next destroys the lock as soon as it has it, while the one before is still in its unlock. */
struct relay {
    _Atomic(pthread_rwlock_t *) lock;
    struct gate held, gone;
    rw_call *first;
};

static void *hold_and_release(void *argument)
{
    struct relay *r = argument;
    for (int round = 1;; round++) {
        gate_wait(&r->held, 2 * round - 1);
        pthread_rwlock_t *lock = atomic_load(&r->lock);
        if (!lock) return NULL;
        HOT_OK(r->first(lock));
        gate_open(&r->held);
        sched_yield();
        HOT_OK(pthread_rwlock_unlock(lock));
        gate_open(&r->gone);
    }
}

static void next_owner_unmaps(rw_call *first, rw_call *next)
{
    struct relay r = {.first = first};
    pthread_t thread = thread_start(hold_and_release, &r);
    for (int round = 1; round <= 1500 && !time_is_short(); round++) {
        pthread_rwlock_t *lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        atomic_store(&r.lock, lock);
        gate_open(&r.held);
        gate_wait(&r.held, 2 * round);
        HOT_OK(next(lock));
        HOT_OK(pthread_rwlock_unlock(lock));
        HOT_OK(pthread_rwlock_destroy(lock));
        HOT_OK(munmap(lock, 4096));
        gate_wait(&r.gone, round);
    }
    atomic_store(&r.lock, NULL);
    gate_open(&r.held);
    thread_join(thread);
}

CHECK(rwlock_life, writer_after_a_writer_unmaps_it)
{
    next_owner_unmaps(pthread_rwlock_wrlock, pthread_rwlock_wrlock);
}

CHECK(rwlock_life, reader_after_a_writer_unmaps_it)
{
    next_owner_unmaps(pthread_rwlock_wrlock, pthread_rwlock_rdlock);
}

CHECK(rwlock_life, writer_after_a_reader_unmaps_it)
{
    next_owner_unmaps(pthread_rwlock_rdlock, pthread_rwlock_wrlock);
}

/* ---- Another thread releases a read lock ---- */

CHECK(rwlock_life, readers_may_be_released_by_another_thread)
{
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    for (int i = 0; i < 50; i++) {
        CHECK_OK(pthread_rwlock_rdlock(&lock));
        CHECK_OK(pthread_rwlock_rdlock(&lock));
        CHECK_OK(rw_elsewhere(pthread_rwlock_unlock, &lock));
        rw_is_read(&lock);
        CHECK_OK(rw_elsewhere(pthread_rwlock_unlock, &lock));
        rw_is_free(&lock);
    }
    /* Which this thread does not remember: it must still exclude, and be excluded. */
    struct rw_user writer;
    rw_start_held(&writer, &lock, pthread_rwlock_wrlock);
    struct timespec soon = time_after_ms(CLOCK_REALTIME, 10);
    CHECK_RC(pthread_rwlock_timedrdlock(&lock, &soon), ETIMEDOUT);
    rw_finish(&writer);
    CHECK_OK(pthread_rwlock_wrlock(&lock));
    rw_is_written(&lock);
    CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_check_excludes(&lock, 4, 30, pthread_rwlock_rdlock, pthread_rwlock_wrlock);
}

/* ---- fork ---- */

static void use_inherited(pthread_rwlock_t *lock)
{
    struct rw_user users[3];
    CHECK_OK(pthread_rwlock_unlock(lock));
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(i % 3 ? pthread_rwlock_rdlock(lock) : pthread_rwlock_wrlock(lock));
        CHECK_OK(pthread_rwlock_unlock(lock));
    }
    rw_is_free(lock);
    CHECK_OK(pthread_rwlock_wrlock(lock));
    for (int i = 0; i < 3; i++) rw_start(&users[i], lock, i % 2 ? pthread_rwlock_wrlock : pthread_rwlock_rdlock);
    CHECK_OK(pthread_rwlock_unlock(lock));
    rw_finish_all(users, 3);
    rw_check_excludes(lock, 4, 20, pthread_rwlock_rdlock, pthread_rwlock_wrlock);
    rw_is_free(lock);
    CHECK_OK(pthread_rwlock_destroy(lock));
}

static void fork_while(int kind, rw_call *mine, rw_call *theirs, int count)
{
    pthread_rwlock_t lock;
    struct rw_user waiters[10];
    rw_make(&lock, kind);
    CHECK_OK(mine(&lock));
    for (int i = 0; i < count; i++) rw_start(&waiters[i], &lock, theirs);
    for (int i = 0; i < 3 && !(i && time_is_short()); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            use_inherited(&lock);
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
    }
    for (int i = 0; i < count; i++) CHECK_TRUE(!rw_has_it(&waiters[i]), "the child's unlock let a waiter in");
    CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_finish_all(waiters, count);
    rw_check_excludes(&lock, 4, 20, pthread_rwlock_rdlock, pthread_rwlock_wrlock);
}

/* A writer that is on its way in or out, at whatever instruction the fork finds it, holds nothing in the child. */
static void *try_in_vain(void *argument)
{
    struct rw_user *user = argument;
    gate_open(&user->got);
    while (!gate_count(&user->release)) {
        struct timespec past = {0, 0};
        CHECK_RC(pthread_rwlock_timedwrlock(user->lock, &past), ETIMEDOUT);
        CHECK_RC(pthread_rwlock_trywrlock(user->lock), EBUSY);
    }
    return NULL;
}

CHECK(rwlock_life, fork_while_a_writer_tries)
{
    GLIBC_CANNOT("glibc's waiters are left behind in the child");
    pthread_rwlock_t lock;
    struct rw_user writer = {.lock = &lock};
    rw_make(&lock, RW_STATIC);
    CHECK_OK(pthread_rwlock_rdlock(&lock));
    pthread_t thread = thread_start(try_in_vain, &writer);
    gate_wait(&writer.got, 1);
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK_OK(pthread_rwlock_tryrdlock(&lock));
            CHECK_OK(pthread_rwlock_unlock(&lock));
            CHECK_OK(pthread_rwlock_unlock(&lock));
            CHECK_OK(pthread_rwlock_trywrlock(&lock));
            CHECK_OK(pthread_rwlock_unlock(&lock));
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
    }
    gate_open(&writer.release);
    thread_join(thread);
    CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_is_free(&lock);
}

CHECK(rwlock_life, child_releases_the_parents_write_lock)
{
    GLIBC_CANNOT("glibc knows its writer by the thread's id, which is another in the child");
    fork_while(RW_STATIC, pthread_rwlock_wrlock, pthread_rwlock_rdlock, 0);
}

CHECK(rwlock_life, child_releases_the_parents_read_lock)
{
    fork_while(RW_STATIC, pthread_rwlock_rdlock, pthread_rwlock_wrlock, 0);
}

/* glibc's own waiters, being counted in the lock, make it unusable in the child. */
#define FORKS(title, kind)                                                                          \
    CHECK(rwlock_life, title##_fork_with_writers_waiting_for_a_writer)                              \
    {                                                                                               \
        GLIBC_CANNOT("glibc's waiters are left behind in the child");                                \
        fork_while(kind, pthread_rwlock_wrlock, pthread_rwlock_wrlock, 5);                          \
    }                                                                                               \
    CHECK(rwlock_life, title##_fork_with_readers_waiting_for_a_writer)                              \
    {                                                                                               \
        GLIBC_CANNOT("glibc's waiters are left behind in the child");                                \
        fork_while(kind, pthread_rwlock_wrlock, pthread_rwlock_rdlock, 5);                          \
    }                                                                                               \
    CHECK(rwlock_life, title##_fork_with_writers_waiting_for_a_reader)                              \
    {                                                                                               \
        GLIBC_CANNOT("glibc's waiters are left behind in the child");                                \
        fork_while(kind, pthread_rwlock_rdlock, pthread_rwlock_wrlock, 5);                          \
    }

KINDS_RW(FORKS)

/* ---- Waiters that do not run: frozen in a signal handler ---- */

static struct gate frozen, thaw;

static void freeze(int signal)
{
    (void)signal;
    gate_open(&frozen);
    gate_wait(&thaw, 1);
}

/* A thread waits and is frozen; the lock is released; others use it, as often as they like. */
static void frozen_waiter(int kind, rw_call *holder, rw_call *waiter)
{
    pthread_rwlock_t lock;
    struct rw_user held, stuck;
    struct sigaction action = {.sa_handler = freeze};
    rw_make(&lock, kind);
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    rw_start_held(&held, &lock, holder);
    rw_start(&stuck, &lock, waiter);
    CHECK_OK(pthread_kill(stuck.thread, SIGUSR1));
    gate_wait(&frozen, 1);
    rw_finish(&held);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(rw_elsewhere(pthread_rwlock_rdlock, &lock));
        CHECK_OK(rw_elsewhere(pthread_rwlock_wrlock, &lock));
    }
    gate_open(&thaw);
    gate_wait(&stuck.got, 1);
    rw_finish(&stuck);
    rw_is_free(&lock);
}

CHECK(rwlock_life, frozen_writer_behind_a_writer_stops_nobody)
{
    frozen_waiter(RW_STATIC, pthread_rwlock_wrlock, pthread_rwlock_wrlock);
}

CHECK(rwlock_life, frozen_reader_behind_a_writer_stops_no_reader)
{
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    struct rw_user held, stuck;
    struct sigaction action = {.sa_handler = freeze};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    rw_start_held(&held, &lock, pthread_rwlock_wrlock);
    rw_start(&stuck, &lock, pthread_rwlock_rdlock);
    CHECK_OK(pthread_kill(stuck.thread, SIGUSR1));
    gate_wait(&frozen, 1);
    rw_finish(&held);
    for (int i = 0; i < 50; i++) CHECK_OK(rw_elsewhere(pthread_rwlock_rdlock, &lock));
    gate_open(&thaw);
    rw_finish(&stuck);
    rw_is_free(&lock);
}

/* A thread whose wait is interrupted by signals goes on waiting. */
static void note(int signal)
{
    (void)signal;
}

static void interrupted(rw_call *waiter)
{
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    struct rw_user user;
    struct sigaction action = {.sa_handler = note};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_OK(pthread_rwlock_wrlock(&lock));
    rw_start(&user, &lock, waiter);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(pthread_kill(user.thread, SIGUSR1));
        nap_us(100);
    }
    CHECK_TRUE(!rw_has_it(&user), "a signal let a waiter in");
    CHECK_OK(pthread_rwlock_unlock(&lock));
    rw_finish(&user);
    rw_is_free(&lock);
}

CHECK(rwlock_life, signals_do_not_end_a_wait_for_reading) { interrupted(pthread_rwlock_rdlock); }

CHECK(rwlock_life, signals_do_not_end_a_wait_for_writing) { interrupted(pthread_rwlock_wrlock); }

/* ---- Before main ---- */

static pthread_rwlock_t early = PTHREAD_RWLOCK_INITIALIZER;
static int early_rc[3];

__attribute__((constructor(101))) static void before_main(void)
{
    early_rc[0] = pthread_rwlock_rdlock(&early);
    early_rc[1] = pthread_rwlock_unlock(&early);
    early_rc[2] = pthread_rwlock_wrlock(&early);
}

CHECK(rwlock_life, locked_before_main)
{
    for (int i = 0; i < 3; i++) CHECK_OK(early_rc[i]);
    rw_is_written(&early);
    CHECK_OK(pthread_rwlock_unlock(&early));
    rw_is_free(&early);
}

/* ---- Threads that come and go ---- */

static void *pass_through(void *lock)
{
    HOT_OK(pthread_rwlock_rdlock(lock));
    HOT_OK(pthread_rwlock_unlock(lock));
    HOT_OK(pthread_rwlock_wrlock(lock));
    HOT_OK(pthread_rwlock_unlock(lock));
    return NULL;
}

CHECK(rwlock_life, many_short_threads)
{
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    for (int i = 0; i < 200 && !time_is_short(); i++) threads_run(8, pass_through, &lock);
    rw_is_free(&lock);
}

CHECK(rwlock_life, a_hundred_waiters)
{
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_t threads[100];
    CHECK_OK(pthread_rwlock_wrlock(&lock));
    for (int i = 0; i < 100; i++) threads[i] = thread_start(pass_through, &lock);
    nap_ms(20);
    CHECK_OK(pthread_rwlock_unlock(&lock));
    for (int i = 0; i < 100; i++) thread_join(threads[i]);
    rw_is_free(&lock);
}

/* ---- A lock that is moved in memory while nobody uses it, as by realloc (undefined in POSIX; glibc works) ---- */

static void *read_often(void *lock)
{
    for (int i = 0; i < 100000 && !time_is_short(); i++) {
        HOT_OK(pthread_rwlock_rdlock(lock));
        for (volatile int j = 0; j < 20; j++) continue;
        HOT_OK(pthread_rwlock_unlock(lock));
    }
    return NULL;
}

static void *write_once(void *lock)
{
    CHECK_OK(pthread_rwlock_wrlock(lock));
    CHECK_OK(pthread_rwlock_unlock(lock));
    return NULL;
}

CHECK(rwlock_life, copies_are_locks_of_their_own)
{
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER, copy;
    threads_run(8, read_often, &lock);
    memcpy(&copy, &lock, sizeof copy);
    CHECK_OK(pthread_rwlock_rdlock(&lock));
    threads_run(2, write_once, &copy);
    CHECK_OK(pthread_rwlock_rdlock(&copy));
    CHECK_RC(pthread_rwlock_trywrlock(&copy), EBUSY);
    CHECK_OK(pthread_rwlock_unlock(&lock));
    CHECK_OK(pthread_rwlock_trywrlock(&lock));
    CHECK_OK(pthread_rwlock_unlock(&lock));
    CHECK_OK(pthread_rwlock_unlock(&copy));
    threads_run(8, read_often, &copy);
    threads_run(2, write_once, &copy);
    rw_is_free(&copy);
    rw_is_free(&lock);
}

CHECK(rwlock_life, moved_while_others_are_made)
{
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER, moved, other = PTHREAD_RWLOCK_INITIALIZER;
    threads_run(8, read_often, &lock);
    memcpy(&moved, &lock, sizeof moved);
    CHECK_OK(pthread_rwlock_destroy(&lock));
    threads_run(8, read_often, &other);
    CHECK_OK(pthread_rwlock_rdlock(&other));
    threads_run(2, write_once, &moved);
    CHECK_OK(pthread_rwlock_unlock(&other));
    threads_run(8, read_often, &moved);
    rw_is_free(&moved);
    rw_is_free(&other);
}

/* ---- Threads blocked for good on a lock whose memory is gone ---- */

static void hold_written(void *object)
{
    rw_make(object, RW_STATIC);
    CHECK_OK(pthread_rwlock_wrlock(object));
}

static void hold_read(void *object)
{
    rw_make(object, RW_STATIC);
    CHECK_OK(pthread_rwlock_rdlock(object));
}

static void hold_read_for_writers(void *object)
{
    rw_make(object, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    CHECK_OK(pthread_rwlock_rdlock(object));
}

static int read_for_ever(void *object, int me)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return me % 2 ? pthread_rwlock_timedrdlock(object, &far) : pthread_rwlock_rdlock(object);
}

static int write_for_ever(void *object, int me)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return me % 2 ? pthread_rwlock_timedwrlock(object, &far) : pthread_rwlock_wrlock(object);
}

static int wait_for_ever(void *object, int me)
{
    return me % 3 ? read_for_ever(object, me) : write_for_ever(object, me);
}

static int write_then_read(void *object, int me)
{
    /* Readers wait behind a writer that waits. */
    if (me > 0) nap_ms(50);
    return me > 0 ? read_for_ever(object, me) : write_for_ever(object, me);
}

static void unlock_once(void *object)
{
    CHECK_OK(pthread_rwlock_unlock(object));
}

/* One of them, or some readers, have their turn first, and keep the lock. */
static int wait_and_keep(void *object, int me)
{
    CHECK_OK(me % 2 ? pthread_rwlock_rdlock(object) : pthread_rwlock_wrlock(object));
    for (;;) pause();
}

static const struct lost lost_after_a_turn = {hold_written, wait_and_keep, unlock_once};
static const struct lost lost_by_readers = {hold_written, read_for_ever, NULL};
static const struct lost lost_by_writers = {hold_read, write_for_ever, NULL};
static const struct lost lost_by_both = {hold_written, wait_for_ever, NULL};
static const struct lost lost_behind_a_writer = {hold_read_for_writers, write_then_read, NULL};

#define LOST(who, object, count)                                                                    \
    CHECK(rwlock_life, memory_gone_under_##who) { lost_and_gone(object, count); }                   \
    CHECK(rwlock_life, memory_reused_under_##who) { lost_and_reused(object, count); }

LOST(a_reader, &lost_by_readers, 1)
LOST(readers, &lost_by_readers, 4)
LOST(a_writer, &lost_by_writers, 1)
LOST(writers, &lost_by_writers, 4)
LOST(both, &lost_by_both, 7)
LOST(readers_behind_a_writer, &lost_behind_a_writer, 4)
LOST(both_after_a_turn, &lost_after_a_turn, 6)
