// SPDX-License-Identifier: MIT OR Apache-2.0
//
// sem, sem-signals, sem-destroy: no permit is lost or made, wherever a signal interrupts; nothing is touched after the
// last wait.
#include "torture.h"

#include <semaphore.h>
#include <signal.h>
#include <string.h>

static int code(int rc)
{
    return rc == 0 ? 0 : errno;
}

static int value_of(sem_t *sem)
{
    int value = -1;
    expect(sem_getvalue(sem, &value), 0, "sem_getvalue");
    return value;
}

// One wait, of a random kind. Whether it took a permit.
static bool wait_somehow(struct worker *w, sem_t *sem)
{
    AT(w, "sem_wait");
    struct timespec until;
    int rc;
    switch (below(w, 4)) {
    case 0:
        rc = code(sem_trywait(sem));
        if (rc == EAGAIN)
            return false;
        break;
    case 1:
    case 2:
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += below(w, 300000);
        if (until.tv_nsec > 999999999)
            until.tv_nsec = 999999999;
        rc = code(sem_clockwait(sem, CLOCK_MONOTONIC, &until));
        if (rc == ETIMEDOUT)
            return false;
        break;
    default:
        rc = code(sem_wait(sem));
    }
    if (rc == EINTR)
        return false;
    expect(rc, 0, "a wait for a semaphore");
    return true;
}

// ---- sem: a few permits go round; threads that have one are in a section that admits just so many -------------------

enum { PERMITS = 3 };

static sem_t sem, mutex;
static struct probe probe;
static _Atomic int inside;

static void sem_body(struct worker *w)
{
    while (!stopping()) {
        if (!wait_somehow(w, &sem))
            continue;
        int now = atomic_fetch_add(&inside, 1) + 1;
        if (now > PERMITS)
            fail("%d threads hold one of %d permits", now, PERMITS);
        if (wait_somehow(w, &mutex)) {
            AT(w, "section");
            probe_visit(&probe, w);
            expect(sem_post(&mutex), 0, "sem_post");
            count_op(w);
        }
        dither(w);
        atomic_fetch_sub(&inside, 1);
        AT(w, "sem_post");
        expect(sem_post(&sem), 0, "sem_post");
        AT(w, "outside");
        burn(below(w, 128));
    }
}

void run_sem(struct run *run)
{
    expect(sem_init(&sem, 0, PERMITS), 0, "sem_init");
    expect(sem_init(&mutex, 0, 1), 0, "sem_init");
    crew_run(run, run->threads, sem_body, NULL);
    if (probe.seq != total_ops())
        fail("lost update: %llu sections, %llu counted", (unsigned long long)total_ops(),
             (unsigned long long)probe.seq);
    if (value_of(&sem) != PERMITS || value_of(&mutex) != 1)
        fail("%d and %d permits are left of %d and 1", value_of(&sem), value_of(&mutex), PERMITS);
    expect(sem_destroy(&sem), 0, "sem_destroy");
    expect(sem_destroy(&mutex), 0, "sem_destroy");
}

// ---- sem-signals: all threads post and wait; handlers that interrupt them anywhere post, too ------------------------

static _Atomic uint64_t posted, taken;
static _Atomic int done;

static void post_in_handler(int number)
{
    int saved = errno;
    (void)number;
    if (sem_post(&sem))
        fail("sem_post in a handler: %s", strerror(errno));
    atomic_fetch_add(&posted, 1);
    errno = saved;
}

static void give_one(void)
{
    expect(sem_post(&sem), 0, "sem_post");
    atomic_fetch_add(&posted, 1);
}

static void signals_body(struct worker *w)
{
    struct worker *crew = w->arg;
    while (!stopping()) {
        AT(w, "sem_post");
        give_one();
        pthread_t other = crew[below(w, (uint32_t)w->run->threads)].thread;
        if (one_in(w, 2) && other)
            pthread_kill(other, SIGUSR1);
        for (uint32_t k = below(w, 4); k > 0 && !stopping(); k--)
            if (wait_somehow(w, &sem))
                atomic_fetch_add(&taken, 1);
        count_op(w);
    }
    // For the threads that wait without a deadline.
    give_one();
    // No thread ends, and is joined, while another may be about to send it a signal.
    for (atomic_fetch_add(&done, 1); atomic_load(&done) < w->run->threads;)
        nap_ns(100000);
}

void run_sem_signals(struct run *run)
{
    static struct worker crew[MAX_THREADS + 1];
    struct sigaction action = { .sa_handler = post_in_handler };
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGUSR1, &action, NULL))
        fail("sigaction: %s", strerror(errno));
    expect(sem_init(&sem, 0, 0), 0, "sem_init");
    atomic_store(&done, 0);
    for (int i = 0; i < run->threads; i++)
        worker_init(&crew[i], run, i + 1, signals_body, crew);
    for (int i = 0; i < run->threads; i++)
        worker_start(&crew[i], 0);
    // All of them may be waiting at once: more waits than posts are made. So something comes from outside, too.
    for (uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(run->seconds * 1e9); now_ns(CLOCK_MONOTONIC) < end;) {
        nap_ns(500000);
        give_one();
        pthread_kill(crew[below(self, (uint32_t)run->threads)].thread, SIGUSR1);
    }
    atomic_store(&board->stop, true);
    // Again, all of them may be waiting, each for the last time.
    for (int i = 0; i < run->threads; i++)
        give_one();
    for (int i = 0; i < run->threads; i++)
        worker_join(&crew[i]);
    uint64_t left = atomic_load(&posted) - atomic_load(&taken);
    if ((uint64_t)value_of(&sem) != left)
        fail("%llu posted, %llu taken, %d left", (unsigned long long)posted, (unsigned long long)taken, value_of(&sem));
}

// ---- sem-destroy: the waiter destroys the semaphore and its memory; the post may be on its way out ------------------

struct mail {
    _Atomic(sem_t *) sem;
};
static struct mail boxes[MAX_THREADS + 2];

static void destroy_body(struct worker *w)
{
    int partner = (w->id - 1) ^ 1;
    bool posts = (w->id - 1) & 1;
    struct mail *box = &boxes[posts ? w->id - 1 : partner];
    while (!stopping()) {
        if (posts) {
            sem_t *it = atomic_exchange(&box->sem, NULL);
            if (!it) {
                sched_yield();
                continue;
            }
            if (one_in(w, 2))
                burn(below(w, 2000));
            AT(w, "sem_post");
            expect(sem_post(it), 0, "sem_post");
            AT(w, "outside");
            continue;
        }
        sem_t *it = guarded_new(sizeof *it, one_in(w, 2));
        expect(sem_init(it, 0, 0), 0, "sem_init");
        atomic_store(&box->sem, it);
        AT(w, "sem_wait");
        struct timespec until;
        do {
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_nsec = until.tv_nsec > 990000000 ? 999999999 : until.tv_nsec + 10000000;
        } while (sem_clockwait(it, CLOCK_MONOTONIC, &until) && !stopping());
        if (stopping() && atomic_exchange(&box->sem, NULL) == NULL && value_of(it) == 0)
            return;  // it was taken out, and the post may come yet: the memory stays
        expect(sem_destroy(it), 0, "sem_destroy");
        guarded_free(it, one_in(w, 2));
        count_op(w);
    }
}

void run_sem_destroy(struct run *run)
{
    at_least(run, 2);
    crew_run(run, run->threads & ~1, destroy_body, NULL);
}
