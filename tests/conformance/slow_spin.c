/* Spinlocks in slow motion: something else happens between any two instructions of lock and unlock. */
#include "slow_motion.h"

#include <sys/mman.h>

static pthread_spinlock_t *lock; /* alone on its page */
static struct gate ask, answer;
static atomic_bool gone;

static void *try_when_asked(void *unused)
{
    for (int asked = 1; !atomic_load(&gone); asked++) {
        gate_wait(&ask, asked);
        int rc = pthread_spin_trylock(lock);
        if (rc == 0) {
            HOT_OK(pthread_spin_unlock(lock));
            HOT_OK(pthread_spin_destroy(lock));
            HOT_OK(mprotect((void *)lock, 4096, PROT_NONE));
            atomic_store(&gone, true);
        } else {
            HOT_RC(rc, EBUSY);
        }
        gate_open(&answer);
    }
    return unused;
}

static void ask_once(void)
{
    if (atomic_load(&gone)) return;
    int asked = gate_count(&ask) + 1;
    gate_open(&ask);
    gate_wait(&answer, asked);
}

/* After every instruction of unlock another thread tries to get in; once in, it destroys the lock and its memory. */
CHECK(slow_motion, spin_unlock_never_looks_back)
{
    lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 10; round++) {
        CHECK_EQ(mprotect((void *)lock, 4096, PROT_READ | PROT_WRITE), 0);
        ask = answer = (struct gate){0};
        atomic_store(&gone, false);
        CHECK_OK(pthread_spin_init(lock, PTHREAD_PROCESS_PRIVATE));
        CHECK_OK(pthread_spin_lock(lock));
        CHECK_OK(pthread_spin_unlock(lock));
        CHECK_OK(pthread_spin_lock(lock));
        pthread_t heir = thread_start(try_when_asked, NULL);
        slow_begin(ask_once);
        int rc = pthread_spin_unlock(lock);
        slow_end();
        CHECK_OK(rc);
        ask_once();
        thread_join(heir);
    }
}

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
