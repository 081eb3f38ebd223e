/* Semaphores in slow motion: something else happens between any two instructions of a post, or of a wait. */
#include "doomed.h"

#include <semaphore.h>

static sem_t *sem; /* doomed_page() */

static int value(void)
{
    int value = -1;
    CHECK_OK(sem_getvalue(sem, &value));
    return value;
}

static void renew(unsigned permits)
{
    sem = doomed_page();
    CHECK_OK(sem_init(sem, 0, 1));
    /* Once at full speed: lazy binding is none of our business. */
    CHECK_OK(sem_wait(sem));
    CHECK_OK(sem_post(sem));
    CHECK_OK(sem_trywait(sem));
    CHECK_OK(sem_init(sem, 0, permits));
}

/* ---- A post never looks back ---- */

static void make(int unused)
{
    (void)unused;
    renew(1);
}

static int get(void) { return sem_wait(sem) == 0 ? 0 : errno; }

static int try_to_get(void) { return sem_trywait(sem) == 0 ? 0 : errno; }

static int post(void) { return sem_post(sem) == 0 ? 0 : errno; }

static void destroy(void) { HOT_OK(sem_destroy(sem)); }

static const struct doomed doomed = {
    .make = make, .hold = get, .release = post, .get = get, .try_to_get = try_to_get, .busy = EAGAIN,
    .destroy = destroy};

CHECK(slow_motion, sem_post_never_looks_back) { doomed_by_a_passer_by(&doomed, 0); }

CHECK(slow_motion, sem_post_to_a_waiter_never_looks_back) { doomed_by_waiters(&doomed, 0, 1); }

/* ---- A handler posts to what it has interrupted ---- */

static long act_at;
static atomic_int acted;

static void post_at_step(void)
{
    if (slow_steps() != act_at) return;
    HOT_OK(sem_post(sem));
    atomic_store(&acted, 1);
}

static void *wait_once(void *tid)
{
    if (tid) atomic_store((_Atomic pid_t *)tid, gettid());
    HOT_OK(sem_wait(sem));
    return NULL;
}

/* In a post, with so many waiters asleep: two posts, two permits, and the waiters get them. */
static void posted_within_a_post(int waiters)
{
    for (act_at = 1; !time_is_short(); act_at++) {
        pthread_t threads[3];
        renew(0);
        atomic_store(&acted, 0);
        for (int i = 0; i < waiters; i++) {
            _Atomic pid_t tid = 0;
            threads[i] = thread_start(wait_once, &tid);
            while (atomic_load(&tid) == 0) sched_yield();
            settle(tid);
        }
        slow_begin(post_at_step);
        int rc = sem_post(sem);
        slow_end();
        CHECK_OK(rc);
        for (int i = 0; i < waiters && i < 2; i++) {
            if (!atomic_load(&acted) && i == 1) CHECK_OK(sem_post(sem));
        }
        if (waiters == 3) CHECK_OK(sem_post(sem));
        for (int i = 0; i < waiters; i++) thread_join(threads[i]);
        int left = waiters == 3 ? 0 : 2 - waiters;
        if (waiters < 2 && !atomic_load(&acted)) left--;
        CHECK_EQ(value(), left);
        if (!atomic_load(&acted)) return; /* the post was over before that step */
    }
}

CHECK(slow_motion, sem_post_within_a_post) { posted_within_a_post(0); }

CHECK(slow_motion, sem_post_within_a_post_to_a_waiter) { posted_within_a_post(1); }

CHECK(slow_motion, sem_post_within_a_post_to_two_waiters) { posted_within_a_post(2); }

CHECK(slow_motion, sem_post_within_a_post_to_three_waiters) { posted_within_a_post(3); }

static void *wait_slowly(void *unused)
{
    slow_begin(post_at_step);
    int rc;
    while ((rc = sem_wait(sem)) != 0 && errno == EINTR)
        ;
    slow_end();
    HOT_OK(rc);
    return unused;
}

