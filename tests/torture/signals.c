// SPDX-License-Identifier: MIT OR Apache-2.0
//
// signal-locks: a signal handler interrupts a thread in the middle of acquiring or releasing one lock, and takes
// others. A lock that keeps "the node I am waiting with" in one place per thread does not survive this.
//
// Allowed by construction: what a handler locks is never held by ordinary code with the signals unblocked, so a handler
// never waits for the very thread it interrupted.
#include "torture.h"

#include <signal.h>

static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t nobody_signals = PTHREAD_COND_INITIALIZER;
static struct probe hot_probe;

static pthread_mutex_t handlers_only = PTHREAD_MUTEX_INITIALIZER;
static struct probe handlers_probe;

static _Thread_local pthread_mutex_t private_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t handled;
static sigset_t both;

static void locking_handler(int sig)
{
    (void)sig;
    int saved = errno;
    struct worker w = *self;  // a copy: the interrupted code may be in the middle of its random numbers
    w.rng = mix(w.rng, atomic_fetch_add(&handled, 1));
    const char *where = atomic_load(&w.progress->where);
    expect(pthread_mutex_lock(&private_mutex), 0, "lock of the thread's own mutex in a handler");
    if (!one_in(&w, 4)) {
        AT(&w, "handler: mutex_lock");
        expect(pthread_mutex_lock(&handlers_only), 0, "lock in a handler");
        probe_visit(&handlers_probe, &w);
        expect(pthread_mutex_unlock(&handlers_only), 0, "unlock in a handler");
    }
    expect(pthread_mutex_unlock(&private_mutex), 0, "unlock of the thread's own mutex in a handler");
    AT(&w, where);
    errno = saved;
}

// Ordinary code may take the handlers' lock too, as long as no signal can interrupt it.
static void visit_with_signals_blocked(struct worker *w)
{
    pthread_sigmask(SIG_BLOCK, &both, NULL);
    lock(w, &handlers_only);
    probe_visit(&handlers_probe, w);
    unlock(w, &handlers_only);
    atomic_fetch_add(&handled, 1);
    pthread_sigmask(SIG_UNBLOCK, &both, NULL);
}

// A timed wait that no thread signals: a signal may cut it short as a spurious wake-up, never as an error.
static void interrupted_wait(struct worker *w)
{
    struct timespec soon = at_ns(now_ns(CLOCK_REALTIME) + below(w, 200000));
    AT(w, "cond_timedwait");
    int rc = pthread_cond_timedwait(&nobody_signals, &hot, &soon);
    AT(w, "section");
    if (rc && rc != ETIMEDOUT)
        fail("interrupted pthread_cond_timedwait returned %d", rc);
}

static void signals_body(struct worker *w)
{
    while (!stopping()) {
        lock(w, &hot);
        probe_visit(&hot_probe, w);
        count_op(w);
        if (one_in(w, 32))
            interrupted_wait(w);
        unlock(w, &hot);
        if (one_in(w, 16))
            visit_with_signals_blocked(w);
        dither(w);
    }
    // The controller has stopped before; what is pending is delivered before the thread's storage goes.
    pthread_sigmask(SIG_BLOCK, &both, NULL);
}

void run_signal_locks(struct run *run)
{
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    struct sigaction action = { .sa_handler = locking_handler, .sa_mask = both,
                                .sa_flags = run->seed & 1 ? SA_RESTART : 0 };
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    struct worker *crew = crew_start(run, run->threads, signals_body, NULL);
    for (int id = 1; id <= run->threads; id++)  // a handler needs `self`
        while (!atomic_load(&board->slot[id].ops))
            nap_ns(50000);
    uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(run->seconds * 1e9);
    while (now_ns(CLOCK_MONOTONIC) < end) {
        for (int burst = 0; burst < 8; burst++)
            pthread_kill(crew[below(self, (uint32_t)run->threads)].thread, one_in(self, 2) ? SIGUSR1 : SIGUSR2);
        nap_ns(below(self, 100000));
    }
    atomic_store(&board->stop, true);
    crew_join(crew, run->threads);
    if (hot_probe.seq != total_ops())
        fail("lost update: %llu sections, %llu counted", (unsigned long long)total_ops(),
             (unsigned long long)hot_probe.seq);
    note("handled=%llu", (unsigned long long)atomic_load(&handled));
}
