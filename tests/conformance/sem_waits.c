/* Waits for semaphores that end otherwise: deadlines, signal handlers, cancellation, forks, frozen threads. */
#include "conformance.h"

#include <semaphore.h>
#include <stdio.h>
#include <sys/wait.h>

static int code(int rc)
{
    return rc == 0 ? 0 : errno;
}

static int value_of(sem_t *sem)
{
    int value = -1;
    CHECK_OK(sem_getvalue(sem, &value));
    return value;
}

enum { NO_CLOCK = -1 };
static const clockid_t clocks[] = {NO_CLOCK, CLOCK_REALTIME, CLOCK_MONOTONIC};

/* A thread that waits; its answer. */
struct waiter {
    sem_t *sem;
    clockid_t clock; /* NO_CLOCK: sem_wait */
    struct timespec until;
    pthread_t thread;
    _Atomic pid_t tid;
    atomic_int answer; /* -1: none yet */
};

static int wait_on(struct waiter *w)
{
    if (w->clock == NO_CLOCK) return sem_wait(w->sem);
    if (w->clock == CLOCK_REALTIME) return sem_timedwait(w->sem, &w->until);
    return sem_clockwait(w->sem, w->clock, &w->until);
}

static void *wait_as_told(void *argument)
{
    struct waiter *w = argument;
    atomic_store(&w->tid, gettid());
    int rc = wait_on(w);
    atomic_store(&w->answer, code(rc));
    return NULL;
}

static void waiter_start(struct waiter *w)
{
    atomic_store(&w->tid, 0);
    atomic_store(&w->answer, -1);
    w->thread = thread_start(wait_as_told, w);
    while (atomic_load(&w->tid) == 0) sched_yield();
    settle(atomic_load(&w->tid));
}

/* ---- Deadlines ---- */

CHECK(sem_waits, deadlines_are_reached)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    for (int i = 0; i < 10; i++) {
        struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
        CHECK_RC(code(sem_timedwait(&sem, &deadline)), ETIMEDOUT);
        CHECK_REACHED(CLOCK_REALTIME, deadline);
        clockid_t clock = i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        deadline = time_after_ms(clock, 5);
        CHECK_RC(code(sem_clockwait(&sem, clock, &deadline)), ETIMEDOUT);
        CHECK_REACHED(clock, deadline);
    }
    CHECK_EQ(value_of(&sem), 0);
    CHECK_OK(sem_post(&sem));
    CHECK_OK(sem_wait(&sem));
    CHECK_OK(sem_destroy(&sem));
}

CHECK(sem_waits, extreme_deadlines)
{
    static const time_t past[] = {0, -1, INT32_MIN, INT64_MIN};
    static const time_t future[] = {INT32_MAX, 1L << 40, INT64_MAX / 1000000000};
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    for (int i = 0; i < 8; i++) {
        struct timespec time = {past[i / 2], 999};
        int rc = i % 2 ? sem_timedwait(&sem, &time) : sem_clockwait(&sem, CLOCK_MONOTONIC, &time);
        CHECK_RC(code(rc), ETIMEDOUT);
    }
    for (int i = 0; i < 6; i++) {
        struct waiter w = {.sem = &sem, .clock = i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC};
        w.until = (struct timespec){future[i / 2], 999999999};
        waiter_start(&w);
        CHECK_EQ(atomic_load(&w.answer), -1);
        CHECK_OK(sem_post(&sem));
        thread_join(w.thread);
        CHECK_RC(atomic_load(&w.answer), 0);
    }
}

/* A post at about the deadline: who says that it timed out has not taken it. */
CHECK(sem_waits, post_at_the_deadline_is_not_lost)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    for (int i = 0; i < 200 && !time_is_short(); i++) {
        struct timespec deadline = time_after_ms(CLOCK_MONOTONIC, 2);
        struct waiter w[3];
        for (int j = 0; j < 3; j++) {
            w[j] = (struct waiter){.sem = &sem, .clock = CLOCK_MONOTONIC, .until = deadline};
            atomic_store(&w[j].answer, -1);
            w[j].thread = thread_start(wait_as_told, &w[j]);
        }
        while (time_missing_us(CLOCK_MONOTONIC, deadline) > 40 - i % 80)
            ;
        HOT_OK(sem_post(&sem));
        HOT_OK(sem_post(&sem));
        int got = 0;
        for (int j = 0; j < 3; j++) {
            thread_join(w[j].thread);
            if (atomic_load(&w[j].answer) == 0) got++;
            else HOT_RC(atomic_load(&w[j].answer), ETIMEDOUT);
        }
        if (got + value_of(&sem) != 2) FAIL("2 permits, %d taken, %d left", got, value_of(&sem));
        while (sem_trywait(&sem) == 0)
            ;
    }
    CHECK_OK(sem_destroy(&sem));
}

