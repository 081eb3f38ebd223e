/* Threads that get signals while they wait: they return when they should, and never with EINTR. */
#include "conformance.h"

#include <sys/mman.h>
#include <sys/wait.h>

static void install(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    CHECK_EQ(sigaction(number, &action, NULL), 0);
}

/* ---- Storms ---- */

static atomic_int handled;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

/* Signals one by one, each delivered before the next is sent. */
static void storm(pthread_t target, int count)
{
    for (int i = 0; i < count && !time_is_short(); i++) {
        int before = atomic_load(&handled);
        CHECK_OK(pthread_kill(target, SIGUSR1));
        while (atomic_load(&handled) == before) sched_yield();
    }
}

static int timedlock_far(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_REALTIME);
    return pthread_mutex_timedlock(mutex, &far);
}

static int clocklock_far(pthread_mutex_t *mutex)
{
    struct timespec far = time_far(CLOCK_MONOTONIC);
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &far);
}

static void storm_over_lock(mutex_call *lock, int flags)
{
    pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    struct locker waiter;
    install(SIGUSR1, count_signal, flags);
    CHECK_OK(pthread_mutex_lock(&mutex));
    locker_start(&waiter, &mutex, lock, NULL);
    storm(waiter.thread, 3000);
    CHECK_TRUE(!locker_got_it(&waiter), "a signal let the waiter in");
    CHECK_OK(pthread_mutex_unlock(&mutex)); /* still ours */
    locker_join(&waiter);
}

CHECK(signals, storm_over_lock) { storm_over_lock(pthread_mutex_lock, 0); }

CHECK(signals, storm_over_lock_with_sa_restart) { storm_over_lock(pthread_mutex_lock, SA_RESTART); }

CHECK(signals, storm_over_timedlock) { storm_over_lock(timedlock_far, 0); }

CHECK(signals, storm_over_clocklock_with_sa_restart) { storm_over_lock(clocklock_far, SA_RESTART); }

static void storm_over_wait(int flags)
{
    struct sleepers s = SLEEPERS_INITIALIZER; /* CHECK_OK on each return: 0 is the only answer */
    install(SIGUSR1, count_signal, flags);
    sleepers_start(&s, 2);
    storm(s.thread[0], 2000);
    storm(s.thread[1], 500);
    CHECK_EQ(s.woken, 0);
    sleepers_give(&s, 2);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
    CHECK_OK(pthread_cond_destroy(&s.cond));
}

CHECK(signals, storm_over_wait) { storm_over_wait(0); }

CHECK(signals, storm_over_wait_with_sa_restart) { storm_over_wait(SA_RESTART); }

/* ---- Storms over deadlines: neither early nor, re-armed by each signal, never ---- */

struct timed {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool on_cond;
    atomic_bool started, over;
};

static void *time_out(void *argument)
{
    struct timed *t = argument;
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 50);
    int rc = 0;
    atomic_store(&t->started, true);
    if (t->on_cond) {
        CHECK_OK(pthread_mutex_lock(&t->mutex));
        while (rc == 0) rc = pthread_cond_timedwait(&t->cond, &t->mutex, &deadline);
        CHECK_OK(pthread_mutex_unlock(&t->mutex));
    } else {
        rc = pthread_mutex_timedlock(&t->mutex, &deadline);
    }
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_REACHED(CLOCK_REALTIME, deadline);
    atomic_store(&t->over, true);
    return NULL;
}

static void storm_over_deadline(bool on_cond, int flags)
{
    struct timed t = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .on_cond = on_cond};
    install(SIGUSR1, count_signal, flags);
    if (!on_cond) CHECK_OK(pthread_mutex_lock(&t.mutex));
    pthread_t thread = thread_start(time_out, &t);
    while (!atomic_load(&t.started)) sched_yield();
    while (!atomic_load(&t.over)) {
        pthread_kill(thread, SIGUSR1);
        nap_us(100);
    }
    thread_join(thread);
}

CHECK(signals, storm_over_timedlock_deadline) { storm_over_deadline(false, 0); }

CHECK(signals, storm_over_timedlock_deadline_with_sa_restart) { storm_over_deadline(false, SA_RESTART); }

CHECK(signals, storm_over_timedwait_deadline) { storm_over_deadline(true, 0); }

CHECK(signals, storm_over_timedwait_deadline_with_sa_restart) { storm_over_deadline(true, SA_RESTART); }

/* ---- A storm over threads that work ---- */

static atomic_int workers_left;
static pthread_t workers[4];
static struct exclusion storm_work;

