/* Robust, priority-inheriting and priority-protected mutexes, and what attributes answer. */
#include "conformance.h"

#include <sys/mman.h>

struct traits {
    int type, robust, shared, protocol;
};

static int try_make(pthread_mutex_t *mutex, struct traits traits)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    CHECK_OK(pthread_mutexattr_settype(&a, traits.type));
    CHECK_OK(pthread_mutexattr_setrobust(&a, traits.robust));
    CHECK_OK(pthread_mutexattr_setpshared(&a, traits.shared));
    CHECK_OK(pthread_mutexattr_setprotocol(&a, traits.protocol));
    int rc = pthread_mutex_init(mutex, &a);
    CHECK_OK(pthread_mutexattr_destroy(&a));
    return rc;
}

static void make(pthread_mutex_t *mutex, struct traits traits)
{
    CHECK_OK(try_make(mutex, traits));
}

#define ROBUST .robust = PTHREAD_MUTEX_ROBUST
#define SHARED .shared = PTHREAD_PROCESS_SHARED
#define INHERIT .protocol = PTHREAD_PRIO_INHERIT

static int lock_far(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return pthread_mutex_timedlock(mutex, &far);
}

static void *lock_and_die(void *mutex)
{
    CHECK_OK(pthread_mutex_lock(mutex));
    return NULL;
}

/* ---- Robust ---- */

