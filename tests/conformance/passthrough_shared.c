/* Process-shared objects between processes, and pairs in which only one of mutex and condition variable is shared. */
#include "conformance.h"

#include <sys/mman.h>

static void *shared_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) FAIL("mmap: %s", code_name(errno));
    return memory;
}

static void make_mutex(pthread_mutex_t *mutex, int type, int shared, int protocol)
{
    pthread_mutexattr_t a;
    CHECK_OK(pthread_mutexattr_init(&a));
    CHECK_OK(pthread_mutexattr_settype(&a, type));
    CHECK_OK(pthread_mutexattr_setpshared(&a, shared));
    CHECK_OK(pthread_mutexattr_setprotocol(&a, protocol));
    CHECK_OK(pthread_mutex_init(mutex, &a));
    CHECK_OK(pthread_mutexattr_destroy(&a));
}

static void make_cond(pthread_cond_t *cond, int shared, clockid_t clock)
{
    pthread_condattr_t a;
    CHECK_OK(pthread_condattr_init(&a));
    CHECK_OK(pthread_condattr_setpshared(&a, shared));
    CHECK_OK(pthread_condattr_setclock(&a, clock));
    CHECK_OK(pthread_cond_init(cond, &a));
    CHECK_OK(pthread_condattr_destroy(&a));
}

/* ---- Mutexes ---- */

struct common {
    pthread_mutex_t mutex;
    volatile long counter;
    atomic_long made;
};

static void *add_many(void *argument)
{
    struct common *c = argument;
    int made = 0;
    for (; made < 10000 && (made % 64 || !time_is_short()); made++) {
        HOT_OK(pthread_mutex_lock(&c->mutex));
        long seen = c->counter;
        if (made % 128 == 0) sched_yield();
        c->counter = seen + 1;
        HOT_OK(pthread_mutex_unlock(&c->mutex));
    }
    atomic_fetch_add(&c->made, made);
    return NULL;
}

static void excludes_between_processes(int type)
{
    struct common *c = shared_memory(sizeof *c);
    pid_t pids[2];
    make_mutex(&c->mutex, type, PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_NONE);
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            threads_run(2, add_many, c);
            _exit(0);
        }
    }
    threads_run(2, add_many, c);
    for (int i = 0; i < 2; i++) CHECK_EQ(process_status(pids[i]), 0);
    CHECK_EQ(c->counter, atomic_load(&c->made));
    CHECK_OK(pthread_mutex_destroy(&c->mutex));
}

CHECK(passthrough, shared_normal_excludes) { excludes_between_processes(PTHREAD_MUTEX_NORMAL); }

CHECK(passthrough, shared_recursive_excludes) { excludes_between_processes(PTHREAD_MUTEX_RECURSIVE); }

CHECK(passthrough, shared_errorcheck_excludes) { excludes_between_processes(PTHREAD_MUTEX_ERRORCHECK); }

CHECK(passthrough, shared_adaptive_excludes) { excludes_between_processes(PTHREAD_MUTEX_ADAPTIVE_NP); }

/* The same object under two addresses: nothing in it may depend on where it is seen. */
CHECK(passthrough, shared_mutex_at_two_addresses)
{
    int fd = memfd_create("mutex", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, 4096), 0);
    struct common *first = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct common *second = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK_TRUE(first != MAP_FAILED && second != MAP_FAILED && first != second, "mmap failed");
    make_mutex(&first->mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_NONE);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = thread_start(add_many, i % 2 ? first : second);
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
    CHECK_EQ(first->counter, atomic_load(&first->made));
}

