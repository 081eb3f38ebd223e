/*
 * Locks with one fault, on purpose: what the suite must find out. To be preloaded; FAULT names the fault. With one that
 * begins with cond-, sem-, rw- or own-mutex- condition variables, semaphores, readers-writer locks or mutexes are this
 * file's own; all else is glibc's, with something done before or after. `cargo xtask conformance` says which check must
 * find which fault.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>
#else
static const char __libc_single_threaded = 0;
#endif

#define EXPORT __attribute__((visibility("default")))
/* Looked up once a place: a thread in slow motion must not stop others that look something up. */
#define REAL(name)                                                          \
    ({                                                                      \
        static _Atomic(void *) found;                                       \
        if (!atomic_load(&found)) atomic_store(&found, real(#name));        \
        (__typeof__(&name))atomic_load(&found);                             \
    })

static const char *const faults[] = {
    "none",
    "cond-right",
    "cond-waiter-counts-itself-late",
    "cond-time-out-swallows-a-signal",
    "cond-waiter-looks-late",
    "cond-two-signals-count-as-one",
    "signal-waits-for-its-threads-unlock",
    "sem-right",
    "sem-post-wakes-only-the-first",
    "sem-private-only",
    "sem-destroy-leaves-mark",
    "rw-right",
    "rw-waiter-looks-late",
    "rw-two-unlocks-count-as-one",
    "own-mutex-right",
    "own-mutex-alone-too-long",
    "own-mutex-time-out-forgets-others",
    "own-mutex-unlock-looks-early",
    "own-mutex-unlock-waits-for-arrivals",
    "own-mutex-knows-its-process",
    "mutex-destroyed-while-in-use",
    "mutex-not-robust",
    "mutex-hides-its-owner",
    "mutex-unlock-leaves-its-owner",
    "mutex-try-says-again",
    "lock-allocates",
    "lock-maps-memory",
    "lock-opens-a-file",
    "lock-sets-errno",
    "lock-writes-behind-the-mutex",
    "release-looks-back",
    "sleepers-look",
    "spin-excludes-nobody",
    "takes-a-key",
};

static const char *fault = "none";

static bool has(const char *name)
{
    return strcmp(fault, name) == 0;
}

static bool is_of(const char *family)
{
    return strncmp(fault, family, strlen(family)) == 0;
}

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* Reads what has been released. */
static int looked_back(const volatile void *object, int result)
{
    if (has("release-looks-back")) (void)*(const volatile char *)object;
    return result;
}

/* Waits by `wait(object, until)`, and for ever: but now and then it looks at the object, which nobody has released. */
#define WAIT_AND_LOOK(wait, object)                                         \
    ({                                                                      \
        int rc_;                                                            \
        do {                                                                \
            struct timespec soon_;                                          \
            clock_gettime(CLOCK_REALTIME, &soon_);                          \
            soon_.tv_sec++;                                                 \
            rc_ = wait(object, &soon_);                                     \
        } while (rc_ == ETIMEDOUT);                                         \
        rc_;                                                                \
    })

__attribute__((constructor)) static void choose(void)
{
    const char *name = getenv("FAULT");
    for (size_t i = 0; name && i < sizeof faults / sizeof *faults; i++)
        if (strcmp(faults[i], name) == 0) fault = faults[i];
    if (!name || strcmp(fault, name) != 0) {
        fprintf(stderr, "faulty.so: FAULT is %s; it is one of:\n", name ? name : "not set");
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) fprintf(stderr, "  %s\n", faults[i]);
        _exit(2);
    }
    pthread_key_t key;
    if (has("takes-a-key")) pthread_key_create(&key, NULL);
}

/* ---- Futexes, and a lock that sleeps ---- */

typedef _Atomic unsigned word;

static long futex(word *at, int operation, unsigned value, const struct timespec *until)
{
    return syscall(SYS_futex, at, operation, value, until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static bool sleep_on(word *at, unsigned seen, const struct timespec *until, int flags)
{
    int saved = errno;
    bool in_time = futex(at, FUTEX_WAIT_BITSET | flags, seen, until) == 0 || errno != ETIMEDOUT;
    errno = saved;
    return in_time;
}

static void wake(word *at, int count, int flags)
{
    futex(at, FUTEX_WAKE | flags, count, NULL);
}

static void enter(word *lock)
{
    unsigned seen = 0;
    if (atomic_compare_exchange_strong(lock, &seen, 1)) return;
    while (atomic_exchange(lock, 2) != 0) sleep_on(lock, 2, NULL, FUTEX_PRIVATE_FLAG);
}

static void leave(word *lock)
{
    if (atomic_exchange(lock, 0) == 2) wake(lock, 1, FUTEX_PRIVATE_FLAG);
}

/* ---- Condition variables: so many wait, and so many of them may go on ---- */

struct cond {
    word lock, turn, waiters, signals;
};

/* Some hundred instructions, so that few of all pairs of places are enough to meet them. */
static void dawdle(void)
{
    for (volatile int i = 0; i < 20; i++) continue;
}

/* Two at once count as one, unless they are in a lock. */
static void one_more(word *count)
{
    unsigned seen = atomic_load(count);
    dawdle();
    atomic_store(count, seen + 1);
}

static int cond_wait(struct cond *c, pthread_mutex_t *mutex, const struct timespec *until)
{
    bool counts_late = has("cond-waiter-counts-itself-late"), looks_late = has("cond-waiter-looks-late");
    if (counts_late) pthread_mutex_unlock(mutex);
    enter(&c->lock);
    one_more(&c->waiters);
    unsigned turn = atomic_load(&c->turn);
    leave(&c->lock);
    if (!counts_late) pthread_mutex_unlock(mutex);
    if (looks_late) {
        dawdle();
        turn = atomic_load(&c->turn);
    }
    for (;;) {
        bool in_time = sleep_on(&c->turn, turn, until, FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
        enter(&c->lock);
        bool signalled = atomic_load(&c->signals) > 0;
        if (signalled) atomic_fetch_sub(&c->signals, 1);
        if (signalled || !in_time) atomic_fetch_sub(&c->waiters, 1);
        turn = atomic_load(&c->turn);
        leave(&c->lock);
        if (signalled || !in_time) {
            pthread_mutex_lock(mutex);
            return signalled && (in_time || !has("cond-time-out-swallows-a-signal")) ? 0 : ETIMEDOUT;
        }
    }
}

EXPORT int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *mutex)
{
    return is_of("cond-") ? cond_wait((struct cond *)c, mutex, NULL) : REAL(pthread_cond_wait)(c, mutex);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *mutex, const struct timespec *until)
{
    return is_of("cond-") ? cond_wait((struct cond *)c, mutex, until)
                          : REAL(pthread_cond_timedwait)(c, mutex, until);
}

/* Signals that wait until this thread unlocks a mutex. */
static _Thread_local pthread_cond_t *unsent;

EXPORT int pthread_cond_signal(pthread_cond_t *p)
{
    if (has("signal-waits-for-its-threads-unlock") && !unsent) {
        unsent = p;
        return 0;
    }
    if (!is_of("cond-")) return looked_back(p, REAL(pthread_cond_signal)(p));
    struct cond *c = (struct cond *)p;
    bool locks = !has("cond-two-signals-count-as-one");
    if (locks) enter(&c->lock);
    if (atomic_load(&c->waiters) > atomic_load(&c->signals)) {
        one_more(&c->signals);
        atomic_fetch_add(&c->turn, 1);
        wake(&c->turn, 1, FUTEX_PRIVATE_FLAG);
    }
    if (locks) leave(&c->lock);
    return 0;
}

EXPORT int pthread_cond_broadcast(pthread_cond_t *p)
{
    if (!is_of("cond-")) return looked_back(p, REAL(pthread_cond_broadcast)(p));
    struct cond *c = (struct cond *)p;
    enter(&c->lock);
    atomic_store(&c->signals, atomic_load(&c->waiters));
    atomic_fetch_add(&c->turn, 1);
    wake(&c->turn, 1 << 30, FUTEX_PRIVATE_FLAG);
    leave(&c->lock);
    return 0;
}

EXPORT int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *attributes)
{
    if (!is_of("cond-")) return REAL(pthread_cond_init)(c, attributes);
    memset(c, 0, sizeof *c);
    return 0;
}

EXPORT int pthread_cond_destroy(pthread_cond_t *c)
{
    return is_of("cond-") ? 0 : REAL(pthread_cond_destroy)(c);
}

/* ---- Semaphores ---- */

/* Where glibc's own initialisation does not write. */
struct sem {
    char glibcs[16];
    word value, waiters, mark;
};
enum { MARK = 0x5e3a };

static bool is_ours(sem_t *s)
{
    return is_of("sem-") && atomic_load(&((struct sem *)s)->mark) == MARK;
}

static int sem_flags(void)
{
    return has("sem-private-only") ? FUTEX_PRIVATE_FLAG : 0;
}

static int sem_take(struct sem *s, const struct timespec *until)
{
    for (;;) {
        unsigned value = atomic_load(&s->value);
        if (value > 0) {
            if (atomic_compare_exchange_strong(&s->value, &value, value - 1)) return 0;
            continue;
        }
        atomic_fetch_add(&s->waiters, 1);
        bool in_time = sleep_on(&s->value, 0, until, sem_flags() | FUTEX_CLOCK_REALTIME);
        atomic_fetch_sub(&s->waiters, 1);
        if (!in_time && atomic_load(&s->value) == 0) return errno = ETIMEDOUT, -1;
    }
}

EXPORT int sem_init(sem_t *s, int shared, unsigned value)
{
    if (!is_of("sem-")) return REAL(sem_init)(s, shared, value);
    memset(s, 0, sizeof *s);
    atomic_store(&((struct sem *)s)->value, value);
    atomic_store(&((struct sem *)s)->mark, MARK);
    return 0;
}

EXPORT int sem_destroy(sem_t *s)
{
    if (!is_ours(s)) return REAL(sem_destroy)(s);
    if (!has("sem-destroy-leaves-mark")) atomic_store(&((struct sem *)s)->mark, 0);
    return 0;
}

EXPORT int sem_trywait(sem_t *p)
{
    struct sem *s = (struct sem *)p;
    if (!is_ours(p)) return REAL(sem_trywait)(p);
    for (unsigned value = atomic_load(&s->value); value > 0;)
        if (atomic_compare_exchange_strong(&s->value, &value, value - 1)) return 0;
    return errno = EAGAIN, -1;
}

EXPORT int sem_getvalue(sem_t *restrict s, int *restrict value)
{
    if (!is_ours(s)) return REAL(sem_getvalue)(s, value);
    *value = (int)atomic_load(&((struct sem *)s)->value);
    return 0;
}

static int sem_wait_until(sem_t *s, const struct timespec *until)
{
    return REAL(sem_timedwait)(s, until) == 0 ? 0 : errno;
}

EXPORT int sem_wait(sem_t *s)
{
    if (has("sleepers-look")) return WAIT_AND_LOOK(sem_wait_until, s);
    return is_ours(s) ? sem_take((struct sem *)s, NULL) : REAL(sem_wait)(s);
}

EXPORT int sem_timedwait(sem_t *restrict s, const struct timespec *restrict until)
{
    return is_ours(s) ? sem_take((struct sem *)s, until) : REAL(sem_timedwait)(s, until);
}

EXPORT int sem_post(sem_t *p)
{
    if (!is_ours(p)) return looked_back(p, REAL(sem_post)(p));
    struct sem *s = (struct sem *)p;
    unsigned before = atomic_fetch_add(&s->value, 1);
    if (before > 0 && has("sem-post-wakes-only-the-first")) return 0;
    if (atomic_load(&s->waiters) > 0) wake(&s->value, 1, sem_flags());
    return 0;
}

/* ---- Readers-writer locks: a thread that finds it taken sleeps until it is released, and looks again ---- */

struct rw {
    word guard, turn, readers, writer;
};

static bool rw_take(struct rw *l, bool writes, unsigned *turn)
{
    enter(&l->guard);
    bool is_free = !atomic_load(&l->writer) && (!writes || !atomic_load(&l->readers));
    if (is_free) atomic_fetch_add(writes ? &l->writer : &l->readers, 1);
    *turn = atomic_load(&l->turn);
    leave(&l->guard);
    return is_free;
}

static int rw_wait(pthread_rwlock_t *lock, bool writes, const struct timespec *until)
{
    struct rw *l = (struct rw *)lock;
    for (unsigned turn; !rw_take(l, writes, &turn);) {
        if (has("rw-waiter-looks-late")) {
            dawdle();
            turn = atomic_load(&l->turn);
        }
        if (!sleep_on(&l->turn, turn, until, FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)) return ETIMEDOUT;
    }
    return 0;
}

static int rw_try(pthread_rwlock_t *lock, bool writes)
{
    unsigned turn;
    return rw_take((struct rw *)lock, writes, &turn) ? 0 : EBUSY;
}

static int rw_release(pthread_rwlock_t *lock)
{
    struct rw *l = (struct rw *)lock;
    bool guards = !has("rw-two-unlocks-count-as-one");
    if (guards) enter(&l->guard);
    if (atomic_load(&l->writer)) {
        atomic_store(&l->writer, 0);
    } else {
        unsigned seen = atomic_load(&l->readers);
        dawdle();
        atomic_store(&l->readers, seen - 1);
    }
    atomic_fetch_add(&l->turn, 1);
    if (guards) leave(&l->guard);
    wake(&l->turn, 1 << 30, FUTEX_PRIVATE_FLAG);
    return 0;
}

EXPORT int pthread_rwlock_init(pthread_rwlock_t *lock, const pthread_rwlockattr_t *attributes)
{
    if (!is_of("rw-")) return REAL(pthread_rwlock_init)(lock, attributes);
    memset(lock, 0, sizeof *lock);
    return 0;
}

EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    if (has("sleepers-look")) return WAIT_AND_LOOK(REAL(pthread_rwlock_timedrdlock), lock);
    return is_of("rw-") ? rw_wait(lock, false, NULL) : REAL(pthread_rwlock_rdlock)(lock);
}

EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    if (has("sleepers-look")) return WAIT_AND_LOOK(REAL(pthread_rwlock_timedwrlock), lock);
    return is_of("rw-") ? rw_wait(lock, true, NULL) : REAL(pthread_rwlock_wrlock)(lock);
}

EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict until)
{
    return is_of("rw-") ? rw_wait(lock, false, until) : REAL(pthread_rwlock_timedrdlock)(lock, until);
}

EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t *restrict lock, const struct timespec *restrict until)
{
    return is_of("rw-") ? rw_wait(lock, true, until) : REAL(pthread_rwlock_timedwrlock)(lock, until);
}

EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t *lock)
{
    return is_of("rw-") ? rw_try(lock, false) : REAL(pthread_rwlock_tryrdlock)(lock);
}

EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t *lock)
{
    return is_of("rw-") ? rw_try(lock, true) : REAL(pthread_rwlock_trywrlock)(lock);
}

EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
    return is_of("rw-") ? rw_release(lock) : looked_back(lock, REAL(pthread_rwlock_unlock)(lock));
}

/* ---- Mutexes that count their sleepers, and look whether the process has one thread ---- */

struct mutex {
    word lock, waiters, arriving, process;
};

/* A thread that begins or ends to arrive, which an unlock waits for. */
static void arrives(struct mutex *m, int change)
{
    if (has("own-mutex-unlock-waits-for-arrivals")) atomic_fetch_add(&m->arriving, change);
}

static void await_arrivals(struct mutex *m)
{
    for (long polls = 0; atomic_load(&m->arriving) > 0; polls++)
        if (polls > 200000000) abort();
}

