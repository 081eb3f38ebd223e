// SPDX-License-Identifier: MIT OR Apache-2.0
//
// spin: do spinlocks exclude, with far more threads than CPUs, holders that lose theirs, and trylocks in between?
#include "torture.h"

static pthread_spinlock_t lock_word;
static struct probe probe;

static void enter(struct worker *w)
{
    AT(w, "spin_lock");
    if (one_in(w, 4)) {
        int rc;
        while ((rc = pthread_spin_trylock(&lock_word)) != 0) {
            expect(rc, EBUSY, "pthread_spin_trylock");
            if (stopping())
                break;
            sched_yield();
        }
        if (rc == 0)
            return;
    }
    expect(pthread_spin_lock(&lock_word), 0, "pthread_spin_lock");
}

static void spin_body(struct worker *w)
{
    while (!stopping()) {
        enter(w);
        AT(w, "section");
        probe_visit(&probe, w);
        if (one_in(w, 64))
            sched_yield();
        if (one_in(w, 8) && pthread_spin_trylock(&lock_word) != EBUSY)
            fail("no exclusion: thread #%d is in the section, and a trylock got the lock", w->id);
        AT(w, "spin_unlock");
        expect(pthread_spin_unlock(&lock_word), 0, "pthread_spin_unlock");
        count_op(w);
        AT(w, "outside");
        burn(below(w, 256));
    }
}

void run_spin(struct run *run)
{
    expect(pthread_spin_init(&lock_word, PTHREAD_PROCESS_PRIVATE), 0, "pthread_spin_init");
    crew_run(run, run->threads, spin_body, NULL);
    if (probe.seq != total_ops())
        fail("lost update: %llu sections, %llu counted", (unsigned long long)total_ops(),
             (unsigned long long)probe.seq);
    expect(pthread_spin_destroy(&lock_word), 0, "pthread_spin_destroy");
}
