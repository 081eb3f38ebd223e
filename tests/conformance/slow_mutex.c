/* Mutexes in slow motion: unlock must not look back once another thread has been let in, and no second one gets in. */
#include "slow_motion.h"

#include <sys/mman.h>

/* ---- Touching a mutex after letting the next owner in ---- */

static pthread_mutex_t *doomed; /* alone on its page */
static struct gate ask, answer;
static atomic_bool gone;
static int heirs;

static void end_it(void)
{
    HOT_OK(pthread_mutex_unlock(doomed));
    HOT_OK(pthread_mutex_destroy(doomed));
    HOT_OK(mprotect(doomed, 4096, PROT_NONE));
    atomic_store(&gone, true);
}

static void *try_when_asked(void *unused)
{
    for (int asked = 1; !atomic_load(&gone); asked++) {
        gate_wait(&ask, asked);
        int rc = pthread_mutex_trylock(doomed);
        if (rc == 0)
            end_it();
        else
            HOT_RC(rc, EBUSY);
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

static void doomed_make(int kind)
{
    if (!doomed) doomed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(mprotect(doomed, 4096, PROT_READ | PROT_WRITE), 0);
    ask = answer = (struct gate){0};
    atomic_store(&gone, false);
    mutex_make(doomed, kind);
    /* Once at full speed: lazy binding is none of our business. */
    CHECK_OK(pthread_mutex_lock(doomed));
    CHECK_OK(pthread_mutex_unlock(doomed));
    CHECK_OK(pthread_mutex_lock(doomed));
}

/* After every instruction of unlock another thread tries to get in; once in, it destroys the mutex and its memory. */
static void ended_by_a_passer_by(int kind)
{
    for (int round = 0; round < 10; round++) {
        doomed_make(kind);
        pthread_t heir = thread_start(try_when_asked, NULL);
        slow_begin(ask_once);
        int rc = pthread_mutex_unlock(doomed);
        slow_end();
        CHECK_OK(rc);
        ask_once();
        thread_join(heir);
    }
}

static void *wait_and_end(void *tid)
{
    atomic_store((_Atomic pid_t *)tid, gettid());
    HOT_OK(pthread_mutex_lock(doomed));
    if (--heirs == 0)
        end_it();
    else
        HOT_OK(pthread_mutex_unlock(doomed));
    return NULL;
}

static void nap_while_it_lives(void)
{
    if (!atomic_load(&gone)) nap_us(20);
}

/* The same with waiters asleep: the one that gets it last ends it while the unlock that woke it is still under way. */
static void ended_by_waiters(int kind, int count)
{
    for (int round = 0; round < 5; round++) {
        pthread_t threads[3];
        doomed_make(kind);
        heirs = count;
        for (int i = 0; i < count; i++) {
            _Atomic pid_t tid = 0;
            threads[i] = thread_start(wait_and_end, &tid);
            while (atomic_load(&tid) == 0) sched_yield();
            settle(tid);
        }
        slow_begin(nap_while_it_lives);
        int rc = pthread_mutex_unlock(doomed);
        slow_end();
        CHECK_OK(rc);
        for (int i = 0; i < count; i++) thread_join(threads[i]);
    }
}

#define ENDED(title, kind)                                                                          \
    CHECK(slow_motion, title##_unlock_never_looks_back) { ended_by_a_passer_by(kind); }             \
    CHECK(slow_motion, title##_unlock_with_a_waiter_never_looks_back) { ended_by_waiters(kind, 1); }
KINDS(ENDED)

CHECK(slow_motion, default_unlock_with_3_waiters_never_looks_back) { ended_by_waiters(KIND_DEFAULT, 3); }

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