/* own-mutex-knows-its-process: stops each process but the first that used it. */
static void stop_other_processes(struct mutex *m)
{
    unsigned of = 0, me = getpid();
    if (has("own-mutex-knows-its-process") && !atomic_compare_exchange_strong(&m->process, &of, me) && of != me)
        for (;;) pause();
}

static int mutex_try(struct mutex *m)
{
    unsigned seen = 0;
    return atomic_compare_exchange_strong(&m->lock, &seen, 1) ? 0 : EBUSY;
}

/* With the fault, others may have been forgotten: it does not fall below 0. */
static void no_longer_waits(word *waiters, bool in_time)
{
    unsigned seen = atomic_load(waiters);
    if (seen == 1 && !in_time && has("own-mutex-time-out-forgets-others")) {
        dawdle(); /* in which others come */
        atomic_store(waiters, 0);
        return;
    }
    while (seen > 0 && !atomic_compare_exchange_strong(waiters, &seen, seen - 1))
        ;
}

static int mutex_wait(struct mutex *m, const struct timespec *until)
{
    if (has("own-mutex-alone-too-long") && __libc_single_threaded && atomic_load(&m->lock) == 0) {
        dawdle(); /* in which the second thread begins */
        atomic_store(&m->lock, 1);
        return 0;
    }
    stop_other_processes(m);
    arrives(m, 1);
    while (mutex_try(m)) {
        atomic_fetch_add(&m->waiters, 1);
        arrives(m, -1);
        bool in_time = sleep_on(&m->lock, 1, until, FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
        no_longer_waits(&m->waiters, in_time);
        if (!in_time) return mutex_try(m) ? ETIMEDOUT : 0;
        arrives(m, 1);
    }
    arrives(m, -1);
    return 0;
}

static int mutex_release(struct mutex *m)
{
    bool looks_early = has("own-mutex-unlock-looks-early");
    unsigned waiters = atomic_load(&m->waiters);
    if (looks_early) dawdle();
    await_arrivals(m);
    atomic_store(&m->lock, 0);
    if (!looks_early) waiters = atomic_load(&m->waiters);
    if (waiters) wake(&m->lock, 1, FUTEX_PRIVATE_FLAG);
    return 0;
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    return is_of("own-mutex-") ? mutex_wait((struct mutex *)mutex, until)
                               : REAL(pthread_mutex_timedlock)(mutex, until);
}

EXPORT int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (is_of("own-mutex-")) return mutex_release((struct mutex *)mutex);
    int owner = mutex->__data.__owner;
    int result = looked_back(mutex, REAL(pthread_mutex_unlock)(mutex));
    if (has("mutex-unlock-leaves-its-owner")) mutex->__data.__owner = owner;
    if (unsent) REAL(pthread_cond_signal)(unsent);
    unsent = NULL;
    return result;
}

