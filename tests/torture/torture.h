// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Torture for pthread mutexes and condition variables. The program locks plain pthread objects, so whatever LD_PRELOAD
// puts in their place is what gets tortured; without a preload it tortures glibc.
//
// Two rules hold in every file:
//  1. The harness itself never coordinates through the objects under test. It uses atomics, naps and the kernel, so
//     that a broken lock breaks the scenario and not the judge.
//  2. A violation ends the scenario's process on the spot (`fail`). Winding down through a lock known to be broken
//     would turn a clear message into a hang.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

enum { MAX_THREADS = 1024, CACHE_LINE = 64 };

// How many seconds what takes no time may take before it counts as a hang: no outcome depends on how busy the machine
// is.
enum { AGAINST_HANGS = 120 };

// ---- What a scenario shares with the watchdog in the parent process -------------------------------------------------

// One thread's progress; the watchdog reads it to say which thread is stuck and where. `where` points at a string
// literal, valid in the parent too because a scenario is a fork of it. NULL: not started, or done.
struct progress {
    _Alignas(CACHE_LINE) _Atomic uint64_t ops;
    _Atomic(const char *) where;
    atomic_int tid;
};

struct board {
    atomic_int failed;  // 0 no; 1 a thread is writing the reason; 2 the reason is complete
    atomic_bool skipped;
    atomic_bool stop;
    atomic_int threads;  // how many threads the scenario really uses
    char reason[512];
    char note[256];
    struct progress slot[MAX_THREADS + 1];  // 0: the scenario's main thread
};

extern struct board *board;

// ---- A scenario -----------------------------------------------------------------------------------------------------

struct run {
    int threads;
    double seconds;
    uint64_t seed;
    bool full;
};

struct scenario {
    const char *name;
    const char *about;
    void (*body)(struct run *);
};

enum outcome { PASSED, FAILED, SKIPPED };

// Runs one scenario in a process of its own under the watchdog and prints its line.
enum outcome run_scenario(const struct scenario *scenario, const struct run *options);

// Raises the number of threads to what the scenario needs at least, and publishes it.
void at_least(struct run *run, int threads);

// Ends the scenario as failed. May be called from any thread, child process or signal handler; the first reason wins.
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Text that stands after `ops=` in the scenario's line.
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline bool stopping(void)
{
    return atomic_load_explicit(&board->stop, memory_order_relaxed);
}

// ---- Threads --------------------------------------------------------------------------------------------------------

struct worker {
    int id;  // 1.. ; 0 is the scenario's main thread
    uint64_t rng;
    struct progress *progress;
    struct run *run;
    void (*body)(struct worker *);
    void *arg;
    pthread_t thread;
};

// The calling thread's own record, for signal handlers and destructors.
extern _Thread_local struct worker *self;

void worker_init(struct worker *w, struct run *run, int id, void (*body)(struct worker *), void *arg);
void worker_start(struct worker *w, size_t stack_bytes);  // 0: default stack
void worker_join(struct worker *w);

// Workers 1..n, with their ids; `crew_run` lets them work for the scenario's time.
struct worker *crew_start(struct run *run, int n, void (*body)(struct worker *), void *arg);
void crew_join(struct worker *crew, int n);
void crew_run(struct run *run, int n, void (*body)(struct worker *), void *arg);
uint64_t total_ops(void);

// Forks a child that dies with the calling thread, so that nothing outlives a killed scenario.
pid_t fork_child(void);
// Waits for a child; kills it and fails if it hangs. Returns the wait status.
int wait_child(pid_t pid, const char *what);

#define AT(w, text) atomic_store_explicit(&(w)->progress->where, (text), memory_order_relaxed)

static inline void count_op(struct worker *w)
{
    // Only this thread writes its counter, so no read-modify-write is needed.
    uint64_t ops = atomic_load_explicit(&w->progress->ops, memory_order_relaxed);
    atomic_store_explicit(&w->progress->ops, ops + 1, memory_order_relaxed);
}

// ---- Chance and time ------------------------------------------------------------------------------------------------

uint64_t mix(uint64_t seed, uint64_t salt);

static inline uint64_t rnd(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545f4914f6cdd1dULL;
}

