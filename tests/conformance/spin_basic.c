/* Spinlocks: return codes, what counts as initialised, exclusion between threads and between processes, frozen
 * waiters. */
#include "conformance.h"

#include <dlfcn.h>
#include <sys/mman.h>

typedef int spin_call(pthread_spinlock_t *);

static void *try_elsewhere(void *lock)
{
    int rc = pthread_spin_trylock(lock);
    if (rc == 0) CHECK_OK(pthread_spin_unlock(lock));
    return (void *)(intptr_t)rc;
}

static int spin_trylock_elsewhere(pthread_spinlock_t *lock)
{
    return (intptr_t)thread_join(thread_start(try_elsewhere, (void *)lock));
}

static void check_answers(pthread_spinlock_t *lock)
{
    for (int i = 0; i < 100; i++) {
        CHECK_OK(pthread_spin_lock(lock));
        CHECK_RC(pthread_spin_trylock(lock), EBUSY);
        if (i % 10 == 0) CHECK_RC(spin_trylock_elsewhere(lock), EBUSY);
        CHECK_OK(pthread_spin_unlock(lock));
        CHECK_OK(pthread_spin_trylock(lock));
        CHECK_RC(pthread_spin_trylock(lock), EBUSY);
        CHECK_OK(pthread_spin_unlock(lock));
        if (i % 10 == 0) CHECK_OK(spin_trylock_elsewhere(lock));
    }
}

CHECK(spin, answers)
{
    pthread_spinlock_t locks[3];
    CHECK_EQ(sizeof *locks, 4);
    for (int shared = 0; shared < 2; shared++) {
        memset((void *)locks, 0xa5, sizeof locks);
        CHECK_OK(pthread_spin_init(&locks[1], shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE));
        check_answers(&locks[1]);
        CHECK_OK(pthread_spin_lock(&locks[1]));
        CHECK_OK(pthread_spin_unlock(&locks[1]));
        CHECK_OK(pthread_spin_destroy(&locks[1]));
        CHECK_EQ((unsigned)locks[0], 0xa5a5a5a5); /* its four bytes, and no others */
        CHECK_EQ((unsigned)locks[2], 0xa5a5a5a5);
    }
}

CHECK(spin, errno_is_kept)
{
    pthread_spinlock_t lock;
    errno = 4711;
    CHECK_OK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    CHECK_OK(pthread_spin_lock(&lock));
    CHECK_RC(pthread_spin_trylock(&lock), EBUSY);
    CHECK_OK(pthread_spin_unlock(&lock));
    CHECK_EQ(errno, 4711);
}

/* ---- What counts as a free one ---- */