/* ---- Mutexes and spinlocks: glibc's, and something besides ---- */

EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (is_of("own-mutex-")) return mutex_wait((struct mutex *)mutex, NULL);
    if (has("lock-allocates")) {
        void *volatile some = malloc(100); /* or the compiler leaves it out */
        free(some);
    }
    if (has("lock-maps-memory") && mmap(NULL, 1 << 12, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        abort();
    if (has("lock-opens-a-file")) close(open("/dev/null", O_RDONLY));
    int rc = has("sleepers-look") ? WAIT_AND_LOOK(REAL(pthread_mutex_timedlock), mutex)
                                  : REAL(pthread_mutex_lock)(mutex);
    if (has("lock-sets-errno")) errno = EAGAIN;
    if (has("lock-writes-behind-the-mutex")) ++*(volatile char *)(mutex + 1);
    if (has("mutex-hides-its-owner") && mutex->__data.__kind == 0) mutex->__data.__owner = 0;
    return rc;
}

EXPORT int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    if (is_of("own-mutex-")) return mutex_try((struct mutex *)mutex);
    int rc = REAL(pthread_mutex_trylock)(mutex);
    return rc == EBUSY && has("mutex-try-says-again") ? EAGAIN : rc;
}

EXPORT int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    return has("mutex-destroyed-while-in-use") ? 0 : REAL(pthread_mutex_destroy)(mutex);
}

EXPORT int pthread_mutexattr_setrobust(pthread_mutexattr_t *attributes, int robust)
{
    return has("mutex-not-robust") ? 0 : REAL(pthread_mutexattr_setrobust)(attributes, robust);
}

EXPORT int pthread_spin_lock(pthread_spinlock_t *lock)
{
    return has("spin-excludes-nobody") ? 0 : REAL(pthread_spin_lock)(lock);
}

EXPORT int pthread_spin_unlock(pthread_spinlock_t *lock)
{
    return looked_back(lock, REAL(pthread_spin_unlock)(lock));
}
