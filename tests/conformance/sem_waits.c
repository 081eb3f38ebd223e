/* Waits for semaphores that end otherwise: deadlines, cancellation, forks. */
#include "lost.h"
#include "sem.h"

#include <sys/wait.h>

/* ---- Deadlines ---- */

CHECK(sem_waits, deadlines_are_reached)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    for (int i = 0; i < 10; i++) {
        struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
        CHECK_RC(sem_code(sem_timedwait(&sem, &deadline)), ETIMEDOUT);
        CHECK_REACHED(CLOCK_REALTIME, deadline);
        clockid_t clock = i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        deadline = time_after_ms(clock, 5);
        CHECK_RC(sem_code(sem_clockwait(&sem, clock, &deadline)), ETIMEDOUT);
        CHECK_REACHED(clock, deadline);
    }
    CHECK_EQ(sem_value(&sem), 0);
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
        CHECK_RC(sem_code(rc), ETIMEDOUT);
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

/* A post at about the deadline: a waiter that says that it timed out has not taken it. */
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
            w[j].thread = thread_start(waiter_run, &w[j]);
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
        if (got + sem_value(&sem) != 2) FAIL("2 permits, %d taken, %d left", got, sem_value(&sem));
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
        int rc = sem_code(sem_clockwait(&c->sem, CLOCK_MONOTONIC, &deadline));
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
    CHECK_EQ(sem_value(&c.sem), 0);
    CHECK_OK(sem_destroy(&c.sem));
}

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
    int rc = waiter_wait(w);
    atomic_store(&w->answer, sem_code(rc));
    pthread_cleanup_pop(0);
    return NULL;
}

CHECK(sem_waits, cancelled_while_waiting)
{
    sem_t sem;
    CHECK_OK(sem_init(&sem, 0, 0));
    for (int i = 0; i < 30; i++) {
        struct waiter w = {.sem = &sem, .clock = sem_clocks[i % 3], .until = time_far(sem_clocks[i % 3])};
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
    CHECK_EQ(sem_value(&sem), 0);
    CHECK_OK(sem_post(&sem));
    CHECK_OK(sem_wait(&sem));
    CHECK_OK(sem_destroy(&sem));
}

/* A cancellation that is pending is acted upon even if there is a permit, which is not taken. (glibc's sem_clockwait
 * takes it.) */
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
        struct waiter w = {.sem = &sem, .clock = sem_clocks[i], .until = time_far(sem_clocks[i])};
        CHECK_TRUE(thread_join(thread_start(wait_when_told, &w)) == PTHREAD_CANCELED, "not cancelled");
        CHECK_EQ(gate_count(&cleaned), i + 1);
        CHECK_EQ(value_in_cleanup, 1);
        CHECK_EQ(sem_value(&sem), 1);
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
                w[j].thread = thread_start(waiter_run, &w[j]);
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
        if (sem_value(&sem) != cancelled) FAIL("%d cancelled, %d permits left", cancelled, sem_value(&sem));
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
            CHECK_RC(sem_code(sem_trywait(&sem)), EAGAIN);
            CHECK_RC(sem_code(sem_timedwait(&sem, &past)), ETIMEDOUT);
            if (i % 4 == 0) CHECK_RC(sem_code(sem_clockwait(&sem, CLOCK_MONOTONIC, &deadline)), ETIMEDOUT);
            for (int j = 0; j < 5; j++) CHECK_OK(sem_post(&sem));
            CHECK_EQ(sem_value(&sem), 5);
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
        CHECK_EQ(sem_value(&sem), 0);
        CHECK_OK(sem_destroy(&sem));
    }
}

static atomic_bool enough;

/* Forked while others are anywhere in a post or a wait: the semaphore can be used, and lacks no permit that was there
 * for good. */
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
            int value = sem_value(&sem);
            if (value < 2 || value > 4) FAIL("%d permits", value);
            for (int j = 0; j < value; j++) CHECK_OK(sem_wait(&sem));
            struct timespec deadline = time_after_ms(CLOCK_MONOTONIC, 1);
            CHECK_RC(sem_code(sem_clockwait(&sem, CLOCK_MONOTONIC, &deadline)), ETIMEDOUT);
            _exit(0);
        }
        CHECK_EQ(process_status(pid), 0);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 6; i++) thread_join(threads[i]);
    CHECK_EQ(sem_value(&sem), 2);
}

/* ---- Threads blocked for good on a semaphore whose memory is gone ---- */

static void make_empty(void *object)
{
    CHECK_OK(sem_init(object, 0, 0));
}

static int wait_for_ever(void *object, int me)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return sem_code(me % 2 ? sem_timedwait(object, &far) : sem_wait(object));
}

static const struct lost lost_semaphore = {make_empty, wait_for_ever, NULL};

CHECK(sem_waits, memory_gone_under_waiters) { lost_and_gone(&lost_semaphore, 5); }

CHECK(sem_waits, memory_reused_under_waiters) { lost_and_reused(&lost_semaphore, 5); }
