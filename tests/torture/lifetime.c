// SPDX-License-Identifier: MIT OR Apache-2.0
//
// last-owner-frees, cond-destroy: the memory goes as soon as POSIX lets it go. A thread that still touches it crashes
// (guarded.c).
#include "torture.h"

#include <string.h>

enum { GROUP = 3, MAX_GROUPS = MAX_THREADS / 2 + 1 };

static int groups_for(int threads)
{
    return threads / GROUP ? threads / GROUP : 1;
}

// Members of group g when `threads` are dealt out in turn.
static int members_of(int g, int threads, int groups)
{
    return threads / groups + (g < threads % groups);
}

// ---- last-owner-frees -----------------------------------------------------------------------------------------------

// Reference count and mutex in one object, as in any refcounted structure: the thread that drops the last reference
// knows, under the lock, that no other thread will lock again. It unlocks, destroys and frees.
struct object {
    int refs;
    pthread_mutex_t mutex;  // last, so that it can end at the page's end
};

static struct party {
    _Alignas(CACHE_LINE) struct object *object;
    _Atomic uint64_t round;
    bool over;
    int members;
} parties[MAX_GROUPS];
static int n_parties;

static void publish(struct party *p, struct worker *w)
{
    static const int kinds[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_ERRORCHECK,
                                 PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ADAPTIVE_NP };
    if (stopping()) {
        p->over = true;
    } else {
        p->object = guarded_new(sizeof *p->object, one_in(w, 2));
        p->object->refs = p->members;
        uint32_t kind = below(w, 6);
        if (kind < 5)
            mutex_init_kind(&p->object->mutex, kinds[kind]);  // else: the zero page is a static initialiser
    }
    atomic_fetch_add(&p->round, 1);
}

static void use(struct object *o, struct worker *w)
{
    for (uint32_t visits = below(w, 3); visits > 0; visits--) {
        lock(w, &o->mutex);
        burn(below(w, 300));
        if (one_in(w, 64))
            nap_ns(below(w, 50000));  // long enough for the others to go to sleep
        unlock(w, &o->mutex);
        dither(w);
    }
}

static bool drop(struct object *o, struct worker *w)
{
    lock(w, &o->mutex);
    dither(w);
    bool last = --o->refs == 0;
    unlock(w, &o->mutex);
    return last;
}

static void owner_body(struct worker *w)
{
    struct party *p = &parties[(w->id - 1) % n_parties];
    for (uint64_t round = 1;; round++) {
        AT(w, "waiting for the next object");
        await(&p->round, round);
        if (p->over)
            return;
        struct object *o = p->object;
        use(o, w);
        if (drop(o, w)) {
            expect(pthread_mutex_destroy(&o->mutex), 0, "pthread_mutex_destroy");
            guarded_free(o, one_in(w, 4));
            publish(p, w);
        }
        count_op(w);
    }
}

void run_last_owner_frees(struct run *run)
{
    at_least(run, 2);
    n_parties = groups_for(run->threads);
    for (int i = 0; i < n_parties; i++) {
        parties[i].members = members_of(i, run->threads, n_parties);
        publish(&parties[i], self);
    }
    crew_run(run, run->threads, owner_body, NULL);
}

// ---- cond-destroy ---------------------------------------------------------------------------------------------------

// One member makes a condition variable, wakes all threads that wait on it, destroys it and takes its memory away, with
// or without the mutex held; the others may still be on their way out of the wait.
static struct stage {
    _Alignas(CACHE_LINE) pthread_mutex_t mutex;
    pthread_cond_t *cond;
    struct probe probe;
    _Atomic uint64_t round, done;
    uint64_t raised;  // under the mutex: rounds whose flag is up
    int waiting;      // under the mutex
    bool over;
    int members;
} stages[MAX_GROUPS];
static int n_stages;

static void await_flag(struct stage *s, struct worker *w, uint64_t round)
{
    lock(w, &s->mutex);
    probe_enter(&s->probe, w);
    while (s->raised < round) {
        uint32_t way = below(w, 4);
        uint64_t wait = way ? 3600ULL * 1000000000 : below(w, 100000);
        struct timespec until = at_ns(now_ns(CLOCK_MONOTONIC) + wait);
        s->waiting++;
        probe_leave(&s->probe, w);
        AT(w, "cond_wait");
        int rc = way < 2 ? pthread_cond_clockwait(s->cond, &s->mutex, CLOCK_MONOTONIC, &until)
                         : pthread_cond_wait(s->cond, &s->mutex);
        AT(w, "section");
        probe_enter(&s->probe, w);
        s->waiting--;
        if (rc && (rc != ETIMEDOUT || way))
            fail("wait returned %d (%s)", rc, strerror(rc));
    }
    probe_leave(&s->probe, w);
    unlock(w, &s->mutex);
}

static void raise_and_destroy(struct stage *s, struct worker *w, uint64_t round)
{
    bool unlock_first = one_in(w, 2), unmap = one_in(w, 4);
    lock(w, &s->mutex);
    probe_enter(&s->probe, w);
    s->raised = round;
    if (s->waiting == 1 && one_in(w, 2))
        expect(pthread_cond_signal(s->cond), 0, "pthread_cond_signal");
    else
        expect(pthread_cond_broadcast(s->cond), 0, "pthread_cond_broadcast");
    pthread_cond_t *cond = s->cond;
    probe_leave(&s->probe, w);
    if (unlock_first)
        unlock(w, &s->mutex);
    AT(w, "cond_destroy");
    expect(pthread_cond_destroy(cond), 0, "pthread_cond_destroy");
    guarded_free(cond, unmap);
    if (!unlock_first)
        unlock(w, &s->mutex);
}

// Sometimes all, sometimes none have come to wait when the flag goes up.
static void await_waiters(struct stage *s, struct worker *w)
{
    int wanted = (int)below(w, (uint32_t)s->members);
    for (int present = -1; present < wanted;) {
        lock(w, &s->mutex);
        present = s->waiting;
        unlock(w, &s->mutex);
        sched_yield();
    }
    dither(w);
}

static void lead(struct stage *s, struct worker *w)
{
    for (uint64_t round = 1;; round++) {
        s->over = stopping();
        s->cond = s->over ? NULL : guarded_new(sizeof *s->cond, one_in(w, 2));
        if (!s->over)
            cond_init_clock(s->cond, one_in(w, 2) ? CLOCK_MONOTONIC : CLOCK_REALTIME);
        atomic_store(&s->round, round);
        if (s->over)
            return;
        await_waiters(s, w);
        raise_and_destroy(s, w, round);
        AT(w, "waiting for the waiters to return");
        await(&s->done, round * (uint64_t)(s->members - 1));
        count_op(w);
    }
}

static void stage_body(struct worker *w)
{
    struct stage *s = &stages[(w->id - 1) % n_stages];
    if (w->id <= n_stages) {
        lead(s, w);
        return;
    }
    for (uint64_t round = 1;; round++) {
        AT(w, "waiting for the next round");
        await(&s->round, round);
        if (s->over)
            return;
        await_flag(s, w, round);
        count_op(w);
        atomic_fetch_add(&s->done, 1);
    }
}

void run_cond_destroy(struct run *run)
{
    at_least(run, 2);
    n_stages = groups_for(run->threads);
    for (int i = 0; i < n_stages; i++) {
        pthread_mutex_init(&stages[i].mutex, NULL);
        stages[i].members = members_of(i, run->threads, n_stages);
    }
    crew_run(run, run->threads, stage_body, NULL);
}
