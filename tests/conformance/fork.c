/* fork and its relatives while mutexes are held, waited for and fought over. */
#include "conformance.h"

#include <sys/syscall.h>

typedef pid_t fork_call(void);

/* Forks; the child runs `body`, whose failures are failures of the check. */
static void in_child(fork_call *make, void (*body)(void *), void *argument)
{
    pid_t pid = make();
    if (pid == 0) {
        body(argument);
        _exit(0);
    }
    CHECK_EQ(process_status(pid), 0);
}

/* ---- The forking thread holds the mutex, others wait for it; the child has the holder only ---- */

static void use_inherited(void *argument)
{
    pthread_mutex_t *mutex = argument;
    struct locker waiters[3];
    CHECK_RC(pthread_mutex_trylock(mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(mutex));
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(pthread_mutex_lock(mutex));
        CHECK_OK(pthread_mutex_unlock(mutex));
    }
    CHECK_OK(pthread_mutex_lock(mutex));
    for (int i = 0; i < 3; i++) locker_start(&waiters[i], mutex, NULL, NULL);
    CHECK_OK(pthread_mutex_unlock(mutex));
    for (int i = 0; i < 3; i++) locker_join(&waiters[i]);
    check_excludes(mutex);
    CHECK_OK(pthread_mutex_lock(mutex));
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
    CHECK_RC(pthread_mutex_timedlock(mutex, &deadline), ETIMEDOUT);
    CHECK_OK(pthread_mutex_unlock(mutex));
    CHECK_OK(pthread_mutex_destroy(mutex));
}

static int lock_patiently(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_MONOTONIC);
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &far);
}

static void fork_with_waiters(fork_call *make, int kind, int count, mutex_call *lock)
{
    pthread_mutex_t mutex;
    struct locker waiters[40];
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < count; i++) locker_start(&waiters[i], &mutex, lock, NULL);
    for (int i = 0; i < 3 && !(i && time_is_short()); i++) in_child(make, use_inherited, &mutex);
    for (int i = 0; i < count; i++) CHECK_TRUE(!locker_got_it(&waiters[i]), "the child's unlock let a waiter in");
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < count; i++) locker_join(&waiters[i]);
    check_excludes(&mutex);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

CHECK(fork, child_releases_what_the_parent_held) { fork_with_waiters(fork, KIND_DEFAULT, 0, NULL); }

CHECK(fork, child_releases_with_1_waiter_left_behind) { fork_with_waiters(fork, KIND_DEFAULT, 1, NULL); }

CHECK(fork, child_releases_with_5_waiters_left_behind) { fork_with_waiters(fork, KIND_DEFAULT, 5, NULL); }

CHECK(fork, child_releases_with_40_waiters_left_behind) { fork_with_waiters(fork, KIND_DEFAULT, 40, NULL); }

CHECK(fork, child_releases_with_timed_waiters_left_behind)
{
    fork_with_waiters(fork, KIND_DEFAULT, 5, lock_patiently);
}

CHECK(fork, child_releases_adaptive_with_5_waiters) { fork_with_waiters(fork, PTHREAD_MUTEX_ADAPTIVE_NP, 5, NULL); }

/* No atfork handlers run: an implementation must notice the new process by itself. */
CHECK(fork, child_of_raw_fork_releases_with_5_waiters) { fork_with_waiters(raw_fork, KIND_DEFAULT, 5, NULL); }

static void *fork_from_here(void *unused)
{
    fork_with_waiters(fork, KIND_DEFAULT, 3, NULL);
    return unused;
}

CHECK(fork, forked_by_another_than_the_main_thread) { thread_join(thread_start(fork_from_here, NULL)); }

/* ---- Owners ---- */

/* As in glibc: the child's thread has another id, so it does not own what its parent's thread locked. */
static void does_not_own(void *argument)
{
    pthread_mutex_t *mutex = argument;
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 10);
    CHECK_RC(pthread_mutex_unlock(mutex), EPERM);
    CHECK_RC(pthread_mutex_trylock(mutex), EBUSY);
    CHECK_RC(pthread_mutex_timedlock(mutex, &deadline), ETIMEDOUT);
}

static void fork_with_owner(pthread_mutex_t *mutex)
{
    CHECK_OK(pthread_mutex_lock(mutex));
    in_child(fork, does_not_own, mutex);
    CHECK_OK(pthread_mutex_unlock(mutex));
    CHECK_OK(trylock_elsewhere(mutex));
}

