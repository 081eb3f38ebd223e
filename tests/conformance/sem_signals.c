/* Waits for semaphores and signals: handlers that interrupt them, that post, and that freeze. */
#include "sem.h"

/* ---- Signal handlers ---- */

static sem_t *posted_in_handler;
static struct gate handled;

static void do_nothing(int number)
{
    (void)number;
    gate_open(&handled);
}

static void post_here(int number)
{
    (void)number;
    int saved = errno;
    HOT_OK(sem_post(posted_in_handler));
    errno = saved;
}

static void handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    CHECK_EQ(sigaction(number, &action, NULL), 0);
}

CHECK(sem_signals, a_handler_ends_the_wait_with_eintr)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    handle(SIGUSR1, do_nothing, 0);
    for (int i = 0; i < 6; i++) {
        struct waiter w = {.sem = &sem, .clock = sem_clocks[i % 3], .until = time_far(sem_clocks[i % 3])};
        waiter_start(&w);
        while (atomic_load(&w.answer) == -1) { /* one that comes before it sleeps does not count */
            CHECK_OK(pthread_kill(w.thread, SIGUSR1));
            nap_ms(2);
        }
        thread_join(w.thread);
        CHECK_RC(atomic_load(&w.answer), EINTR);
    }
    CHECK_EQ(sem_value(&sem), 0);
    CHECK_OK(sem_destroy(&sem));
}

CHECK(sem_signals, sa_restart_restarts_an_untimed_wait)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    handle(SIGUSR1, do_nothing, SA_RESTART);
    struct waiter w = {.sem = &sem, .clock = NO_CLOCK};
    waiter_start(&w);
    for (int i = 1; i <= 20; i++) {
        CHECK_OK(pthread_kill(w.thread, SIGUSR1));
        gate_wait(&handled, i);
        nap_us(200);
        CHECK_EQ(atomic_load(&w.answer), -1);
    }
    CHECK_OK(sem_post(&sem));
    thread_join(w.thread);
    CHECK_RC(atomic_load(&w.answer), 0);
}

CHECK(sem_signals, a_post_in_the_waiters_own_handler_is_taken)
{
    static sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    posted_in_handler = &sem;
    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        handle(SIGUSR1, post_here, flags);
        for (int i = 0; i < 20; i++) {
            struct waiter w = {.sem = &sem, .clock = NO_CLOCK};
            waiter_start(&w);
            CHECK_OK(pthread_kill(w.thread, SIGUSR1));
            thread_join(w.thread);
            /* With EINTR it leaves the permit where it is. */
            if (atomic_load(&w.answer) != 0) CHECK_RC(atomic_load(&w.answer), EINTR);
            CHECK_EQ(sem_value(&sem), atomic_load(&w.answer) == 0 ? 0 : 1);
            if (atomic_load(&w.answer) != 0) CHECK_OK(sem_wait(&sem));
        }
    }
}

/* One thread posts and waits, interrupted all the time by handlers that post to the same semaphore. */
static atomic_bool enough;
static atomic_long from_handlers;

static void post_and_count(int number)
{
    (void)number;
    int saved = errno;
    HOT_OK(sem_post(posted_in_handler));
    atomic_fetch_add(&from_handlers, 1);
    errno = saved;
}

static void *post_and_wait(void *argument)
{
    sem_t *sem = argument;
    long balance = 0;
    while (!atomic_load(&enough)) {
        HOT_OK(sem_post(sem));
        int rc = sem_code(sem_wait(sem));
        if (rc == EINTR) balance++;
        else HOT_RC(rc, 0);
    }
    return (void *)balance;
}

static void *take_all(void *argument)
{
    sem_t *sem = argument;
    long taken = 0;
    while (!atomic_load(&enough)) {
        struct timespec soon = time_after_ms(CLOCK_REALTIME, 1);
        int rc = sem_code(sem_timedwait(sem, &soon));
        if (rc == 0) taken++;
        else if (rc != EINTR) HOT_RC(rc, ETIMEDOUT);
    }
    return (void *)taken;
}

CHECK(sem_signals, handlers_post_to_what_they_interrupt)
{
    static sem_t sem;
    pthread_t threads[6];
    CHECK_OK(sem_init(&sem, 0, 0));
    posted_in_handler = &sem;
    handle(SIGUSR1, post_and_count, 0);
    for (int i = 0; i < 6; i++) threads[i] = thread_start(i < 3 ? post_and_wait : take_all, &sem);
    struct timespec end = time_after_ms(CLOCK_MONOTONIC, 400);
    for (uint32_t i = 0; !time_reached(CLOCK_MONOTONIC, end); i++) {
        CHECK_OK(pthread_kill(threads[i % 6], SIGUSR1));
        if (i % 4 == 0) nap_us(20);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 6; i++) sem_post(&sem); /* for the threads that wait without a deadline */
    long posted = atomic_load(&from_handlers) + 6, taken = 0, balance = 0;
    for (int i = 0; i < 6; i++) {
        long result = (long)thread_join(threads[i]);
        if (i < 3) balance += result;
        else taken += result;
    }
    posted = atomic_load(&from_handlers) + 6;
    CHECK_EQ(sem_value(&sem), posted + balance - taken);
}

/* ---- Frozen waiters hold no thread up ---- */

static struct gate frozen, thaw;

static void freeze_here(int number)
{
    (void)number;
    gate_open(&frozen);
    gate_wait(&thaw, 1);
}

static void frozen_waiters(int count, unsigned who)
{
    sem_t sem;
    struct waiter w[8];
    int running = 0, stopped = 0;
    CHECK_OK(sem_init(&sem, 0, 0));
    handle(SIGUSR1, freeze_here, SA_RESTART);
    for (int i = 0; i < count; i++) {
        w[i] = (struct waiter){.sem = &sem, .clock = NO_CLOCK};
        waiter_start(&w[i]);
    }
    for (int i = 0; i < count; i++) {
        if (!(who >> i & 1)) {
            running++;
            continue;
        }
        CHECK_OK(pthread_kill(w[i].thread, SIGUSR1));
        gate_wait(&frozen, ++stopped);
    }
    /* A permit goes to a thread that runs. */
    for (int i = 0; i < running; i++) {
        CHECK_OK(sem_post(&sem));
        nap_us(i * 100);
    }
    for (int i = 0; i < count; i++)
        if (!(who >> i & 1)) thread_join(w[i].thread);
    CHECK_EQ(sem_value(&sem), 0);
    for (int i = 0; i < 200; i++) {
        CHECK_OK(sem_post(&sem));
        CHECK_OK(sem_wait(&sem));
    }
    for (int i = 0; i < stopped; i++) CHECK_OK(sem_post(&sem));
    CHECK_EQ(sem_value(&sem), stopped);
    gate_open(&thaw);
    for (int i = 0; i < count; i++)
        if (who >> i & 1) thread_join(w[i].thread);
    for (int i = 0; i < count; i++)
        if (atomic_load(&w[i].answer) == EINTR) CHECK_OK(sem_wait(&sem));
    CHECK_EQ(sem_value(&sem), 0);
    CHECK_OK(sem_destroy(&sem));
}

CHECK(sem_signals, frozen_first_of_four) { frozen_waiters(4, 1); }

CHECK(sem_signals, frozen_last_of_four) { frozen_waiters(4, 8); }

CHECK(sem_signals, frozen_three_of_five) { frozen_waiters(5, 0x15); }