CHECK(passthrough, shared_timedlock_times_out_on_another_process)
{
    struct common *c = shared_memory(sizeof *c);
    make_mutex(&c->mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_NONE);
    CHECK_OK(pthread_mutex_lock(&c->mutex));
    pid_t pid = fork();
    if (pid == 0) {
        struct timespec deadline = time_after_ms(CLOCK_MONOTONIC, 20);
        CHECK_RC(pthread_mutex_trylock(&c->mutex), EBUSY);
        CHECK_RC(pthread_mutex_clocklock(&c->mutex, CLOCK_MONOTONIC, &deadline), ETIMEDOUT);
        CHECK_REACHED(CLOCK_MONOTONIC, deadline);
        _exit(0);
    }
    CHECK_EQ(process_status(pid), 0);
    CHECK_OK(pthread_mutex_unlock(&c->mutex));
}

CHECK(passthrough, shared_mutex_released_by_another_process)
{
    struct common *c = shared_memory(sizeof *c);
    struct locker waiter;
    make_mutex(&c->mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_NONE);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(pthread_mutex_lock(&c->mutex));
        locker_start(&waiter, &c->mutex, NULL, NULL);
        pid_t pid = fork();
        if (pid == 0) {
            CHECK_OK(pthread_mutex_unlock(&c->mutex));
            _exit(0);
        }
        locker_join(&waiter);
        CHECK_EQ(process_status(pid), 0);
    }
}

/* ---- Condition variables: two or more parties take turns, in processes or threads ---- */

struct turns {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int turn, parties, rounds;
    clockid_t clock;
    bool timed, broadcast;
    atomic_int tickets;
};

static void *take_turns(void *argument)
{
    struct turns *t = argument;
    int me = atomic_fetch_add(&t->tickets, 1);
    for (int i = 0; i < t->rounds; i++) {
        HOT_OK(pthread_mutex_lock(&t->mutex));
        while (t->turn % t->parties != me) {
            struct timespec far = time_far(t->clock);
            HOT_OK(t->timed && i % 2 ? pthread_cond_timedwait(&t->cond, &t->mutex, &far)
                                     : pthread_cond_wait(&t->cond, &t->mutex));
        }
        t->turn++;
        HOT_OK(t->broadcast ? pthread_cond_broadcast(&t->cond) : pthread_cond_signal(&t->cond));
        HOT_OK(pthread_mutex_unlock(&t->mutex));
    }
    return NULL;
}

static void time_out_holding(struct turns *t)
{
    struct timespec deadline = time_after_ms(t->clock, 10);
    int rc;
    CHECK_OK(pthread_mutex_lock(&t->mutex));
    while ((rc = pthread_cond_timedwait(&t->cond, &t->mutex, &deadline)) == 0)
        ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_REACHED(t->clock, deadline);
    CHECK_RC(trylock_elsewhere(&t->mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&t->mutex));
}

static void turns_finish(struct turns *t)
{
    CHECK_EQ(t->turn, t->parties * t->rounds);
    time_out_holding(t);
    CHECK_OK(pthread_cond_destroy(&t->cond));
    CHECK_OK(pthread_mutex_destroy(&t->mutex));
}

static void turns_between_processes(struct turns model, clockid_t clock)
{
    struct turns *t = shared_memory(sizeof *t);
    pid_t pids[4];
    *t = model;
    t->clock = clock;
    make_mutex(&t->mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_NONE);
    make_cond(&t->cond, PTHREAD_PROCESS_SHARED, clock);
    for (int i = 1; i < t->parties; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            take_turns(t);
            _exit(0);
        }
    }
    take_turns(t);
    for (int i = 1; i < t->parties; i++) CHECK_EQ(process_status(pids[i]), 0);
    turns_finish(t);
}

CHECK(passthrough, shared_cond_ping_pong_between_processes)
{
    turns_between_processes((struct turns){.parties = 2, .rounds = 2000}, CLOCK_REALTIME);
}

CHECK(passthrough, shared_cond_timed_ping_pong_between_processes)
{
    turns_between_processes((struct turns){.parties = 2, .rounds = 1000, .timed = true}, CLOCK_MONOTONIC);
}

