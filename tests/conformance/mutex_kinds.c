/* What each mutex kind answers: lock, trylock, unlock, destroy, by the owner and by others. */
#include "conformance.h"

/* ---- For every kind ---- */

#define BASIC(title, kind)                                                                          \
    CHECK(mutex_kinds, title##_lock_try_unlock) { lock_try_unlock(kind); }                          \
    CHECK(mutex_kinds, title##_excludes) { excludes(kind); }                                        \
    CHECK(mutex_kinds, title##_destroy_while_locked_is_ebusy) { destroy_while_locked(kind); }       \
    CHECK(mutex_kinds, title##_trylock_contended) { trylock_contended(kind); }

static void lock_try_unlock(int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(pthread_mutex_lock(&mutex));
        CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        CHECK_OK(trylock_elsewhere(&mutex));
        CHECK_OK(pthread_mutex_trylock(&mutex));
        CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
        CHECK_OK(pthread_mutex_unlock(&mutex));
    }
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

static void excludes(int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    struct exclusion x = {.mutex = &mutex,
                          .lock = {pthread_mutex_lock},
                          .unlock = {pthread_mutex_unlock},
                          .threads = 4,
                          .ms = 1000};
    exclusion_run(&x);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

static void destroy_while_locked(int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(pthread_mutex_destroy(&mutex), EBUSY);
    CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

static int trylock_until_mine(pthread_mutex_t *mutex)
{
    int rc;
    while ((rc = pthread_mutex_trylock(mutex)) == EBUSY) sched_yield();
    return rc;
}

/* Half of the threads queue, the other half polls: neither may get in beside the other. */
static void trylock_contended(int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    struct exclusion x = {.mutex = &mutex,
                          .lock = {pthread_mutex_lock, trylock_until_mine},
                          .unlock = {pthread_mutex_unlock, pthread_mutex_unlock},
                          .threads = 4,
                          .ms = 200};
    exclusion_run(&x);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

KINDS(BASIC)

/* ---- Kinds that do not know their owner ---- */

#define OWNERLESS(title, kind)                                                                      \
    CHECK(mutex_kinds, title##_own_trylock_is_ebusy) { own_trylock(kind); }                         \
    CHECK(mutex_kinds, title##_unlocked_by_another_thread) { unlocked_elsewhere(kind); }            \
    CHECK(mutex_kinds, title##_relock_waits_for_release) { relock_waits(kind); }

static void own_trylock(int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(pthread_mutex_trylock(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_mutex_trylock(&mutex));
    CHECK_RC(pthread_mutex_trylock(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

/* Programs use such a mutex as a binary semaphore. */
static void unlocked_elsewhere(int kind)
{
    pthread_mutex_t mutex;
    struct locker waiter;
    mutex_make(&mutex, kind);
    for (int i = 0; i < 20; i++) {
        CHECK_OK(pthread_mutex_lock(&mutex));
        CHECK_OK(unlock_elsewhere(&mutex));
        CHECK_OK(trylock_elsewhere(&mutex));
    }
    CHECK_OK(pthread_mutex_lock(&mutex));
    locker_start(&waiter, &mutex, NULL, NULL);
    CHECK_TRUE(!locker_got_it(&waiter), "a second thread got a held mutex");
    CHECK_OK(unlock_elsewhere(&mutex));
    locker_join(&waiter);
    check_excludes(&mutex);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

static int lock_twice(pthread_mutex_t *mutex)
{
    int rc = pthread_mutex_lock(mutex);
    return rc ? rc : pthread_mutex_lock(mutex);
}

static void relock_waits(int kind)
{
    pthread_mutex_t mutex;
    struct locker waiter;
    mutex_make(&mutex, kind);
    locker_start(&waiter, &mutex, lock_twice, NULL);
    nap_ms(20);
    CHECK_TRUE(!locker_got_it(&waiter), "locked twice by one thread");
    CHECK_OK(pthread_mutex_unlock(&mutex));
    locker_join(&waiter);
    CHECK_OK(trylock_elsewhere(&mutex));
}

OWNERLESS_KINDS(OWNERLESS)

CHECK(mutex_kinds, default_unlock_while_free_is_harmless)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(trylock_elsewhere(&mutex));
    check_excludes(&mutex);
}

/* ---- Error-checking ---- */

static const pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static const pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

CHECK(mutex_kinds, errorcheck_relock_is_edeadlk)
{
    pthread_mutex_t mutex = errorcheck;
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 3; i++) CHECK_RC(pthread_mutex_lock(&mutex), EDEADLK);
    CHECK_OK(pthread_mutex_unlock(&mutex)); /* once is enough: the failed calls count for nothing */
    CHECK_OK(trylock_elsewhere(&mutex));
}

CHECK(mutex_kinds, errorcheck_own_trylock_is_ebusy)
{
    pthread_mutex_t mutex = errorcheck;
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(pthread_mutex_trylock(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(trylock_elsewhere(&mutex));
}

CHECK(mutex_kinds, errorcheck_trylock_makes_an_owner)
{
    pthread_mutex_t mutex = errorcheck;
    CHECK_OK(pthread_mutex_trylock(&mutex));
    CHECK_RC(pthread_mutex_lock(&mutex), EDEADLK);
    CHECK_RC(unlock_elsewhere(&mutex), EPERM);
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

static void unlock_without_right(pthread_mutex_t mutex)
{
    CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(unlock_elsewhere(&mutex), EPERM);
    CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
    CHECK_RC(unlock_elsewhere(&mutex), EPERM);
    CHECK_OK(trylock_elsewhere(&mutex));
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

CHECK(mutex_kinds, errorcheck_unlock_by_non_owner_is_eperm) { unlock_without_right(errorcheck); }

CHECK(mutex_kinds, recursive_unlock_by_non_owner_is_eperm) { unlock_without_right(recursive); }

/* A waiter that gets the mutex handed over is its owner as much as one that found it free. */
static int lock_and_prove_ownership(pthread_mutex_t *mutex)
{
    int rc = pthread_mutex_lock(mutex);
    if (rc == 0) CHECK_RC(pthread_mutex_lock(mutex), EDEADLK);
    return rc;
}

CHECK(mutex_kinds, errorcheck_owner_after_waiting)
{
    pthread_mutex_t mutex = errorcheck;
    struct locker waiters[3];
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 3; i++) locker_start(&waiters[i], &mutex, lock_and_prove_ownership, NULL);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 3; i++) locker_join(&waiters[i]);
    CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
}

/* ---- Recursive ---- */

static void lock_to_depth(pthread_mutex_t *mutex, int depth, mutex_call *lock)
{
    for (int i = 0; i < depth; i++) HOT_OK(lock(mutex));
    for (int i = 0; i < depth; i++) {
        if (i % (1 + depth / 4) == 0) CHECK_RC(trylock_elsewhere(mutex), EBUSY);
        HOT_OK(pthread_mutex_unlock(mutex));
    }
    CHECK_OK(trylock_elsewhere(mutex));
    CHECK_RC(pthread_mutex_unlock(mutex), EPERM);
}

CHECK(mutex_kinds, recursive_counts_locks)
{
    pthread_mutex_t mutex = recursive;
    for (int depth = 1; depth <= 5; depth++) lock_to_depth(&mutex, depth, pthread_mutex_lock);
}

CHECK(mutex_kinds, recursive_counts_trylocks)
{
    pthread_mutex_t mutex = recursive;
    for (int depth = 1; depth <= 5; depth++) lock_to_depth(&mutex, depth, pthread_mutex_trylock);
}

/* More than a 16-bit counter holds. */
CHECK(mutex_kinds, recursive_depth_of_a_million)
{
    pthread_mutex_t mutex = recursive;
    lock_to_depth(&mutex, 1000000, pthread_mutex_lock);
}

CHECK(mutex_kinds, recursive_destroy_at_depth_is_ebusy)
{
    pthread_mutex_t mutex = recursive;
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_RC(pthread_mutex_destroy(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

static int lock_deep(pthread_mutex_t *mutex)
{
    for (int i = 0; i < 4; i++)
        if (i % 2 ? pthread_mutex_trylock(mutex) : pthread_mutex_lock(mutex)) return EDEADLK;
    return 0;
}

static int unlock_deep(pthread_mutex_t *mutex)
{
    for (int i = 0; i < 4; i++)
        if (pthread_mutex_unlock(mutex)) return EPERM;
    return 0;
}

CHECK(mutex_kinds, recursive_excludes_at_depth)
{
    pthread_mutex_t mutex = recursive;
    struct exclusion x = {.mutex = &mutex,
                          .lock = {lock_deep, pthread_mutex_lock},
                          .unlock = {unlock_deep, pthread_mutex_unlock},
                          .threads = 4,
                          .ms = 200};
    exclusion_run(&x);
}

/* ---- Initialisation ---- */

CHECK(mutex_kinds, destroyed_mutex_can_be_made_anew)
{
    static const int kinds[] = {PTHREAD_MUTEX_RECURSIVE, KIND_DEFAULT, PTHREAD_MUTEX_ERRORCHECK,
                                PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_NORMAL};
    static const int own_relock[] = {0, EBUSY, EBUSY, EBUSY, EBUSY};
    pthread_mutex_t mutex;
    for (int i = 0; i < 50; i++) {
        mutex_make(&mutex, kinds[i % 5]);
        CHECK_OK(pthread_mutex_lock(&mutex));
        CHECK_RC(pthread_mutex_trylock(&mutex), own_relock[i % 5]);
        if (own_relock[i % 5] == 0) CHECK_OK(pthread_mutex_unlock(&mutex));
        CHECK_OK(pthread_mutex_unlock(&mutex));
        CHECK_OK(pthread_mutex_destroy(&mutex));
    }
}

CHECK(mutex_kinds, attributes_are_copied_at_init)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t first, second;
    CHECK_OK(pthread_mutexattr_init(&attributes));
    CHECK_OK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE));
    CHECK_OK(pthread_mutex_init(&first, &attributes));
    CHECK_OK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK));
    CHECK_OK(pthread_mutex_init(&second, &attributes));
    CHECK_OK(pthread_mutexattr_destroy(&attributes));
    memset(&attributes, 0xa5, sizeof attributes);
    CHECK_OK(pthread_mutex_lock(&first));
    CHECK_OK(pthread_mutex_lock(&first));
    CHECK_OK(pthread_mutex_lock(&second));
    CHECK_RC(pthread_mutex_lock(&second), EDEADLK);
}