static void recovers(struct traits traits, mutex_call *lock)
{
    pthread_mutex_t mutex;
    make(&mutex, traits);
    for (int i = 0; i < 3; i++) {
        thread_join(thread_start(lock_and_die, &mutex));
        CHECK_RC(lock(&mutex), EOWNERDEAD);
        CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
        CHECK_OK(pthread_mutex_consistent(&mutex));
        CHECK_OK(pthread_mutex_unlock(&mutex));
        CHECK_OK(trylock_elsewhere(&mutex));
    }
    check_excludes(&mutex);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

CHECK(passthrough, robust_lock_recovers) { recovers((struct traits){ROBUST}, pthread_mutex_lock); }

CHECK(passthrough, robust_trylock_recovers) { recovers((struct traits){ROBUST}, pthread_mutex_trylock); }

CHECK(passthrough, robust_timedlock_recovers) { recovers((struct traits){ROBUST}, lock_far); }

CHECK(passthrough, robust_recursive_recovers)
{
    recovers((struct traits){ROBUST, .type = PTHREAD_MUTEX_RECURSIVE}, pthread_mutex_lock);
}

CHECK(passthrough, robust_shared_recovers) { recovers((struct traits){ROBUST, SHARED}, pthread_mutex_lock); }

CHECK(passthrough, robust_inheriting_recovers) { recovers((struct traits){ROBUST, INHERIT}, pthread_mutex_lock); }

CHECK(passthrough, robust_not_made_consistent_is_lost)
{
    pthread_mutex_t mutex;
    make(&mutex, (struct traits){ROBUST});
    thread_join(thread_start(lock_and_die, &mutex));
    CHECK_RC(pthread_mutex_lock(&mutex), EOWNERDEAD);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 3; i++) {
        CHECK_RC(pthread_mutex_lock(&mutex), ENOTRECOVERABLE);
        CHECK_RC(lock_far(&mutex), ENOTRECOVERABLE);
    }
    /* Last: glibc 2.36's trylock gives this answer but keeps the mutex locked. */
    CHECK_RC(trylock_elsewhere(&mutex), ENOTRECOVERABLE);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

struct waiter_of_the_dead {
    pthread_mutex_t mutex;
    struct gate held, die;
};

static void *hold_and_die(void *argument)
{
    struct waiter_of_the_dead *w = argument;
    CHECK_OK(pthread_mutex_lock(&w->mutex));
    gate_open(&w->held);
    gate_wait(&w->die, 1);
    return NULL;
}

static int lock_of_the_dead(pthread_mutex_t *mutex)
{
    int rc = pthread_mutex_lock(mutex);
    return rc == EOWNERDEAD ? pthread_mutex_consistent(mutex) : rc;
}

CHECK(passthrough, robust_waiters_get_it_when_the_owner_dies)
{
    struct waiter_of_the_dead w = {.held = {0}};
    struct locker waiters[3];
    make(&w.mutex, (struct traits){ROBUST});
    pthread_t owner = thread_start(hold_and_die, &w);
    gate_wait(&w.held, 1);
    for (int i = 0; i < 3; i++) locker_start(&waiters[i], &w.mutex, lock_of_the_dead, NULL);
    gate_open(&w.die);
    thread_join(owner);
    for (int i = 0; i < 3; i++) locker_join(&waiters[i]);
}

CHECK(passthrough, robust_knows_its_owner)
{
    pthread_mutex_t mutex;
    make(&mutex, (struct traits){ROBUST, .type = PTHREAD_MUTEX_ERRORCHECK});
    CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(pthread_mutex_lock(&mutex), EDEADLK);
    CHECK_RC(unlock_elsewhere(&mutex), EPERM);
    CHECK_RC(pthread_mutex_consistent(&mutex), EINVAL);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

CHECK(passthrough, consistent_needs_a_robust_mutex)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_RC(pthread_mutex_consistent(&mutex), EINVAL);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(pthread_mutex_consistent(&mutex), EINVAL);
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

static _Noreturn void hold_and_be_killed(pthread_mutex_t *mutex, struct gate *held)
{
    CHECK_OK(pthread_mutex_lock(mutex));
    gate_open(held);
    for (;;) pause();
}

CHECK(passthrough, robust_shared_survives_a_killed_process)
{
    struct waiter_of_the_dead *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct locker waiter;
    make(&w->mutex, (struct traits){ROBUST, SHARED});
    for (int i = 1; i <= 5; i++) {
        pid_t pid = fork();
        if (pid == 0) hold_and_be_killed(&w->mutex, &w->held);
        gate_wait(&w->held, i);
        CHECK_RC(pthread_mutex_trylock(&w->mutex), EBUSY);
        if (i % 2) locker_start(&waiter, &w->mutex, lock_of_the_dead, NULL);
        CHECK_EQ(kill(pid, SIGKILL), 0);
        CHECK_EQ(process_status(pid), 256 + SIGKILL);
        if (i % 2)
            locker_join(&waiter);
        else {
            CHECK_OK(lock_of_the_dead(&w->mutex));
            CHECK_OK(pthread_mutex_unlock(&w->mutex));
        }
    }
}

/* ---- A private condition variable with a robust mutex ---- */

struct robust_wait {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool timed, waiting, signalled;
};

static void *wait_for_the_dead(void *argument)
{
    struct robust_wait *w = argument;
    struct timespec far = time_far(CLOCK_REALTIME);
    int rc = 0;
    CHECK_OK(pthread_mutex_lock(&w->mutex));
    w->waiting = true;
    while (rc == 0 && !w->signalled)
        rc = w->timed ? pthread_cond_timedwait(&w->cond, &w->mutex, &far) : pthread_cond_wait(&w->cond, &w->mutex);
    CHECK_RC(rc, EOWNERDEAD); /* and it holds the mutex */
    CHECK_RC(trylock_elsewhere(&w->mutex), EBUSY);
    CHECK_OK(pthread_mutex_consistent(&w->mutex));
    CHECK_OK(pthread_mutex_unlock(&w->mutex));
    return NULL;
}

static void *signal_and_die(void *argument)
{
    struct robust_wait *w = argument;
    for (bool waiting = false; !waiting; sched_yield()) {
        CHECK_OK(pthread_mutex_lock(&w->mutex));
        waiting = w->waiting;
        if (waiting) break;
        CHECK_OK(pthread_mutex_unlock(&w->mutex));
    }
    w->signalled = true;
    CHECK_OK(pthread_cond_signal(&w->cond));
    return NULL;
}

static void owner_dies_during_wait(bool timed)
{
    struct robust_wait w = {.cond = PTHREAD_COND_INITIALIZER, .timed = timed};
    make(&w.mutex, (struct traits){ROBUST});
    pthread_t waiter = thread_start(wait_for_the_dead, &w);
    thread_join(thread_start(signal_and_die, &w));
    thread_join(waiter);
    check_excludes(&w.mutex);
    CHECK_OK(pthread_cond_destroy(&w.cond));
}

CHECK(passthrough, robust_owner_death_comes_out_of_wait) { owner_dies_during_wait(false); }

CHECK(passthrough, robust_owner_death_comes_out_of_timedwait) { owner_dies_during_wait(true); }

/* ---- Priority inheritance ---- */

CHECK(passthrough, inheriting_excludes)
{
    pthread_mutex_t mutex;
    make(&mutex, (struct traits){INHERIT});
    check_excludes(&mutex);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

CHECK(passthrough, inheriting_recursive_and_errorcheck)
{
    pthread_mutex_t recursive, errorcheck;
    make(&recursive, (struct traits){INHERIT, .type = PTHREAD_MUTEX_RECURSIVE});
    make(&errorcheck, (struct traits){INHERIT, .type = PTHREAD_MUTEX_ERRORCHECK});
    for (int i = 0; i < 3; i++) CHECK_OK(pthread_mutex_lock(&recursive));
    for (int i = 0; i < 3; i++) {
        CHECK_RC(trylock_elsewhere(&recursive), EBUSY);
        CHECK_OK(pthread_mutex_unlock(&recursive));
    }
    CHECK_OK(trylock_elsewhere(&recursive));
    CHECK_OK(pthread_mutex_lock(&errorcheck));
    CHECK_RC(pthread_mutex_lock(&errorcheck), EDEADLK);
    CHECK_RC(unlock_elsewhere(&errorcheck), EPERM);
    CHECK_OK(pthread_mutex_unlock(&errorcheck));
    check_excludes(&recursive);
    check_excludes(&errorcheck);
}

static void *time_out(void *mutex)
{
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 20);
    CHECK_RC(pthread_mutex_timedlock(mutex, &deadline), ETIMEDOUT);
    CHECK_REACHED(CLOCK_REALTIME, deadline);
    return NULL;
}

CHECK(passthrough, inheriting_times_out)
{
    pthread_mutex_t mutex;
    make(&mutex, (struct traits){INHERIT});
    CHECK_OK(pthread_mutex_lock(&mutex));
    threads_run(2, time_out, &mutex);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(lock_far(&mutex));
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

/* ---- Priority ceilings ---- */

CHECK(passthrough, ceiling_needs_a_protected_mutex)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int ceiling;
    CHECK_RC(pthread_mutex_getprioceiling(&mutex, &ceiling), EINVAL);
    CHECK_RC(pthread_mutex_setprioceiling(&mutex, 5, &ceiling), EINVAL);
    CHECK_OK(trylock_elsewhere(&mutex));
}

static void make_protected(pthread_mutex_t *mutex, int ceiling)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    CHECK_OK(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_PROTECT));
    CHECK_OK(pthread_mutexattr_setprioceiling(&a, ceiling));
    CHECK_OK(pthread_mutex_init(mutex, &a));
    CHECK_OK(pthread_mutexattr_destroy(&a));
}