static void *work_under_fire(void *argument)
{
    pthread_mutex_t *mutex = argument;
    int made = 0;
    for (; made < 10000 && (made % 64 || !time_is_short()); made++) {
        HOT_OK(made % 2 ? pthread_mutex_lock(mutex) : timedlock_far(mutex));
        long seen = storm_work.counter;
        if (made % 50 == 0) sched_yield();
        storm_work.counter = seen + 1;
        HOT_OK(pthread_mutex_unlock(mutex));
    }
    atomic_fetch_add(&storm_work.made, made);
    atomic_fetch_sub(&workers_left, 1);
    return NULL;
}

CHECK(signals, storm_over_threads_at_work)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    install(SIGUSR1, count_signal, 0);
    atomic_store(&workers_left, 4);
    for (int i = 0; i < 4; i++) workers[i] = thread_start(work_under_fire, &mutex);
    for (int i = 0; atomic_load(&workers_left) > 0; i++) {
        pthread_kill(workers[i % 4], SIGUSR1); /* joined below: the id stays valid */
        nap_us(20);
    }
    for (int i = 0; i < 4; i++) thread_join(workers[i]);
    CHECK_EQ(storm_work.counter, atomic_load(&storm_work.made));
}

/* ---- Handlers that lock ---- */

static pthread_mutex_t private_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t private_cond = PTHREAD_COND_INITIALIZER;
static struct gate entered, left;

/* No signal interrupts the holder of the private mutex, so locking it here is safe. */
static void lock_private(int number)
{
    (void)number;
    int saved = errno;
    gate_open(&entered);
    CHECK_OK(pthread_mutex_lock(&private_mutex));
    CHECK_OK(pthread_mutex_unlock(&private_mutex));
    gate_open(&left);
    errno = saved;
}

static void wait_private(int number)
{
    (void)number;
    int saved = errno, rc;
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
    gate_open(&entered);
    CHECK_OK(pthread_mutex_lock(&private_mutex));
    while ((rc = pthread_cond_timedwait(&private_cond, &private_mutex, &deadline)) == 0)
        ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK_OK(pthread_mutex_unlock(&private_mutex));
    gate_open(&left);
    errno = saved;
}

/* A wait inside a wait: the handler itself blocks, while the outer mutex changes hands without this thread. */
CHECK(signals, handler_blocks_on_another_mutex_inside_a_lock)
{
    pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
    struct locker waiter;
    install(SIGUSR1, lock_private, 0);
    for (int i = 1; i <= 20; i++) {
        CHECK_OK(pthread_mutex_lock(&outer));
        locker_start(&waiter, &outer, NULL, NULL);
        CHECK_OK(pthread_mutex_lock(&private_mutex));
        CHECK_OK(pthread_kill(waiter.thread, SIGUSR1));
        gate_wait(&entered, i);
        nap_us(200);
        CHECK_OK(pthread_mutex_unlock(&outer));
        CHECK_OK(pthread_mutex_lock(&outer));
        CHECK_OK(pthread_mutex_unlock(&private_mutex));
        gate_wait(&left, i);
        CHECK_TRUE(!locker_got_it(&waiter), "the handler let the waiter in");
        CHECK_OK(pthread_mutex_unlock(&outer));
        locker_join(&waiter);
    }
}

CHECK(signals, handler_locks_inside_a_condition_wait)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    install(SIGUSR1, lock_private, 0);
    sleepers_start(&s, 2);
    for (int i = 1; i <= 200; i++) {
        CHECK_OK(pthread_kill(s.thread[i % 2], SIGUSR1));
        gate_wait(&left, i);
    }
    sleepers_give(&s, 2);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
}

CHECK(signals, handler_waits_with_a_deadline_inside_a_lock)
{
    pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
    struct locker waiter;
    install(SIGUSR1, wait_private, 0);
    CHECK_OK(pthread_mutex_lock(&outer));
    locker_start(&waiter, &outer, NULL, NULL);
    for (int i = 1; i <= 5; i++) {
        CHECK_OK(pthread_kill(waiter.thread, SIGUSR1));
        gate_wait(&left, i);
    }
    CHECK_TRUE(!locker_got_it(&waiter), "the handler let the waiter in");
    CHECK_OK(pthread_mutex_unlock(&outer));
    locker_join(&waiter);
}

static void *wait_on_small_signal_stack(void *argument)
{
#ifdef _SC_SIGSTKSZ /* glibc 2.34 */
    stack_t stack = {.ss_size = sysconf(_SC_SIGSTKSZ)};
#else
    stack_t stack = {.ss_size = SIGSTKSZ};
#endif
    stack.ss_sp = malloc(stack.ss_size);
    CHECK_EQ(sigaltstack(&stack, NULL), 0);
    struct locker *locker = argument;
    CHECK_OK(pthread_mutex_lock(locker->mutex));
    CHECK_OK(pthread_mutex_unlock(locker->mutex));
    return NULL;
}