CHECK(fork, child_does_not_own_recursive_mutex)
{
    fork_with_owner(&(pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP);
}

CHECK(fork, child_does_not_own_errorcheck_mutex)
{
    fork_with_owner(&(pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP);
}

/* ---- A child made by the system call: glibc does not learn of it, and goes on using the parent's thread id ---- */

static pid_t system_call_fork(void) { return (pid_t)syscall(SYS_fork); }

struct held {
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
};

static void release_inherited(void *argument)
{
    struct held *h = argument;
    /* glibc compares ids that it has noted itself: there the child owns the mutex. */
    CHECK_RC(pthread_mutex_unlock(&h->mutex), locks_are_glibcs() ? 0 : EPERM);
    CHECK_OK(pthread_rwlock_unlock(&h->rwlock));
    CHECK_OK(pthread_rwlock_wrlock(&h->rwlock));
    CHECK_OK(pthread_rwlock_unlock(&h->rwlock));
}

CHECK(fork, child_of_the_system_call_releases_what_knows_no_owner)
{
    struct held h = {PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, PTHREAD_RWLOCK_INITIALIZER};
    CHECK_OK(pthread_mutex_lock(&h.mutex));
    CHECK_OK(pthread_rwlock_wrlock(&h.rwlock));
    in_child(system_call_fork, release_inherited, &h);
    CHECK_OK(pthread_mutex_unlock(&h.mutex));
    CHECK_OK(pthread_rwlock_unlock(&h.rwlock));
}

static void waits_with_owners(void *unused)
{
    (void)unused;
    check_waits_with_owners();
}

CHECK(fork, child_of_the_system_call_waits_with_mutexes_that_know_their_owner)
{
    in_child(system_call_fork, waits_with_owners, NULL);
}

/* What atfork handlers of real programs do with a mutex whose state they cannot know. */
static void make_anew(void *argument)
{
    pthread_mutex_t *mutex = argument;
    CHECK_RC(pthread_mutex_trylock(mutex), EBUSY);
    mutex_make(mutex, PTHREAD_MUTEX_RECURSIVE);
    CHECK_OK(pthread_mutex_lock(mutex));
    CHECK_OK(pthread_mutex_lock(mutex));
    CHECK_OK(pthread_mutex_unlock(mutex));
    CHECK_OK(pthread_mutex_unlock(mutex));
    check_excludes(mutex);
}

struct holder {
    pthread_mutex_t mutex;
    struct gate held, release;
};

static void *hold(void *argument)
{
    struct holder *h = argument;
    CHECK_OK(pthread_mutex_lock(&h->mutex));
    gate_open(&h->held);
    gate_wait(&h->release, 1);
    CHECK_OK(pthread_mutex_unlock(&h->mutex));
    return NULL;
}

static void with_holder_elsewhere(int kind, void (*child)(void *))
{
    struct holder h = {.held = {0}};
    struct locker waiter;
    mutex_make(&h.mutex, kind);
    pthread_t thread = thread_start(hold, &h);
    gate_wait(&h.held, 1);
    locker_start(&waiter, &h.mutex, NULL, NULL);
    in_child(fork, child, &h.mutex);
    gate_open(&h.release);
    thread_join(thread);
    locker_join(&waiter);
}

CHECK(fork, child_remakes_a_recursive_mutex_held_elsewhere)
{
    with_holder_elsewhere(PTHREAD_MUTEX_RECURSIVE, make_anew);
}

CHECK(fork, child_remakes_a_default_mutex_held_elsewhere) { with_holder_elsewhere(KIND_DEFAULT, make_anew); }

CHECK(fork, child_releases_for_a_holder_left_behind) { with_holder_elsewhere(KIND_DEFAULT, use_inherited); }

/* A handler interrupts a wait, and forks. In the child it releases the mutex, for a holder that is not there. The wait
 * goes on there, and ends. */
static pthread_mutex_t interrupted = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t child_of_handler;
static bool is_child;

static void fork_and_release(int unused)
{
    (void)unused;
    pid_t pid = fork();
    if (pid != 0) {
        atomic_store(&child_of_handler, pid);
        return;
    }
    is_child = true;
    alarm(10); /* against hangs */
    HOT_OK(pthread_mutex_unlock(&interrupted));
}

static void *wait_for_interrupted(void *unused)
{
    CHECK_OK(pthread_mutex_lock(&interrupted));
    if (is_child) _exit(0);
    CHECK_OK(pthread_mutex_unlock(&interrupted));
    return unused;
}

CHECK(fork, a_wait_goes_on_in_a_child_of_its_handler)
{
    pthread_t waiters[3];
    CHECK_TRUE(signal(SIGUSR1, fork_and_release) != SIG_ERR, "no handler");
    CHECK_OK(pthread_mutex_lock(&interrupted));
    for (int i = 0; i < 3; i++) {
        waiters[i] = thread_start(wait_for_interrupted, NULL);
        nap_ms(10);
    }
    nap_ms(100); /* so that it waits; not in all locks does it sleep */
    CHECK_OK(pthread_kill(waiters[2], SIGUSR1));
    while (atomic_load(&child_of_handler) == 0) nap_ms(1);
    CHECK_EQ(process_status(atomic_load(&child_of_handler)), 0);
    CHECK_OK(pthread_mutex_unlock(&interrupted));
    for (int i = 0; i < 3; i++) thread_join(waiters[i]);
}

/* ---- Generations ---- */

static void descend(pthread_mutex_t *mutex, int generations)
{
    struct locker waiters[2];
    for (int i = 0; i < 2; i++) locker_start(&waiters[i], mutex, NULL, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_OK(pthread_mutex_unlock(mutex));
        CHECK_OK(pthread_mutex_lock(mutex));
        if (generations > 1) descend(mutex, generations - 1);
        _exit(0);
    }
    CHECK_EQ(process_status(pid), 0);
    CHECK_OK(pthread_mutex_unlock(mutex));
    for (int i = 0; i < 2; i++) locker_join(&waiters[i]);
    CHECK_OK(pthread_mutex_lock(mutex));
}

CHECK(fork, six_generations_each_with_waiters)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&mutex));
    descend(&mutex, 6);
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

