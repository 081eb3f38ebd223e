/*
 * The conformance suite's vocabulary: what a check is, how it fails, and the few tools it may lean on.
 *
 * A check is a function that returns if the implementation behaves and otherwise fails through one of the CHECK_*
 * macros. The runner gives each check a process of its own, so a check may leave locks held, threads blocked or memory
 * unmapped. Verdicts, gates and time (report.c, support.c) use no mutex, condition variable or semaphore: whatever is
 * under test, the tools work.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* ---- Registering -------------------------------------------------------------------------------------------- */

struct check {
    const char *name; /* area.title */
    const char *file;
    int line;
    void (*run)(void);
};

/* CHECK(area, title) { body }. Collected by the linker in the section "checks", so there is no list to maintain. */
#define CHECK(area, title)                                                                       \
    static void area##_##title(void);                                                            \
    static const struct check check_##area##_##title = {#area "." #title, __FILE__, __LINE__,    \
                                                        area##_##title};                         \
    static const struct check *entry_##area##_##title                                            \
        __attribute__((used, section("checks"))) = &check_##area##_##title;                      \
    static void area##_##title(void)

/* ---- Verdicts (report.c) ------------------------------------------------------------------------------------ */

/* Maps the page shared with the runner; with fd < 0 verdicts go to standard error instead. */
void report_open(int fd);
/* The check ended as it should. */
void report_passed(void);
/* Remembers the last place that was fine, for the message if the check then hangs or crashes. */
void report_progress(const char *file, int line);
/* Any thread, and any process forked by the check, may end the check with these two. */
_Noreturn void check_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void check_skipped(const char *file, int line, const char *reason);
/* "16 (EBUSY)" in a buffer that belongs to the calling thread until its third-next call. */
const char *code_name(int code);

#define FAIL(...) check_failed(__FILE__, __LINE__, __VA_ARGS__)
/* Where glibc has its locks: before 2.34 not in libc.so.6. */
#if __GLIBC_PREREQ(2, 34)
#define LOCKS_LIBRARY "libc.so.6"
#else
#define LOCKS_LIBRARY "libpthread.so.0"
#endif

#define SKIP(reason) check_skipped(__FILE__, __LINE__, reason)

/* What glibc's own locks cannot do, or not always. The check is skipped under them, unless the runner asks whether that
 * is still so. */
#define GLIBC_CANNOT(reason)                                                                        \
    do {                                                                                            \
        if (locks_are_glibcs() && !excepted_are_tried()) SKIP(reason);                              \
    } while (0)

