// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One scenario, one process, one watchdog. The parent polls; it shares nothing with the child but the board, so no lock
// of the child can stop it.
#include "torture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// --full makes one scenario create 100,000 threads, however slow the lock is.
static double time_limit(const struct run *options)
{
    return AGAINST_HANGS + 20 + 4 * options->seconds + (options->full ? 600 : 0);
}

// R running, S sleeping, D, T, Z… as in /proc; '?' when the thread is gone.
static char thread_state(int tid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return '?';
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    char *name_end = strrchr(text, ')');
    return name_end && name_end[1] && name_end[2] ? name_end[2] : '?';
}

struct place {
    const char *where;
    int threads, running;
};

// Groups the threads that made no progress since `before` by where they are; returns how many there are.
static int find_stuck(const uint64_t *before, struct place *places, int max_places, int *alive)
{
    int stuck = 0;
    *alive = 0;
    for (int i = 0; i <= MAX_THREADS; i++) {
        struct progress *slot = &board->slot[i];
        const char *where = atomic_load(&slot->where);
        if (!where)
            continue;
        ++*alive;
        if (atomic_load(&slot->ops) != before[i])
            continue;
        stuck++;
        int p = 0;
        while (p < max_places - 1 && places[p].where && strcmp(places[p].where, where))
            p++;
        places[p].where = where;
        places[p].threads++;
        places[p].running += thread_state(atomic_load(&slot->tid)) == 'R';
    }
    return stuck;
}

static void describe_hang(const uint64_t *before, double seconds, char *text, size_t size)
{
    struct place places[16] = { 0 };
    int alive;
    int stuck = find_stuck(before, places, 16, &alive);
    int n = snprintf(text, size,
                     "hang: not done after %.0f s; %d of %d unfinished threads made no progress in the last second",
                     seconds, stuck, alive);
    for (int p = 0; p < 16 && places[p].where && (size_t)n < size; p++)
        n += snprintf(text + n, size - (size_t)n, "%s %d in %s (%d running, %d not)", p ? "," : ":", places[p].threads,
                      places[p].where, places[p].running, places[p].threads - places[p].running);
}

static void snapshot(uint64_t *ops)
{
    for (int i = 0; i <= MAX_THREADS; i++)
        ops[i] = atomic_load(&board->slot[i].ops);
}

// Waits for the scenario's end; false: it hung, has been killed, and `reason` says where.
static bool watch(pid_t pid, double limit, int *status, char *reason, size_t size)
{
    static uint64_t before[MAX_THREADS + 1];
    uint64_t start = now_ns(CLOCK_MONOTONIC);
    bool last_second = false;
    while (waitpid(pid, status, WNOHANG) != pid) {
        double elapsed = (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e9;
        if (!last_second && elapsed >= limit - 1) {
            snapshot(before);
            last_second = true;
        }
        if (elapsed >= limit) {
            describe_hang(before, limit, reason, size);
            kill(-pid, SIGKILL);
            waitpid(pid, status, 0);
            return false;
        }
        nap_ns(2000000);
    }
    return true;
}

static void reset_board(const struct run *options)
{
    static const size_t bytes = sizeof *board;
    if (!board) {
        board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (board == MAP_FAILED) {
            perror("torture: mmap");
            exit(2);
        }
    }
    memset(board, 0, bytes);
    atomic_store(&board->threads, options->threads);
}

static _Noreturn void child(const struct scenario *scenario, const struct run *options, pid_t parent)
{
    setpgid(0, 0);  // so that the watchdog can kill the scenario's own children with it
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    struct run run = *options;
    struct worker main_thread;
    worker_init(&main_thread, &run, 0, NULL, NULL);
    self = &main_thread;
    atomic_store(&main_thread.progress->tid, gettid());
    AT(self, "controller");
    scenario->body(&run);
    exit(0);
}

static bool explain(int status, char *reason, size_t size)
{
    if (atomic_load(&board->failed))
        snprintf(reason, size, "%s", board->reason);
    else if (WIFSIGNALED(status))
        snprintf(reason, size, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        snprintf(reason, size, "exit status %d", WEXITSTATUS(status));
    else
        return true;
    return false;
}

enum outcome run_scenario(const struct scenario *scenario, const struct run *options)
{
    char reason[sizeof board->reason + 256];
    int status = 0;
    reset_board(options);
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        perror("torture: fork");
        exit(2);
    }
    if (pid == 0)
        child(scenario, options, parent);
    setpgid(pid, pid);  // here as well as in the child: whichever comes first
    bool ended = watch(pid, time_limit(options), &status, reason, sizeof reason);
    bool passed = ended && explain(status, reason, sizeof reason);
    int threads = atomic_load(&board->threads);
    if (ended)
        kill(-pid, SIGKILL);  // what a failed scenario left behind
    if (passed && atomic_load(&board->skipped))
        printf("skip %s: %s\n", scenario->name, board->reason);
    else if (passed)
        printf("ok %s threads=%d ops=%llu%s%s\n", scenario->name, threads, (unsigned long long)total_ops(),
               board->note[0] ? " " : "", board->note);
    else
        printf("not ok %s: %s (threads=%d seed=%llu)\n", scenario->name, reason, threads,
               (unsigned long long)options->seed);
    fflush(stdout);
    return !passed ? FAILED : atomic_load(&board->skipped) ? SKIPPED : PASSED;
}