CHECK(passthrough, shared_cond_broadcast_among_four_processes)
{
    turns_between_processes((struct turns){.parties = 4, .rounds = 300, .broadcast = true}, CLOCK_REALTIME);
}

/* ---- Mixed pairs, in one process ---- */

static void mixed(int mutex_shared, int protocol, int cond_shared)
{
    for (int parties = 2; parties <= 3; parties++) {
        struct turns t = {.parties = parties, .rounds = 500, .timed = true, .broadcast = parties > 2};
        t.clock = CLOCK_REALTIME;
        make_mutex(&t.mutex, PTHREAD_MUTEX_NORMAL, mutex_shared, protocol);
        make_cond(&t.cond, cond_shared, t.clock);
        threads_run(parties, take_turns, &t);
        turns_finish(&t);
    }
}

CHECK(passthrough, shared_cond_with_private_mutex)
{
    mixed(PTHREAD_PROCESS_PRIVATE, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_SHARED);
}

CHECK(passthrough, private_cond_with_shared_mutex)
{
    mixed(PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE);
}

CHECK(passthrough, private_cond_with_inheriting_mutex)
{
    mixed(PTHREAD_PROCESS_PRIVATE, PTHREAD_PRIO_INHERIT, PTHREAD_PROCESS_PRIVATE);
}

CHECK(passthrough, shared_cond_with_inheriting_shared_mutex)
{
    mixed(PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_INHERIT, PTHREAD_PROCESS_SHARED);
}

/* One private condition variable, now with a plain mutex and now with one that is passed through. */
CHECK(passthrough, private_cond_with_both_sorts_of_mutexes_in_turn)
{
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    for (int i = 0; i < 6; i++) {
        pthread_mutex_t mutex;
        make_mutex(&mutex, PTHREAD_MUTEX_NORMAL, i % 2, i % 3 ? PTHREAD_PRIO_NONE : PTHREAD_PRIO_INHERIT);
        struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
        int rc;
        CHECK_OK(pthread_mutex_lock(&mutex));
        while ((rc = pthread_cond_timedwait(&cond, &mutex, &deadline)) == 0)
            ;
        CHECK_RC(rc, ETIMEDOUT);
        CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        CHECK_OK(pthread_cond_signal(&cond));
    }
    CHECK_OK(pthread_cond_destroy(&cond));
}

static void unlock(void *mutex)
{
    CHECK_OK(pthread_mutex_unlock(mutex));
}

static void *wait_to_be_cancelled(void *argument)
{
    struct turns *t = argument;
    CHECK_OK(pthread_mutex_lock(&t->mutex));
    t->turn++;
    pthread_cleanup_push(unlock, &t->mutex);
    for (;;) CHECK_OK(pthread_cond_wait(&t->cond, &t->mutex));
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled(int mutex_shared, int protocol, int cond_shared)
{
    struct turns t = {.turn = 0};
    make_mutex(&t.mutex, PTHREAD_MUTEX_NORMAL, mutex_shared, protocol);
    make_cond(&t.cond, cond_shared, CLOCK_REALTIME);
    pthread_t thread = thread_start(wait_to_be_cancelled, &t);
    for (int turn = 0; turn == 0; sched_yield()) {
        CHECK_OK(pthread_mutex_lock(&t.mutex));
        turn = t.turn;
        CHECK_OK(pthread_mutex_unlock(&t.mutex));
    }
    CHECK_OK(pthread_cancel(thread));
    CHECK_TRUE(thread_join(thread) == PTHREAD_CANCELED, "not cancelled");
    CHECK_OK(trylock_elsewhere(&t.mutex));
    CHECK_OK(pthread_cond_destroy(&t.cond));
}

CHECK(passthrough, cancelled_in_every_mixed_pair)
{
    for (int i = 0; i < 8; i++)
        cancelled(i & 1 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE,
                  i & 2 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE,
                  i & 4 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
}
