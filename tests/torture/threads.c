// SPDX-License-Identifier: MIT OR Apache-2.0
//
// tsd, short-threads: threads that come and go. Locks are used when a thread's own data are being torn down, and
// whatever a lock keeps per thread must be given back.
#include "torture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SMALL_STACK = 128 * 1024 };

static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;
static struct probe probe;

static void visit(struct worker *w)
{
    lock(w, &hot);
    probe_visit(&probe, w);
    unlock(w, &hot);
    count_op(w);
}

static void expect_counted(void)
{
    if (probe.seq != total_ops())
        fail("lost update: %llu sections, %llu counted", (unsigned long long)total_ops(),
             (unsigned long long)probe.seq);
}

// ---- tsd ------------------------------------------------------------------------------------------------------------

enum { KEYS = 4, ROUNDS = 3 };  // POSIX promises at least four rounds of destructors

struct value {
    pthread_key_t key;
    struct worker *owner;
    int rounds;
};

static pthread_key_t keys[KEYS];
static _Atomic uint64_t short_lived, destructors;

static void destroy_value(void *arg)
{
    struct value *v = arg;
    struct worker *w = v->owner;
    AT(w, "destructor");
    visit(w);
    atomic_fetch_add(&destructors, 1);
    if (--v->rounds > 0)
        expect(pthread_setspecific(v->key, v), 0, "pthread_setspecific");
    else
        free(v);
    AT(w, NULL);
}

static void short_lived_body(struct worker *w)
{
    bool use_before = one_in(w, 2);  // else the thread's very first lock is in a destructor
    if (use_before)
        visit(w);
    for (int i = 0; i < KEYS; i++) {
        struct value *v = malloc(sizeof *v);
        if (!v)
            fail("out of memory");
        *v = (struct value){ .key = keys[i], .owner = w, .rounds = ROUNDS };
        expect(pthread_setspecific(keys[i], v), 0, "pthread_setspecific");
    }
}

static void tsd_body(struct worker *w)
{
    if (w->id % 2 == 0) {
        while (!stopping())
            visit(w);
        return;
    }
    // A short-lived thread borrows its creator's identity while the creator waits for it.
    do {
        struct worker guest = *w;
        guest.body = short_lived_body;
        guest.rng = mix(rnd(&w->rng), 0);
        worker_start(&guest, SMALL_STACK);
        worker_join(&guest);
        AT(w, "outside");
        atomic_fetch_add(&short_lived, 1);
    } while (!stopping());
}

void run_tsd(struct run *run)
{
    // Some keys are older than the first use of a lock, some younger: a lock that has a key of its own is between them.
    for (int i = 0; i < KEYS; i++) {
        expect(pthread_key_create(&keys[i], destroy_value), 0, "pthread_key_create");
        if (i == KEYS / 2)
            visit(self);
    }
    crew_run(run, run->threads, tsd_body, NULL);
    expect_counted();
    if (destructors != short_lived * KEYS * ROUNDS)
        fail("%llu destructors ran in %llu threads, expected %d each", (unsigned long long)destructors,
             (unsigned long long)short_lived, KEYS * ROUNDS);
    note("destructors=%llu", (unsigned long long)atomic_load(&destructors));
}

// ---- short-threads --------------------------------------------------------------------------------------------------

enum { FULL_THREADS = 100000, GROWTH_LIMIT_KIB = 32 * 1024 };

static pthread_mutex_t baton = PTHREAD_MUTEX_INITIALIZER;

static long rss_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    if (!file)
        fail("/proc/self/status: %s", strerror(errno));
    char line[256];
    long kib = -1;
    while (kib < 0 && fgets(line, sizeof line, file))
        sscanf(line, "VmRSS: %ld", &kib);
    fclose(file);
    return kib;
}

static void brief_body(struct worker *w)
{
    for (uint32_t i = 1 + below(w, 4); i > 0; i--)
        visit(w);
    // The batch's first thread dies holding the baton; its creator releases it. glibc allows that for default mutexes,
    // and programs rely on it: whatever a lock needs for its release must outlive the thread that acquired it.
    if (w->arg)
        lock(w, &baton);
}

static void one_batch(struct run *run, struct worker *batch, int n, uint64_t number)
{
    bool with_baton = one_in(self, 2);
    for (int i = 0; i < n; i++) {
        worker_init(&batch[i], run, i + 1, brief_body, i == 0 && with_baton ? &baton : NULL);
        batch[i].rng = mix(batch[i].rng, number);
        worker_start(&batch[i], SMALL_STACK);
    }
    for (int i = 0; i < n; i++)
        worker_join(&batch[i]);
    if (with_baton) {
        expect(pthread_mutex_trylock(&baton), EBUSY, "trylock of a mutex whose owner has ended");
        unlock(self, &baton);
    }
}

void run_short_threads(struct run *run)
{
    struct worker *batch = calloc((size_t)run->threads, sizeof *batch);
    if (!batch)
        fail("out of memory");
    uint64_t wanted = run->full ? FULL_THREADS : 1;
    uint64_t begin = now_ns(CLOCK_MONOTONIC), length = (uint64_t)(run->seconds * 1e9);
    uint64_t created = 0, number = 0, elapsed;
    long early = 0;
    do {
        one_batch(run, batch, run->threads, number++);
        created += (uint64_t)run->threads;
        elapsed = now_ns(CLOCK_MONOTONIC) - begin;
        if (!early && elapsed * 10 >= length && created * 10 >= wanted)
            early = rss_kib();
    } while (elapsed < length || created < wanted);
    free(batch);
    expect_counted();
    long late = rss_kib();
    if (late - early > GROWTH_LIMIT_KIB)
        fail("memory grows: VmRSS %ld KiB after a tenth of %llu threads, %ld KiB at the end", early,
             (unsigned long long)created, late);
    note("created=%llu rss_at_10%%=%ld_KiB rss_at_end=%ld_KiB", (unsigned long long)created, early, late);
}