CHECK(signals, handler_locks_on_an_alternate_stack)
{
    pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
    struct locker waiter = {.mutex = &outer};
    install(SIGUSR1, lock_private, SA_ONSTACK);
    CHECK_OK(pthread_mutex_lock(&outer));
    pthread_t thread = thread_start(wait_on_small_signal_stack, &waiter);
    nap_ms(5);
    for (int i = 1; i <= 20; i++) {
        CHECK_OK(pthread_mutex_lock(&private_mutex));
        CHECK_OK(pthread_kill(thread, SIGUSR1));
        gate_wait(&entered, i);
        CHECK_OK(pthread_mutex_unlock(&private_mutex));
        gate_wait(&left, i);
    }
    CHECK_OK(pthread_mutex_unlock(&outer));
    thread_join(thread);
}

/* ---- The rest of the signal world ---- */

static void check_mask(const sigset_t *expected)
{
    sigset_t now;
    CHECK_OK(pthread_sigmask(SIG_SETMASK, NULL, &now));
    for (int i = 1; i < NSIG; i++) CHECK_EQ(sigismember(&now, i), sigismember(expected, i));
}

static void *block_with_odd_mask(void *argument)
{
    struct sleepers *s = argument;
    sigset_t odd;
    sigemptyset(&odd);
    for (int i = 1; i < 32; i += 2)
        if (i != SIGKILL && i != SIGSTOP) sigaddset(&odd, i);
    CHECK_OK(pthread_sigmask(SIG_SETMASK, &odd, NULL));
    struct timespec deadline = time_after_ms(CLOCK_REALTIME, 5);
    CHECK_RC(pthread_mutex_timedlock(&s->mutex, &deadline), ETIMEDOUT);
    gate_open(&entered);
    check_mask(&odd);
    CHECK_OK(pthread_mutex_lock(&s->mutex));
    check_mask(&odd);
    while (s->tokens == 0) CHECK_OK(pthread_cond_wait(&s->cond, &s->mutex));
    check_mask(&odd);
    CHECK_OK(pthread_mutex_unlock(&s->mutex));
    return NULL;
}

CHECK(signals, mask_is_left_alone)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&s.mutex));
    pthread_t thread = thread_start(block_with_odd_mask, &s);
    gate_wait(&entered, 1);
    nap_ms(5);
    CHECK_OK(pthread_mutex_unlock(&s.mutex));
    nap_ms(5);
    sleepers_give(&s, 1);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    thread_join(thread);
}

/* setresuid interrupts every thread of the process to change its credentials. */
CHECK(signals, credential_changes_disturb_no_waiter)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct sleepers s = SLEEPERS_INITIALIZER;
    struct locker waiters[3];
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 3; i++) locker_start(&waiters[i], &mutex, i == 1 ? timedlock_far : NULL, NULL);
    sleepers_start(&s, 3);
    for (int i = 0; i < 200 && !time_is_short(); i++) CHECK_EQ(setresuid(-1, -1, -1), 0);
    for (int i = 0; i < 3; i++) CHECK_TRUE(!locker_got_it(&waiters[i]), "a waiter was let in");
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 3; i++) locker_join(&waiters[i]);
    sleepers_give(&s, 3);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
}

static void live_stopped(struct gate *ready, struct gate *go)
{
    struct sleepers s = SLEEPERS_INITIALIZER;
    struct locker waiters[3];
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 3; i++) locker_start(&waiters[i], &mutex, i == 1 ? timedlock_far : NULL, NULL);
    sleepers_start(&s, 3);
    gate_open(ready);
    gate_wait(go, 1);
    for (int i = 0; i < 3; i++) CHECK_TRUE(!locker_got_it(&waiters[i]), "a waiter was let in");
    CHECK_OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < 3; i++) locker_join(&waiters[i]);
    sleepers_give(&s, 3);
    CHECK_OK(pthread_cond_broadcast(&s.cond));
    sleepers_join(&s);
}

CHECK(signals, process_stopped_and_continued)
{
    struct gate *gates = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        live_stopped(&gates[0], &gates[1]);
        _exit(0);
    }
    gate_wait(&gates[0], 1);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(kill(pid, SIGSTOP), 0);
        CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
        CHECK_TRUE(WIFSTOPPED(status), "the child ended with status 0x%x", status);
        CHECK_EQ(kill(pid, SIGCONT), 0);
        nap_us(200);
    }
    gate_open(&gates[1]);
    CHECK_EQ(process_status(pid), 0);
}
