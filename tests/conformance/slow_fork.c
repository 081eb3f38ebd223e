/*
 * A fork while another thread stands at any instruction of a call on a condition variable, which the child goes on to
 * use. POSIX does not ask for that, and glibc's own hangs: a child finds its internal lock held for ever.
 */
#include "slow_motion.h"

/* With the mutex. Once it is set, the slow thread need not wait any more. */
static bool over;

static void *signal_slowly(void *argument)
{
    struct sleepers *s = argument;
    slow_begin(slow_stop);
    int rc = pthread_cond_signal(&s->cond);
    slow_end();
    CHECK_OK(rc);
    return NULL;
}

static void *broadcast_slowly(void *argument)
{
    struct sleepers *s = argument;
    slow_begin(slow_stop);
    int rc = pthread_cond_broadcast(&s->cond);
    slow_end();
    CHECK_OK(rc);
    return NULL;
}

static void *wait_slowly(void *argument)
{
    struct sleepers *s = argument;
    int rc = 0;
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    slow_begin(slow_stop);
    while (!over && rc == 0) rc = pthread_cond_wait(&s->cond, &s->mutex);
    slow_end();
    CHECK_OK(rc);
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    return NULL;
}

static void *time_out_slowly(void *argument)
{
    struct sleepers *s = argument;
    struct timespec past = {1, 0};
    int rc = 0;
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    slow_begin(slow_stop);
    while (rc == 0) rc = pthread_cond_timedwait(&s->cond, &s->mutex, &past);
    slow_end();
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    return NULL;
}

/* Returns when all waiters have gone. */
static void end_all_waits(struct sleepers *s, pthread_t slow)
{
    slow_go_on();
    sleepers_give(s, s->count);
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    over = true;
    CHECK_OK(pthread_cond_broadcast(&s->cond));
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    thread_join(slow);
    sleepers_join(s);
    CHECK_OK(pthread_cond_destroy(&s->cond));
}

/* Stops the slow thread at one instruction after another, and forks. */
static void fork_everywhere(void *(*act)(void *))
{
    GLIBC_CANNOT("a child of glibc's may hang");
    bool more = true;
    for (long at = 1; more && !time_is_short(); at += 1 + at / 16) {
        struct sleepers s = SLEEPERS_INITIALIZER;
        over = at == 1; /* at full speed first: lazy binding */
        slow_stop_at(at == 1 ? 0 : at);
        sleepers_start(&s, 2);
        pthread_t slow = thread_start(act, &s);
        if (at > 1) {
            more = slow_await_stop();
            if (!more) slow_stop_at(0);
            pid_t pid = fork();
            if (pid == 0) {
                sleepers_use_inherited(&s);
                _exit(0);
            }
            CHECK_EQ(process_status(pid), 0);
        }
        end_all_waits(&s, slow);
    }
}

CHECK(slow_motion, fork_at_any_point_of_a_signal) { fork_everywhere(signal_slowly); }

CHECK(slow_motion, fork_at_any_point_of_a_broadcast) { fork_everywhere(broadcast_slowly); }

CHECK(slow_motion, fork_at_any_point_of_a_wait) { fork_everywhere(wait_slowly); }

CHECK(slow_motion, fork_at_any_point_of_a_time_out) { fork_everywhere(time_out_slowly); }