struct crowd {
    sem_t sem;
    atomic_int got, gave_up, tickets;
    atomic_bool over;
};

static void *wait_briefly(void *argument)
{
    struct crowd *c = argument;
    uint32_t random = 1 + atomic_fetch_add(&c->tickets, 1);
    while (!atomic_load(&c->over)) {
        struct timespec deadline = time_after_ms(CLOCK_MONOTONIC, 0);
        deadline.tv_nsec += random_next(&random) % 300000;
        if (deadline.tv_nsec >= 1000000000) continue;
        int rc = code(sem_clockwait(&c->sem, CLOCK_MONOTONIC, &deadline));
        if (rc == 0) atomic_fetch_add(&c->got, 1);
        else if (rc == ETIMEDOUT) atomic_fetch_add(&c->gave_up, 1);
        else FAIL("sem_clockwait says %s", code_name(rc));
    }
    return NULL;
}

CHECK(sem_waits, permits_survive_a_crowd_that_times_out)
{
    enum { POSTS = 3000 };
    struct crowd c = {.got = 0};
    pthread_t threads[8];
    CHECK_OK(sem_init(&c.sem, 0, 0));
    for (int i = 0; i < 8; i++) threads[i] = thread_start(wait_briefly, &c);
    for (int i = 0; i < POSTS; i++) {
        HOT_OK(sem_post(&c.sem));
        if (i % 8 == 0) nap_us(50);
    }
    while (atomic_load(&c.got) < POSTS) nap_us(100);
    atomic_store(&c.over, true);
    for (int i = 0; i < 8; i++) thread_join(threads[i]);
    CHECK_EQ(atomic_load(&c.got), POSTS);
    CHECK_EQ(value_of(&c.sem), 0);
    CHECK_OK(sem_destroy(&c.sem));
}

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

CHECK(sem_waits, a_handler_ends_the_wait_with_eintr)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    handle(SIGUSR1, do_nothing, 0);
    for (int i = 0; i < 6; i++) {
        struct waiter w = {.sem = &sem, .clock = clocks[i % 3], .until = time_far(clocks[i % 3])};
        waiter_start(&w);
        while (atomic_load(&w.answer) == -1) { /* one that comes before it sleeps does not count */
            CHECK_OK(pthread_kill(w.thread, SIGUSR1));
            nap_ms(2);
        }
        thread_join(w.thread);
        CHECK_RC(atomic_load(&w.answer), EINTR);
    }
    CHECK_EQ(value_of(&sem), 0);
    CHECK_OK(sem_destroy(&sem));
}

CHECK(sem_waits, sa_restart_restarts_an_untimed_wait)
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

CHECK(sem_waits, a_post_in_the_waiters_own_handler_is_taken)
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
            CHECK_EQ(value_of(&sem), atomic_load(&w.answer) == 0 ? 0 : 1);
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
        int rc = code(sem_wait(sem));
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
        int rc = code(sem_timedwait(sem, &soon));
        if (rc == 0) taken++;
        else if (rc != EINTR) HOT_RC(rc, ETIMEDOUT);
    }
    return (void *)taken;
}

CHECK(sem_waits, handlers_post_to_what_they_interrupt)
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
    for (int i = 0; i < 6; i++) sem_post(&sem); /* for those who wait without a deadline */
    long posted = atomic_load(&from_handlers) + 6, taken = 0, balance = 0;
    for (int i = 0; i < 6; i++) {
        long result = (long)thread_join(threads[i]);
        if (i < 3) balance += result;
        else taken += result;
    }
    posted = atomic_load(&from_handlers) + 6;
    CHECK_EQ(value_of(&sem), posted + balance - taken);
}

