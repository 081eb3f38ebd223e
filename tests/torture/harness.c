// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What all scenarios stand on: failing, threads, chance, time, the exclusion probe. See torture.h.
#include "torture.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct board *board;
_Thread_local struct worker *self;

// ---- Verdicts -------------------------------------------------------------------------------------------------------

void fail(const char *format, ...)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&board->failed, &none, 1)) {
        va_list args;
        va_start(args, format);
        vsnprintf(board->reason, sizeof board->reason, format, args);
        va_end(args);
        atomic_store(&board->failed, 2);
    }
    // Another thread may still be writing the reason: leaving now would cut it off.
    for (int i = 0; i < 1000 && atomic_load(&board->failed) != 2; i++)
        nap_ns(1000000);
    _exit(1);
}

void skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(board->reason, sizeof board->reason, format, args);
    va_end(args);
    atomic_store(&board->skipped, true);
    _exit(0);
}

void note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(board->note, sizeof board->note, format, args);
    va_end(args);
}

void at_least(struct run *run, int threads)
{
    if (run->threads < threads)
        run->threads = threads;
    atomic_store(&board->threads, run->threads);
}

// ---- Threads --------------------------------------------------------------------------------------------------------

void worker_init(struct worker *w, struct run *run, int id, void (*body)(struct worker *), void *arg)
{
    *w = (struct worker){ .id = id, .run = run, .body = body, .arg = arg, .progress = &board->slot[id] };
    w->rng = mix(run->seed, (uint64_t)id);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    self = w;
    atomic_store(&w->progress->tid, gettid());
    AT(w, "start");
    w->body(w);
    AT(w, NULL);
    return NULL;
}

void worker_start(struct worker *w, size_t stack_bytes)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (stack_bytes)
        pthread_attr_setstacksize(&attr, stack_bytes);
    int rc = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_attr_destroy(&attr);
    if (rc)
        fail("pthread_create: %s", strerror(rc));
}

void worker_join(struct worker *w)
{
    expect(pthread_join(w->thread, NULL), 0, "pthread_join");
}

struct worker *crew_start(struct run *run, int n, void (*body)(struct worker *), void *arg)
{
    struct worker *crew = calloc((size_t)n, sizeof *crew);
    if (!crew)
        fail("out of memory");
    for (int i = 0; i < n; i++)
        worker_init(&crew[i], run, i + 1, body, arg);
    for (int i = 0; i < n; i++)
        worker_start(&crew[i], 0);
    return crew;
}

void crew_join(struct worker *crew, int n)
{
    AT(self, NULL);  // in a hang, the thread that is not joined is the news, not the joiner
    for (int i = 0; i < n; i++)
        worker_join(&crew[i]);
    AT(self, "controller");
    free(crew);
}

void crew_run(struct run *run, int n, void (*body)(struct worker *), void *arg)
{
    struct worker *crew = crew_start(run, n, body, arg);
    do  // on a machine that stands still for that long, nobody has done anything
        nap_ns((uint64_t)(run->seconds * 1e9));
    while (total_ops() < (uint64_t)n);
    atomic_store(&board->stop, true);
    crew_join(crew, n);
}

uint64_t total_ops(void)
{
    uint64_t sum = 0;
    for (int i = 0; i <= MAX_THREADS; i++)
        sum += atomic_load_explicit(&board->slot[i].ops, memory_order_relaxed);
    return sum;
}

pid_t fork_child(void)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        fail("fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return pid;
}

int wait_child(pid_t pid, const char *what)
{
    uint64_t deadline = now_ns(CLOCK_MONOTONIC) + AGAINST_HANGS * 1000000000ULL;
    int status;
    for (;;) {
        pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid)
            return status;
        if (done < 0 && errno != EINTR)
            fail("waitpid: %s", strerror(errno));
        if (now_ns(CLOCK_MONOTONIC) > deadline) {
            kill(pid, SIGKILL);
            fail("%s: the child process hung", what);
        }
        nap_ns(100000);
    }
}

// ---- Chance and time ------------------------------------------------------------------------------------------------

uint64_t mix(uint64_t seed, uint64_t salt)
{
    uint64_t x = seed + (salt + 1) * 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    x ^= x >> 31;
    return x ? x : 1;  // xorshift never leaves zero
}

struct timespec at_ns(uint64_t ns)
{
    return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };
}

void nap_ns(uint64_t ns)
{
    struct timespec t = at_ns(ns);
    // A signal must not shorten the nap: controllers rely on it as a lower bound.
    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void dither(struct worker *w)
{
    uint32_t r = below(w, 4096);
    if (r == 0)
        nap_ns(1000 + below(w, 60000));
    else if (r < 64)
        sched_yield();
    else if (r < 2048)
        burn(r / 8);
}

void await(_Atomic uint64_t *flag, uint64_t value)
{
    for (uint32_t spins = 0; atomic_load(flag) < value; spins++) {
        if (spins < 200)
            cpu_relax();
        else if (spins < 400)
            sched_yield();
        else
            nap_ns(20000);
    }
}

// ---- Checked calls --------------------------------------------------------------------------------------------------

void mutex_init_kind(pthread_mutex_t *m, int kind)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    expect(pthread_mutexattr_settype(&attr, kind), 0, "pthread_mutexattr_settype");
    expect(pthread_mutex_init(m, &attr), 0, "pthread_mutex_init");
    pthread_mutexattr_destroy(&attr);
}

void cond_init_clock(pthread_cond_t *c, clockid_t clock)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    expect(pthread_condattr_setclock(&attr, clock), 0, "pthread_condattr_setclock");
    expect(pthread_cond_init(c, &attr), 0, "pthread_cond_init");
    pthread_condattr_destroy(&attr);
}

// ---- The exclusion probe --------------------------------------------------------------------------------------------

void probe_enter(struct probe *p, struct worker *w)
{
    uint32_t owner = p->owner;
    if (owner)
        fail("no exclusion: thread #%d entered the section of thread #%u", w->id, owner - 1);
    p->owner = (uint32_t)w->id + 1;
}

void probe_check(const struct probe *p, const struct worker *w)
{
    uint32_t owner = p->owner;
    if (owner != (uint32_t)w->id + 1)
        fail("no exclusion: thread #%d found %s%d in its own section", w->id, owner ? "thread #" : "", (int)owner - 1);
}

void probe_leave(struct probe *p, struct worker *w)
{
    probe_check(p, w);
    p->owner = 0;
}

void probe_visit(struct probe *p, struct worker *w)
{
    probe_enter(p, w);
    uint64_t seq = p->seq;
    for (int i = 0; i < PROBE_CELLS; i++) {
        uint64_t count = p->cell[i].count;
        if (count != seq)
            fail("lost update: cell %d is %llu, the section's count is %llu", i, (unsigned long long)count,
                 (unsigned long long)seq);
        burn(below(w, 128));
        p->cell[i].count = count + 1;
    }
    dither(w);
    if (p->seq != seq)
        fail("no exclusion: the section's count moved from %llu to %llu under thread #%d", (unsigned long long)seq,
             (unsigned long long)p->seq, w->id);
    p->seq = seq + 1;
    probe_leave(p, w);
}
