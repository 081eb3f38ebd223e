/* Waits with an error-checking or recursive mutex that the caller does not own: EPERM, as if they had never been
 * made. */
#include "conformance.h"

struct strangers {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    atomic_bool over;
};

static void *wait_without_owning(void *argument)
{
    struct strangers *s = argument;
    struct timespec far = time_far(CLOCK_REALTIME);
    while (!atomic_load(&s->over)) {
        HOT_RC(pthread_cond_wait(&s->cond, &s->mutex), EPERM);
        HOT_RC(pthread_cond_timedwait(&s->cond, &s->mutex, &far), EPERM);
    }
    return NULL;
}

/* A broadcast must never see a thread that is refused: it might send that thread to wait for the mutex in its turn. */
static void refused_among_broadcasts(int kind)
{
    struct strangers s = {.cond = PTHREAD_COND_INITIALIZER};
    pthread_t threads[4];
    mutex_make(&s.mutex, kind);
    CHECK_OK(pthread_mutex_lock(&s.mutex));
    for (int i = 0; i < 4; i++) threads[i] = thread_start(wait_without_owning, &s);
    struct timespec end = time_after_ms(CLOCK_MONOTONIC, 300);
    while (!time_reached(CLOCK_MONOTONIC, end)) {
        for (int i = 0; i < 100; i++) {
            HOT_OK(pthread_cond_broadcast(&s.cond));
            HOT_OK(pthread_cond_signal(&s.cond));
        }
        HOT_OK(pthread_mutex_unlock(&s.mutex));
        HOT_OK(pthread_mutex_lock(&s.mutex));
    }
    atomic_store(&s.over, true);
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    check_excludes(&s.mutex);
    CHECK_OK(pthread_mutex_destroy(&s.mutex));
    CHECK_OK(pthread_cond_destroy(&s.cond));
}

CHECK(cond_refused, errorcheck_among_broadcasts) { refused_among_broadcasts(PTHREAD_MUTEX_ERRORCHECK); }

CHECK(cond_refused, recursive_among_broadcasts) { refused_among_broadcasts(PTHREAD_MUTEX_RECURSIVE); }
