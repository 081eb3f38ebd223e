/*
 * A program that gives up system calls once it runs. The filter kills the process for any call but those that glibc's
 * own primitives may make in the same places, and the few more that docs/behaviour.md names.
 */
#include "conformance.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { CROWD = 100, ROUNDS = 20 };

/* What a check itself needs to end: write and exit_group. */
static const int allowed[] = {
    SYS_futex, SYS_clock_gettime, SYS_nanosleep,    SYS_sched_yield, SYS_gettid,
    SYS_read,  SYS_write,         SYS_rt_sigreturn, SYS_exit,        SYS_exit_group, SYS_restart_syscall,
};
enum { ALLOWED = sizeof allowed / sizeof *allowed };

/* For all threads of the process. */
static void give_up_everything_else(void)
{
    struct sock_filter code[ALLOWED + 3];
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < ALLOWED; i++)
        code[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], ALLOWED - i, 0);
    code[ALLOWED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[ALLOWED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {ALLOWED + 3, code};
    CHECK_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK_OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

static void nap_in_the_sandbox(long ms)
{
    syscall(SYS_nanosleep, &(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* The crowd's threads exist before the sandbox, begin in it, and never end. */
struct crowd {
    pthread_mutex_t mutex, recursive, errorcheck;
    pthread_cond_t cond;
    struct gate ready, begin, arrived, done, never;
    long counter;
    bool go;
};
#define CROWD_INITIALIZER                                                                           \
    {.mutex = PTHREAD_MUTEX_INITIALIZER, .recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,       \
     .errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, .cond = PTHREAD_COND_INITIALIZER}

static void run_crowd(struct crowd *crowd, int count, void *(*body)(void *))
{
    for (int i = 0; i < count; i++) thread_start(body, crowd);
    gate_wait(&crowd->ready, count); /* to start a thread takes more system calls */
    give_up_everything_else();
    gate_open(&crowd->begin);
}

static void begin(struct crowd *crowd)
{
    gate_open(&crowd->ready);
    gate_wait(&crowd->begin, 1);
}

static void *done(struct crowd *crowd)
{
    gate_open(&crowd->done);
    gate_wait(&crowd->never, 1);
    return NULL;
}

static void add(struct crowd *crowd)
{
    long seen = crowd->counter;
    if (seen % 7 == 0) sched_yield();
    crowd->counter = seen + 1;
}

static void *add_alone(void *argument)
{
    struct crowd *crowd = argument;
    begin(crowd);
    gate_open(&crowd->arrived);
    for (int i = 0; i < ROUNDS; i++) {
        HOT_OK(pthread_mutex_lock(&crowd->mutex));
        add(crowd);
        HOT_OK(pthread_mutex_unlock(&crowd->mutex));
    }
    return done(crowd);
}

/* More waiters at a time than any small table of queue nodes holds. */
CHECK(sandbox, a_hundred_wait_for_a_mutex)
{
    struct crowd crowd = CROWD_INITIALIZER;
    CHECK_OK(pthread_mutex_lock(&crowd.mutex));
    run_crowd(&crowd, CROWD, add_alone);
    gate_wait(&crowd.arrived, CROWD);
    nap_in_the_sandbox(100);
    CHECK_OK(pthread_mutex_unlock(&crowd.mutex));
    gate_wait(&crowd.done, CROWD);
    CHECK_EQ(crowd.counter, CROWD * ROUNDS);
}

static void *wait_for_go(void *argument)
{
    struct crowd *crowd = argument;
    begin(crowd);
    HOT_OK(pthread_mutex_lock(&crowd->mutex));
    gate_open(&crowd->arrived);
    while (!crowd->go) HOT_OK(pthread_cond_wait(&crowd->cond, &crowd->mutex));
    add(crowd);
    HOT_OK(pthread_mutex_unlock(&crowd->mutex));
    return done(crowd);
}

CHECK(sandbox, a_hundred_wait_for_a_condition)
{
    struct crowd crowd = CROWD_INITIALIZER;
    run_crowd(&crowd, CROWD, wait_for_go);
    gate_wait(&crowd.arrived, CROWD);
    CHECK_OK(pthread_mutex_lock(&crowd.mutex)); /* all wait: each opened the gate with the mutex held */
    crowd.go = true;
    CHECK_OK(pthread_cond_signal(&crowd.cond));
    CHECK_OK(pthread_cond_broadcast(&crowd.cond));
    CHECK_OK(pthread_mutex_unlock(&crowd.mutex));
    gate_wait(&crowd.done, CROWD);
    CHECK_EQ(crowd.counter, CROWD);
}

static void *wait_with_deadlines(void *argument)
{
    struct crowd *crowd = argument;
    begin(crowd);
    for (int i = 0; i < ROUNDS; i++) {
        clockid_t clock = i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        struct timespec soon = time_after_ms(clock, i % 3);
        int rc = pthread_mutex_clocklock(&crowd->mutex, clock, &soon);
        if (rc == ETIMEDOUT) continue;
        HOT_OK(rc);
        soon = time_after_ms(clock, i % 3);
        while ((rc = pthread_cond_clockwait(&crowd->cond, &crowd->mutex, clock, &soon)) == 0)
            ;
        HOT_RC(rc, ETIMEDOUT);
        add(crowd);
        nap_in_the_sandbox(1);
        HOT_OK(pthread_mutex_unlock(&crowd->mutex));
    }
    return done(crowd);
}

CHECK(sandbox, waits_with_deadlines)
{
    struct crowd crowd = CROWD_INITIALIZER;
    run_crowd(&crowd, 8, wait_with_deadlines);
    gate_wait(&crowd.done, 8);
    CHECK_RC(pthread_mutex_trylock(&crowd.mutex), 0);
    CHECK_OK(pthread_mutex_unlock(&crowd.mutex));
}

static void *lock_as_owner(void *argument)
{
    struct crowd *crowd = argument;
    begin(crowd);
    for (int i = 0; i < ROUNDS; i++) {
        HOT_OK(pthread_mutex_lock(&crowd->recursive));
        HOT_OK(pthread_mutex_lock(&crowd->recursive));
        HOT_OK(pthread_mutex_lock(&crowd->errorcheck));
        HOT_RC(pthread_mutex_lock(&crowd->errorcheck), EDEADLK);
        add(crowd);
        HOT_OK(pthread_mutex_unlock(&crowd->errorcheck));
        HOT_OK(pthread_mutex_unlock(&crowd->recursive));
        HOT_OK(pthread_mutex_unlock(&crowd->recursive));
        HOT_RC(pthread_mutex_unlock(&crowd->errorcheck), EPERM);
    }
    return done(crowd);
}

CHECK(sandbox, mutexes_that_know_their_owner)
{
    struct crowd crowd = CROWD_INITIALIZER;
    run_crowd(&crowd, 8, lock_as_owner);
    gate_wait(&crowd.done, 8);
    CHECK_EQ(crowd.counter, 8 * ROUNDS);
}

/* ---- A sandbox that refuses one call ---- */

static void refuse_gettid(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    CHECK_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK_OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

static void *wait_without_an_id(void *unused)
{
    check_waits_with_owners();
    return unused;
}

CHECK(sandbox, waits_where_the_threads_id_is_refused)
{
    refuse_gettid();
    thread_join(thread_start(wait_without_an_id, NULL)); /* a thread that has not asked yet */
}
