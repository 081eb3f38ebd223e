// SPDX-License-Identifier: MIT OR Apache-2.0
//
// recursive, errorcheck: the two kinds that know their owner, with the owner changing all the time.
#include "torture.h"

static pthread_mutex_t mutex;
static struct probe probe;

// A deadline in the past: the owner must get its answer without waiting.
static int timed_in_the_past(void)
{
    struct timespec past = at_ns(now_ns(CLOCK_MONOTONIC) - 1000000);
    return pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &past);
}

static void expect_count(uint64_t visits)
{
    if (probe.seq != visits)
        fail("lost update: %llu sections, %llu counted", (unsigned long long)visits, (unsigned long long)probe.seq);
}

// ---- recursive ------------------------------------------------------------------------------------------------------

static void deepen(struct worker *w)
{
    AT(w, "recursive relock");
    switch (below(w, 3)) {
    case 0: expect(pthread_mutex_lock(&mutex), 0, "relock by the owner"); break;
    case 1: expect(pthread_mutex_trylock(&mutex), 0, "trylock by the owner"); break;
    default: expect(timed_in_the_past(), 0, "timed lock by the owner"); break;
    }
    probe_check(&probe, w);
}

static void recursive_body(struct worker *w)
{
    while (!stopping()) {
        if (one_in(w, 4)) {
            AT(w, "mutex_trylock");
            int rc = pthread_mutex_trylock(&mutex);
            if (rc == EBUSY)
                continue;
            expect(rc, 0, "pthread_mutex_trylock");
        } else {
            lock(w, &mutex);
        }
        probe_visit(&probe, w);
        probe_enter(&probe, w);
        uint32_t depth = below(w, 6);
        for (uint32_t i = 0; i < depth; i++)
            deepen(w);
        for (uint32_t i = 0; i < depth; i++) {
            unlock(w, &mutex);
            dither(w);
            probe_check(&probe, w);  // still ours: the outermost lock is not yet released
        }
        probe_leave(&probe, w);
        unlock(w, &mutex);
        count_op(w);
        if (one_in(w, 8))
            expect(pthread_mutex_unlock(&mutex), EPERM, "unlock by a thread that is not the owner");
    }
}

void run_recursive(struct run *run)
{
    mutex_init_kind(&mutex, PTHREAD_MUTEX_RECURSIVE);
    crew_run(run, run->threads, recursive_body, NULL);
    expect_count(total_ops());
    expect(pthread_mutex_destroy(&mutex), 0, "pthread_mutex_destroy");
}

// ---- errorcheck -----------------------------------------------------------------------------------------------------

static void provoke_as_owner(struct worker *w)
{
    AT(w, "errorcheck relock");
    switch (below(w, 3)) {
    case 0: expect(pthread_mutex_lock(&mutex), EDEADLK, "relock by the owner"); break;
    case 1: expect(pthread_mutex_trylock(&mutex), EBUSY, "trylock by the owner"); break;
    default: expect(timed_in_the_past(), EDEADLK, "timed lock by the owner"); break;
    }
    probe_check(&probe, w);
}

static void errorcheck_body(struct worker *w)
{
    while (!stopping()) {
        lock(w, &mutex);
        probe_visit(&probe, w);
        probe_enter(&probe, w);
        for (uint32_t i = below(w, 3); i > 0; i--)
            provoke_as_owner(w);
        probe_leave(&probe, w);
        unlock(w, &mutex);
        count_op(w);
        // Whether another thread holds it or none does: it is not ours.
        if (one_in(w, 4))
            expect(pthread_mutex_unlock(&mutex), EPERM, "unlock by a thread that is not the owner");
        dither(w);
    }
}

void run_errorcheck(struct run *run)
{
    mutex_init_kind(&mutex, PTHREAD_MUTEX_ERRORCHECK);
    crew_run(run, run->threads, errorcheck_body, NULL);
    expect_count(total_ops());
    expect(pthread_mutex_unlock(&mutex), EPERM, "unlock of a free mutex");
    expect(pthread_mutex_destroy(&mutex), 0, "pthread_mutex_destroy");
}
