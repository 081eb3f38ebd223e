/* Mutexes in slow motion: unlock must not look back once another thread has been let in, and no second one gets in. */
#include "doomed.h"

/* ---- Touching a mutex after letting the next owner in ---- */

static void make(int kind) { mutex_make(doomed_page(), kind); }

static int lock(void) { return pthread_mutex_lock(doomed_page()); }

static int try_to_lock(void) { return pthread_mutex_trylock(doomed_page()); }

static int unlock(void) { return pthread_mutex_unlock(doomed_page()); }

static void destroy(void)
{
    HOT_OK(unlock());
    HOT_OK(pthread_mutex_destroy(doomed_page()));
}

static const struct doomed doomed = {
    .make = make, .hold = lock, .release = unlock, .get = lock, .try_to_get = try_to_lock, .busy = EBUSY,
    .destroy = destroy};

#define ENDED(title, kind)                                                                          \
    CHECK(slow_motion, title##_unlock_never_looks_back) { doomed_by_a_passer_by(&doomed, kind); }   \
    CHECK(slow_motion, title##_unlock_with_a_waiter_never_looks_back) { doomed_by_waiters(&doomed, kind, 1); }
KINDS(ENDED)

CHECK(slow_motion, default_unlock_with_3_waiters_never_looks_back) { doomed_by_waiters(&doomed, KIND_DEFAULT, 3); }

/* ---- Exclusion, with one thread in slow motion and three at full speed ---- */

struct company {
    pthread_mutex_t mutex;
    volatile long counter;
    atomic_long made;
    atomic_bool over;
};

static void *hurry(void *argument)
{
    struct company *c = argument;
    long made = 0;
    while (!atomic_load(&c->over)) {
        HOT_OK(pthread_mutex_lock(&c->mutex));
        long seen = c->counter;
        if (made % 32 == 0) sched_yield();
        c->counter = seen + 1;
        HOT_OK(pthread_mutex_unlock(&c->mutex));
        if (++made % 64) continue;
        if (time_is_short()) break; /* no lock promises the slow one its turn while others keep coming */
        nap_us(50);
    }
    atomic_fetch_add(&c->made, made);
    return NULL;
}

static void take_time(void)
{
    if (slow_steps() % 8 == 0) nap_us(1);
}

static void excludes(int kind, mutex_call *lock)
{
    struct company c = {.counter = 0};
    pthread_t threads[3];
    long made = 0;
    mutex_make(&c.mutex, kind);
    for (int i = 0; i < 3; i++) threads[i] = thread_start(hurry, &c);
    for (; made < 100 && !time_is_short(); made++) {
        slow_begin(take_time);
        int rc = lock(&c.mutex);
        slow_end();
        if (rc == EBUSY && time_is_short()) break;
        HOT_OK(rc);
        long seen = c.counter;
        sched_yield();
        c.counter = seen + 1;
        slow_begin(take_time);
        HOT_OK(pthread_mutex_unlock(&c.mutex));
        slow_end();
    }
    atomic_store(&c.over, true);
    for (int i = 0; i < 3; i++) thread_join(threads[i]);
    CHECK_EQ(c.counter, made + atomic_load(&c.made));
}

#define EXCLUDES(title, kind)                                                                       \
    CHECK(slow_motion, title##_excludes) { excludes(kind, pthread_mutex_lock); }
KINDS(EXCLUDES)

/* EBUSY if it does not come in while there is time: a slow one may try for ever while others keep coming. */
static int trylock_until_mine(pthread_mutex_t *mutex)
{
    int rc;
    while ((rc = pthread_mutex_trylock(mutex)) == EBUSY && !time_is_short())
        ;
    return rc;
}

/* Leaves the queue again and again, slowly. */
static int timedlock_until_mine(pthread_mutex_t *mutex)
{
    int rc;
    do {
        struct timespec deadline = time_after_ms(CLOCK_REALTIME, 0);
        rc = pthread_mutex_timedlock(mutex, &deadline);
    } while (rc == ETIMEDOUT && !time_is_short());
    return rc == ETIMEDOUT ? EBUSY : rc;
}

CHECK(slow_motion, trylock_excludes) { excludes(KIND_DEFAULT, trylock_until_mine); }

CHECK(slow_motion, timedlock_excludes) { excludes(KIND_DEFAULT, timedlock_until_mine); }
