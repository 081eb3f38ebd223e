/*
 * Company: code that reaches the C library's own functions, past any interposition, on the same mutex. Plug-ins opened
 * with RTLD_DEEPBIND do, callers of dlsym(libc) do. Also the old __pthread_mutex_* names.
 */
#include "conformance.h"

#include <dlfcn.h>

struct foreign {
    int (*init)(pthread_mutex_t *, const pthread_mutexattr_t *);
    mutex_call *lock, *trylock, *unlock, *destroy;
    int (*timedlock)(pthread_mutex_t *, const struct timespec *);
};

static void *symbol(void *library, const char *prefix, const char *name)
{
    char full[64] = "";
    strcat(strcat(full, prefix), name);
    void *address = dlsym(library, full);
    if (!address) FAIL("no symbol %s: %s", full, dlerror());
    return address;
}

static struct foreign load(void *library, const char *prefix)
{
    return (struct foreign){.init = symbol(library, prefix, "init"),
                            .lock = symbol(library, prefix, "lock"),
                            .trylock = symbol(library, prefix, "trylock"),
                            .timedlock = symbol(library, prefix, "timedlock"),
                            .unlock = symbol(library, prefix, "unlock"),
                            .destroy = symbol(library, prefix, "destroy")};
}

static void *open_libc(void)
{
    void *libc = dlopen(LOCKS_LIBRARY, RTLD_NOW);
    if (!libc) FAIL("%s", dlerror());
    return libc;
}

static void *open_plugin(void)
{
    void *plugin = dlopen(beside_program("plugin_deepbind.so"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!plugin) FAIL("%s", dlerror());
    return plugin;
}

static struct foreign libc_handle(void)
{
    return load(open_libc(), "pthread_mutex_");
}

static struct foreign deepbind(void)
{
    return load(open_plugin(), "plugin_");
}

/*
 * The old names are still exported to programs that were linked long ago, under the base version. Referring to that
 * version is what such a program does; dlsym would not find them. They have no timedlock.
 */
#if defined __x86_64__
#define BASE_VERSION "GLIBC_2.2.5"
#elif defined __aarch64__
#define BASE_VERSION "GLIBC_2.17"
#else
#error "which version do this machine's oldest symbols have?"
#endif
#define OLD_NAME(call) __asm__(".symver old_" #call ",__pthread_mutex_" #call "@" BASE_VERSION)
OLD_NAME(init);
OLD_NAME(lock);
OLD_NAME(trylock);
OLD_NAME(unlock);
OLD_NAME(destroy);
extern int old_init(pthread_mutex_t *, const pthread_mutexattr_t *);
extern mutex_call old_lock, old_trylock, old_unlock, old_destroy;

static struct foreign old_names(void)
{
    return (struct foreign){.init = old_init,
                            .lock = old_lock,
                            .trylock = old_trylock,
                            .timedlock = pthread_mutex_timedlock,
                            .unlock = old_unlock,
                            .destroy = old_destroy};
}

/* If this fails the deepbind checks test nothing. */
CHECK(mutex_foreign, deepbind_plugin_calls_the_c_library)
{
    void *(*target)(void) = (void *(*)(void))dlsym(open_plugin(), "plugin_lock_target");
    CHECK_TRUE(target() == dlsym(open_libc(), "pthread_mutex_lock"), "the plug-in calls another pthread_mutex_lock");
}

/* ---- Exclusion between the two ways ---- */

static void mixed_excludes(struct foreign f, int kind)
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    struct exclusion x = {.mutex = &mutex,
                          .lock = {pthread_mutex_lock, f.lock},
                          .unlock = {pthread_mutex_unlock, f.unlock},
                          .threads = 4,
                          .ms = 200};
    exclusion_run(&x);
    CHECK_OK(f.destroy(&mutex)); /* glibc's destroy sees a mutex that was never locked */
}

#define MIXED(title, kind)                                                                          \
    CHECK(mutex_foreign, deepbind_excludes_##title) { mixed_excludes(deepbind(), kind); }           \
    CHECK(mutex_foreign, libc_handle_excludes_##title) { mixed_excludes(libc_handle(), kind); }
KINDS(MIXED)

CHECK(mutex_foreign, old_names_exclude_default) { mixed_excludes(old_names(), KIND_DEFAULT); }

CHECK(mutex_foreign, old_names_exclude_recursive) { mixed_excludes(old_names(), PTHREAD_MUTEX_RECURSIVE); }

/* Trylock on one side, blocking on the other. */
static mutex_call *foreign_trylock;

static int spin_on_foreign_trylock(pthread_mutex_t *mutex)
{
    int rc;
    while ((rc = foreign_trylock(mutex)) == EBUSY) sched_yield();
    return rc;
}

CHECK(mutex_foreign, foreign_trylock_excludes)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct foreign f = libc_handle();
    foreign_trylock = f.trylock;
    struct exclusion x = {.mutex = &mutex,
                          .lock = {pthread_mutex_lock, spin_on_foreign_trylock},
                          .unlock = {pthread_mutex_unlock, f.unlock},
                          .threads = 4,
                          .ms = 200};
    exclusion_run(&x);
}

/* ---- One side locks, the other unlocks ---- */

static void cross_unlock(struct foreign f, int kind)
{
    pthread_mutex_t mutex;
    struct locker waiter;
    mutex_make(&mutex, kind);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(f.lock(&mutex));
        CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
        locker_start(&waiter, &mutex, NULL, NULL); /* ours waits for theirs */
        CHECK_OK(pthread_mutex_unlock(&mutex));
        locker_join(&waiter);
        CHECK_OK(pthread_mutex_lock(&mutex));
        if (kind != PTHREAD_MUTEX_RECURSIVE) CHECK_RC(f.trylock(&mutex), EBUSY);
        locker_start(&waiter, &mutex, f.lock, f.unlock); /* theirs waits for ours */
        CHECK_OK(f.unlock(&mutex));
        locker_join(&waiter);
        CHECK_OK(f.trylock(&mutex));
        CHECK_OK(pthread_mutex_unlock(&mutex));
        CHECK_OK(pthread_mutex_trylock(&mutex));
        CHECK_OK(f.unlock(&mutex));
    }
    CHECK_OK(f.destroy(&mutex));
}

