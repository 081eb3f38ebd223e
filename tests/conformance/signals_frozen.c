/*
 * A waiter frozen in a signal handler, as stop-the-world collectors and profilers do it. The lock must keep changing
 * hands among those that run; thawed, the waiter takes its turn. Strict hand-off to a frozen waiter hangs here.
 */
#include "conformance.h"

static struct gate frozen, thaw;
static _Atomic int freezes; /* how often a thread has been frozen */

static void freeze_here(int number)
{
    (void)number;
    int mine = atomic_load(&freezes);
    gate_open(&frozen);
    gate_wait(&thaw, mine);
}

static void allow_freezing(int flags)
{
    struct sigaction action = {.sa_handler = freeze_here, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
}

/* Returns when the thread is in the handler. It stays there until thaw has been opened as often as freezes counts. */
static void freeze(pthread_t thread)
{
    int before = gate_count(&frozen);
    CHECK_OK(pthread_kill(thread, SIGUSR1));
    gate_wait(&frozen, before + 1);
}

static int timedlock_far(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return pthread_mutex_timedlock(mutex, &far);
}

/* Everything others can want of the mutex, while the frozen ones stay frozen. */
static void others_progress(pthread_mutex_t *mutex)
{
    struct locker waiter;
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(pthread_mutex_lock(mutex));
        CHECK_OK(pthread_mutex_unlock(mutex));
    }
    check_excludes(mutex);
    CHECK_OK(trylock_elsewhere(mutex));
    CHECK_OK(pthread_mutex_lock(mutex));
    locker_start(&waiter, mutex, timedlock_far, NULL);
    CHECK_RC(trylock_elsewhere(mutex), EBUSY);
    CHECK_OK(pthread_mutex_unlock(mutex));
    locker_join(&waiter);
}

/* `count` waiters queue, those in the bit mask `who` freeze, the others and newcomers must get on. */
static void freeze_some(int kind, int count, unsigned who, mutex_call *lock, int flags)
{
    pthread_mutex_t mutex;
    struct locker waiters[8];
    mutex_make(&mutex, kind);
    allow_freezing(flags);
    for (int round = 1; round <= 5 && !(round > 1 && time_is_short()); round++) {
        CHECK_OK(pthread_mutex_lock(&mutex));
        for (int i = 0; i < count; i++) locker_start(&waiters[i], &mutex, lock, NULL);
        atomic_store(&freezes, round);
        for (int i = 0; i < count; i++)
            if (who >> i & 1) freeze(waiters[i].thread);
        CHECK_OK(pthread_mutex_unlock(&mutex));
        for (int i = 0; i < count; i++)
            if (!(who >> i & 1)) locker_join(&waiters[i]);
        others_progress(&mutex);
        for (int i = 0; i < count; i++)
            if (who >> i & 1) CHECK_TRUE(!locker_got_it(&waiters[i]), "a frozen thread ran");
        gate_open(&thaw);
        for (int i = 0; i < count; i++)
            if (who >> i & 1) locker_join(&waiters[i]);
    }
}

CHECK(signals, frozen_only_waiter) { freeze_some(KIND_DEFAULT, 1, 1, NULL, 0); }

CHECK(signals, frozen_only_waiter_with_sa_restart) { freeze_some(KIND_DEFAULT, 1, 1, NULL, SA_RESTART); }

CHECK(signals, frozen_first_of_four) { freeze_some(KIND_DEFAULT, 4, 1, NULL, 0); }

CHECK(signals, frozen_second_of_four) { freeze_some(KIND_DEFAULT, 4, 2, NULL, SA_RESTART); }

CHECK(signals, frozen_last_of_four) { freeze_some(KIND_DEFAULT, 4, 8, NULL, 0); }

CHECK(signals, frozen_three_of_four) { freeze_some(KIND_DEFAULT, 4, 7, NULL, 0); }

CHECK(signals, frozen_timed_waiter) { freeze_some(KIND_DEFAULT, 3, 1, timedlock_far, 0); }

CHECK(signals, frozen_waiter_recursive) { freeze_some(PTHREAD_MUTEX_RECURSIVE, 2, 1, NULL, 0); }

CHECK(signals, frozen_waiter_errorcheck) { freeze_some(PTHREAD_MUTEX_ERRORCHECK, 2, 1, NULL, 0); }

CHECK(signals, frozen_waiter_adaptive) { freeze_some(PTHREAD_MUTEX_ADAPTIVE_NP, 2, 1, NULL, 0); }

/* ---- A deadline that passes in the ice ---- */

struct timed {
    pthread_mutex_t mutex;
    struct timespec deadline;
    struct gate started, finish;
};

static void *time_out(void *argument)
{
    struct timed *t = argument;
    t->deadline = time_after_ms(CLOCK_REALTIME, 100);
    gate_open(&t->started);
    CHECK_RC(pthread_mutex_timedlock(&t->mutex, &t->deadline), ETIMEDOUT);
    gate_wait(&t->finish, 1); /* on a busy machine it may freeze only here */
    return NULL;
}

