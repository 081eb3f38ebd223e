// SPDX-License-Identifier: MIT OR Apache-2.0
//
// many: 1,000 mutexes of all kinds, up to four held together, taken in address order, released in random order.
#include "torture.h"

enum { LOCKS = 1000, HOT = 8, DEEPEST = 4 };

// Packed as an array of structures with little between the mutexes, as programs have them.
static struct {
    pthread_mutex_t mutex;
    volatile uint32_t owner;
    volatile uint64_t visits;
} locks[LOCKS];

static void init(void)
{
    static const int kinds[] = { PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE,
                                 PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP };
    // Every other mutex stays as the static initialiser left it (all zero).
    for (int i = 0; i < LOCKS; i += 2)
        mutex_init_kind(&locks[i].mutex, kinds[i / 2 % 5]);
}

// Up to `n` different indices in ascending order; returns how many. Half of them from the hot few.
static int choose(struct worker *w, int n, int *index)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        int candidate = (int)below(w, one_in(w, 2) ? HOT : LOCKS);
        int at = count;
        while (at > 0 && index[at - 1] > candidate)
            at--;
        if (at > 0 && index[at - 1] == candidate)
            continue;
        for (int j = count; j > at; j--)
            index[j] = index[j - 1];
        index[at] = candidate;
        count++;
    }
    return count;
}

static void take(struct worker *w, int i)
{
    lock(w, &locks[i].mutex);
    if (locks[i].owner)
        fail("no exclusion: lock %d was thread #%u's", i, locks[i].owner);
    locks[i].owner = (uint32_t)w->id;
    uint64_t visits = locks[i].visits;
    burn(below(w, 100));
    locks[i].visits = visits + 1;
    count_op(w);
}

static void give(struct worker *w, int i)
{
    if (locks[i].owner != (uint32_t)w->id)
        fail("no exclusion: lock %d became thread #%u's under thread #%d", i, locks[i].owner, w->id);
    locks[i].owner = 0;
    unlock(w, &locks[i].mutex);
}

static void many_body(struct worker *w)
{
    while (!stopping()) {
        int index[DEEPEST];
        int n = choose(w, 1 + (int)below(w, DEEPEST), index);
        for (int i = 0; i < n; i++)
            take(w, index[i]);
        dither(w);
        while (n > 0) {
            int victim = (int)below(w, (uint32_t)n);
            give(w, index[victim]);
            index[victim] = index[--n];
        }
    }
}

void run_many(struct run *run)
{
    init();
    crew_run(run, run->threads, many_body, NULL);
    uint64_t visits = 0;
    for (int i = 0; i < LOCKS; i++) {
        visits += locks[i].visits;
        expect(pthread_mutex_destroy(&locks[i].mutex), 0, "pthread_mutex_destroy");
    }
    if (visits != total_ops())
        fail("lost update: %llu sections, %llu counted", (unsigned long long)total_ops(), (unsigned long long)visits);
}
