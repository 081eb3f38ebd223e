// SPDX-License-Identifier: MIT OR Apache-2.0
//
// condtimed: timed waits that end just when a signal comes must not swallow it.
//
// A pool has a poster, patient takers (plain waits) and impatient ones (short deadlines). The poster posts a few
// tokens, one signal each, and waits until all are taken. An impatient taker that wakes in vain goes away *without*
// looking at tokens posted before its wait began: their signals were not for it. So no thread makes up for a lost
// signal, and a lost one stops the pool for good. Signals are sent under the mutex: "posted before my wait began" is
// exact only then.
#include "torture.h"

enum { MAX_POOLS = MAX_THREADS / 8 + 1 };

struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t posted_some, drained;
    clockid_t clock;  // of posted_some
    struct probe probe;
    uint64_t posted, taken;
    bool over;
};

static struct pool pools[MAX_POOLS];
static int n_pools;
static _Atomic uint64_t timeouts;

static void enter(struct pool *p, struct worker *w)
{
    lock(w, &p->mutex);
    probe_enter(&p->probe, w);
}

static void leave(struct pool *p, struct worker *w)
{
    probe_leave(&p->probe, w);
    unlock(w, &p->mutex);
}

static void wait_for(struct pool *p, pthread_cond_t *c, struct worker *w, const char *where)
{
    probe_leave(&p->probe, w);
    AT(w, where);
    expect(pthread_cond_wait(c, &p->mutex), 0, "pthread_cond_wait");
    AT(w, "section");
    probe_enter(&p->probe, w);
}

static void take(struct pool *p, struct worker *w)
{
    if (++p->taken == p->posted)
        expect(pthread_cond_signal(&p->drained), 0, "pthread_cond_signal");
    count_op(w);
}

static void post(struct pool *p, struct worker *w)
{
    while (!stopping()) {
        enter(p, w);
        for (uint32_t k = 1 + below(w, 3); k > 0; k--) {
            p->posted++;
            expect(pthread_cond_signal(&p->posted_some), 0, "pthread_cond_signal");
            if (one_in(w, 2)) {  // let the takers in between two tokens
                leave(p, w);
                dither(w);
                enter(p, w);
            }
        }
        while (p->taken != p->posted)
            wait_for(p, &p->drained, w, "cond_wait (poster: token not taken)");
        leave(p, w);
        count_op(w);
        // About as long as the impatient are ready to wait: their timeouts then race the next signal.
        if (one_in(w, 4))
            nap_ns(below(w, 300000));
    }
    enter(p, w);
    p->over = true;
    expect(pthread_cond_broadcast(&p->posted_some), 0, "pthread_cond_broadcast");
    leave(p, w);
}

static void take_patiently(struct pool *p, struct worker *w)
{
    enter(p, w);
    while (!p->over) {
        if (p->taken == p->posted) {
            wait_for(p, &p->posted_some, w, "cond_wait (taker)");
            continue;
        }
        take(p, w);
        leave(p, w);
        dither(w);
        enter(p, w);
    }
    leave(p, w);
}

static int timed_wait(struct pool *p, struct worker *w)
{
    uint64_t wait = one_in(w, 8) ? 0 : below(w, 300000);
    probe_leave(&p->probe, w);
    AT(w, "cond_timedwait");
    clockid_t clock = one_in(w, 2) ? p->clock : CLOCK_MONOTONIC;
    uint64_t deadline = now_ns(clock) + wait;
    struct timespec abstime = at_ns(deadline);
    int rc = clock == p->clock && one_in(w, 2) ? pthread_cond_timedwait(&p->posted_some, &p->mutex, &abstime)
                                               : pthread_cond_clockwait(&p->posted_some, &p->mutex, clock, &abstime);
    AT(w, "section");
    probe_enter(&p->probe, w);
    if (rc != ETIMEDOUT)
        expect(rc, 0, "timed wait");
    else if (clock == CLOCK_MONOTONIC && now_ns(clock) < deadline)
        fail("ETIMEDOUT before the deadline");
    return rc;
}

static void take_impatiently(struct pool *p, struct worker *w)
{
    uint64_t late = 0;
    while (!stopping()) {
        enter(p, w);
        uint64_t start = p->posted;
        int rc = timed_wait(p, w);
        late += rc == ETIMEDOUT;
        bool mine = rc == 0 || p->posted != start;
        if (mine && p->taken != p->posted)
            take(p, w);
        leave(p, w);
        dither(w);
    }
    atomic_fetch_add(&timeouts, late);
}

static void condtimed_body(struct worker *w)
{
    struct pool *p = &pools[(w->id - 1) % n_pools];
    int member = (w->id - 1) / n_pools;
    if (member == 0)
        post(p, w);
    else if (member % 2)
        take_patiently(p, w);
    else
        take_impatiently(p, w);
}

void run_condtimed(struct run *run)
{
    at_least(run, 3);
    n_pools = run->threads / 8 ? run->threads / 8 : 1;
    for (int i = 0; i < n_pools; i++) {
        struct pool *p = &pools[i];
        p->clock = (run->seed >> i) & 1 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
        pthread_mutex_init(&p->mutex, NULL);
        pthread_cond_init(&p->drained, NULL);
        cond_init_clock(&p->posted_some, p->clock);
    }
    crew_run(run, run->threads, condtimed_body, NULL);
    for (int i = 0; i < n_pools; i++)
        if (pools[i].posted != pools[i].taken)
            fail("%llu tokens posted, %llu taken", (unsigned long long)pools[i].posted,
                 (unsigned long long)pools[i].taken);
    note("timeouts=%llu", (unsigned long long)atomic_load(&timeouts));
}
