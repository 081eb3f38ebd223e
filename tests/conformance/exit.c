/* The end of a process while its threads hold, want and wait for locks: it ends, and with the right status. */
#include "lost.h"

#include <sys/wait.h>

/* ---- A process full of busy and blocked threads ---- */

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER; /* fought over */
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER; /* held for ever, waited for */
static struct sleepers sleepers = SLEEPERS_INITIALIZER;

static void *fight(void *unused)
{
    for (;;) {
        CHECK_OK(pthread_mutex_lock(&busy));
        CHECK_OK(pthread_mutex_unlock(&busy));
    }
    return unused;
}

static void *hold_and_sleep(void *argument)
{
    CHECK_OK(pthread_mutex_lock(&held));
    gate_open(argument);
    for (;;) pause();
}

static void *wait_for_ever(void *unused)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (;;) CHECK_OK(pthread_cond_timedwait(&cond, &mutex, &far));
    return unused;
}

static void *timedlock_for_ever(void *unused)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    CHECK_OK(pthread_mutex_timedlock(&held, &far));
    return unused;
}

static void populate(void)
{
    static struct locker waiters[3];
    struct gate holds = {0};
    thread_start(hold_and_sleep, &holds);
    gate_wait(&holds, 1);
    for (int i = 0; i < 2; i++) thread_start(fight, NULL);
    for (int i = 0; i < 3; i++) locker_start(&waiters[i], &held, NULL, NULL);
    thread_start(timedlock_for_ever, NULL);
    thread_start(wait_for_ever, NULL);
    sleepers_start(&sleepers, 3);
}

/* Runs `body` in processes of their own. */
static void ends_with(int status, void (*body)(void))
{
    for (int i = 0; i < 5 && !(i && time_is_short()); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            body();
            _exit(99);
        }
        CHECK_EQ(process_status(pid), status);
    }
}

/* ---- Ways to end ---- */

static void end_by_exit(void)
{
    populate();
    exit(3);
}

static void end_by_underscore_exit(void)
{
    populate();
    _exit(4);
}

static void end_by_quick_exit(void)
{
    populate();
    quick_exit(5);
}

static void end_by_abort(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    CHECK_EQ(sigaction(SIGABRT, &action, NULL), 0);
    populate();
    abort();
}

static void end_while_holding(void)
{
    pthread_mutex_t own[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                              PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP};
    populate();
    CHECK_OK(pthread_mutex_lock(&busy));
    for (int i = 0; i < 3; i++) CHECK_OK(pthread_mutex_lock(&own[i]));
    exit(6);
}

static void *call_exit(void *unused)
{
    exit(7);
    return unused;
}

static void end_by_another_thread(void)
{
    populate();
    thread_start(call_exit, NULL);
    CHECK_OK(pthread_mutex_lock(&held)); /* blocks for ever */
}

CHECK(exit, exit_amid_threads) { ends_with(3, end_by_exit); }

CHECK(exit, underscore_exit_amid_threads) { ends_with(4, end_by_underscore_exit); }

CHECK(exit, quick_exit_amid_threads) { ends_with(5, end_by_quick_exit); }

CHECK(exit, abort_amid_threads) { ends_with(256 + SIGABRT, end_by_abort); }

CHECK(exit, exit_while_holding) { ends_with(6, end_while_holding); }

CHECK(exit, exit_by_another_thread_while_main_blocks) { ends_with(7, end_by_another_thread); }

/* ---- Exit handlers that lock ---- */

static pthread_mutex_t for_handlers = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int handlers_run;

static void handler_locks(void)
{
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
    for (int i = 0; i < 100; i++) {
        CHECK_OK(pthread_mutex_lock(&for_handlers));
        CHECK_OK(pthread_mutex_lock(&busy));
        CHECK_OK(pthread_mutex_unlock(&busy));
        CHECK_OK(pthread_mutex_unlock(&for_handlers));
    }
    CHECK_RC(pthread_mutex_trylock(&held), EBUSY);
    CHECK_RC(pthread_mutex_timedlock(&held, &deadline), ETIMEDOUT);
    sleepers_give(&sleepers, 3); /* threads still run, and wake */
    CHECK_OK(pthread_cond_broadcast(&sleepers.cond));
    sleepers_await(&sleepers, 3);
    handlers_run++;
}

static void last_handler(void)
{
    _exit(handlers_run == 1 ? 8 : 98);
}

static void end_with_atexit(void)
{
    CHECK_EQ(atexit(last_handler), 0);
    CHECK_EQ(atexit(handler_locks), 0);
    populate();
    exit(97);
}

static void end_with_at_quick_exit(void)
{
    CHECK_EQ(at_quick_exit(last_handler), 0);
    CHECK_EQ(at_quick_exit(handler_locks), 0);
    populate();
    quick_exit(97);
}

CHECK(exit, atexit_handlers_lock) { ends_with(8, end_with_atexit); }

CHECK(exit, at_quick_exit_handlers_lock) { ends_with(8, end_with_at_quick_exit); }

/* ---- Main thread first ---- */

