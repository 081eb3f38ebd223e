/* Condition variables without deadlines: which waiter wakes, what is remembered, what becomes of the mutex. */
#include "conformance.h"

#include <sys/mman.h>

/* ---- Signal and broadcast ---- */

CHECK(cond_basic, each_signal_wakes_at_least_one)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    sleepers_start(&s, 8);
    for (int i = 1; i <= 8; i++) {
        sleepers_give(&s, 1);
        CHECK_OK(pthread_cond_signal(&s.cond));
        sleepers_await(&s, i);
    }
    sleepers_join(&s);
}

CHECK(cond_basic, signal_with_the_mutex_held)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    sleepers_start(&s, 8);
    for (int i = 1; i <= 8; i++) {
        CHECK_OK(pthread_mutex_lock(&s.mutex));
        s.tokens++;
        CHECK_OK(pthread_cond_signal(&s.cond));
        CHECK_OK(pthread_mutex_unlock(&s.mutex));
        sleepers_await(&s, i);
    }
    sleepers_join(&s);
}

CHECK(cond_basic, as_many_signals_as_waiters_wake_all)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    sleepers_start(&s, 16);
    sleepers_give(&s, 16);
    for (int i = 0; i < 16; i++) CHECK_OK(pthread_cond_signal(&s.cond));
    sleepers_join(&s);
}

CHECK(cond_basic, broadcast_wakes_all)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    sleepers_start(&s, 16);
    sleepers_give(&s, 16);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
}

CHECK(cond_basic, broadcast_with_the_mutex_held_wakes_all)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    sleepers_start(&s, 16);
    CHECK_OK(pthread_mutex_lock(&s.mutex));
    s.tokens = 16;
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    sleepers_join(&s);
}

CHECK(cond_basic, broadcast_after_some_signals_wakes_the_rest)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    for (int round = 1; round <= 4; round++) {
        sleepers_start(&s, 10);
        sleepers_give(&s, 10);
        for (int i = 0; i < 3; i++) CHECK_OK(pthread_cond_signal(&s.cond));
        CHECK_OK(pthread_cond_broadcast(&s.cond));
        sleepers_await(&s, round * 10);
    }
    sleepers_join(&s);
}

CHECK(cond_basic, without_waiters_signals_succeed)
{
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(pthread_cond_signal(&cond));
        CHECK_OK(pthread_cond_broadcast(&cond));
    }
    CHECK_OK(pthread_cond_destroy(&cond));
}

/* A remembered signal looks like a spurious wake-up, which is allowed; ten of ten is not. */
CHECK(cond_basic, signals_are_not_remembered)
{
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int woken = 0;
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 10; i++) {
        CHECK_OK(i % 2 ? pthread_cond_signal(&cond) : pthread_cond_broadcast(&cond));
        struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
        int rc = pthread_cond_timedwait(&cond, &mutex, &deadline);
        if (rc != ETIMEDOUT) CHECK_OK(rc);
        woken += rc == 0;
    }
    CHECK_TRUE(woken < 10, "every wait was ended by a signal that came before it");
}

/* ---- The mutex ---- */

struct wait_case {
    pthread_mutex_t mutex;
    pthread_cond_t *cond;
    bool waiting, go;
    void (*after)(struct wait_case *); /* with the mutex held again */
};

static void *wait_for_go(void *argument)
{
    struct wait_case *w = argument;
    CHECK_OK(pthread_mutex_lock(&w->mutex));
    w->waiting = true;
    while (!w->go) CHECK_OK(pthread_cond_wait(w->cond, &w->mutex));
    if (w->after) w->after(w);
    CHECK_OK(pthread_mutex_unlock(&w->mutex));
    return NULL;
}

/* One wait on a fresh mutex of the given kind, from start to end. */
static void wait_once(pthread_cond_t *cond, int kind, void (*after)(struct wait_case *))
{
    struct wait_case w = {.cond = cond, .after = after};
    struct locker other;
    mutex_make(&w.mutex, kind);
    pthread_t waiter = thread_start(wait_for_go, &w);
    for (bool waiting = false; !waiting; sched_yield()) {
        CHECK_OK(pthread_mutex_lock(&w.mutex));
        waiting = w.waiting;
        CHECK_OK(pthread_mutex_unlock(&w.mutex));
    }
    locker_start(&other, &w.mutex, NULL, NULL);
    locker_join(&other); /* the wait has released it */
    CHECK_OK(pthread_mutex_lock(&w.mutex));
    w.go = true;
    CHECK_OK(pthread_cond_signal(cond));
    nap_ms(5);
    CHECK_TRUE(w.waiting, "the waiter ran without the mutex");
    CHECK_OK(pthread_mutex_unlock(&w.mutex));
    thread_join(waiter);
    CHECK_OK(pthread_mutex_destroy(&w.mutex));
}