/* ---- Frozen waiters hold nobody up ---- */

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
    /* A permit goes to somebody who runs. */
    for (int i = 0; i < running; i++) {
        CHECK_OK(sem_post(&sem));
        nap_us(i * 100);
    }
    for (int i = 0; i < count; i++)
        if (!(who >> i & 1)) thread_join(w[i].thread);
    CHECK_EQ(value_of(&sem), 0);
    for (int i = 0; i < 200; i++) {
        CHECK_OK(sem_post(&sem));
        CHECK_OK(sem_wait(&sem));
    }
    for (int i = 0; i < stopped; i++) CHECK_OK(sem_post(&sem));
    CHECK_EQ(value_of(&sem), stopped);
    gate_open(&thaw);
    for (int i = 0; i < count; i++)
        if (who >> i & 1) thread_join(w[i].thread);
    for (int i = 0; i < count; i++)
        if (atomic_load(&w[i].answer) == EINTR) CHECK_OK(sem_wait(&sem));
    CHECK_EQ(value_of(&sem), 0);
    CHECK_OK(sem_destroy(&sem));
}

CHECK(sem_waits, frozen_first_of_four) { frozen_waiters(4, 1); }

CHECK(sem_waits, frozen_last_of_four) { frozen_waiters(4, 8); }

CHECK(sem_waits, frozen_three_of_five) { frozen_waiters(5, 0x15); }

/* ---- Cancellation ---- */

static struct gate cleaned;
static int value_in_cleanup;

static void clean_up(void *sem)
{
    CHECK_OK(sem_getvalue(sem, &value_in_cleanup));
    gate_open(&cleaned);
}

static void *wait_with_cleanup(void *argument)
{
    struct waiter *w = argument;
    atomic_store(&w->tid, gettid());
    pthread_cleanup_push(clean_up, w->sem);
    int rc = wait_on(w);
    atomic_store(&w->answer, code(rc));
    pthread_cleanup_pop(0);
    return NULL;
}

CHECK(sem_waits, cancelled_while_waiting)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    for (int i = 0; i < 30; i++) {
        struct waiter w = {.sem = &sem, .clock = clocks[i % 3], .until = time_far(clocks[i % 3])};
        atomic_store(&w.answer, -1);
        pthread_t thread = thread_start(wait_with_cleanup, &w);
        if (i % 3) {
            while (atomic_load(&w.tid) == 0) sched_yield();
            settle(atomic_load(&w.tid));
        }
        CHECK_OK(pthread_cancel(thread));
        CHECK_TRUE(thread_join(thread) == PTHREAD_CANCELED, "not cancelled");
        CHECK_EQ(gate_count(&cleaned) <= i + 1, 1); /* cancelled before it came to the push: no clean-up */
    }
    CHECK_EQ(value_of(&sem), 0);
    CHECK_OK(sem_post(&sem));
    CHECK_OK(sem_wait(&sem));
    CHECK_OK(sem_destroy(&sem));
}

/* A cancellation that is pending is acted upon even if there is a permit, which is not taken. (glibc's sem_clockwait takes it.) */
static void *wait_when_told(void *argument)
{
    struct waiter *w = argument;
    int before;
    CHECK_OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before));
    CHECK_OK(pthread_cancel(pthread_self()));
    CHECK_OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before));
    return wait_with_cleanup(w);
}

CHECK(sem_waits, pending_cancellation_comes_first)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 1));
    for (int i = 0; i < 2; i++) {
        struct waiter w = {.sem = &sem, .clock = clocks[i], .until = time_far(clocks[i])};
        CHECK_TRUE(thread_join(thread_start(wait_when_told, &w)) == PTHREAD_CANCELED, "not cancelled");
        CHECK_EQ(gate_count(&cleaned), i + 1);
        CHECK_EQ(value_in_cleanup, 1);
        CHECK_EQ(value_of(&sem), 1);
    }
}