/* In a wait: the permit ends it, wherever it was. At the step at which it sleeps for good, another thread posts. */
static void posted_within_a_wait(bool company)
{
    for (act_at = 1; act_at < 600 && !time_is_short(); act_at += act_at < 200 ? 1 : 3) {
        renew(0);
        atomic_store(&acted, 0);
        pthread_t other = 0;
        _Atomic pid_t tid = 0;
        if (company) {
            other = thread_start(wait_once, &tid);
            while (atomic_load(&tid) == 0) sched_yield();
            settle(tid);
        }
        pthread_t waiter = thread_start(wait_slowly, NULL);
        long before = -1;
        while (!atomic_load(&acted) && before != slow_steps()) { /* until it sleeps */
            before = slow_steps();
            nap_ms(5);
        }
        bool asleep = !atomic_load(&acted);
        if (asleep) {
            slow_let_go();
            CHECK_OK(sem_post(sem));
        }
        if (company) CHECK_OK(sem_post(sem));
        thread_join(waiter);
        if (company) thread_join(other);
        if (asleep && atomic_load(&acted)) CHECK_OK(sem_wait(sem)); /* it got there after all */
        CHECK_EQ(value(), 0);
        if (asleep) return;
    }
}

CHECK(slow_motion, sem_post_within_a_wait) { posted_within_a_wait(false); }

CHECK(slow_motion, sem_post_within_a_wait_behind_another) { posted_within_a_wait(true); }

/* ---- A post, or a wait, at any instruction of which the thread stops for as long as others need ---- */

static void *post_slowly(void *unused)
{
    slow_begin(slow_stop);
    int rc = sem_post(sem);
    slow_end();
    HOT_OK(rc);
    return unused;
}

static void *wait_and_be_stopped(void *unused)
{
    slow_begin(slow_stop);
    int rc;
    while ((rc = sem_wait(sem)) != 0 && errno == EINTR)
        ;
    slow_end();
    HOT_OK(rc);
    return unused;
}

/* Two wait; one posts and is stopped anywhere. Others' posts must reach them. */
CHECK(slow_motion, sem_post_stopped_anywhere_stops_nobody_else)
{
    for (long step = 1; !time_is_short(); step++) {
        pthread_t waiters[2];
        renew(0);
        for (int i = 0; i < 2; i++) {
            _Atomic pid_t tid = 0;
            waiters[i] = thread_start(wait_once, &tid);
            while (atomic_load(&tid) == 0) sched_yield();
            settle(tid);
        }
        slow_stop_at(step);
        pthread_t slow = thread_start(post_slowly, NULL);
        bool stopped = slow_await_stop();
        CHECK_OK(sem_post(sem));
        CHECK_OK(sem_post(sem));
        if (stopped) { /* the third permit may be there or not */
            for (int i = 0; i < 2; i++) thread_join(waiters[i]);
        }
        slow_go_on(); /* also one that had no CPU for so long that it seemed to have got through */
        thread_join(slow);
        if (!stopped)
            for (int i = 0; i < 2; i++) thread_join(waiters[i]);
        CHECK_EQ(value(), 1);
        if (!stopped) return;
    }
}

/* A thread waits and is stopped anywhere; another waits, too; the permits of others reach that one. */
CHECK(slow_motion, sem_wait_stopped_anywhere_stops_nobody_else)
{
    for (long step = 1; !time_is_short(); step += step < 150 ? 1 : 5) {
        renew(0);
        slow_stop_at(step);
        pthread_t slow = thread_start(wait_and_be_stopped, NULL);
        bool stopped = slow_await_stop();
        if (!stopped) {
            slow_stop_at(0); /* it sleeps, and will not get there before others do */
            slow_let_go();
            slow_go_on();
        }
        _Atomic pid_t tid = 0;
        pthread_t other = thread_start(wait_once, &tid);
        while (atomic_load(&tid) == 0) sched_yield();
        settle(tid);
        CHECK_OK(sem_post(sem));
        if (stopped) {
            thread_join(other);
            CHECK_OK(sem_post(sem));
            CHECK_OK(sem_wait(sem));
            CHECK_OK(sem_post(sem));
            slow_go_on();
            thread_join(slow);
        } else {
            CHECK_OK(sem_post(sem));
            thread_join(slow);
            thread_join(other);
        }
        CHECK_EQ(value(), 0);
        if (!stopped) return;
    }
}

