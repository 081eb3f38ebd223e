// SPDX-License-Identifier: MIT OR Apache-2.0
//
// freeze-handler, freeze-waiter: threads that stop for a while inside a signal handler, as under a stop-the-world
// collector.
//
// freeze-handler stops them anywhere, holders too, and asks for exclusion and an end to the waiting. freeze-waiter
// stops one or two threads that certainly do not hold the lock and asks that the others go on without them: a lock that
// hands itself to a frozen waiter cannot.
#include "torture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void on_sigusr1(void (*handler)(int), int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    sigaction(SIGUSR1, &action, NULL);
}

// ---- freeze-handler -------------------------------------------------------------------------------------------------

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct probe probe;
static _Thread_local uint64_t handler_rng;
static _Atomic uint64_t freezes;

static void sleep_in_handler(int sig)
{
    (void)sig;
    int saved = errno;
    // Mostly short, so that many fit into the run; up to 20 ms, longer than a time slice.
    uint64_t limit = rnd(&handler_rng) % 8 ? 2000000 : 20000000;
    nap_ns(rnd(&handler_rng) % limit);
    atomic_fetch_add(&freezes, 1);
    errno = saved;
}

static bool acquire_somehow(struct worker *w)
{
    uint32_t way = below(w, 8);
    if (way > 1) {
        lock(w, &mutex);
        return true;
    }
    struct timespec soon = at_ns(now_ns(CLOCK_MONOTONIC) + below(w, 1000000));
    AT(w, way ? "mutex_clocklock" : "mutex_trylock");
    int rc = way ? pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &soon) : pthread_mutex_trylock(&mutex);
    if (rc)
        expect(rc, way ? ETIMEDOUT : EBUSY, "acquire");
    return rc == 0;
}

static void handler_body(struct worker *w)
{
    handler_rng = mix(w->rng, 1);
    while (!stopping()) {
        if (!acquire_somehow(w))
            continue;
        probe_visit(&probe, w);
        unlock(w, &mutex);
        count_op(w);
        dither(w);
    }
}

void run_freeze_handler(struct run *run)
{
    on_sigusr1(sleep_in_handler, run->seed & 1 ? SA_RESTART : 0);
    struct worker *crew = crew_start(run, run->threads, handler_body, NULL);
    uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(run->seconds * 1e9);
    while (now_ns(CLOCK_MONOTONIC) < end) {
        pthread_kill(crew[below(self, (uint32_t)run->threads)].thread, SIGUSR1);
        nap_ns(below(self, 2000000));
    }
    atomic_store(&board->stop, true);
    crew_join(crew, run->threads);
    if (probe.seq != total_ops())
        fail("lost update: %llu sections, %llu counted", (unsigned long long)total_ops(),
             (unsigned long long)probe.seq);
    note("freezes=%llu", (unsigned long long)atomic_load(&freezes));
}

// ---- freeze-waiter --------------------------------------------------------------------------------------------------
//
// A round: the controller takes a fresh mutex, all others queue up behind it, one or two waiters are frozen *and say
// so*, and only then the controller lets the mutex go. While the controller holds it the frozen threads cannot, so the
// test is exact; and as the mutex was never released before, a frozen thread cannot have eaten a wake-up meant for
// others (which in glibc it may).

enum { OUTSIDE, WAITING, HOLDING };

static struct {
    pthread_mutex_t mutex;
    struct probe probe;
    _Atomic uint64_t number, finished;  // rounds begun; threads that have left rounds, in total
    atomic_bool over;
    _Atomic uint64_t frozen;  // threads, in all rounds
    _Atomic uint64_t thawed;  // number of the round
} round_;

static atomic_int state[MAX_THREADS + 1];

static void freeze_if_waiting(int sig)
{
    (void)sig;
    if (atomic_load(&state[self->id]) != WAITING)
        return;
    int saved = errno;
    uint64_t number = atomic_load(&round_.number);
    AT(self, "frozen in handler");
    atomic_fetch_add(&round_.frozen, 1);
    while (atomic_load(&round_.thawed) < number)
        nap_ns(100000);
    AT(self, "mutex_lock, thawed");
    errno = saved;
}

