/*
 * Condition variables in slow motion: whoever has been woken may destroy the condition variable and its mutex while
 * the call that woke it is still under way. Neither that call nor an unlock after it may look back.
 */
#include "doomed.h"

struct pair {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
};

static struct pair *pair(void) { return doomed_page(); }

static int lock(void) { return pthread_mutex_lock(&pair()->mutex); }

static int unlock(void) { return pthread_mutex_unlock(&pair()->mutex); }

static void make(int kind)
{
    mutex_make(&pair()->mutex, kind);
    CHECK_OK(pthread_cond_init(&pair()->cond, NULL));
}

/* There is nothing that the first owner has. */
static int nothing(void) { return 0; }

static int lock_and_wait(void)
{
    int rc = lock();
    return rc ? rc : pthread_cond_wait(&pair()->cond, &pair()->mutex);
}

static int wake_inside(int (*wake)(pthread_cond_t *))
{
    HOT_OK(lock());
    int rc = wake(&pair()->cond);
    HOT_OK(unlock());
    return rc;
}

static int wake_outside(int (*wake)(pthread_cond_t *))
{
    HOT_OK(lock());
    HOT_OK(unlock());
    return wake(&pair()->cond);
}

static int signal_inside(void) { return wake_inside(pthread_cond_signal); }

static int signal_outside(void) { return wake_outside(pthread_cond_signal); }

static int broadcast_inside(void) { return wake_inside(pthread_cond_broadcast); }

static int broadcast_outside(void) { return wake_outside(pthread_cond_broadcast); }

/* A waiter has the mutex. */
static int signal_and_unlock(void)
{
    int rc = pthread_cond_signal(&pair()->cond);
    return rc ? rc : unlock();
}

static void destroy(void)
{
    HOT_OK(unlock());
    HOT_OK(pthread_cond_destroy(&pair()->cond));
    HOT_OK(pthread_mutex_destroy(&pair()->mutex));
}

#define DOOMED(release_, pass_on_)                                                                  \
    {.make = make, .hold = nothing, .release = release_, .get = lock_and_wait, .pass_on = pass_on_, \
     .destroy = destroy}

static const struct doomed
    doomed_signal_inside = DOOMED(signal_inside, signal_and_unlock),
    doomed_signal_outside = DOOMED(signal_outside, signal_and_unlock),
    doomed_broadcast_inside = DOOMED(broadcast_inside, unlock),
    doomed_broadcast_outside = DOOMED(broadcast_outside, unlock);

#define ENDED(call)                                                                                 \
    CHECK(slow_motion, call##_never_looks_back) { doomed_by_waiters(&doomed_##call, KIND_DEFAULT, 1); } \
    CHECK(slow_motion, call##_for_a_recursive_mutex_never_looks_back)                               \
    {                                                                                               \
        doomed_by_waiters(&doomed_##call, PTHREAD_MUTEX_RECURSIVE, 1);                                       \
    }                                                                                               \
    CHECK(slow_motion, call##_with_3_waiters_never_looks_back)                                      \
    {                                                                                               \
        doomed_by_waiters(&doomed_##call, KIND_DEFAULT, 3);                                         \
    }
ENDED(signal_inside)
ENDED(signal_outside)
ENDED(broadcast_inside)
ENDED(broadcast_outside)
