/* Condition variables under load: lost wake-ups, queues, barriers, storms, and the end of a condition variable. */
#include "conformance.h"

#include <sys/mman.h>

/* ---- Ping-pong: one lost wake-up and it stands still ---- */

struct pingpong {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_cond_t second; /* the other direction, if two are wanted */
    bool two, signal_outside, broadcast;
    int rounds, turn; /* at most so many rounds */
    bool over;
    atomic_int tickets;
};

static void pass_turn(struct pingpong *p, int me)
{
    pthread_cond_t *cond = p->two && me == 0 ? &p->second : &p->cond;
    HOT_OK(p->broadcast ? pthread_cond_broadcast(cond) : pthread_cond_signal(cond));
}

static void *play(void *argument)
{
    struct pingpong *p = argument;
    int me = atomic_fetch_add(&p->tickets, 1);
    pthread_cond_t *mine = p->two && me == 1 ? &p->second : &p->cond;
    for (bool over = false; !over;) {
        HOT_OK(pthread_mutex_lock(&p->mutex));
        while (p->turn % 2 != me && !p->over) HOT_OK(pthread_cond_wait(mine, &p->mutex));
        p->turn++;
        if (p->turn >= 2 * p->rounds || (p->turn % 64 == 0 && time_is_short())) p->over = true;
        over = p->over;
        if (!p->signal_outside) pass_turn(p, me);
        HOT_OK(pthread_mutex_unlock(&p->mutex));
        if (p->signal_outside) pass_turn(p, me);
    }
    return NULL;
}

static void pingpong(struct pingpong p)
{
    threads_run(2, play, &p);
    CHECK_OK(pthread_cond_destroy(&p.cond));
    CHECK_OK(pthread_cond_destroy(&p.second));
    CHECK_OK(pthread_mutex_destroy(&p.mutex));
}

#define PINGPONG \
    .mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .second = PTHREAD_COND_INITIALIZER

CHECK(cond_stress, ping_pong) { pingpong((struct pingpong){PINGPONG, .rounds = 50000}); }

CHECK(cond_stress, ping_pong_signalling_outside)
{
    pingpong((struct pingpong){PINGPONG, .rounds = 50000, .signal_outside = true});
}

CHECK(cond_stress, ping_pong_on_two_conditions) { pingpong((struct pingpong){PINGPONG, .rounds = 30000, .two = true}); }

CHECK(cond_stress, ping_pong_by_broadcast)
{
    pingpong((struct pingpong){PINGPONG, .rounds = 30000, .broadcast = true});
}

/* ---- Producers and consumers ---- */

enum { RING = 7, ITEMS = 2000, WORKERS = 4 };

struct ring {
    pthread_mutex_t mutex;
    pthread_cond_t not_full, not_empty;
    int items[RING], head, count;
    atomic_int tickets;
    atomic_long sum;
    atomic_int seen[WORKERS * ITEMS];
};

static void *produce(void *argument)
{
    struct ring *r = argument;
    int first = atomic_fetch_add(&r->tickets, 1) * ITEMS;
    for (int i = 0; i < ITEMS; i++) {
        HOT_OK(pthread_mutex_lock(&r->mutex));
        while (r->count == RING) HOT_OK(pthread_cond_wait(&r->not_full, &r->mutex));
        r->items[(r->head + r->count++) % RING] = first + i;
        HOT_OK(pthread_cond_signal(&r->not_empty));
        HOT_OK(pthread_mutex_unlock(&r->mutex));
    }
    return NULL;
}

static void *consume(void *argument)
{
    struct ring *r = argument;
    for (int i = 0; i < ITEMS; i++) {
        HOT_OK(pthread_mutex_lock(&r->mutex));
        while (r->count == 0) {
            struct timespec far = time_far(CLOCK_MONOTONIC);
            HOT_OK(i % 2 ? pthread_cond_wait(&r->not_empty, &r->mutex)
                         : pthread_cond_clockwait(&r->not_empty, &r->mutex, CLOCK_MONOTONIC, &far));
        }
        int item = r->items[r->head];
        r->head = (r->head + 1) % RING;
        r->count--;
        HOT_OK(pthread_mutex_unlock(&r->mutex));
        HOT_OK(pthread_cond_signal(&r->not_full));
        atomic_fetch_add(&r->seen[item], 1);
    }
    return NULL;
}