static void waiter_visit(struct worker *w)
{
    atomic_store(&state[w->id], WAITING);
    AT(w, "mutex_lock");
    if (one_in(w, 4)) {
        struct timespec later = at_ns(now_ns(CLOCK_MONOTONIC) + 3600ULL * 1000000000);
        expect(pthread_mutex_clocklock(&round_.mutex, CLOCK_MONOTONIC, &later), 0, "pthread_mutex_clocklock");
    } else {
        expect(pthread_mutex_lock(&round_.mutex), 0, "pthread_mutex_lock");
    }
    atomic_store(&state[w->id], HOLDING);
    probe_visit(&round_.probe, w);
    unlock(w, &round_.mutex);
    atomic_store(&state[w->id], OUTSIDE);
    count_op(w);
}

static void waiter_body(struct worker *w)
{
    for (uint64_t number = 1;; number++) {
        AT(w, "between rounds");
        while (atomic_load(&round_.number) < number) {
            if (stopping())
                return;
            nap_ns(20000 + 2000 * (uint64_t)w->run->threads);  // a thousand pollers must leave some CPU
        }
        do {
            waiter_visit(w);
            burn(below(w, 256));
        } while (!atomic_load(&round_.over));
        atomic_fetch_add(&round_.finished, 1);
    }
}

static void expect_progress(uint64_t ops, const char *when, const char *victims)
{
    uint64_t from = total_ops();
    uint64_t deadline = now_ns(CLOCK_MONOTONIC) + AGAINST_HANGS * 1000000000ULL;
    while (total_ops() < from + ops) {
        if (now_ns(CLOCK_MONOTONIC) > deadline)
            fail("%s: frozen waiters (%s) stop the others: %llu acquisitions in %d s, expected %llu", when, victims,
                 (unsigned long long)(total_ops() - from), AGAINST_HANGS, (unsigned long long)ops);
        nap_ns(50000);
    }
}

// Once it waits. Anywhere between entering lock() and sleeping soundly.
static void freeze(struct worker *crew, int victim)
{
    while (atomic_load(&state[victim]) != WAITING)
        nap_ns(20000);
    nap_ns(below(self, 2000000));
    pthread_kill(crew[victim - 1].thread, SIGUSR1);
}

// Returns how many were frozen.
static uint64_t freeze_round(struct worker *crew, int n, uint64_t number, uint64_t frozen)
{
    int victim = 1 + (int)below(self, (uint32_t)n), other = 1 + victim % n;
    uint64_t victims = n > 2 && one_in(self, 2) ? 2 : 1;
    char names[40];
    snprintf(names, sizeof names, victims == 2 ? "#%d, #%d" : "#%d", victim, other);
    // More acquisitions than there are waiters: a queue must have come to a frozen one's turn.
    uint64_t some = 4 * (uint64_t)n + 50;
    atomic_store(&round_.over, false);
    pthread_mutex_init(&round_.mutex, NULL);
    lock(self, &round_.mutex);
    atomic_store(&round_.number, number);
    freeze(crew, victim);
    if (victims == 2)
        freeze(crew, other);
    await(&round_.frozen, frozen + victims);
    unlock(self, &round_.mutex);
    expect_progress(some, "after the release", names);
    nap_ns(below(self, 20000000));
    expect_progress(some, "some ms later", names);
    atomic_store(&round_.thawed, number);
    nap_ns(below(self, 500000));
    atomic_store(&round_.over, true);
    AT(self, "controller: waiting for the round's end");
    await(&round_.finished, number * (uint64_t)n);
    expect(pthread_mutex_destroy(&round_.mutex), 0, "pthread_mutex_destroy");
    return victims;
}

void run_freeze_waiter(struct run *run)
{
    at_least(run, 2);
    on_sigusr1(freeze_if_waiting, run->seed & 1 ? SA_RESTART : 0);
    struct worker *crew = crew_start(run, run->threads, waiter_body, NULL);
    uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(run->seconds * 1e9);
    uint64_t number = 0, frozen = 0;
    do
        frozen += freeze_round(crew, run->threads, ++number, frozen);
    while (now_ns(CLOCK_MONOTONIC) < end);
    atomic_store(&board->stop, true);
    crew_join(crew, run->threads);
    note("freezes=%llu", (unsigned long long)frozen);
}
