/* Spinlocks in slow motion: something else happens between any two instructions of lock and unlock. */
#include "doomed.h"

static pthread_spinlock_t *lock;

/* ---- Touching a lock after letting the next owner in ---- */

static void make(int unused)
{
    (void)unused;
    lock = doomed_page();
    CHECK_OK(pthread_spin_init(lock, PTHREAD_PROCESS_PRIVATE));
}

static int get(void) { return pthread_spin_lock(lock); }

static int try_to_get(void) { return pthread_spin_trylock(lock); }

static int release(void) { return pthread_spin_unlock(lock); }

static void destroy(void)
{
    HOT_OK(release());
    HOT_OK(pthread_spin_destroy(lock));
}

static const struct doomed doomed = {
    .make = make, .hold = get, .release = release, .get = get, .try_to_get = try_to_get, .busy = EBUSY,
    .destroy = destroy};

CHECK(slow_motion, spin_unlock_never_looks_back) { doomed_by_a_passer_by(&doomed, 0); }

/* ---- A waiter stopped at any instruction of its lock ---- */

static volatile long inside;

static void *lock_slowly(void *unused)
{
    slow_begin(slow_stop);
    int rc = pthread_spin_lock(lock);
    slow_end();
    HOT_OK(rc);
    inside = inside + 1;
    HOT_OK(pthread_spin_unlock(lock));
    return unused;
}

static void *lock_many(void *unused)
{
    for (int i = 0; i < 50; i++) {
        HOT_OK(pthread_spin_lock(lock));
        inside = inside + 1;
        HOT_OK(pthread_spin_unlock(lock));
    }
    return unused;
}

/* Stopped on its way to a held lock, it is in no other thread's way; or it has the lock by then. */
CHECK(slow_motion, spin_waiter_stopped_anywhere)
{
    static pthread_spinlock_t here;
    lock = &here;
    CHECK_OK(pthread_spin_init(lock, PTHREAD_PROCESS_PRIVATE));
    CHECK_OK(pthread_spin_lock(lock));
    CHECK_OK(pthread_spin_unlock(lock));
    for (long step = 1; step < 300 && !time_is_short(); step += step < 60 ? 1 : 7) {
        inside = 0;
        CHECK_OK(pthread_spin_lock(lock));
        slow_stop_at(step);
        pthread_t slow = thread_start(lock_slowly, NULL);
        bool stopped = slow_await_stop();
        CHECK_OK(pthread_spin_unlock(lock));
        if (stopped) {
            threads_run(3, lock_many, NULL);
            CHECK_EQ(inside, 150);
        }
        slow_go_on();
        thread_join(slow);
        CHECK_EQ(inside, stopped ? 151 : 1);
    }
}