CHECK(cond_stress, producers_and_consumers)
{
    static struct ring ring;
    pthread_t threads[2 * WORKERS];
    for (int i = 0; i < 2 * WORKERS; i++) threads[i] = thread_start(i % 2 ? produce : consume, &ring);
    for (int i = 0; i < 2 * WORKERS; i++) thread_join(threads[i]);
    for (int i = 0; i < WORKERS * ITEMS; i++) CHECK_EQ(atomic_load(&ring.seen[i]), 1);
    CHECK_EQ(ring.count, 0);
}

/* ---- A barrier ---- */

enum { PARTIES = 8, PHASES = 400 };

struct barrier {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int arrived, phase;
    atomic_int in_phase[PHASES];
};

static void *cross(void *argument)
{
    struct barrier *b = argument;
    for (int phase = 0; phase < PHASES; phase++) {
        atomic_fetch_add(&b->in_phase[phase], 1);
        HOT_OK(pthread_mutex_lock(&b->mutex));
        if (++b->arrived == PARTIES) {
            b->arrived = 0;
            b->phase++;
            HOT_OK(pthread_cond_broadcast(&b->cond));
        } else {
            while (b->phase == phase) HOT_OK(pthread_cond_wait(&b->cond, &b->mutex));
        }
        HOT_OK(pthread_mutex_unlock(&b->mutex));
        if (atomic_load(&b->in_phase[phase]) != PARTIES) FAIL("crossed the barrier before all had come");
    }
    return NULL;
}

CHECK(cond_stress, barrier_of_eight)
{
    static struct barrier barrier;
    threads_run(PARTIES, cross, &barrier);
    CHECK_EQ(barrier.phase, PHASES);
}

/* ---- Broadcast storm ---- */

struct herd {
    pthread_mutex_t mutex;
    pthread_cond_t cond, all_in;
    int generation, waiting;
    bool over;
};

static void *follow(void *argument)
{
    struct herd *h = argument;
    HOT_OK(pthread_mutex_lock(&h->mutex));
    while (!h->over) {
        int generation = h->generation;
        if (++h->waiting == 32) HOT_OK(pthread_cond_signal(&h->all_in));
        while (h->generation == generation && !h->over) HOT_OK(pthread_cond_wait(&h->cond, &h->mutex));
    }
    HOT_OK(pthread_mutex_unlock(&h->mutex));
    return NULL;
}

CHECK(cond_stress, broadcast_storm_over_32_waiters)
{
    struct herd h = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, false};
    pthread_t threads[32];
    for (int i = 0; i < 32; i++) threads[i] = thread_start(follow, &h);
    HOT_OK(pthread_mutex_lock(&h.mutex));
    for (int round = 0; round < 300; round++) {
        while (h.waiting < 32) HOT_OK(pthread_cond_wait(&h.all_in, &h.mutex));
        h.waiting = 0;
        h.generation++;
        h.over = round == 299;
        HOT_OK(pthread_cond_broadcast(&h.cond));
    }
    HOT_OK(pthread_mutex_unlock(&h.mutex));
    for (int i = 0; i < 32; i++) thread_join(threads[i]);
}

/* ---- A semaphore of signals: as many wake-ups as posts ---- */

struct semaphore {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int value, waiters;
    atomic_int tickets;
};

static void *post_or_wait(void *argument)
{
    struct semaphore *s = argument;
    bool posts = atomic_fetch_add(&s->tickets, 1) % 2;
    for (int i = 0; i < 3000; i++) {
        HOT_OK(pthread_mutex_lock(&s->mutex));
        if (posts) {
            s->value++;
            if (s->waiters) HOT_OK(pthread_cond_signal(&s->cond)); /* none to spare */
        } else {
            while (s->value == 0) {
                s->waiters++;
                HOT_OK(pthread_cond_wait(&s->cond, &s->mutex));
                s->waiters--;
            }
            s->value--;
        }
        HOT_OK(pthread_mutex_unlock(&s->mutex));
    }
    return NULL;
}

