/*
 * A mutex that a waiter on a condition variable is to acquire again is in use, even if no thread holds it: to destroy
 * it is EBUSY, as glibc answers. And when all waits have ended, however they did, it is not.
 */
#include "conformance.h"

enum { CROWD = 12 };

static pthread_mutex_t mutex;
static pthread_cond_t cond;
static int waiting, tokens; /* with the mutex */
static struct gate left;

static void *wait_for_a_token(void *unused)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    waiting++;
    while (tokens == 0) CHECK_OK(pthread_cond_wait(&cond, &mutex));
    tokens--;
    waiting--;
    CHECK_OK(pthread_mutex_unlock(&mutex));
    gate_open(&left);
    return unused;
}

static void *time_out(void *clock)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    waiting++;
    struct timespec soon = time_after_ms(CLOCK_MONOTONIC, 5);
    int rc = 0;
    while (rc == 0) rc = pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &soon);
    CHECK_RC(rc, ETIMEDOUT);
    waiting--;
    CHECK_OK(pthread_mutex_unlock(&mutex));
    return clock;
}

static void unlock_it(void *unused)
{
    (void)unused;
    waiting--;
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

static void *wait_for_ever(void *unused)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    waiting++;
    pthread_cleanup_push(unlock_it, NULL);
    for (;;) CHECK_OK(pthread_cond_wait(&cond, &mutex));
    pthread_cleanup_pop(1);
    return unused;
}

static void await_waiting(int count)
{
    for (bool all = false; !all;) {
        CHECK_OK(pthread_mutex_lock(&mutex));
        all = waiting == count;
        CHECK_OK(pthread_mutex_unlock(&mutex));
        if (!all) nap_us(100);
    }
}

static void start(pthread_t *threads, int count, void *(*body)(void *), int kind, bool shared)
{
    pthread_condattr_t attr;
    CHECK_OK(pthread_condattr_init(&attr));
    CHECK_OK(pthread_condattr_setpshared(&attr, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE));
    CHECK_OK(pthread_cond_init(&cond, &attr));
    mutex_make(&mutex, kind);
    waiting = tokens = 0;
    left = (struct gate){0};
    for (int i = 0; i < count; i++) threads[i] = thread_start(body, NULL);
    if (body != time_out) await_waiting(count);
}

static void end(pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++) thread_join(threads[i]);
    CHECK_OK(pthread_mutex_destroy(&mutex));
    CHECK_OK(pthread_cond_destroy(&cond));
}

/* Gives tokens one by one, or all at once: with the mutex held, so that a broadcast may move waiters to its queue. */
static void give(int count, bool at_once)
{
    CHECK_OK(pthread_mutex_lock(&mutex));
    tokens += count;
    CHECK_OK(at_once ? pthread_cond_broadcast(&cond) : pthread_cond_signal(&cond));
    CHECK_OK(pthread_mutex_unlock(&mutex));
}

static void woken(int kind, bool shared)
{
    pthread_t threads[CROWD];
    start(threads, CROWD, wait_for_a_token, kind, shared);
    for (int i = 0; i < CROWD / 2; i++) {
        CHECK_RC(pthread_mutex_destroy(&mutex), EBUSY);
        give(1, false);
        gate_wait(&left, i + 1);
    }
    CHECK_RC(pthread_mutex_destroy(&mutex), EBUSY);
    give(CROWD - CROWD / 2, true);
    end(threads, CROWD);
}

static void timed_out(int kind, bool shared)
{
    pthread_t threads[CROWD];
    start(threads, CROWD, time_out, kind, shared);
    end(threads, CROWD);
}

static void cancelled(int kind, bool shared)
{
    pthread_t threads[CROWD];
    start(threads, CROWD, wait_for_ever, kind, shared);
    for (int i = 0; i < CROWD; i++) {
        CHECK_RC(pthread_mutex_destroy(&mutex), EBUSY);
        CHECK_OK(pthread_cancel(threads[i]));
        await_waiting(CROWD - 1 - i);
    }
    end(threads, CROWD);
}

static void refused(int kind, bool shared)
{
    start(NULL, 0, NULL, kind, shared);
    CHECK_RC(pthread_cond_wait(&cond, &mutex), EPERM);
    end(NULL, 0);
}

#define BUSY_CHECKS(title, kind)                                                                                      \
    CHECK(cond_busy, a_##title##_mutex_until_all_are_woken) { woken(kind, false); }                                   \
    CHECK(cond_busy, a_##title##_mutex_after_waits_that_timed_out) { timed_out(kind, false); }                        \
    CHECK(cond_busy, a_##title##_mutex_until_all_are_cancelled) { cancelled(kind, false); }                           \
    CHECK(cond_busy, a_##title##_mutex_until_all_are_woken_by_a_shared_condition) { woken(kind, true); }              \
    CHECK(cond_busy, a_##title##_mutex_until_all_are_cancelled_at_a_shared_condition) { cancelled(kind, true); }

KINDS(BUSY_CHECKS)

CHECK(cond_busy, not_an_errorcheck_mutex_whose_wait_was_refused) { refused(PTHREAD_MUTEX_ERRORCHECK, false); }
CHECK(cond_busy, not_a_recursive_mutex_whose_wait_was_refused) { refused(PTHREAD_MUTEX_RECURSIVE, false); }

/* Glibc's own to serve, with a condition variable that is not. */
CHECK(cond_busy, an_inheriting_mutex_until_all_are_woken)
{
    pthread_t threads[CROWD];
    pthread_mutexattr_t attr;
    start(threads, 0, NULL, KIND_DEFAULT, false);
    CHECK_OK(pthread_mutexattr_init(&attr));
    CHECK_OK(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
    CHECK_OK(pthread_mutex_init(&mutex, &attr));
    for (int i = 0; i < CROWD; i++) threads[i] = thread_start(wait_for_a_token, NULL);
    await_waiting(CROWD);
    CHECK_RC(pthread_mutex_destroy(&mutex), EBUSY);
    give(CROWD, true);
    end(threads, CROWD);
}

/* A child has the waiters' count, but not the waiters: made anew, the mutex is not in use. */
CHECK(cond_busy, not_one_made_anew_in_a_child)
{
    pthread_t threads[CROWD];
    start(threads, CROWD, wait_for_a_token, KIND_DEFAULT, false);
    pid_t child = fork();
    if (child == 0) {
        CHECK_RC(pthread_mutex_destroy(&mutex), EBUSY);
        CHECK_OK(pthread_mutex_init(&mutex, NULL));
        CHECK_OK(pthread_mutex_destroy(&mutex));
        _exit(0);
    }
    CHECK_EQ(process_status(child), 0);
    give(CROWD, true);
    end(threads, CROWD);
}
