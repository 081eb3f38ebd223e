/* The end of a process while its threads hold, want and wait for locks: it ends, and with the right status. */
#include "conformance.h"

#include <sys/mman.h>
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

/* ---- Threads blocked for good on memory that is gone: static destructors, delete ---- */

/*
 * Detached threads wait for a mutex that no thread will release; its memory is unmapped, and the program runs on for a
 * while before it ends. A thread that sleeps, and is not woken, must not look at it.
 */
static void block_on(void *page, int count, mutex_call *lock)
{
    static struct locker waiters[40];
    pthread_mutex_t *mutex = page;
    CHECK_OK(pthread_mutex_init(mutex, NULL));
    CHECK_OK(pthread_mutex_lock(mutex));
    for (int i = 0; i < count; i++) locker_start(&waiters[i], mutex, lock, NULL);
}

static int timedlock_far(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return pthread_mutex_timedlock(mutex, &far);
}

static pthread_rwlock_t *written;

static void *write_for_ever(void *unused)
{
    CHECK_OK(pthread_rwlock_wrlock(written));
    return unused;
}

static void *new_page(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_TRUE(page != MAP_FAILED, "no memory");
    return page;
}

/* A waiter polls for its budget, and then looks at the lock for the last time: these have done so. */
static void lose(void *page)
{
    others_sleep();
    CHECK_EQ(munmap(page, 4096), 0);
    nap_ms(1500);
    exit(3);
}

static void lose_a_mutex_with(int count, mutex_call *lock)
{
    void *page = new_page();
    block_on(page, count, lock);
    lose(page);
}

static void lose_with_one(void)
{
    lose_a_mutex_with(1, NULL);
}

static void lose_with_two(void)
{
    lose_a_mutex_with(2, NULL);
}

static void lose_with_many(void)
{
    lose_a_mutex_with(40, NULL);
}

static void lose_with_deadlines(void)
{
    lose_a_mutex_with(3, timedlock_far);
}

static void lose_with_writers(void)
{
    written = new_page();
    CHECK_OK(pthread_rwlock_init(written, NULL));
    CHECK_OK(pthread_rwlock_wrlock(written));
    for (int i = 0; i < 3; i++) thread_start(write_for_ever, NULL);
    lose(written);
}

static void ends_once_with(int status, void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(99);
    }
    CHECK_EQ(process_status(pid), status);
}

CHECK(exit, memory_gone_under_one_waiter) { ends_once_with(3, lose_with_one); }

CHECK(exit, memory_gone_under_two_waiters) { ends_once_with(3, lose_with_two); }

CHECK(exit, memory_gone_under_many_waiters) { ends_once_with(3, lose_with_many); }

CHECK(exit, memory_gone_under_waiters_with_deadlines) { ends_once_with(3, lose_with_deadlines); }

CHECK(exit, memory_gone_under_writers) { ends_once_with(3, lose_with_writers); }