CHECK(cond_stress, semaphore_of_eight_threads)
{
    struct semaphore s = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    threads_run(8, post_or_wait, &s);
    CHECK_EQ(s.value, 0);
    CHECK_EQ(s.waiters, 0);
}

/* ---- The end of a condition variable ---- */

struct estate {
    pthread_cond_t cond;
};

struct ending {
    pthread_mutex_t mutex;
    struct estate *estate;
    int waiting, awake;
    bool go, over;
    struct gate begin, left;
};

static void *wait_for_the_end(void *argument)
{
    struct ending *e = argument;
    for (int round = 1;; round++) {
        gate_wait(&e->begin, round);
        if (e->over) return NULL;
        HOT_OK(pthread_mutex_lock(&e->mutex));
        e->waiting++;
        while (!e->go) HOT_OK(pthread_cond_wait(&e->estate->cond, &e->mutex));
        HOT_OK(pthread_mutex_unlock(&e->mutex));
        gate_open(&e->left);
    }
}

/*
 * POSIX: destroying right after the broadcast that wakes all waiters is allowed. Then the memory goes away while they
 * may still be on their way out of the wait.
 */
static void end_after_broadcast(int waiters, int rounds, bool outside)
{
    struct ending e = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[8];
    e.estate = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < waiters; i++) threads[i] = thread_start(wait_for_the_end, &e);
    for (int round = 1; round <= rounds && !time_is_short(); round++) {
        HOT_OK(pthread_cond_init(&e.estate->cond, NULL));
        e.go = false;
        e.waiting = 0;
        gate_open(&e.begin);
        for (;; sched_yield()) {
            HOT_OK(pthread_mutex_lock(&e.mutex));
            if (e.waiting == waiters) break;
            HOT_OK(pthread_mutex_unlock(&e.mutex));
        }
        e.go = true;
        if (outside) HOT_OK(pthread_mutex_unlock(&e.mutex));
        HOT_OK(pthread_cond_broadcast(&e.estate->cond));
        if (!outside) HOT_OK(pthread_mutex_unlock(&e.mutex));
        HOT_OK(pthread_cond_destroy(&e.estate->cond));
        HOT_OK(mprotect(e.estate, 4096, PROT_NONE));
        gate_wait(&e.left, round * waiters);
        HOT_OK(mprotect(e.estate, 4096, PROT_READ | PROT_WRITE));
    }
    e.over = true;
    gate_open(&e.begin);
    for (int i = 0; i < waiters; i++) thread_join(threads[i]);
}

CHECK(cond_stress, destroyed_and_gone_after_broadcast_to_1) { end_after_broadcast(1, 3000, false); }

CHECK(cond_stress, destroyed_and_gone_after_broadcast_to_6) { end_after_broadcast(6, 800, false); }

CHECK(cond_stress, destroyed_and_gone_after_broadcast_outside) { end_after_broadcast(4, 1000, true); }

/* The waiter, signalled under the mutex, destroys and frees both. */
struct parcel {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool ready;
};

static void *fill_parcel(void *argument)
{
    struct parcel *p = argument;
    HOT_OK(pthread_mutex_lock(&p->mutex));
    p->ready = true;
    HOT_OK(pthread_cond_signal(&p->cond));
    HOT_OK(pthread_mutex_unlock(&p->mutex));
    return NULL;
}

CHECK(cond_stress, freed_by_the_waiter_with_its_mutex)
{
    for (int i = 0; i < 2000 && !time_is_short(); i++) {
        struct parcel *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_t thread = thread_start(fill_parcel, p);
        HOT_OK(pthread_mutex_lock(&p->mutex));
        while (!p->ready) HOT_OK(pthread_cond_wait(&p->cond, &p->mutex));
        HOT_OK(pthread_mutex_unlock(&p->mutex));
        HOT_OK(pthread_cond_destroy(&p->cond));
        HOT_OK(pthread_mutex_destroy(&p->mutex));
        HOT_OK(munmap(p, 4096));
        thread_join(thread);
    }
}