static void wait_fresh(int kind, void (*after)(struct wait_case *))
{
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    wait_once(&cond, kind, after);
    CHECK_OK(pthread_cond_destroy(&cond));
}

static void is_held(struct wait_case *w)
{
    w->waiting = false;
    CHECK_RC(trylock_elsewhere(&w->mutex), EBUSY);
}

static void is_owned(struct wait_case *w)
{
    is_held(w);
    CHECK_RC(pthread_mutex_lock(&w->mutex), EDEADLK);
    CHECK_RC(unlock_elsewhere(&w->mutex), EPERM);
}

static void is_at_depth_one(struct wait_case *w)
{
    is_held(w);
    CHECK_OK(pthread_mutex_lock(&w->mutex));
    CHECK_OK(pthread_mutex_unlock(&w->mutex));
    CHECK_OK(pthread_mutex_unlock(&w->mutex));
    CHECK_RC(pthread_mutex_unlock(&w->mutex), EPERM);
    CHECK_OK(pthread_mutex_lock(&w->mutex));
}

CHECK(cond_basic, default_mutex_released_and_held_again) { wait_fresh(KIND_DEFAULT, is_held); }

CHECK(cond_basic, normal_mutex_released_and_held_again) { wait_fresh(PTHREAD_MUTEX_NORMAL, is_held); }

CHECK(cond_basic, adaptive_mutex_released_and_held_again) { wait_fresh(PTHREAD_MUTEX_ADAPTIVE_NP, is_held); }

CHECK(cond_basic, errorcheck_mutex_owned_again) { wait_fresh(PTHREAD_MUTEX_ERRORCHECK, is_owned); }

CHECK(cond_basic, recursive_mutex_owned_again) { wait_fresh(PTHREAD_MUTEX_RECURSIVE, is_at_depth_one); }

/* As in glibc: a wait undoes one lock, so at depth two the mutex stays held and no thread can come to signal under
 * it. */
CHECK(cond_basic, recursive_mutex_at_depth_two_stays_held)
{
    pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    struct locker other;
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_OK(pthread_mutex_lock(&mutex));
    locker_start(&other, &mutex, NULL, NULL);
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 30);
    int rc;
    while ((rc = pthread_cond_timedwait(&cond, &mutex, &deadline)) == 0)
        ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_TRUE(!locker_got_it(&other), "the mutex was free during the wait");
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_RC(trylock_elsewhere(&mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    locker_join(&other);
    CHECK_RC(pthread_mutex_unlock(&mutex), EPERM);
}

CHECK(cond_basic, wait_on_a_mutex_not_owned_is_eperm)
{
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_mutex_t mutexes[] = {PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};
    struct timespec far = time_far(CLOCK_REALTIME);
    for (int i = 0; i < 2; i++) {
        CHECK_RC(pthread_cond_wait(&cond, &mutexes[i]), EPERM);
        CHECK_RC(pthread_cond_timedwait(&cond, &mutexes[i], &far), EPERM);
        CHECK_RC(pthread_cond_clockwait(&cond, &mutexes[i], CLOCK_REALTIME, &far), EPERM);
        CHECK_OK(trylock_elsewhere(&mutexes[i]));
        CHECK_RC(pthread_mutex_unlock(&mutexes[i]), EPERM);
    }
    CHECK_OK(pthread_cond_destroy(&cond)); /* would hang on a waiter left behind */
}

CHECK(cond_basic, refused_wait_leaves_the_condition_usable)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    for (int i = 0; i < 5; i++) CHECK_RC(pthread_cond_wait(&s.cond, &errorcheck), EPERM);
    sleepers_start(&s, 1);
    sleepers_give(&s, 1);
    CHECK_OK(pthread_cond_signal(&s.cond)); /* must not go to a waiter that never was */
    sleepers_join(&s);
}

CHECK(cond_basic, one_condition_with_one_mutex_after_another)
{
    static const int kinds[] = {KIND_DEFAULT, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ADAPTIVE_NP};
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    for (int i = 0; i < 9; i++) wait_once(&cond, kinds[i % 3], is_held);
    CHECK_OK(pthread_cond_destroy(&cond));
}

/* ---- Where it may live ---- */

