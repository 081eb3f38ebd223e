// SPDX-License-Identifier: MIT OR Apache-2.0
//
// exit-waiting: a process may end while its threads wait for locks, hold them, or are half-way in between. It must end,
// and with the right status.
#include "torture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// How the process ends. RETURN needs a real main, hence a fresh program; the others run in a fork as well as in one.
enum { EXIT, EXIT_NOW, EXIT_FROM_THREAD, LAST_THREAD, RETURN, MODES };

static const char *const mode_names[MODES] = { "exit", "_exit", "exit from a thread", "pthread_exit in main",
                                               "return from main" };

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;  // by the main thread, for ever
static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;   // taken and released all the time
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static atomic_int started;
static atomic_bool enough;

static int code_of(uint64_t seed)
{
    return 1 + (int)(seed % 100);
}

static void hammer(void)
{
    while (!atomic_load(&enough)) {
        pthread_mutex_lock(&hot);
        burn(100);
        pthread_mutex_unlock(&hot);
    }
}

static void *child_thread(void *arg)
{
    uintptr_t role = (uintptr_t)arg;
    struct timespec later = at_ns(now_ns(CLOCK_REALTIME) + 3600ULL * 1000000000);
    atomic_fetch_add(&started, 1);
    switch (role % 5) {
    case 0: pthread_mutex_lock(&held); break;
    case 1: pthread_mutex_timedlock(&held, &later); break;
    case 2:
        pthread_mutex_lock(&hot);
        for (;;)
            pthread_cond_wait(&never, &hot);
    case 3:
        pthread_mutex_lock(&hot);
        for (;;)
            pthread_cond_timedwait(&never, &hot, &later);
    default: hammer(); break;
    }
    return NULL;
}

static void *exiting_thread(void *arg)
{
    nap_ns((uintptr_t)arg >> 8);
    exit((int)((uintptr_t)arg & 255));
}

static void *finishing_thread(void *arg)
{
    hammer();
    return arg;
}

// Exit handlers run while the other threads go on; a contended lock must still work in them.
static void lock_at_exit(void)
{
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(&hot);
        pthread_mutex_unlock(&hot);
    }
}

static int start(void *(*body)(void *), uintptr_t arg)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, body, (void *)arg);
}

// The process with threads in every kind of wait, ending in the way of `mode`.
int exit_child_main(int mode, int threads, uint64_t seed)
{
    int code = code_of(seed);
    uint64_t pause = mix(seed, 1) % 1000000;
    if (mode != EXIT_NOW)
        atexit(lock_at_exit);
    pthread_mutex_lock(&held);
    for (int i = 0; i < threads; i++)
        if (start(mode == LAST_THREAD ? finishing_thread : child_thread, (uintptr_t)i))
            _exit(200);
    while (mode != LAST_THREAD && seed % 2 && atomic_load(&started) < threads)
        nap_ns(50000);
    switch (mode) {
    case EXIT_FROM_THREAD:
        if (start(exiting_thread, (uintptr_t)pause << 8 | (uintptr_t)code))
            _exit(200);
        pthread_mutex_lock(&hot);
        for (;;)
            pthread_cond_wait(&never, &hot);
    case LAST_THREAD:
        nap_ns(pause);
        atomic_store(&enough, true);
        pthread_exit(NULL);  // status 0 once the last thread is done
    default: nap_ns(pause); break;
    }
    if (mode == EXIT)
        exit(code);
    if (mode == EXIT_NOW)
        _exit(code);
    return code;
}

static _Noreturn void become_child(int mode, int threads, uint64_t seed)
{
    char mode_text[16], threads_text[16], seed_text[32];
    snprintf(mode_text, sizeof mode_text, "%d", mode);
    snprintf(threads_text, sizeof threads_text, "%d", threads);
    snprintf(seed_text, sizeof seed_text, "%llu", (unsigned long long)seed);
    execl("/proc/self/exe", "torture", "--exit-child", mode_text, threads_text, seed_text, (char *)NULL);
    _exit(201);
}

static void one_child(struct worker *w, int threads)
{
    int mode = (int)below(w, MODES);
    bool fresh = mode == RETURN || one_in(w, 2);
    uint64_t seed = rnd(&w->rng);
    pid_t pid = fork_child();
    if (pid == 0) {
        if (fresh)
            become_child(mode, threads, seed);
        exit(exit_child_main(mode, threads, seed));
    }
    char what[64];
    snprintf(what, sizeof what, "%s (%s)", mode_names[mode], fresh ? "fresh program" : "fork");
    AT(w, mode_names[mode]);
    int status = wait_child(pid, what);
    int wanted = mode == LAST_THREAD ? 0 : code_of(seed);
    if (WIFSIGNALED(status))
        fail("%s: killed by signal %d (%s)", what, WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) == 201)
        skip("cannot execute /proc/self/exe");
    if (WEXITSTATUS(status) != wanted)
        fail("%s: status %d, expected %d", what, WEXITSTATUS(status), wanted);
}

void run_exit_waiting(struct run *run)
{
    uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(run->seconds * 1e9);
    do {
        one_child(self, run->threads);
        count_op(self);
    } while (now_ns(CLOCK_MONOTONIC) < end);
}
