// SPDX-License-Identifier: MIT OR Apache-2.0
//
// rw, rw-timed, rw-last-frees: does the readers-writer lock keep writers alone, however it is acquired, and does it
// leave its memory alone afterwards?
#include "torture.h"

// What the lock protects. `inside` counts those inside, a writer for a million; it is atomic, the cells are not.
enum { WRITER = 1000000, CELLS = 4 };
struct estate {
    pthread_rwlock_t lock;
    atomic_int inside, heirs;
    volatile uint64_t cell[CELLS];
};

static struct estate common = { .lock = PTHREAD_RWLOCK_INITIALIZER };
static _Atomic uint64_t written;

static void linger(struct worker *w)
{
    if (one_in(w, 8))
        sched_yield();
    else
        burn(below(w, 100));
}

static void read_section(struct worker *w, struct estate *e)
{
    AT(w, "reading");
    if (atomic_fetch_add(&e->inside, 1) >= WRITER)
        fail("no exclusion: reader #%d beside a writer", w->id);
    uint64_t first = e->cell[0];
    linger(w);
    for (int i = 1; i < CELLS; i++)
        if (e->cell[i] != first)
            fail("reader #%d sees %llu and %llu", w->id, (unsigned long long)first, (unsigned long long)e->cell[i]);
    // The lock itself is asked whether it is held. (That needs no second thread.)
    if (one_in(w, 4)) {
        int rc = pthread_rwlock_trywrlock(&e->lock);
        if (rc != EBUSY)
            fail("no exclusion: reader #%d is inside, and trywrlock returned %d", w->id, rc);
    }
    atomic_fetch_sub(&e->inside, 1);
}

static void write_section(struct worker *w, struct estate *e)
{
    AT(w, "writing");
    if (atomic_fetch_add(&e->inside, WRITER) != 0)
        fail("no exclusion: writer #%d is not alone", w->id);
    uint64_t seen = e->cell[0];
    for (int i = 0; i < CELLS; i++) {
        if (e->cell[i] != seen)
            fail("writer #%d finds %llu and %llu", w->id, (unsigned long long)seen, (unsigned long long)e->cell[i]);
        e->cell[i] = seen + 1;
        if (i == 1)
            linger(w);
    }
    if (one_in(w, 2)) {
        int rc = one_in(w, 2) ? pthread_rwlock_tryrdlock(&e->lock) : pthread_rwlock_trywrlock(&e->lock);
        if (rc != EBUSY)
            fail("no exclusion: writer #%d is inside, and a trylock returned %d", w->id, rc);
    }
    atomic_fetch_sub(&e->inside, WRITER);
}

static void release(struct worker *w, struct estate *e)
{
    AT(w, "rwlock_unlock");
    expect(pthread_rwlock_unlock(&e->lock), 0, "pthread_rwlock_unlock");
    AT(w, "outside");
}

static void expect_no_write_lost(void)
{
    uint64_t wanted = atomic_load(&written);
    for (int i = 0; i < CELLS; i++)
        if (common.cell[i] != wanted)
            fail("lost update: %llu writes, %llu in cell %d", (unsigned long long)wanted,
                 (unsigned long long)common.cell[i], i);
}

// ---- rw -------------------------------------------------------------------------------------------------------------

static void rw_body(struct worker *w)
{
    while (!stopping()) {
        if (one_in(w, 4)) {
            AT(w, "wrlock");
            expect(pthread_rwlock_wrlock(&common.lock), 0, "pthread_rwlock_wrlock");
            write_section(w, &common);
            atomic_fetch_add(&written, 1);
        } else {
            AT(w, "rdlock");
            expect(pthread_rwlock_rdlock(&common.lock), 0, "pthread_rwlock_rdlock");
            read_section(w, &common);
            if (one_in(w, 8)) {
                AT(w, "rdlock, again");
                expect(pthread_rwlock_rdlock(&common.lock), 0, "pthread_rwlock_rdlock, again");
                read_section(w, &common);
                release(w, &common);
            }
        }
        release(w, &common);
        count_op(w);
        burn(below(w, 64));
    }
}

