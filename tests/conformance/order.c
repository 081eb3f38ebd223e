/*
 * The order in which waiters wake. POSIX leaves it open for threads of one priority and glibc promises nothing, so
 * these checks are offered with CONFORMANCE_FIFO=1 only.
 */
#include "conformance.h"

enum { QUEUE = 8 };

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int waiting, woken, order[QUEUE];
    bool allowed[QUEUE];
};

struct place {
    struct queue *queue;
    int number;
    bool leaves;
};

static void *stand(void *argument)
{
    struct place *place = argument;
    struct queue *q = place->queue;
    CHECK_OK(pthread_mutex_lock(&q->mutex));
    q->waiting++;
    if (place->leaves) {
        struct timespec deadline = time_after_ms(CLOCK_REALTIME, 30);
        CHECK_RC(pthread_cond_timedwait(&q->cond, &q->mutex, &deadline), ETIMEDOUT);
    } else {
        CHECK_OK(pthread_cond_wait(&q->cond, &q->mutex));
        q->order[q->woken++] = place->number;
    }
    CHECK_OK(pthread_mutex_unlock(&q->mutex));
    return NULL;
}

static void await(struct queue *q, int *counter, int value)
{
    for (int now = -1; now < value; nap_us(200)) {
        CHECK_OK(pthread_mutex_lock(&q->mutex));
        now = *counter;
        CHECK_OK(pthread_mutex_unlock(&q->mutex));
    }
}

static void wake_in_order(bool some_leave)
{
    struct queue q = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct place places[QUEUE];
    pthread_t threads[QUEUE];
    int staying = 0;
    for (int i = 0; i < QUEUE; i++) {
        places[i] = (struct place){&q, i, some_leave && i % 3 == 1};
        threads[i] = thread_start(stand, &places[i]);
        await(&q, &q.waiting, i + 1);
        staying += !places[i].leaves;
    }
    for (int i = 0; i < QUEUE; i++)
        if (places[i].leaves) thread_join(threads[i]);
    for (int i = 1; i <= staying; i++) {
        CHECK_OK(pthread_cond_signal(&q.cond));
        await(&q, &q.woken, i);
    }
    for (int i = 0; i < QUEUE; i++)
        if (!places[i].leaves) thread_join(threads[i]);
    for (int i = 1; i < staying; i++)
        CHECK_TRUE(q.order[i - 1] < q.order[i], "waiter %d woke before waiter %d", q.order[i - 1], q.order[i]);
}

CHECK(order, signals_wake_in_arrival_order)
{
    for (int i = 0; i < 10; i++) wake_in_order(false);
}

CHECK(order, signals_wake_in_arrival_order_after_some_left)
{
    for (int i = 0; i < 5; i++) wake_in_order(true);
}