/* ---- The thread that a post was about to wake waits for a mutex by now ---- */

/* Not called `sem_…`: it is about each lock of mutexes, as those checks are not. */

static struct gate in_handler, thaw, got_permit, go_for_mutex;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void stay_here(int number)
{
    (void)number;
    gate_open(&in_handler);
    gate_wait(&thaw, 1);
}

static void *wait_through_signals(void *tid)
{
    atomic_store((_Atomic pid_t *)tid, gettid());
    while (sem_wait(sem) != 0) HOT_RC(errno, EINTR);
    return NULL;
}

static void lock_briefly(void)
{
    HOT_OK(pthread_mutex_lock(&mutex));
    HOT_OK(pthread_mutex_unlock(&mutex));
}

static void *wait_and_lock(void *tid)
{
    wait_through_signals(tid);
    gate_open(&got_permit);
    lock_briefly();
    return NULL;
}

static void *lock_when_asked(void *tid)
{
    atomic_store((_Atomic pid_t *)tid, gettid());
    gate_wait(&go_for_mutex, 1);
    lock_briefly();
    return NULL;
}

static pthread_t start_and_settle(void *(*body)(void *), _Atomic pid_t *tid)
{
    atomic_store(tid, 0);
    pthread_t thread = thread_start(body, tid);
    while (atomic_load(tid) == 0) sched_yield();
    settle(*tid);
    return thread;
}

/* The first of two waiters does not run, so a post looks for the second. It stops at its `step`; meanwhile that one
   gets another permit and waits for a mutex, with a third thread behind it. Whether the post got that far. */
static bool post_looks_for_who_is_elsewhere(long step)
{
    struct sigaction action = {.sa_handler = stay_here};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    in_handler = thaw = got_permit = go_for_mutex = (struct gate){0};
    renew(0);
    CHECK_OK(pthread_mutex_lock(&mutex));
    _Atomic pid_t first_tid, second_tid, third_tid;
    pthread_t first = start_and_settle(wait_through_signals, &first_tid);
    pthread_t second = start_and_settle(wait_and_lock, &second_tid);
    pthread_t third = start_and_settle(lock_when_asked, &third_tid);
    CHECK_OK(pthread_kill(first, SIGUSR1));
    gate_wait(&in_handler, 1);
    slow_stop_at(step);
    pthread_t slow = thread_start(post_slowly, NULL);
    bool stopped = slow_await_stop();
    CHECK_OK(sem_post(sem));
    /* Unless it had no CPU to fall asleep, so that no post saw it: then it waits for the post that is stopped. */
    for (int ms = 0; ms < 500 && gate_count(&got_permit) == 0; ms++) nap_ms(1);
    settle(second_tid);
    gate_open(&go_for_mutex);
    settle(third_tid);
    slow_go_on();
    thread_join(slow);
    gate_open(&thaw);
    CHECK_OK(pthread_mutex_unlock(&mutex));
    thread_join(first);
    thread_join(second);
    thread_join(third);
    CHECK_EQ(value(), 0);
    return stopped;
}

CHECK(slow_motion, nodes_of_a_semaphore_serve_a_mutex_next)
{
    slow_stop_at(0);
    CHECK_TRUE(!post_looks_for_who_is_elsewhere(1000000), "a post takes no million instructions");
    /* Its last part, for that is where it looks; about as often as there is time for. */
    long all = slow_steps();
    for (long step = all; step > all / 2; step -= all / 32 + 1) post_looks_for_who_is_elsewhere(step);
}