/* A return code, as a number and a name. */
#define CHECK_RC(call, expected)                                                                    \
    do {                                                                                            \
        int got_ = (call), want_ = (expected);                                                      \
        if (got_ != want_)                                                                          \
            FAIL("%s returned %s, expected %s", #call, code_name(got_), code_name(want_));          \
        report_progress(__FILE__, __LINE__);                                                        \
    } while (0)
#define CHECK_OK(call) CHECK_RC(call, 0)

/* The same for loops in which a shared progress mark would itself order the threads. */
#define HOT_RC(call, expected)                                                                      \
    do {                                                                                            \
        int got_ = (call), want_ = (expected);                                                      \
        if (__builtin_expect(got_ != want_, 0))                                                     \
            FAIL("%s returned %s, expected %s", #call, code_name(got_), code_name(want_));          \
    } while (0)
#define HOT_OK(call) HOT_RC(call, 0)

#define CHECK_EQ(value, expected)                                                                   \
    do {                                                                                            \
        long long got_ = (value), want_ = (expected);                                               \
        if (got_ != want_) FAIL("%s is %lld, expected %lld", #value, got_, want_);                  \
        report_progress(__FILE__, __LINE__);                                                        \
    } while (0)

#define CHECK_TRUE(condition, ...)                                                                  \
    do {                                                                                            \
        if (!(condition)) FAIL(__VA_ARGS__);                                                        \
        report_progress(__FILE__, __LINE__);                                                        \
    } while (0)

/* A timed call gave up: it must not have done so before its deadline. How much later is not promised. */
#define CHECK_REACHED(clock, deadline)                                                              \
    CHECK_TRUE(time_reached(clock, deadline), "timed out %ld us before the deadline",               \
               time_missing_us(clock, deadline))

/* ---- Gates: an event counter on a bare futex (support.c) ----------------------------------------------------- */

/* Works between processes too, and may be used in signal handlers. Leaves errno alone. */
struct gate {
    atomic_int count;
};
void gate_open(struct gate *gate);
void gate_wait(struct gate *gate, int count);
int gate_count(struct gate *gate);

/* ---- Time ---------------------------------------------------------------------------------------------------- */

struct timespec time_after_ms(clockid_t clock, long ms);
/* An hour away: for calls that must end for another reason. */
struct timespec time_far(clockid_t clock);
bool time_reached(clockid_t clock, struct timespec deadline);
long time_missing_us(clockid_t clock, struct timespec deadline);
/* The check has run for 1.5 s: on a busy machine, loops that are long for good measure stop here. */
bool time_is_short(void);
/* This process's check has so many times as long; before the first `time_is_short`. */
void repeat_for_longer(double times);
void nap_ms(long ms);
void nap_us(long us);

/* ---- Threads ------------------------------------------------------------------------------------------------- */

pthread_t thread_start(void *(*body)(void *), void *argument);
void *thread_join(pthread_t thread);
/* `count` threads with the same argument, started and joined. */
void threads_run(int count, void *(*body)(void *), void *argument);
/* Whether a thread of this process sleeps, or is gone. */
bool is_asleep(pid_t tid);
/* The other threads of this process: how many there are, how many of them do not sleep, and how often they have given
 * up a CPU so far, all together. */
struct others {
    int count, awake;
    long switches;
};
struct others others_look(void);
/* Waits until all other threads sleep: at two looks, between which none got up. Fails if some go on polling, which
 * their CPU time tells, or how often they get up; a busy machine does not. */
void others_sleep(void);
/* For loops that wait for others. Naps, and says whether to wait on: if `progress` has changed in the last 60 s, and
 * some other thread was awake in the last 10 s. One that has no CPU is awake, so a busy machine ends no wait. */
struct patience {
    long seen;
    int naps, asleep;
};
bool patience_lasts(struct patience *patience, long progress);
/* Gives another thread of this process up to 50 ms to fall asleep. It may be spinning: nothing may rely on it. */
void settle(pid_t tid);
/* The calls below, made by a thread of their own; the return code is handed back. A lock got by trylock is released. */
int trylock_elsewhere(pthread_mutex_t *mutex);
int unlock_elsewhere(pthread_mutex_t *mutex);
/* Waits for a child process: its exit status, or 256 + the signal that ended it. */
int process_status(pid_t pid);
/* Whether checks are to be made that glibc's locks are known to fail (CONFORMANCE_EXCEPTED=1). */
bool excepted_are_tried(void);
/* Whether mutexes are glibc's own: it counts the users of one that is held, which no replacement needs. */
bool locks_are_glibcs(void);
/* Whether the C library is glibc 2.minor or later. */
bool glibc_is_at_least(int minor);

/* A fork without the handlers of pthread_atfork: _Fork, or before glibc 2.34 the system call. */
pid_t raw_fork(void);
/* The path of a file that stands beside this program; the buffer is static. */
const char *beside_program(const char *name);
uint32_t random_next(uint32_t *state);

/* ---- Exclusion: an unprotected counter (exclusion.c) ---------------------------------------------------------- */

typedef int mutex_call(pthread_mutex_t *);

/* Up to two ways of locking the same mutex: odd threads use the second one if there is one. */
struct exclusion {
    pthread_mutex_t *mutex;
    mutex_call *lock[2], *unlock[2];
    int threads, ms; /* how long */
    struct timespec end;
    atomic_int tickets;
    atomic_long made;
    volatile long counter;
};
/* Fails the check if not all increments survived. */
void exclusion_run(struct exclusion *exclusion);
/* Four threads, the usual lock and unlock, 20 ms. */
void check_excludes(pthread_mutex_t *mutex);

/* ---- A thread that blocks on a mutex (blocked.c) --------------------------------------------------------------- */

struct locker {
    pthread_mutex_t *mutex;
    mutex_call *lock, *unlock;
    pthread_t thread;
    _Atomic pid_t tid;
    struct gate got;
};
/* Starts a thread which locks and unlocks, and lets it block. Null functions stand for the usual ones. */
void locker_start(struct locker *locker, pthread_mutex_t *mutex, mutex_call *lock, mutex_call *unlock);
bool locker_got_it(struct locker *locker);
void locker_join(struct locker *locker);

/* ---- A thread that waits on a condition variable ---------------------------------------------------------------- */

/* Waits until `go`, which is read and written with the mutex held. When sleepers_start returns all are waiting. */
struct sleepers {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int waiting, woken, tokens;
    int count;
    pthread_t thread[64];
};
#define SLEEPERS_INITIALIZER {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER}
/* Each sleeper takes one token and leaves. */
void sleepers_start(struct sleepers *sleepers, int count);
void sleepers_give(struct sleepers *sleepers, int tokens);
/* Waits (without the condition variable) until that many have left. */
void sleepers_await(struct sleepers *sleepers, int woken);
void sleepers_join(struct sleepers *sleepers);
/* In a forked child, where the sleepers and any other thread at the condition variable do not exist: a new mutex, but
   the condition variable as it was found, by signals, a broadcast and in the end its destruction. */
void sleepers_use_inherited(struct sleepers *sleepers);

/* Waits until a deadline with mutexes that only their holder may release: glibc's and private ones, with condition
   variables of both sorts. */
void check_waits_with_owners(void);

/* ---- Mutex kinds ------------------------------------------------------------------------------------------------- */

enum { KIND_DEFAULT = -1 }; /* no attributes at all */
void mutex_make(pthread_mutex_t *mutex, int kind);
/* KINDS(M) is M(title, kind) for each kind that a private mutex can have. */
#define KINDS(M)                                                                                    \
    M(default, KIND_DEFAULT)                                                                        \
    M(normal, PTHREAD_MUTEX_NORMAL)                                                                 \
    M(recursive, PTHREAD_MUTEX_RECURSIVE)                                                           \
    M(errorcheck, PTHREAD_MUTEX_ERRORCHECK)                                                         \
    M(adaptive, PTHREAD_MUTEX_ADAPTIVE_NP)
/* Kinds whose owner is not checked. */
#define OWNERLESS_KINDS(M)                                                                          \
    M(default, KIND_DEFAULT)                                                                        \
    M(normal, PTHREAD_MUTEX_NORMAL)                                                                 \
    M(adaptive, PTHREAD_MUTEX_ADAPTIVE_NP)

#endif