/* glibc's init, past any replacement, and the value that it has on x86. */
CHECK(spin, initialised_by_glibc_is_free)
{
    pthread_spinlock_t lock = 77;
    void *libc = dlopen(LOCKS_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    CHECK_TRUE(libc, "%s is not there", LOCKS_LIBRARY);
    int (*init)(pthread_spinlock_t *, int) = (int (*)(pthread_spinlock_t *, int))dlsym(libc, "pthread_spin_init");
    CHECK_OK(init(&lock, PTHREAD_PROCESS_PRIVATE));
    check_answers(&lock);
    CHECK_OK(init(&lock, PTHREAD_PROCESS_PRIVATE));
    CHECK_OK(pthread_spin_trylock(&lock));
    CHECK_RC(pthread_spin_trylock(&lock), EBUSY);
#ifdef __x86_64__
    lock = 1;
    check_answers(&lock);
#endif
}

CHECK(spin, unlocked_by_glibc_is_free)
{
    pthread_spinlock_t lock;
    void *libc = dlopen(LOCKS_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    CHECK_TRUE(libc, "%s is not there", LOCKS_LIBRARY);
    spin_call *unlock = (spin_call *)dlsym(libc, "pthread_spin_unlock");
    CHECK_OK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    CHECK_OK(pthread_spin_lock(&lock));
    CHECK_OK(unlock(&lock));
    check_answers(&lock);
}

static pthread_spinlock_t zeroed;

CHECK(spin, zeroed_memory_is_free)
{
    GLIBC_CANNOT("to glibc, on x86, zeroed memory is a held spinlock");
    CHECK_OK(pthread_spin_trylock(&zeroed));
    CHECK_RC(pthread_spin_trylock(&zeroed), EBUSY);
    CHECK_OK(pthread_spin_unlock(&zeroed));
    zeroed = 0;
    CHECK_OK(pthread_spin_lock(&zeroed));
    CHECK_RC(pthread_spin_trylock(&zeroed), EBUSY);
    CHECK_OK(pthread_spin_unlock(&zeroed));
    check_answers(&zeroed);
}

/* ---- Exclusion ---- */

struct spinners {
    pthread_spinlock_t lock;
    bool tries;
    volatile long counter;
    atomic_long made;
    struct timespec end;
};

static void *spin_and_count(void *argument)
{
    struct spinners *s = argument;
    uint32_t random = gettid();
    long made = 0;
    do {
        if (s->tries && made % 2)
            while (pthread_spin_trylock(&s->lock) != 0) sched_yield();
        else
            HOT_OK(pthread_spin_lock(&s->lock));
        long seen = s->counter;
        uint32_t choice = random_next(&random) % 256;
        if (choice % 64 == 0) sched_yield(); /* the holder is off its CPU */
        for (uint32_t turn = 0; turn < choice; turn++) __asm__ volatile("" ::: "memory");
        s->counter = seen + 1;
        HOT_OK(pthread_spin_unlock(&s->lock));
        made++;
    } while (!time_reached(CLOCK_MONOTONIC, s->end));
    atomic_fetch_add(&s->made, made);
    return NULL;
}

static void check_spin_excludes(struct spinners *s, int threads, long ms)
{
    CHECK_OK(pthread_spin_init(&s->lock, PTHREAD_PROCESS_PRIVATE));
    s->end = time_after_ms(CLOCK_MONOTONIC, ms);
    threads_run(threads, spin_and_count, s);
    CHECK_EQ(s->counter, atomic_load(&s->made));
    CHECK_OK(pthread_spin_destroy(&s->lock));
}

CHECK(spin, two_threads_exclude) { check_spin_excludes(&(struct spinners){.tries = false}, 2, 200); }

CHECK(spin, four_threads_with_trylock_exclude) { check_spin_excludes(&(struct spinners){.tries = true}, 4, 200); }

CHECK(spin, far_more_threads_than_cpus) { check_spin_excludes(&(struct spinners){.tries = true}, 64, 500); }

/* One that zeroed memory made, first locked by several threads at once. */
CHECK(spin, zeroed_memory_excludes)
{
    GLIBC_CANNOT("to glibc, on x86, zeroed memory is a held spinlock");
    for (int i = 0; i < 20; i++) {
        struct spinners s = {.end = time_after_ms(CLOCK_MONOTONIC, 5)};
        threads_run(4, spin_and_count, &s);
        CHECK_EQ(s.counter, atomic_load(&s.made));
    }
}

CHECK(spin, excludes_between_processes)
{
    struct spinners *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[4];
    CHECK_TRUE(s != MAP_FAILED, "mmap: %s", code_name(errno));
    CHECK_OK(pthread_spin_init(&s->lock, PTHREAD_PROCESS_SHARED));
    s->tries = true;
    s->end = time_after_ms(CLOCK_MONOTONIC, 200);
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        CHECK_TRUE(pids[i] >= 0, "fork: %s", code_name(errno));
        if (pids[i] == 0) {
            if (i % 2) threads_run(2, spin_and_count, s);
            else spin_and_count(s);
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++) CHECK_EQ(process_status(pids[i]), 0);
    CHECK_EQ(s->counter, atomic_load(&s->made));
    CHECK_OK(pthread_spin_destroy(&s->lock));
}

/* ---- No thread is passed over for ever ---- */

struct hog {
    pthread_spinlock_t lock;
    int inside_us;
    atomic_bool over;
    atomic_int got;
};

/* Out and in again at once, and long inside: any other thread that wants it must meet the moment between. */
static void *hog(void *argument)
{
    struct hog *h = argument;
    while (!atomic_load(&h->over)) {
        HOT_OK(pthread_spin_lock(&h->lock));
        struct timespec begun = time_after_ms(CLOCK_MONOTONIC, 0);
        while (time_missing_us(CLOCK_MONOTONIC, begun) > -h->inside_us)
            ;
        HOT_OK(pthread_spin_unlock(&h->lock));
    }
    return NULL;
}

static void *want_ten(void *argument)
{
    struct hog *h = argument;
    for (int i = 0; i < 10; i++) {
        HOT_OK(pthread_spin_lock(&h->lock));
        atomic_fetch_add(&h->got, 1);
        HOT_OK(pthread_spin_unlock(&h->lock));
    }
    return NULL;
}

static void starves_nobody(int inside_us)
{
    GLIBC_CANNOT("glibc's spinlocks promise no such thing");
    struct hog h = {.inside_us = inside_us};
    CHECK_OK(pthread_spin_init(&h.lock, PTHREAD_PROCESS_PRIVATE));
    pthread_t hogs[2], others[6];
    for (int i = 0; i < 2; i++) hogs[i] = thread_start(hog, &h);
    for (int i = 0; i < 6; i++) others[i] = thread_start(want_ten, &h);
    for (int i = 0; i < 6; i++) thread_join(others[i]);
    CHECK_EQ(atomic_load(&h.got), 60);
    atomic_store(&h.over, true);
    for (int i = 0; i < 2; i++) thread_join(hogs[i]);
}

CHECK(spin, a_hog_starves_nobody)
{
    starves_nobody(50);
}

/* Longer than a waiter's claim lasts. */
CHECK(spin, a_hog_of_long_sections_starves_nobody)
{
    starves_nobody(20000);
}

/* ---- Frozen waiters: they hold no thread up ---- */

static struct gate frozen, thaw;

static void freeze_here(int number)
{
    (void)number;
    gate_open(&frozen);
    gate_wait(&thaw, 1);
}

static void *lock_once(void *argument)
{
    struct spinners *s = argument;
    HOT_OK(pthread_spin_lock(&s->lock));
    s->counter = s->counter + 1;
    HOT_OK(pthread_spin_unlock(&s->lock));
    return NULL;
}

CHECK(spin, frozen_waiters_hold_nobody_up)
{
    enum { FROZEN = 8 };
    struct spinners s = {.tries = true};
    struct sigaction action = {.sa_handler = freeze_here, .sa_flags = SA_RESTART};
    pthread_t threads[FROZEN];
    sigemptyset(&action.sa_mask);
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_OK(pthread_spin_init(&s.lock, PTHREAD_PROCESS_PRIVATE));
    CHECK_OK(pthread_spin_lock(&s.lock));
    for (int i = 0; i < FROZEN; i++) threads[i] = thread_start(lock_once, &s);
    nap_ms(30); /* long enough to lose patience */
    for (int i = 0; i < FROZEN; i++) CHECK_OK(pthread_kill(threads[i], SIGUSR1));
    gate_wait(&frozen, FROZEN);
    CHECK_OK(pthread_spin_unlock(&s.lock));
    CHECK_EQ(s.counter, 0);
    s.end = time_after_ms(CLOCK_MONOTONIC, 100);
    threads_run(8, spin_and_count, &s);
    CHECK_EQ(s.counter, atomic_load(&s.made));
    gate_open(&thaw);
    for (int i = 0; i < FROZEN; i++) thread_join(threads[i]);
    CHECK_EQ(s.counter, atomic_load(&s.made) + FROZEN);
    check_answers(&s.lock);
}

/* A waiter that dies while it waits, in memory that processes share, as one that is killed does. */
CHECK(spin, killed_waiters_hold_nobody_up)
{
    struct spinners *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[4];
    CHECK_TRUE(s != MAP_FAILED, "mmap: %s", code_name(errno));
    CHECK_OK(pthread_spin_init(&s->lock, PTHREAD_PROCESS_SHARED));
    CHECK_OK(pthread_spin_lock(&s->lock));
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        CHECK_TRUE(pids[i] >= 0, "fork: %s", code_name(errno));
        if (pids[i] == 0) {
            pthread_spin_lock(&s->lock);
            _exit(1);
        }
    }
    nap_ms(30);
    for (int i = 0; i < 4; i++) CHECK_EQ(kill(pids[i], SIGKILL), 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(process_status(pids[i]), 256 + SIGKILL);
    CHECK_OK(pthread_spin_unlock(&s->lock));
    for (int i = 0; i < 100; i++) {
        CHECK_OK(pthread_spin_lock(&s->lock));
        CHECK_OK(pthread_spin_unlock(&s->lock));
    }
    check_answers(&s->lock);
}