CHECK(signals, frozen_beyond_its_deadline)
{
    struct timed t = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    allow_freezing(0);
    atomic_store(&freezes, 1);
    CHECK_OK(pthread_mutex_lock(&t.mutex));
    pthread_t thread = thread_start(time_out, &t);
    gate_wait(&t.started, 1);
    nap_ms(5);
    freeze(thread);
    CHECK_OK(pthread_mutex_unlock(&t.mutex));
    others_progress(&t.mutex);
    CHECK_OK(pthread_mutex_lock(&t.mutex));
    while (!time_reached(CLOCK_REALTIME, t.deadline)) nap_ms(5);
    gate_open(&thaw);
    gate_open(&t.finish);
    thread_join(thread);
    CHECK_OK(pthread_mutex_unlock(&t.mutex));
    check_excludes(&t.mutex);
}

/* ---- On a condition variable ---- */

/* All are woken; those that run leave, and the mutex is theirs. (Which one a single signal wakes is not promised.) */
static void freeze_sleepers(int count, unsigned who)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    int running = 0;
    allow_freezing(0);
    atomic_store(&freezes, 1);
    sleepers_start(&s, count);
    for (int i = 0; i < count; i++) {
        if (who >> i & 1)
            freeze(s.thread[i]);
        else
            running++;
    }
    sleepers_give(&s, count);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_await(&s, running);
    others_progress(&s.mutex);
    CHECK_EQ(s.woken, running);
    gate_open(&thaw);
    sleepers_join(&s);
    CHECK_OK(pthread_cond_destroy(&s.cond));
}

CHECK(signals, frozen_only_sleeper) { freeze_sleepers(1, 1); }

CHECK(signals, frozen_first_of_four_sleepers) { freeze_sleepers(4, 1); }

CHECK(signals, frozen_two_of_six_sleepers) { freeze_sleepers(6, 20); }

/* Signalled in the ice: the signal must still be there when it thaws. */
CHECK(signals, frozen_sleeper_keeps_its_signal)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    allow_freezing(SA_RESTART);
    atomic_store(&freezes, 1);
    sleepers_start(&s, 1);
    freeze(s.thread[0]);
    sleepers_give(&s, 1);
    CHECK_OK(pthread_cond_signal(&s.cond));
    nap_ms(5);
    gate_open(&thaw);
    sleepers_join(&s);
}

/* A waiter woken from the condition variable queues for the mutex: frozen there, it must not stop the queue. */
CHECK(signals, frozen_on_the_way_from_condition_to_mutex)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    allow_freezing(0);
    atomic_store(&freezes, 1);
    sleepers_start(&s, 3);
    CHECK_OK(pthread_mutex_lock(&s.mutex));
    s.tokens = 3;
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    nap_ms(10);
    freeze(s.thread[1]);
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    sleepers_await(&s, 2);
    others_progress(&s.mutex);
    gate_open(&thaw);
    sleepers_join(&s);
}

/* ---- The world stops, again and again ---- */

enum { MUTATORS = 4, CYCLES = 200 };

static struct sleepers world = SLEEPERS_INITIALIZER;
static atomic_bool over;
static atomic_long steps;
static volatile long steps_counted;

static void *mutate(void *unused)
{
    while (!atomic_load(&over)) {
        HOT_OK(pthread_mutex_lock(&world.mutex));
        long seen = steps_counted;
        if (seen % 100 == 0) sched_yield();
        steps_counted = seen + 1;
        HOT_OK(pthread_cond_signal(&world.cond));
        if (seen % 3 == 0) {
            struct timespec deadline = time_after_ms(CLOCK_REALTIME, 1);
            int rc = pthread_cond_timedwait(&world.cond, &world.mutex, &deadline);
            if (rc != ETIMEDOUT) HOT_OK(rc);
        }
        HOT_OK(pthread_mutex_unlock(&world.mutex));
        atomic_fetch_add(&steps, 1);
    }
    return unused;
}

CHECK(signals, world_stopped_two_hundred_times)
{
    pthread_t mutators[MUTATORS];
    allow_freezing(SA_RESTART);
    for (int i = 0; i < MUTATORS; i++) mutators[i] = thread_start(mutate, NULL);
    for (int cycle = 1; cycle <= CYCLES && !time_is_short(); cycle++) {
        atomic_store(&freezes, cycle);
        for (int i = 0; i < MUTATORS; i++) CHECK_OK(pthread_kill(mutators[i], SIGUSR1));
        gate_wait(&frozen, cycle * MUTATORS);
        long before = steps_counted;
        if (cycle % 20 == 0) nap_ms(2);
        CHECK_EQ(steps_counted, before);
        gate_open(&thaw);
        nap_us(500);
    }
    atomic_store(&over, true);
    for (int i = 0; i < MUTATORS; i++) thread_join(mutators[i]);
    CHECK_EQ(steps_counted, atomic_load(&steps));
}
