/* Mutexes in slow motion: what may happen between any two instructions of lock and unlock. */
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
        if (++made % 64 == 0) nap_us(50); /* no lock promises the slow one its turn */
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
        HOT_OK(lock(&c.mutex));
        slow_end();
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

static int trylock_until_mine(pthread_mutex_t *mutex)
{
    int rc;
    while ((rc = pthread_mutex_trylock(mutex)) == EBUSY)
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
    } while (rc == ETIMEDOUT);
    return rc;
}

CHECK(slow_motion, trylock_excludes) { excludes(KIND_DEFAULT, trylock_until_mine); }

CHECK(slow_motion, timedlock_excludes) { excludes(KIND_DEFAULT, timedlock_until_mine); }

/* ---- A waiter stopped at any instruction of its lock ---- */

struct stop {
    pthread_mutex_t *mutex;
    mutex_call *lock;
    struct gate got;
};

static atomic_long stop_at;
static struct gate stopped, proceed;

static void stop_there(void)
{
    if (slow_steps() != atomic_load(&stop_at)) return;
    gate_open(&stopped);
    gate_wait(&proceed, 1);
}

static void *lock_and_be_stopped(void *argument)
{
    struct stop *s = argument;
    slow_begin(stop_there);
    int rc = s->lock(s->mutex);
    slow_end();
    CHECK_OK(rc);
    gate_open(&s->got);
    CHECK_OK(pthread_mutex_unlock(s->mutex));
    return NULL;
}

/* True if it was stopped; false if it blocked before its time came: then there are no more places to stop it. */
static bool wait_for_stop(void)
{
    long seen = -1;
    for (int quiet_ms = 0; quiet_ms < 20; quiet_ms++) {
        for (int i = 0; i < 10 && gate_count(&stopped) == 0; i++) nap_us(100);
        if (gate_count(&stopped) > 0) return true;
        if (slow_steps() != seen) quiet_ms = 0;
        seen = slow_steps();
    }
    return false;
}

/* With the mutex held here, stops a waiter at one instruction after another and runs `meanwhile`, which ends unlocked. */
static void stop_everywhere(int kind, mutex_call *lock, void (*meanwhile)(pthread_mutex_t *))
{
    pthread_mutex_t mutex;
    mutex_make(&mutex, kind);
    CHECK_OK(lock(&mutex)); /* at full speed first: lazy binding */
    CHECK_OK(pthread_mutex_unlock(&mutex));
    bool more = true;
    for (long at = 1; more && !time_is_short(); at += 1 + at / 16) {
        atomic_store(&stop_at, at);
        struct stop s = {.mutex = &mutex, .lock = lock};
        stopped = proceed = (struct gate){0};
        CHECK_OK(pthread_mutex_lock(&mutex));
        pthread_t thread = thread_start(lock_and_be_stopped, &s);
        more = wait_for_stop();
        if (!more) atomic_store(&stop_at, 0); /* asleep: woken, it owes it to the others to go on */
        meanwhile(&mutex);
        if (more) CHECK_EQ(gate_count(&s.got), 0);
        gate_open(&proceed);
        thread_join(thread);
    }
}

static void others_get_on(pthread_mutex_t *mutex)
{
    struct locker waiter;
    locker_start(&waiter, mutex, NULL, NULL);
    CHECK_OK(pthread_mutex_unlock(mutex));
    locker_join(&waiter);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(pthread_mutex_lock(mutex));
        CHECK_OK(pthread_mutex_unlock(mutex));
    }
}

static int timedlock_far(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return pthread_mutex_timedlock(mutex, &far);
}

CHECK(slow_motion, waiter_stopped_anywhere_stops_nobody_else)
{
    stop_everywhere(KIND_DEFAULT, pthread_mutex_lock, others_get_on);
}

CHECK(slow_motion, recursive_waiter_stopped_anywhere_stops_nobody_else)
{
    stop_everywhere(PTHREAD_MUTEX_RECURSIVE, pthread_mutex_lock, others_get_on);
}

CHECK(slow_motion, timed_waiter_stopped_anywhere_stops_nobody_else)
{
    stop_everywhere(KIND_DEFAULT, timedlock_far, others_get_on);
}

/* One unlock and no more: nothing later makes good a release that went unnoticed. */
static void release_once(pthread_mutex_t *mutex)
{
    CHECK_OK(pthread_mutex_unlock(mutex));
}

CHECK(slow_motion, release_at_any_point_of_a_lock) { stop_everywhere(KIND_DEFAULT, pthread_mutex_lock, release_once); }

CHECK(slow_motion, release_at_any_point_of_an_errorcheck_lock)
{
    stop_everywhere(PTHREAD_MUTEX_ERRORCHECK, pthread_mutex_lock, release_once);
}

CHECK(slow_motion, release_at_any_point_of_a_timedlock) { stop_everywhere(KIND_DEFAULT, timedlock_far, release_once); }

static void fork_and_use(pthread_mutex_t *mutex)
{
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_OK(pthread_mutex_unlock(mutex));
        CHECK_OK(pthread_mutex_lock(mutex));
        others_get_on(mutex);
        _exit(0);
    }
    CHECK_EQ(process_status(pid), 0);
    CHECK_OK(pthread_mutex_unlock(mutex));
}

CHECK(slow_motion, fork_with_a_waiter_anywhere) { stop_everywhere(KIND_DEFAULT, pthread_mutex_lock, fork_and_use); }

/* ---- A waiter that arrives at any instruction of the unlock ---- */

static struct gate arrive;

static void let_arrive(void)
{
    if (slow_steps() != atomic_load(&stop_at)) return;
    gate_open(&arrive);
    nap_us(300);
}

static int lock_on_arrival(pthread_mutex_t *mutex)
{
    gate_wait(&arrive, 1);
    return pthread_mutex_lock(mutex);
}

static int timedlock_on_arrival(pthread_mutex_t *mutex)
{
    gate_wait(&arrive, 1);
    return timedlock_far(mutex);
}

/* With `crowd`, another waits already. Nobody unlocks again: a waiter that is overlooked waits for ever. */
static void arrive_everywhere(int kind, mutex_call *lock, bool crowd)
{
    pthread_mutex_t mutex;
    long steps = LONG_MAX;
    mutex_make(&mutex, kind);
    CHECK_OK(pthread_mutex_lock(&mutex));
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (long at = 1; at <= steps && !time_is_short(); at += 1 + at / 32) {
        struct locker early, late;
        arrive = (struct gate){0};
        atomic_store(&stop_at, at);
        CHECK_OK(pthread_mutex_lock(&mutex));
        if (crowd) locker_start(&early, &mutex, NULL, NULL);
        locker_start(&late, &mutex, lock, NULL);
        slow_begin(let_arrive);
        int rc = pthread_mutex_unlock(&mutex);
        steps = slow_end();
        CHECK_OK(rc);
        gate_open(&arrive);
        locker_join(&late);
        if (crowd) locker_join(&early);
    }
}

#define ARRIVES(title, kind)                                                                        \
    CHECK(slow_motion, arrival_at_any_point_of_unlock_##title)                                      \
    {                                                                                               \
        arrive_everywhere(kind, lock_on_arrival, false);                                            \
    }
KINDS(ARRIVES)

CHECK(slow_motion, timed_arrival_at_any_point_of_unlock)
{
    arrive_everywhere(KIND_DEFAULT, timedlock_on_arrival, false);
}

CHECK(slow_motion, second_arrival_at_any_point_of_unlock) { arrive_everywhere(KIND_DEFAULT, lock_on_arrival, true); }
