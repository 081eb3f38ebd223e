/*
 * The unprotected counter: the only sensor in the suite for "two threads were inside".
 *
 * It is read, sometimes held for a while (a yield, a few hundred turns), and written back. An intruder that writes in
 * between is overwritten, and the sum is short. The yields matter most: while a holder is off its CPU, each of the
 * others tries the lock, and a lock that lets a second thread in once in ten thousand times is caught within a second.
 * No atomic operation stands in the section, so the lock's own ordering is tested as well.
 */
#include "conformance.h"

static void *increment(void *argument)
{
    struct exclusion *x = argument;
    int ticket = atomic_fetch_add(&x->tickets, 1);
    int way = ticket % 2 && x->lock[1] ? 1 : 0;
    uint32_t random = 77 + ticket;
    int made = 0;
    do {
        HOT_OK(x->lock[way](x->mutex));
        long seen = x->counter;
        uint32_t choice = random_next(&random) % 256;
        if (choice % 32 == 0) sched_yield();
        for (uint32_t turn = 0; turn < choice; turn++) __asm__ volatile("" ::: "memory");
        x->counter = seen + 1;
        HOT_OK(x->unlock[way](x->mutex));
        made++;
    } while (made % 16 || !time_reached(CLOCK_MONOTONIC, x->end));
    atomic_fetch_add(&x->made, made);
    return NULL;
}

void exclusion_run(struct exclusion *x)
{
    x->counter = 0;
    atomic_store(&x->tickets, 0);
    atomic_store(&x->made, 0);
    x->end = time_after_ms(CLOCK_MONOTONIC, x->ms);
    threads_run(x->threads, increment, x);
    CHECK_EQ(x->counter, atomic_load(&x->made));
}

void check_excludes(pthread_mutex_t *mutex)
{
    struct exclusion x = {.mutex = mutex,
                          .lock = {pthread_mutex_lock},
                          .unlock = {pthread_mutex_unlock},
                          .threads = 4,
                          .ms = 20};
    exclusion_run(&x);
}
