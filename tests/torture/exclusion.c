// SPDX-License-Identifier: MIT OR Apache-2.0
//
// counter, trylock, timed: does the lock exclude, however it is acquired?
#include "torture.h"

#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct probe probe;
static _Atomic uint64_t successes, refusals;

static void expect_no_update_lost(uint64_t visits)
{
    if (probe.seq != visits)
        fail("lost update: %llu sections, %llu counted", (unsigned long long)visits, (unsigned long long)probe.seq);
}

// ---- counter --------------------------------------------------------------------------------------------------------

// A lock that fails to exclude is caught in two ways, because each is blind to something.
//
// Overlap: the probe sees a second thread inside. It sees every kind of failure, but only if another thread is inside
// at that very moment, which chance rarely arranges when waiters sleep. So half of the attempts are aimed: they begin
// just when another thread is seen inside (a short, bounded wait, because the others may all be asleep); and every
// fourth owner gives its CPU away inside, so that the others run into it.
//
// Testimony: the lock itself is asked whether it is held, by a trylock inside the section. It needs no second thread,
// so it catches an acquisition that came back without the lock every time, but it knows nothing of two owners. In half
// of the sections only, so that the lock is also seen without it.
static void aim(void)
{
    for (int i = 0; i < 200 && probe.owner == 0; i++)
        burn(1);
}

static void linger(struct worker *w)
{
    probe_enter(&probe, w);
    if (one_in(w, 4))
        sched_yield();
    else
        burn(below(w, 100));
    probe_leave(&probe, w);
}

static void counter_body(struct worker *w)
{
    while (!stopping()) {
        if (one_in(w, 2))
            aim();
        lock(w, &mutex);
        probe_visit(&probe, w);
        linger(w);
        if (one_in(w, 2)) {
            int rc = pthread_mutex_trylock(&mutex);
            if (rc != EBUSY)
                fail("no exclusion: thread #%d is in the section, and trylock returned %d", w->id, rc);
        }
        unlock(w, &mutex);
        count_op(w);
        burn(below(w, 64));
    }
}

void run_counter(struct run *run)
{
    crew_run(run, run->threads, counter_body, NULL);
    expect_no_update_lost(total_ops());
}

// ---- trylock --------------------------------------------------------------------------------------------------------

// On a mutex that no other thread knows, the answers are certain.
static void private_trylock(struct worker *w, pthread_mutex_t *mine)
{
    AT(w, "private trylock");
    expect(pthread_mutex_trylock(mine), 0, "trylock of a free mutex");
    expect(pthread_mutex_trylock(mine), EBUSY, "trylock of a held mutex");
    unlock(w, mine);
}

static bool try_visit(struct worker *w)
{
    AT(w, "mutex_trylock");
    int rc = pthread_mutex_trylock(&mutex);
    if (rc == EBUSY)
        return false;
    expect(rc, 0, "pthread_mutex_trylock");
    AT(w, "section");
    probe_visit(&probe, w);
    unlock(w, &mutex);
    return true;
}

static void trylock_body(struct worker *w)
{
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    uint64_t got = 0, refused = 0;
    while (!stopping()) {
        if (one_in(w, 64))
            private_trylock(w, &mine);
        bool done = try_visit(w);
        if (!done) {
            refused++;
            // Once in a while stand in the queue, so that trylock meets a lock with waiters.
            if (one_in(w, 4)) {
                lock(w, &mutex);
                probe_visit(&probe, w);
                unlock(w, &mutex);
                count_op(w);
            } else {
                dither(w);
            }
            continue;
        }
        got++;
        count_op(w);
        burn(below(w, 256));
    }
    expect(pthread_mutex_destroy(&mine), 0, "pthread_mutex_destroy");
    atomic_fetch_add(&successes, got);
    atomic_fetch_add(&refusals, refused);
}

void run_trylock(struct run *run)
{
    crew_run(run, run->threads, trylock_body, NULL);
    expect_no_update_lost(total_ops());
    if (!successes)
        fail("no trylock ever succeeded");
    note("taken=%llu busy=%llu", (unsigned long long)successes, (unsigned long long)refusals);
}

// ---- timed ----------------------------------------------------------------------------------------------------------

// Deadlines from long past to a few ms ahead; most of them about as long as a hand-off takes.
static int64_t random_wait_ns(struct worker *w)
{
    switch (below(w, 8)) {
    case 0: return -1000000;
    case 1: return 0;
    case 2: return 1000000 + below(w, 4000000);
    default: return below(w, 200000);
    }
}

static int acquire_by(struct worker *w, pthread_mutex_t *m, int64_t wait)
{
    clockid_t clock = one_in(w, 2) ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    uint64_t deadline = now_ns(clock) + (uint64_t)wait;
    struct timespec abstime = at_ns(deadline);
    AT(w, "mutex_timedlock");
    int rc = clock == CLOCK_REALTIME && one_in(w, 2) ? pthread_mutex_timedlock(m, &abstime)
                                                     : pthread_mutex_clocklock(m, clock, &abstime);
    AT(w, rc ? "outside" : "section");
    // The real-time clock may be set back meanwhile; the monotonic one may not.
    if (rc == ETIMEDOUT && clock == CLOCK_MONOTONIC && now_ns(clock) < deadline)
        fail("ETIMEDOUT %lld ns before the deadline", (long long)(deadline - now_ns(clock)));
    return rc;
}

static void private_timed(struct worker *w, pthread_mutex_t *mine)
{
    expect(acquire_by(w, mine, -1000000), 0, "timed lock of a free mutex with an expired deadline");
    expect(acquire_by(w, mine, below(w, 50000)), ETIMEDOUT, "timed lock of a held mutex");
    unlock(w, mine);
}

static void timed_section(struct worker *w)
{
    probe_visit(&probe, w);
    // Hold it about as long as the others are ready to wait: timeouts then race the hand-off.
    if (one_in(w, 16)) {
        probe_enter(&probe, w);
        nap_ns(below(w, 100000));
        probe_leave(&probe, w);
    }
    unlock(w, &mutex);
    count_op(w);
}

// Few threads at a time wait without a deadline: otherwise a lock that serves timed waiters only when no other thread
// waits would serve none of them.
static bool lock_patiently(struct worker *w)
{
    static _Atomic unsigned patient;
    bool few = atomic_fetch_add(&patient, 1) < 2;
    if (few)
        lock(w, &mutex);
    atomic_fetch_sub(&patient, 1);
    return few;
}

static void timed_body(struct worker *w)
{
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    uint64_t got = 0, refused = 0;
    while (!stopping()) {
        if (one_in(w, 64))
            private_timed(w, &mine);
        // Not at once: so the first of all attempts is a timed one, and finds the lock free.
        if (got + refused > 0 && one_in(w, 8) && lock_patiently(w)) {
            timed_section(w);
            continue;
        }
        int rc = acquire_by(w, &mutex, random_wait_ns(w));
        if (rc == ETIMEDOUT) {
            refused++;
            continue;
        }
        expect(rc, 0, "timed lock");
        got++;
        timed_section(w);
    }
    expect(pthread_mutex_destroy(&mine), 0, "pthread_mutex_destroy");
    atomic_fetch_add(&successes, got);
    atomic_fetch_add(&refusals, refused);
}

void run_timed(struct run *run)
{
    crew_run(run, run->threads, timed_body, NULL);
    expect_no_update_lost(total_ops());
    if (!successes)
        fail("no timed lock ever succeeded");
    note("taken=%llu timeouts=%llu", (unsigned long long)successes, (unsigned long long)refusals);
}