/* Cancelled and posted to at the same time: the permit is taken, or it is there. */
CHECK(sem_waits, cancellation_swallows_no_permit)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    for (int i = 0; i < 200 && !time_is_short(); i++) {
        struct waiter w[3];
        int cancelled = 0;
        for (int j = 0; j < 3; j++) {
            w[j] = (struct waiter){.sem = &sem, .clock = NO_CLOCK};
            if (j == 0 && i % 4 == 0) {
                atomic_store(&w[j].answer, -1);
                w[j].thread = thread_start(wait_as_told, &w[j]);
            } else {
                waiter_start(&w[j]);
            }
        }
        if (i % 2) HOT_OK(sem_post(&sem));
        int result = pthread_cancel(w[i % 3].thread);
        if (result != ESRCH) HOT_OK(result); /* it may have ended: glibc says so before 2.34 */
        if (i % 2 == 0) HOT_OK(sem_post(&sem));
        HOT_OK(sem_post(&sem));
        HOT_OK(sem_post(&sem));
        for (int j = 0; j < 3; j++)
            if (thread_join(w[j].thread) == PTHREAD_CANCELED) cancelled++;
        if (value_of(&sem) != cancelled) FAIL("%d cancelled, %d permits left", cancelled, value_of(&sem));
        while (sem_trywait(&sem) == 0)
            ;
    }
    CHECK_OK(sem_destroy(&sem));
}

/* ---- Forks ---- */

/* The child inherits waiters that do not exist there. */
CHECK(sem_waits, usable_in_a_forked_child)
{
    for (int i = 0; i < 20; i++) {
        sem_t sem;
        struct waiter w[3];
        CHECK_OK(sem_init(&sem, 0, 0));
        for (int j = 0; j < 3; j++) {
            w[j] = (struct waiter){.sem = &sem, .clock = NO_CLOCK};
            waiter_start(&w[j]);
        }
        pid_t pid = i % 2 ? fork() : raw_fork();
        if (pid == 0) {
            struct timespec past = {0, 0}, deadline = time_after_ms(CLOCK_MONOTONIC, 5);
            CHECK_RC(code(sem_trywait(&sem)), EAGAIN);
            CHECK_RC(code(sem_timedwait(&sem, &past)), ETIMEDOUT);
            if (i % 4 == 0) CHECK_RC(code(sem_clockwait(&sem, CLOCK_MONOTONIC, &deadline)), ETIMEDOUT);
            for (int j = 0; j < 5; j++) CHECK_OK(sem_post(&sem));
            CHECK_EQ(value_of(&sem), 5);
            for (int j = 0; j < 5; j++) CHECK_OK(sem_wait(&sem));
            CHECK_OK(sem_destroy(&sem));
            CHECK_OK(sem_init(&sem, 0, 0));
            CHECK_OK(sem_post(&sem));
            CHECK_OK(sem_wait(&sem));
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
        for (int j = 0; j < 3; j++) CHECK_OK(sem_post(&sem));
        for (int j = 0; j < 3; j++) thread_join(w[j].thread);
        CHECK_EQ(value_of(&sem), 0);
        CHECK_OK(sem_destroy(&sem));
    }
}

/* Forked while others are anywhere in a post or a wait: the semaphore can be used, and lacks no permit that was there for good. */
static void *churn(void *argument)
{
    sem_t *sem = argument;
    while (!atomic_load(&enough)) {
        struct timespec soon = time_after_ms(CLOCK_MONOTONIC, 0);
        soon.tv_nsec = soon.tv_nsec > 999000000 ? 999999999 : soon.tv_nsec + 50000;
        if (sem_clockwait(sem, CLOCK_MONOTONIC, &soon) == 0) HOT_OK(sem_post(sem));
    }
    return NULL;
}

CHECK(sem_waits, forked_in_the_middle_of_everything)
{
    sem_t sem;
    pthread_t threads[6];
    CHECK_OK(sem_init(&sem, 0, 2));
    for (int i = 0; i < 6; i++) threads[i] = thread_start(churn, &sem);
    for (int i = 0; i < 150 && !time_is_short(); i++) {
        pid_t pid = raw_fork();
        if (pid == 0) {
            CHECK_OK(sem_post(&sem));
            CHECK_OK(sem_post(&sem));
            int value = value_of(&sem);
            if (value < 2 || value > 4) FAIL("%d permits", value);
            for (int j = 0; j < value; j++) CHECK_OK(sem_wait(&sem));
            struct timespec deadline = time_after_ms(CLOCK_MONOTONIC, 1);
            CHECK_RC(code(sem_clockwait(&sem, CLOCK_MONOTONIC, &deadline)), ETIMEDOUT);
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 6; i++) thread_join(threads[i]);
    CHECK_EQ(value_of(&sem), 2);
}