static void *outlive_main(void *main_thread)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    CHECK_OK(pthread_join(*(pthread_t *)main_thread, NULL));
    check_excludes(&busy);
    CHECK_RC(pthread_mutex_trylock(&held), EBUSY); /* main took it along */
    CHECK_OK(pthread_mutex_unlock(&held));
    CHECK_OK(trylock_elsewhere(&held));
    sleepers_start(&s, 3);
    sleepers_give(&s, 3);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
    exit(9);
}

static void end_main_first(void)
{
    static pthread_t self;
    self = pthread_self();
    CHECK_OK(pthread_mutex_lock(&held));
    thread_start(outlive_main, &self);
    pthread_exit(NULL);
}

CHECK(exit, main_thread_ends_first) { ends_with(9, end_main_first); }

static void *end_last(void *unused)
{
    nap_ms(2);
    CHECK_OK(pthread_mutex_lock(&busy));
    CHECK_OK(pthread_mutex_unlock(&busy));
    return unused;
}

static void end_as_threads_end(void)
{
    for (int i = 0; i < 4; i++) thread_start(end_last, NULL);
    pthread_exit(NULL);
}

/* No thread calls exit: the process ends with its last thread, successfully. */
CHECK(exit, last_thread_ends_the_process) { ends_with(0, end_as_threads_end); }

/* ---- Threads blocked for good on memory that is gone ---- */

static void hold_mutex(void *object)
{
    CHECK_OK(pthread_mutex_init(object, NULL));
    CHECK_OK(pthread_mutex_lock(object));
}

static int wait_for_mutex(void *object, int me)
{
    (void)me;
    return pthread_mutex_lock(object);
}

static int wait_for_mutex_until(void *object, int me)
{
    (void)me;
    struct timespec far = time_far(CLOCK_REALTIME);
    return pthread_mutex_timedlock(object, &far);
}

static const struct lost lost_mutex = {hold_mutex, wait_for_mutex, NULL};
static const struct lost lost_mutex_until = {hold_mutex, wait_for_mutex_until, NULL};

CHECK(exit, memory_gone_under_one_waiter) { lost_and_gone(&lost_mutex, 1); }

CHECK(exit, memory_gone_under_two_waiters) { lost_and_gone(&lost_mutex, 2); }

CHECK(exit, memory_gone_under_many_waiters) { lost_and_gone(&lost_mutex, 40); }

CHECK(exit, memory_gone_under_waiters_with_deadlines) { lost_and_gone(&lost_mutex_until, 3); }

CHECK(exit, memory_reused_under_waiters) { lost_and_reused(&lost_mutex, 3); }

CHECK(exit, memory_reused_under_interrupted_waiters)
{
    GLIBC_CANNOT("a waiter that a signal interrupts looks at the mutex");
    lost_and_interrupted(&lost_mutex, 4);
}

/* One of them has its turn first, and keeps the mutex. */
static void unlock_once(void *object)
{
    CHECK_OK(pthread_mutex_unlock(object));
}

static int wait_and_keep(void *object, int me)
{
    (void)me;
    CHECK_OK(pthread_mutex_lock(object));
    for (;;) pause();
}

static const struct lost lost_after_a_turn = {hold_mutex, wait_and_keep, unlock_once};

CHECK(exit, memory_gone_under_waiters_after_a_turn) { lost_and_gone(&lost_after_a_turn, 4); }

CHECK(exit, memory_reused_under_waiters_after_a_turn) { lost_and_reused(&lost_after_a_turn, 4); }

/* A broadcast lets threads wait for the mutex that is gone afterwards. */
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

static void make_mutex(void *object)
{
    CHECK_OK(pthread_mutex_init(object, NULL));
}

static int be_moved(void *object, int me)
{
    (void)me;
    CHECK_OK(pthread_mutex_lock(object));
    return pthread_cond_wait(&moved, object);
}

static void move_all(void *object)
{
    CHECK_OK(pthread_mutex_lock(object));
    CHECK_OK(pthread_cond_broadcast(&moved));
}

static const struct lost lost_by_the_moved = {make_mutex, be_moved, move_all};

CHECK(exit, memory_gone_under_moved_waiters) { lost_and_gone(&lost_by_the_moved, 3); }

CHECK(exit, memory_reused_under_moved_waiters) { lost_and_reused(&lost_by_the_moved, 3); }

static pthread_mutex_t of_the_condition = PTHREAD_MUTEX_INITIALIZER;

static void make_condition(void *object)
{
    CHECK_OK(pthread_cond_init(object, NULL));
}

static int wait_for_condition(void *object, int me)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    CHECK_OK(pthread_mutex_lock(&of_the_condition));
    return me % 2 ? pthread_cond_wait(object, &of_the_condition)
                  : pthread_cond_timedwait(object, &of_the_condition, &far);
}

static const struct lost lost_condition = {make_condition, wait_for_condition, NULL};

CHECK(exit, memory_gone_under_a_condition) { lost_and_gone(&lost_condition, 4); }

CHECK(exit, memory_reused_under_a_condition) { lost_and_reused(&lost_condition, 4); }