/* ---- Condition variables ---- */

static void wait_anew(void *argument)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    (void)argument;
    sleepers_start(&s, 4);
    sleepers_give(&s, 4);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
    CHECK_OK(pthread_cond_destroy(&s.cond));
}

CHECK(fork, child_waits_on_a_condition_of_its_own)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    sleepers_start(&s, 4); /* left behind, waiting */
    for (int i = 0; i < 5; i++) in_child(i % 2 ? fork : raw_fork, wait_anew, NULL);
    sleepers_give(&s, 4);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
}

static void wait_with_inherited(void *argument)
{
    struct sleepers *s = argument;
    s->count = s->waiting = s->woken = 0; /* those threads are not here */
    sleepers_start(s, 4);
    sleepers_give(s, 4);
    for (int i = 0; i < 4; i++) CHECK_OK(pthread_cond_signal(&s->cond));
    sleepers_join(s);
    CHECK_OK(pthread_cond_destroy(&s->cond));
}

CHECK(fork, child_waits_on_an_idle_inherited_condition)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    for (int round = 1; round <= 3; round++) {
        sleepers_start(&s, 4);
        sleepers_give(&s, 4);
        CHECK_OK(pthread_cond_broadcast(&s.cond));
        sleepers_await(&s, 4 * round);
        while (s.count > 4 * (round - 1)) thread_join(s.thread[--s.count]);
        s.count = 4 * round;
        in_child(fork, wait_with_inherited, &s);
    }
}

static void remake_condition(void *argument)
{
    struct sleepers *s = argument;
    CHECK_OK(pthread_cond_init(&s->cond, NULL));
    wait_with_inherited(s);
}

CHECK(fork, child_remakes_a_condition_with_waiters_left_behind)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    sleepers_start(&s, 4);
    in_child(fork, remake_condition, &s);
    sleepers_give(&s, 4);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
}

/* --- A fork in a signal handler that interrupted a wait: in the child the wait goes on, and no signal will come --- */

struct interrupted {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_t waiter;
};

enum { NOT_YET = -2 };
static volatile pid_t forked = NOT_YET;

static void fork_here(int number)
{
    (void)number;
    int saved = errno;
    forked = fork();
    errno = saved;
}

static void *interrupt(void *argument)
{
    struct interrupted *i = argument;
    CHECK_OK(pthread_mutex_lock(&i->mutex)); /* the waiter waits, or will soon */
    CHECK_OK(pthread_mutex_unlock(&i->mutex));
    CHECK_OK(pthread_kill(i->waiter, SIGUSR1));
    return NULL;
}

CHECK(fork, in_a_handler_that_interrupts_a_wait)
{
    struct interrupted i = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, pthread_self()};
    struct sigaction action = {.sa_handler = fork_here};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_OK(pthread_mutex_lock(&i.mutex));
    pthread_t thread = thread_start(interrupt, &i);
    while (forked == NOT_YET) {
        struct timespec deadline = time_after_ms(CLOCK_REALTIME, 100);
        int rc = 0;
        while (rc == 0) rc = pthread_cond_timedwait(&i.cond, &i.mutex, &deadline);
        CHECK_RC(rc, ETIMEDOUT);
    }
    CHECK_RC(trylock_elsewhere(&i.mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&i.mutex));
    check_excludes(&i.mutex);
    CHECK_OK(pthread_cond_signal(&i.cond));
    CHECK_OK(pthread_cond_destroy(&i.cond));
    if (forked == 0) {
        wait_anew(NULL);
        _exit(0);
    }
    thread_join(thread);
    CHECK_EQ(process_status(forked), 0);
}