void run_rw(struct run *run)
{
    crew_run(run, run->threads, rw_body, NULL);
    expect_no_write_lost();
}

// ---- rw-timed -------------------------------------------------------------------------------------------------------

static int acquire_somehow(struct worker *w, bool write)
{
    struct timespec soon = at_ns(now_ns(CLOCK_MONOTONIC) + below(w, 300000)), passed = { 1, 0 };
    switch (below(w, 4)) {
    case 0: return write ? pthread_rwlock_trywrlock(&common.lock) : pthread_rwlock_tryrdlock(&common.lock);
    case 1:
        return write ? pthread_rwlock_timedwrlock(&common.lock, &passed)
                     : pthread_rwlock_timedrdlock(&common.lock, &passed);
    default:
        return write ? pthread_rwlock_clockwrlock(&common.lock, CLOCK_MONOTONIC, &soon)
                     : pthread_rwlock_clockrdlock(&common.lock, CLOCK_MONOTONIC, &soon);
    }
}

static void rw_timed_body(struct worker *w)
{
    while (!stopping()) {
        bool write = one_in(w, 4);
        AT(w, "timed acquisition");
        int rc = acquire_somehow(w, write);
        count_op(w);
        if (rc == EBUSY || rc == ETIMEDOUT)
            continue;
        expect(rc, 0, "a timed acquisition");
        if (write) {
            write_section(w, &common);
            atomic_fetch_add(&written, 1);
        } else {
            read_section(w, &common);
        }
        release(w, &common);
    }
}

void run_rw_timed(struct run *run)
{
    crew_run(run, run->threads, rw_timed_body, NULL);
    expect_no_write_lost();
    // Nothing is left behind that keeps anybody out.
    expect(pthread_rwlock_trywrlock(&common.lock), 0, "trywrlock at the end");
    expect(pthread_rwlock_unlock(&common.lock), 0, "pthread_rwlock_unlock");
    expect(pthread_rwlock_tryrdlock(&common.lock), 0, "tryrdlock at the end");
}

// ---- rw-last-frees --------------------------------------------------------------------------------------------------

// Pairs of threads share a lock between guard pages; the thread that comes last takes it for writing, destroys and
// unmaps it, while the other may still be inside its own unlock.
static _Atomic(struct estate *) meeting[MAX_THREADS / 2 + 1];

static struct estate *fresh(struct worker *w)
{
    struct estate *e = guarded_new(sizeof *e, one_in(w, 2));
    expect(pthread_rwlock_init(&e->lock, NULL), 0, "pthread_rwlock_init");
    atomic_store(&e->heirs, 2);
    return e;
}

// The one leaves an estate for the other, or finds one; the thread that is left alone with it in the end has both
// shares.
static struct estate *meet(struct worker *w)
{
    _Atomic(struct estate *) *place = &meeting[w->id / 2];
    struct estate *found = atomic_exchange(place, NULL), *none = NULL;
    if (found)
        return found;
    struct estate *e = fresh(w);
    if (atomic_compare_exchange_strong(place, &none, e))
        return e;
    guarded_free(e, true);
    return NULL;
}

static void inherit(struct worker *w, struct estate *e)
{
    bool write = one_in(w, 2);
    AT(w, "an heir's lock");
    expect(write ? pthread_rwlock_wrlock(&e->lock) : pthread_rwlock_rdlock(&e->lock), 0, "an heir's lock");
    if (write)
        write_section(w, e);
    else
        read_section(w, e);
    bool last = atomic_fetch_sub(&e->heirs, 1) == 1;
    release(w, e);
    if (!last)
        return;
    expect(pthread_rwlock_wrlock(&e->lock), 0, "the last lock");
    release(w, e);
    expect(pthread_rwlock_destroy(&e->lock), 0, "pthread_rwlock_destroy");
    guarded_free(e, one_in(w, 2));
}

static void rw_last_frees_body(struct worker *w)
{
    while (!stopping()) {
        struct estate *e = meet(w);
        if (e)
            inherit(w, e);
        count_op(w);
    }
}

void run_rw_last_frees(struct run *run)
{
    crew_run(run, run->threads, rw_last_frees_body, NULL);
}