#define CROSS(title, kind)                                                                          \
    CHECK(mutex_foreign, deepbind_locks_and_program_unlocks_##title) { cross_unlock(deepbind(), kind); }
KINDS(CROSS)

CHECK(mutex_foreign, libc_handle_locks_and_program_unlocks) { cross_unlock(libc_handle(), KIND_DEFAULT); }

CHECK(mutex_foreign, old_names_lock_and_new_names_unlock) { cross_unlock(old_names(), KIND_DEFAULT); }

/* Many waiters of both sorts behind one holder, released by alternating sorts. */
CHECK(mutex_foreign, mixed_queue_is_drained)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct foreign f = deepbind();
    for (int round = 0; round < 10; round++) {
        struct locker waiters[8];
        CHECK_OK(round % 2 ? f.lock(&mutex) : pthread_mutex_lock(&mutex));
        for (int i = 0; i < 8; i++)
            locker_start(&waiters[i], &mutex, i % 2 ? f.lock : NULL, i % 2 ? f.unlock : NULL);
        CHECK_OK(round % 3 ? f.unlock(&mutex) : pthread_mutex_unlock(&mutex));
        for (int i = 0; i < 8; i++) locker_join(&waiters[i]);
    }
}

/* ---- Owners ---- */

CHECK(mutex_foreign, recursive_depth_is_common)
{
    struct foreign f = deepbind();
    pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    for (int order = 0; order < 16; order++) {
        for (int i = 0; i < 4; i++) CHECK_OK(order >> i & 1 ? f.lock(&mutex) : pthread_mutex_lock(&mutex));
        for (int i = 0; i < 4; i++) {
            CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
            CHECK_OK(order >> i & 1 ? pthread_mutex_unlock(&mutex) : f.unlock(&mutex));
        }
        CHECK_OK(trylock_elsewhere(&mutex));
        CHECK_RC(f.unlock(&mutex), EPERM);
        CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
    }
}

CHECK(mutex_foreign, errorcheck_owner_is_common)
{
    struct foreign f = deepbind();
    pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    struct timespec far = time_far(CLOCK_REALTIME);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(f.lock(&mutex), EDEADLK);
    CHECK_RC(f.timedlock(&mutex, &far), EDEADLK);
    CHECK_RC(f.trylock(&mutex), EBUSY);
    CHECK_OK(f.unlock(&mutex));
    CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
    CHECK_OK(f.lock(&mutex));
    CHECK_RC(pthread_mutex_lock(&mutex), EDEADLK);
    CHECK_RC(pthread_mutex_timedlock(&mutex, &far), EDEADLK);
    CHECK_RC(unlock_elsewhere(&mutex), EPERM);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_RC(f.unlock(&mutex), EPERM);
}

/* ---- Timed, init, destroy ---- */

CHECK(mutex_foreign, each_times_out_on_the_others_hold)
{
    struct foreign f = deepbind();
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&mutex));
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 20);
    CHECK_RC(f.timedlock(&mutex, &deadline), ETIMEDOUT);
    CHECK_REACHED(CLOCK_REALTIME, deadline);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(f.lock(&mutex));
    deadline = time_after_ms(CLOCK_REALTIME, 20);
    CHECK_RC(pthread_mutex_timedlock(&mutex, &deadline), ETIMEDOUT);
    CHECK_REACHED(CLOCK_REALTIME, deadline);
    CHECK_OK(f.unlock(&mutex));
    CHECK_OK(trylock_elsewhere(&mutex));
    check_excludes(&mutex);
}

static void init_across(struct foreign f, int kind)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    CHECK_OK(pthread_mutexattr_init(&attributes));
    CHECK_OK(pthread_mutexattr_settype(&attributes, kind));
    CHECK_OK(f.init(&mutex, &attributes));
    check_excludes(&mutex);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(pthread_mutex_destroy(&mutex), EBUSY);
    CHECK_OK(f.unlock(&mutex));
    CHECK_OK(pthread_mutex_destroy(&mutex));
    CHECK_OK(pthread_mutex_init(&mutex, &attributes));
    mixed_excludes(f, kind);
}

CHECK(mutex_foreign, made_by_one_and_destroyed_by_the_other)
{
    static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                                PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int i = 0; i < 4; i++) init_across(deepbind(), kinds[i]);
    init_across(old_names(), PTHREAD_MUTEX_RECURSIVE);
}

CHECK(mutex_foreign, foreign_waiters_do_not_disturb_condition_waits)
{
    struct foreign f = deepbind();
    struct sleepers s = SLEEPERS_INITIALIZER;
    struct locker waiter;
    sleepers_start(&s, 4);
    for (int i = 1; i <= 4; i++) {
        CHECK_OK(f.lock(&s.mutex));
        locker_start(&waiter, &s.mutex, f.lock, f.unlock);
        s.tokens++;
        CHECK_OK(pthread_cond_signal(&s.cond));
        CHECK_OK(f.unlock(&s.mutex));
        locker_join(&waiter);
        sleepers_await(&s, i);
    }
    sleepers_join(&s);
}
