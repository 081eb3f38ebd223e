// SPDX-License-Identifier: MIT OR Apache-2.0
//
// cond, broadcast: condition variables as programs use them. The buffers are small, so that a lost wake-up stops them
// for good and the watchdog sees it.
#include "torture.h"

// ---- cond -----------------------------------------------------------------------------------------------------------

enum { MAX_BELTS = MAX_THREADS / 8 + 1, MAX_CAPACITY = 3 };

struct belt {
    pthread_mutex_t mutex;
    pthread_cond_t not_full, not_empty;
    struct probe probe;
    uint32_t capacity, head, count;
    int producers;
    struct {
        int producer;
        uint64_t seq;
    } item[MAX_CAPACITY];
    uint64_t made, used;
};

static struct belt belts[MAX_BELTS];
static int n_belts;
static uint64_t expected_seq[MAX_THREADS + 1];  // of the producer's next item; under its belt's mutex

static void belt_wait(struct belt *b, pthread_cond_t *c, struct worker *w, const char *where)
{
    probe_leave(&b->probe, w);
    AT(w, where);
    expect(pthread_cond_wait(c, &b->mutex), 0, "pthread_cond_wait");
    AT(w, "section");
    probe_enter(&b->probe, w);
}

// Leaves the section and signals, in either order: both are allowed, and race differently.
static void leave_and_signal(struct belt *b, pthread_cond_t *c, struct worker *w)
{
    bool first = one_in(w, 2);
    if (first)
        expect(pthread_cond_signal(c), 0, "pthread_cond_signal");
    dither(w);
    probe_leave(&b->probe, w);
    unlock(w, &b->mutex);
    if (!first)
        expect(pthread_cond_signal(c), 0, "pthread_cond_signal");
    count_op(w);
}

static void produce(struct belt *b, struct worker *w)
{
    for (uint64_t seq = 0; !stopping(); seq++) {
        lock(w, &b->mutex);
        probe_enter(&b->probe, w);
        while (b->count == b->capacity)
            belt_wait(b, &b->not_full, w, "cond_wait (buffer full)");
        uint32_t tail = (b->head + b->count++) % b->capacity;
        b->item[tail].producer = w->id;
        b->item[tail].seq = seq;
        b->made++;
        leave_and_signal(b, &b->not_empty, w);
        dither(w);
    }
    lock(w, &b->mutex);
    bool last = --b->producers == 0;
    unlock(w, &b->mutex);
    if (last)
        expect(pthread_cond_broadcast(&b->not_empty), 0, "pthread_cond_broadcast");
}

static void consume(struct belt *b, struct worker *w)
{
    for (;;) {
        lock(w, &b->mutex);
        probe_enter(&b->probe, w);
        while (b->count == 0 && b->producers > 0)
            belt_wait(b, &b->not_empty, w, "cond_wait (buffer empty)");
        if (b->count == 0)
            break;
        int producer = b->item[b->head].producer;
        uint64_t seq = b->item[b->head].seq;
        if (seq != expected_seq[producer]++)
            fail("item %llu of producer #%d lost or doubled", (unsigned long long)seq, producer);
        b->head = (b->head + 1) % b->capacity;
        b->count--;
        b->used++;
        leave_and_signal(b, &b->not_full, w);
        dither(w);
    }
    probe_leave(&b->probe, w);
    unlock(w, &b->mutex);
}

static bool is_producer(int id)
{
    return (id - 1) / n_belts % 2 == 0;
}

static void cond_body(struct worker *w)
{
    struct belt *b = &belts[(w->id - 1) % n_belts];
    if (is_producer(w->id))
        produce(b, w);
    else
        consume(b, w);
}

void run_cond(struct run *run)
{
    at_least(run, 2);
    n_belts = run->threads / 8 ? run->threads / 8 : 1;
    for (int i = 0; i < n_belts; i++) {
        pthread_mutex_init(&belts[i].mutex, NULL);
        pthread_cond_init(&belts[i].not_full, NULL);
        cond_init_clock(&belts[i].not_empty, CLOCK_MONOTONIC);
        belts[i].capacity = 1 + (uint32_t)(i % MAX_CAPACITY);
    }
    for (int id = 1; id <= run->threads; id++)
        belts[(id - 1) % n_belts].producers += is_producer(id);
    crew_run(run, run->threads, cond_body, NULL);
    for (int i = 0; i < n_belts; i++)
        if (belts[i].made != belts[i].used)
            fail("%llu items made, %llu used", (unsigned long long)belts[i].made, (unsigned long long)belts[i].used);
}

// ---- broadcast ------------------------------------------------------------------------------------------------------

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t all_here;
    struct probe probe;
    int arrived;
    uint64_t generation;
    bool over;
} gate = { .mutex = PTHREAD_MUTEX_INITIALIZER, .all_here = PTHREAD_COND_INITIALIZER };

static _Atomic uint64_t phase[MAX_THREADS + 1];

static void gate_wait(struct worker *w)
{
    probe_leave(&gate.probe, w);
    AT(w, "cond_wait (barrier)");
    if (one_in(w, 4)) {
        // A deadline far away: the timed path, never a timeout.
        struct timespec tomorrow = at_ns(now_ns(CLOCK_MONOTONIC) + 86400ULL * 1000000000);
        expect(pthread_cond_clockwait(&gate.all_here, &gate.mutex, CLOCK_MONOTONIC, &tomorrow), 0,
               "pthread_cond_clockwait until tomorrow");
    } else {
        expect(pthread_cond_wait(&gate.all_here, &gate.mutex), 0, "pthread_cond_wait");
    }
    AT(w, "section");
    probe_enter(&gate.probe, w);
}

// Returns whether the game goes on; all threads get the same answer, because the last to arrive decides.
static bool pass_gate(struct worker *w, uint64_t round)
{
    lock(w, &gate.mutex);
    probe_enter(&gate.probe, w);
    if (gate.generation != round)
        fail("thread #%d is in round %llu, the barrier in %llu", w->id, (unsigned long long)round,
             (unsigned long long)gate.generation);
    if (++gate.arrived == w->run->threads) {
        gate.arrived = 0;
        gate.generation++;
        gate.over = stopping();
        expect(pthread_cond_broadcast(&gate.all_here), 0, "pthread_cond_broadcast");
    } else {
        while (gate.generation == round)
            gate_wait(w);
    }
    bool over = gate.over;
    probe_leave(&gate.probe, w);
    unlock(w, &gate.mutex);
    return !over;
}

static void broadcast_body(struct worker *w)
{
    for (uint64_t round = 0;; round++) {
        atomic_store(&phase[w->id], round);
        bool on = pass_gate(w, round);
        count_op(w);
        if (!on)
            return;
        for (int id = 1; id <= w->run->threads; id++) {
            uint64_t other = atomic_load(&phase[id]);
            if (other != round && other != round + 1)
                fail("thread #%d passed the barrier in round %llu, thread #%d is in %llu", w->id,
                     (unsigned long long)round, id, (unsigned long long)other);
        }
        dither(w);
    }
}

void run_broadcast(struct run *run)
{
    at_least(run, 2);
    crew_run(run, run->threads, broadcast_body, NULL);
}
