/* Condition variables in sections of delegated locks; and sections that block. */
#include "conformance.h"

#include <flashlock_rcl.h>

enum { ITEMS = 300, PAIRS = 3, ROOM = 2 };

/* A queue with room for two. */
struct queue {
    flashlock_rcl_t lock;
    flashlock_rcl_cond_t items, room;
    int count, values[ROOM];
    atomic_long sum;
};

struct item {
    struct queue *queue;
    int value;
};

static void *put(void *context)
{
    struct item *item = context;
    struct queue *queue = item->queue;
    while (queue->count == ROOM) CHECK_OK(flashlock_rcl_cond_wait(&queue->room, &queue->lock));
    queue->values[queue->count++] = item->value;
    CHECK_OK(flashlock_rcl_cond_signal(&queue->items));
    return NULL;
}

static void *take(void *context)
{
    struct queue *queue = context;
    while (queue->count == 0) CHECK_OK(flashlock_rcl_cond_wait(&queue->items, &queue->lock));
    CHECK_OK(flashlock_rcl_cond_broadcast(&queue->room));
    return (void *)(intptr_t)queue->values[--queue->count];
}

static void *produce(void *context)
{
    for (int value = 0; value < ITEMS; value++) {
        struct item item = {context, value};
        HOT_OK(flashlock_rcl_exec(&item.queue->lock, put, &item, NULL));
    }
    return NULL;
}

static void *consume(void *context)
{
    struct queue *queue = context;
    for (int round = 0; round < ITEMS; round++) {
        void *value;
        HOT_OK(flashlock_rcl_exec(&queue->lock, take, queue, &value));
        queue->sum += (intptr_t)value;
    }
    return NULL;
}

static void pass_items(int kind)
{
    struct queue queue = {.items = FLASHLOCK_RCL_COND_INITIALIZER, .room = FLASHLOCK_RCL_COND_INITIALIZER};
    pthread_t threads[2 * PAIRS];
    CHECK_OK(flashlock_rcl_init(&queue.lock, kind, NULL));
    for (int pair = 0; pair < PAIRS; pair++) {
        threads[2 * pair] = thread_start(produce, &queue);
        threads[2 * pair + 1] = thread_start(consume, &queue);
    }
    for (int thread = 0; thread < 2 * PAIRS; thread++) thread_join(threads[thread]);
    CHECK_EQ(queue.sum, PAIRS * ITEMS * (ITEMS - 1) / 2);
    CHECK_EQ(queue.count, 0);
}

CHECK(waits, ordinary)
{
    pass_items(FLASHLOCK_RCL_ORDINARY);
}

CHECK(waits, delegated)
{
    pass_items(FLASHLOCK_RCL_DELEGATED);
}

struct timed {
    flashlock_rcl_t lock;
    flashlock_rcl_cond_t cond;
    clockid_t clock;
};

static void *wait_in_vain(void *context)
{
    struct timed *timed = context;
    struct timespec until = time_after_ms(timed->clock, 20);
    int code;
    do code = flashlock_rcl_cond_clockwait(&timed->cond, &timed->lock, timed->clock, &until);
    while (code == 0); /* For no reason. */
    CHECK_RC(code, ETIMEDOUT);
    CHECK_REACHED(timed->clock, until);
    return NULL;
}

static void time_passes(int kind, clockid_t clock)
{
    struct timed timed = {.cond = FLASHLOCK_RCL_COND_INITIALIZER, .clock = clock};
    CHECK_OK(flashlock_rcl_init(&timed.lock, kind, NULL));
    CHECK_OK(flashlock_rcl_exec(&timed.lock, wait_in_vain, &timed, NULL));
    CHECK_OK(flashlock_rcl_destroy(&timed.lock));
}

CHECK(waits, time_passes_on_both_clocks)
{
    time_passes(FLASHLOCK_RCL_ORDINARY, CLOCK_MONOTONIC);
    time_passes(FLASHLOCK_RCL_ORDINARY, CLOCK_REALTIME);
    time_passes(FLASHLOCK_RCL_DELEGATED, CLOCK_MONOTONIC);
    time_passes(FLASHLOCK_RCL_DELEGATED, CLOCK_REALTIME);
}

/* ---- A section that can end only after another one of the same server -------------------------------------------- */

static int ends[2];
static struct gate inside;

static void *read_byte(void *context)
{
    char byte;
    (void)context;
    gate_open(&inside);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    return NULL;
}

static void *write_byte(void *context)
{
    (void)context;
    CHECK_EQ(write(ends[1], "x", 1), 1);
    return NULL;
}

static void *reads(void *lock)
{
    CHECK_OK(flashlock_rcl_exec(lock, read_byte, NULL, NULL));
    return NULL;
}

CHECK(waits, a_section_may_block)
{
    flashlock_rcl_t first, second;
    CHECK_OK(pipe(ends));
    CHECK_OK(flashlock_rcl_init(&first, FLASHLOCK_RCL_DELEGATED, NULL));
    CHECK_OK(flashlock_rcl_init(&second, FLASHLOCK_RCL_DELEGATED, NULL));
    pthread_t reader = thread_start(reads, &first);
    gate_wait(&inside, 1);
    CHECK_OK(flashlock_rcl_exec(&second, write_byte, NULL, NULL));
    thread_join(reader);
}