static void wakes(pthread_cond_t *cond)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 2);
    CHECK_OK(pthread_mutex_lock(&mutex));
    int rc = pthread_cond_timedwait(cond, &mutex, &deadline);
    CHECK_TRUE(rc == 0 || rc == ETIMEDOUT, "timedwait returned %s", code_name(rc));
    CHECK_OK(pthread_mutex_unlock(&mutex));
    CHECK_OK(pthread_cond_signal(cond));
}

/* A queue of one place: two threads take turns on the condition variable until both had 50. */
struct turns {
    pthread_cond_t *cond;
    pthread_mutex_t mutex;
    int turn;
    atomic_int tickets;
};

static void *take_turns(void *argument)
{
    struct turns *t = argument;
    int me = atomic_fetch_add(&t->tickets, 1);
    for (int i = 0; i < 50; i++) {
        HOT_OK(pthread_mutex_lock(&t->mutex));
        while (t->turn % 2 != me) HOT_OK(pthread_cond_wait(t->cond, &t->mutex));
        t->turn++;
        HOT_OK(pthread_cond_signal(t->cond));
        HOT_OK(pthread_mutex_unlock(&t->mutex));
    }
    return NULL;
}

static void works(pthread_cond_t *cond)
{
    struct turns turns = {.cond = cond, .mutex = PTHREAD_MUTEX_INITIALIZER};
    wakes(cond);
    threads_run(2, take_turns, &turns);
    CHECK_EQ(turns.turn, 100);
    CHECK_OK(pthread_cond_destroy(cond));
}

CHECK(cond_basic, static_initializer)
{
    static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    works(&cond);
}

CHECK(cond_basic, zeroed_by_calloc)
{
    pthread_cond_t *cond = calloc(1, sizeof *cond);
    works(cond);
    free(cond);
}

CHECK(cond_basic, destroyed_and_made_anew)
{
    pthread_cond_t cond;
    for (int i = 0; i < 20; i++) {
        memset(&cond, 0xff, sizeof cond);
        CHECK_OK(pthread_cond_init(&cond, NULL));
        works(&cond);
    }
}

CHECK(cond_basic, at_the_edges_of_mapped_memory)
{
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(mprotect(pages, 4096, PROT_NONE), 0);
    CHECK_EQ(mprotect(pages + 8192, 4096, PROT_NONE), 0);
    works((pthread_cond_t *)(pages + 4096));
    works((pthread_cond_t *)(pages + 8192 - sizeof(pthread_cond_t)));
}

CHECK(cond_basic, every_eight_byte_alignment)
{
    _Alignas(128) static unsigned char memory[256];
    for (int offset = 0; offset < 128; offset += 8) {
        memset(memory, 0x5a, sizeof memory);
        pthread_cond_t *cond = (pthread_cond_t *)(memory + offset);
        CHECK_OK(pthread_cond_init(cond, NULL));
        works(cond);
        for (int i = 0; i < 256; i++)
            if (i < offset || i >= offset + (int)sizeof *cond) CHECK_EQ(memory[i], 0x5a);
    }
}

/* ---- Two conditions, one mutex ---- */

struct slot {
    pthread_mutex_t mutex;
    pthread_cond_t filled, emptied;
    int value;
    long sum;
};

static void *fill(void *argument)
{
    struct slot *slot = argument;
    for (int i = 1; i <= 2000; i++) {
        HOT_OK(pthread_mutex_lock(&slot->mutex));
        while (slot->value) HOT_OK(pthread_cond_wait(&slot->emptied, &slot->mutex));
        slot->value = i;
        HOT_OK(pthread_cond_signal(&slot->filled));
        HOT_OK(pthread_mutex_unlock(&slot->mutex));
    }
    return NULL;
}

static void *empty(void *argument)
{
    struct slot *slot = argument;
    for (int i = 1; i <= 2000; i++) {
        HOT_OK(pthread_mutex_lock(&slot->mutex));
        while (!slot->value) HOT_OK(pthread_cond_wait(&slot->filled, &slot->mutex));
        slot->sum += slot->value;
        slot->value = 0;
        HOT_OK(pthread_cond_signal(&slot->emptied));
        HOT_OK(pthread_mutex_unlock(&slot->mutex));
    }
    return NULL;
}

CHECK(cond_basic, two_conditions_with_one_mutex)
{
    struct slot slot = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    pthread_t threads[] = {thread_start(fill, &slot), thread_start(fill, &slot), thread_start(empty, &slot),
                           thread_start(empty, &slot)};
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
    CHECK_EQ(slot.sum, 2000L * 2001);
}
