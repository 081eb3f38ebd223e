/* Errors are returned, never put into errno: every call must leave it as it was, also after blocking or failing. */
#include "conformance.h"

#include <threads.h>

enum { MARK = 4242 };

#define QUIET(call, expected)                                                                       \
    do {                                                                                            \
        errno = MARK;                                                                               \
        int result_ = (call), errno_ = errno;                                                       \
        CHECK_TRUE(result_ == (expected), "%s returned %s, expected %s", #call, code_name(result_), \
                   code_name(expected));                                                            \
        CHECK_TRUE(errno_ == MARK, "%s changed errno to %s", #call, code_name(errno_));             \
    } while (0)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static struct timespec soon(clockid_t clock)
{
    return time_after_ms(clock, 5);
}

CHECK(errno_kept, uncontended_mutex_calls)
{
    pthread_mutex_t made;
    struct timespec far = time_far(CLOCK_REALTIME);
    QUIET(pthread_mutex_init(&made, NULL), 0);
    QUIET(pthread_mutex_lock(&made), 0);
    QUIET(pthread_mutex_unlock(&made), 0);
    QUIET(pthread_mutex_trylock(&made), 0);
    QUIET(pthread_mutex_trylock(&made), EBUSY);
    QUIET(pthread_mutex_destroy(&made), EBUSY);
    QUIET(pthread_mutex_unlock(&made), 0);
    QUIET(pthread_mutex_timedlock(&made, &far), 0);
    QUIET(pthread_mutex_unlock(&made), 0);
    QUIET(pthread_mutex_clocklock(&made, CLOCK_REALTIME, &far), 0);
    QUIET(pthread_mutex_unlock(&made), 0);
    QUIET(pthread_mutex_clocklock(&made, -1, &far), EINVAL);
    QUIET(pthread_mutex_destroy(&made), 0);
}

CHECK(errno_kept, refused_mutex_calls)
{
    QUIET(pthread_mutex_unlock(&errorcheck), EPERM);
    QUIET(pthread_mutex_lock(&errorcheck), 0);
    QUIET(pthread_mutex_lock(&errorcheck), EDEADLK);
    QUIET(pthread_mutex_trylock(&errorcheck), EBUSY);
    QUIET(pthread_mutex_unlock(&errorcheck), 0);
}

CHECK(errno_kept, timed_out_mutex_calls)
{
    struct timespec bad = {1, -1}, deadline;
    QUIET(pthread_mutex_lock(&mutex), 0);
    deadline = soon(CLOCK_REALTIME);
    QUIET(pthread_mutex_timedlock(&mutex, &deadline), ETIMEDOUT);
    deadline = soon(CLOCK_MONOTONIC);
    QUIET(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &deadline), ETIMEDOUT);
    QUIET(pthread_mutex_timedlock(&mutex, &bad), EINVAL);
    QUIET(pthread_mutex_unlock(&mutex), 0);
}

static int lock_quietly(pthread_mutex_t *m)
{
    QUIET(pthread_mutex_lock(m), 0);
    return 0;
}

static int timedlock_quietly(pthread_mutex_t *m)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    QUIET(pthread_mutex_timedlock(m, &far), 0);
    return 0;
}

static int unlock_quietly(pthread_mutex_t *m)
{
    QUIET(pthread_mutex_unlock(m), 0);
    return 0;
}

CHECK(errno_kept, contended_mutex_calls)
{
    struct locker waiters[6];
    QUIET(pthread_mutex_lock(&mutex), 0);
    for (int i = 0; i < 6; i++)
        locker_start(&waiters[i], &mutex, i % 2 ? lock_quietly : timedlock_quietly, unlock_quietly);
    QUIET(pthread_mutex_unlock(&mutex), 0);
    for (int i = 0; i < 6; i++) locker_join(&waiters[i]);
}

CHECK(errno_kept, contended_in_a_crowd)
{
    struct exclusion x = {.mutex = &mutex,
                          .lock = {lock_quietly, timedlock_quietly},
                          .unlock = {unlock_quietly, unlock_quietly},
                          .threads = 4,
                          .ms = 50};
    exclusion_run(&x);
}

CHECK(errno_kept, timed_out_waits)
{
    struct timespec bad = {1, -1}, passed = {1, 0}, deadline;
    QUIET(pthread_cond_wait(&cond, &errorcheck), EPERM);
    QUIET(pthread_mutex_lock(&mutex), 0);
    QUIET(pthread_cond_timedwait(&cond, &mutex, &passed), ETIMEDOUT);
    QUIET(pthread_cond_timedwait(&cond, &mutex, &bad), EINVAL);
    deadline = time_far(CLOCK_REALTIME);
    QUIET(pthread_cond_clockwait(&cond, &mutex, -1, &deadline), EINVAL);
    deadline = soon(CLOCK_REALTIME);
    int rc;
    do {
        errno = MARK;
        rc = pthread_cond_timedwait(&cond, &mutex, &deadline);
        CHECK_EQ(errno, MARK);
    } while (rc == 0);
    CHECK_RC(rc, ETIMEDOUT);
    QUIET(pthread_cond_signal(&cond), 0);
    QUIET(pthread_cond_broadcast(&cond), 0);
    QUIET(pthread_mutex_unlock(&mutex), 0);
    QUIET(pthread_cond_destroy(&cond), 0);
    QUIET(pthread_cond_init(&cond, NULL), 0);
}

static int turn;
static atomic_int tickets;

static void *take_turns(void *unused)
{
    int me = atomic_fetch_add(&tickets, 1);
    for (int i = 0; i < 1000; i++) {
        QUIET(pthread_mutex_lock(&mutex), 0);
        while (turn % 2 != me) QUIET(pthread_cond_wait(&cond, &mutex), 0);
        turn++;
        QUIET(i % 2 ? pthread_cond_signal(&cond) : pthread_cond_broadcast(&cond), 0);
        QUIET(pthread_mutex_unlock(&mutex), 0);
    }
    return unused;
}

CHECK(errno_kept, waits_and_signals)
{
    threads_run(2, take_turns, NULL);
    CHECK_EQ(turn, 2000);
}

CHECK(errno_kept, c11_calls)
{
    mtx_t mtx;
    cnd_t cnd;
    struct timespec passed = {1, 0};
    QUIET(mtx_init(&mtx, mtx_timed), thrd_success);
    QUIET(cnd_init(&cnd), thrd_success);
    QUIET(mtx_lock(&mtx), thrd_success);
    QUIET(mtx_trylock(&mtx), thrd_busy);
    QUIET(mtx_timedlock(&mtx, &passed), thrd_timedout);
    QUIET(cnd_timedwait(&cnd, &mtx, &passed), thrd_timedout);
    QUIET(cnd_signal(&cnd), thrd_success);
    QUIET(cnd_broadcast(&cnd), thrd_success);
    QUIET(mtx_unlock(&mtx), thrd_success);
}