static inline uint32_t below(struct worker *w, uint32_t n)
{
    return (uint32_t)((rnd(&w->rng) >> 32) * n >> 32);
}

static inline bool one_in(struct worker *w, uint32_t n)
{
    return below(w, n) == 0;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// About `iterations` cycles without a memory access.
static inline void burn(uint32_t iterations)
{
    for (uint32_t i = 0; i < iterations; i++)
        __asm__ volatile("");
}

void nap_ns(uint64_t ns);
uint64_t now_ns(clockid_t clock);
struct timespec at_ns(uint64_t ns);
// A random tiny delay: usually some tens of cycles, sometimes a yield, rarely a nap.
void dither(struct worker *w);
// Polls `*flag` until it is at least `value`; gives the CPU away, because waited-for threads may need this very one.
void await(_Atomic uint64_t *flag, uint64_t value);

// ---- Checked calls --------------------------------------------------------------------------------------------------

static inline void expect(int got, int wanted, const char *call)
{
    if (got != wanted)
        fail("%s returned %d, expected %d", call, got, wanted);
}

static inline void lock(struct worker *w, pthread_mutex_t *m)
{
    AT(w, "mutex_lock");
    expect(pthread_mutex_lock(m), 0, "pthread_mutex_lock");
    AT(w, "section");
}

static inline void unlock(struct worker *w, pthread_mutex_t *m)
{
    AT(w, "mutex_unlock");
    expect(pthread_mutex_unlock(m), 0, "pthread_mutex_unlock");
    AT(w, "outside");
}

void mutex_init_kind(pthread_mutex_t *m, int kind);
void cond_init_clock(pthread_cond_t *c, clockid_t clock);

// ---- The exclusion probe --------------------------------------------------------------------------------------------

// What a critical section works on. Nothing in it is atomic: only the lock keeps it whole. `owner` notices a second
// thread in the section while it happens, the cells notice lost updates and stale reads.
enum { PROBE_CELLS = 4 };

struct probe {
    volatile uint32_t owner;  // 0: no thread, else the worker's id + 1
    volatile uint64_t seq;
    struct {
        _Alignas(CACHE_LINE) volatile uint64_t count;
    } cell[PROBE_CELLS];
};

void probe_enter(struct probe *p, struct worker *w);  // no thread inside -> me inside
void probe_check(const struct probe *p, const struct worker *w);
void probe_leave(struct probe *p, struct worker *w);  // me inside -> no thread inside
// Enter, update every cell in split steps with delays between, leave.
void probe_visit(struct probe *p, struct worker *w);

// ---- Memory that bites ----------------------------------------------------------------------------------------------

// An object alone on its page between two inaccessible pages, at the page's end or its beginning.
void *guarded_new(size_t size, bool at_end);
// Makes the page inaccessible at once; `unmap` also gives the addresses back at once.
void guarded_free(void *object, bool unmap);

// ---- Scenarios ------------------------------------------------------------------------------------------------------

void run_rw(struct run *run);
void run_rw_timed(struct run *run);
void run_rw_last_frees(struct run *run);
void run_counter(struct run *);
void run_list(struct run *);
void run_many(struct run *);
void run_trylock(struct run *);
void run_timed(struct run *);
void run_recursive(struct run *);
void run_errorcheck(struct run *);
void run_cond(struct run *);
void run_broadcast(struct run *);
void run_condtimed(struct run *);
void run_condcancel(struct run *);
void run_freeze_handler(struct run *);
void run_freeze_waiter(struct run *);
void run_freeze_ptrace(struct run *);
void run_exit_waiting(struct run *);
void run_last_owner_frees(struct run *);
void run_cond_destroy(struct run *);
void run_spin(struct run *);
void run_sem(struct run *);
void run_sem_signals(struct run *);
void run_sem_destroy(struct run *);
void run_tsd(struct run *);
void run_signal_locks(struct run *);
void run_short_threads(struct run *);
void run_fork(struct run *);

// What `exit-waiting` executes in a fresh process (`torture --exit-child MODE THREADS SEED`); its result is main's.
int exit_child_main(int mode, int threads, uint64_t seed);