CHECK(passthrough, ceiling_can_be_read_and_changed)
{
    pthread_mutex_t mutex;
    int ceiling = 0, old = 0;
    struct sched_param priority = {.sched_priority = 5};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) != 0) SKIP("may not use SCHED_FIFO");
    make_protected(&mutex, 20);
    CHECK_OK(pthread_mutex_getprioceiling(&mutex, &ceiling));
    CHECK_EQ(ceiling, 20);
    CHECK_OK(pthread_mutex_setprioceiling(&mutex, 30, &old));
    CHECK_EQ(old, 20);
    CHECK_OK(pthread_mutex_getprioceiling(&mutex, &ceiling));
    CHECK_EQ(ceiling, 30);
    CHECK_OK(pthread_mutex_destroy(&mutex));
}

CHECK(passthrough, protected_excludes_and_refuses_who_outranks_it)
{
    pthread_mutex_t mutex;
    struct sched_param priority = {.sched_priority = 5};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) != 0) SKIP("may not use SCHED_FIFO");
    make_protected(&mutex, 20);
    check_excludes(&mutex);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    priority.sched_priority = 40;
    CHECK_OK(pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority));
    CHECK_RC(pthread_mutex_lock(&mutex), EINVAL);
    CHECK_RC(pthread_mutex_trylock(&mutex), EINVAL);
}

CHECK(passthrough, robust_and_protected_is_enotsup)
{
    pthread_mutex_t mutex;
    CHECK_RC(try_make(&mutex, (struct traits){ROBUST, .protocol = PTHREAD_PRIO_PROTECT}), ENOTSUP);
}
