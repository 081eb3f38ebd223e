// SPDX-License-Identifier: MIT OR Apache-2.0
//
// freeze-ptrace: a tracer stops single threads at random instructions (a signal handler can stop them only where
// signals are delivered, and never shows what a preempted thread looks like to the kernel) and lets them go after up to
// 20 ms.
#include "torture.h"

#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct probe probe;

static void tracee_body(struct worker *w)
{
    while (!stopping()) {
        lock(w, &mutex);
        probe_visit(&probe, w);
        unlock(w, &mutex);
        count_op(w);
        dither(w);
    }
}

static _Noreturn void tracee(struct run *run)
{
    struct worker *crew = crew_start(run, run->threads, tracee_body, NULL);
    crew_join(crew, run->threads);
    if (probe.seq != total_ops())
        fail("lost update: %llu sections, %llu counted", (unsigned long long)total_ops(),
             (unsigned long long)probe.seq);
    exit(0);
}

// false: the thread is gone (only at the very end).
static bool await_stop(int tid, int *status)
{
    while (waitpid(tid, status, __WALL) != tid)
        if (errno != EINTR)
            fail("waitpid of a traced thread: %s", strerror(errno));
    return WIFSTOPPED(*status);
}

static void freeze_once(int tid, uint64_t ns)
{
    int status;
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL)) {
        if (errno == EPERM || errno == ENOSYS || errno == EACCES)
            skip("ptrace is refused here: %s", strerror(errno));
        fail("PTRACE_SEIZE: %s", strerror(errno));
    }
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL))
        fail("PTRACE_INTERRUPT: %s", strerror(errno));
    if (!await_stop(tid, &status))
        fail("the traced process died with status %#x", status);
    nap_ns(ns);
    // Usually the stop is ours; a signal that came first is passed on.
    bool ours = status >> 16 == PTRACE_EVENT_STOP;
    long sig = ours ? 0 : WSTOPSIG(status);
    if (ptrace(PTRACE_DETACH, tid, NULL, sig))
        fail("PTRACE_DETACH: %s", strerror(errno));
}

static void await_threads(const struct run *run)
{
    AT(self, "tracer: waiting for the threads to start");
    while (total_ops() == 0)
        nap_ns(100000);
    for (int id = 1; id <= run->threads; id++)
        while (atomic_load(&board->slot[id].tid) == 0)
            nap_ns(100000);
}

void run_freeze_ptrace(struct run *run)
{
    pid_t pid = fork_child();
    if (pid == 0)
        tracee(run);
    await_threads(run);
    AT(self, "tracer");
    uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(run->seconds * 1e9);
    uint64_t freezes = 0;
    while (now_ns(CLOCK_MONOTONIC) < end) {
        int id = 1 + (int)below(self, (uint32_t)run->threads);
        freeze_once(atomic_load(&board->slot[id].tid), below(self, one_in(self, 8) ? 20000000 : 2000000));
        freezes++;
        nap_ns(below(self, 1000000));
    }
    atomic_store(&board->stop, true);
    AT(self, "tracer: waiting for the traced process");
    int status = wait_child(pid, "freeze-ptrace");
    if (status)
        fail("the traced process ended with status %#x", (unsigned)status);
    note("freezes=%llu", (unsigned long long)freezes);
}
