// SPDX-License-Identifier: MIT OR Apache-2.0
//
// condcancel: a waiter that is cancelled must not take a signal with it while others wait (POSIX, pthread_cond_wait),
// and its cleanup handler must find the mutex held.
//
// A ring is one controller and three waiters. When all three wait, the controller posts one token, sends one signal and
// cancels two of the waiters, in random order. The waiter that is not cancelled is still there to take the token,
// always.
#include "torture.h"

#include <string.h>

enum { VICTIMS = 2, WAITERS = VICTIMS + 1, RING = WAITERS + 1, MAX_RINGS = MAX_THREADS / RING + 1 };

struct ring {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct probe probe;
    int waiting;
    bool token, quit;
    struct worker waiter[WAITERS];
};

static struct ring rings[MAX_RINGS];
static _Atomic uint64_t cancelled, returned;

// Runs in the cancelled thread. The probe notices if the mutex is not held.
static void on_cancel(void *arg)
{
    struct ring *r = arg;
    AT(self, "cleanup handler");
    probe_enter(&r->probe, self);
    r->waiting--;
    dither(self);
    probe_leave(&r->probe, self);
    unlock(self, &r->mutex);
    AT(self, NULL);
    atomic_fetch_add(&cancelled, 1);
}

static int wait_somehow(struct ring *r, struct worker *w)
{
    struct timespec later = at_ns(now_ns(CLOCK_MONOTONIC) + 3600ULL * 1000000000);
    AT(w, "cond_wait (cancellable)");
    if (one_in(w, 3))
        return pthread_cond_clockwait(&r->cond, &r->mutex, CLOCK_MONOTONIC, &later);
    return pthread_cond_wait(&r->cond, &r->mutex);
}

// Cancellation is enabled during the wait only: a wait that returned has not been cancelled and must act on its signal.
static void waiter_body(struct worker *w)
{
    struct ring *r = w->arg;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    lock(w, &r->mutex);
    probe_enter(&r->probe, w);
    r->waiting++;
    pthread_cleanup_push(on_cancel, r);
    while (!r->token && !r->quit) {
        probe_leave(&r->probe, w);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        int rc = wait_somehow(r, w);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        AT(w, "section");
        expect(rc, 0, "cancellable wait");
        probe_enter(&r->probe, w);
    }
    pthread_cleanup_pop(0);
    r->waiting--;
    r->token = false;
    probe_leave(&r->probe, w);
    unlock(w, &r->mutex);
}

static void start_waiters(struct ring *r, struct worker *w)
{
    r->token = r->quit = false;
    for (int i = 0; i < WAITERS; i++) {
        uint64_t salt = rnd(&w->rng);
        worker_init(&r->waiter[i], w->run, w->id + 1 + i, waiter_body, r);
        r->waiter[i].rng = mix(salt, (uint64_t)i);  // not the same delays in each round
        worker_start(&r->waiter[i], 128 * 1024);
    }
}

// Returns once `done` holds under the mutex; a lost signal shows here as patience running out.
static void await_ring(struct ring *r, struct worker *w, bool (*done)(const struct ring *), const char *lost)
{
    uint64_t deadline = now_ns(CLOCK_MONOTONIC) + AGAINST_HANGS * 1000000000ULL;
    for (;;) {
        lock(w, &r->mutex);
        bool yes = done(r);
        unlock(w, &r->mutex);
        if (yes)
            return;
        if (now_ns(CLOCK_MONOTONIC) > deadline)
            fail("%s after %d s (%d still waiting)", lost, AGAINST_HANGS, r->waiting);
        sched_yield();
    }
}

static bool all_waiting(const struct ring *r)
{
    return r->waiting == WAITERS;
}

static bool token_taken(const struct ring *r)
{
    return !r->token;
}

// Posts the token; then one signal and the cancellations in random order, the mutex released somewhere among them.
static void post_and_cancel(struct ring *r, struct worker *w)
{
    int act[RING] = { 0, 1, 2, 3 };  // 0, 1: cancel that victim; 2: signal; 3: unlock
    for (int i = RING - 1; i > 0; i--) {
        int j = (int)below(w, (uint32_t)i + 1), t = act[i];
        act[i] = act[j];
        act[j] = t;
    }
    lock(w, &r->mutex);
    r->token = true;
    for (int i = 0; i < RING; i++) {
        if (act[i] < VICTIMS) {
            int result = pthread_cancel(r->waiter[act[i]].thread);
            // A signal may have ended it; glibc before 2.34 then says so.
            if (result != ESRCH) expect(result, 0, "pthread_cancel");
        } else if (act[i] == 2)
            expect(pthread_cond_signal(&r->cond), 0, "pthread_cond_signal");
        else
            unlock(w, &r->mutex);
        burn(below(w, 4000));
    }
}

static void end_round(struct ring *r, struct worker *w)
{
    lock(w, &r->mutex);
    r->quit = true;
    expect(pthread_cond_broadcast(&r->cond), 0, "pthread_cond_broadcast");
    unlock(w, &r->mutex);
    AT(w, "join");
    for (int i = 0; i < WAITERS; i++) {
        void *result;
        expect(pthread_join(r->waiter[i].thread, &result), 0, "pthread_join");
        if (result == NULL)
            atomic_fetch_add(&returned, 1);
        else if (result != PTHREAD_CANCELED || i >= VICTIMS)
            fail("waiter %d ended with %p", i, result);
    }
    if (r->waiting || r->probe.owner)
        fail("after the round: %d waiting, owner %u", r->waiting, r->probe.owner);
}

static void controller_body(struct worker *w)
{
    struct ring *r = w->arg;
    do {
        start_waiters(r, w);
        await_ring(r, w, all_waiting, "waiters did not come to wait");
        post_and_cancel(r, w);
        await_ring(r, w, token_taken, "signal lost: the token was not taken");
        end_round(r, w);
        count_op(w);
    } while (!stopping());
}

void run_condcancel(struct run *run)
{
    at_least(run, RING);
    int n = run->threads / RING;
    struct worker *controllers = calloc((size_t)n, sizeof *controllers);
    if (!controllers)
        fail("out of memory");
    for (int i = 0; i < n; i++) {
        static const int kinds[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_RECURSIVE };
        mutex_init_kind(&rings[i].mutex, kinds[(run->seed + (uint64_t)i) % 3]);
        pthread_cond_init(&rings[i].cond, NULL);
        worker_init(&controllers[i], run, 1 + i * RING, controller_body, &rings[i]);
        worker_start(&controllers[i], 0);
    }
    nap_ns((uint64_t)(run->seconds * 1e9));
    atomic_store(&board->stop, true);
    for (int i = 0; i < n; i++)
        worker_join(&controllers[i]);
    note("cancelled=%llu returned=%llu", (unsigned long long)cancelled, (unsigned long long)returned);
}
