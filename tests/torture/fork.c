// SPDX-License-Identifier: MIT OR Apache-2.0
//
// fork: a thread forks while it holds a contended mutex. In the child it is the only thread, still holds the mutex, and
// the waiters are gone: it must be able to release it, take it again, and share it with new threads. (Only default
// mutexes: in glibc the owner of the checked kinds is the parent's thread.)
#include "torture.h"

#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_THREADS = 2, CHILD_VISITS = 30 };

static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t at_fork = PTHREAD_MUTEX_INITIALIZER;  // what a library holds across fork in its own handlers
static struct probe hot_probe, at_fork_probe;
static _Atomic uint64_t forks;

// ---- handlers, as libraries have them -------------------------------------------------------------------------------

static void before_fork(void)
{
    lock(self, &at_fork);
    probe_enter(&at_fork_probe, self);
}

static void after_fork(void)
{
    probe_leave(&at_fork_probe, self);
    unlock(self, &at_fork);
}

// ---- the child ------------------------------------------------------------------------------------------------------

struct table {
    pthread_mutex_t mutex;
    pthread_cond_t all_here;
    int present;
};

static void visit(pthread_mutex_t *m, struct probe *p, struct worker *w)
{
    expect(pthread_mutex_lock(m), 0, "lock in the child");
    probe_visit(p, w);
    expect(pthread_mutex_unlock(m), 0, "unlock in the child");
}

static void child_thread_body(struct worker *w)
{
    struct table *t = w->arg;
    for (int i = 0; i < CHILD_VISITS; i++) {
        visit(&hot, &hot_probe, w);
        visit(&at_fork, &at_fork_probe, w);
    }
    expect(pthread_mutex_lock(&t->mutex), 0, "lock of a new mutex in the child");
    t->present++;
    expect(pthread_cond_broadcast(&t->all_here), 0, "broadcast in the child");
    while (t->present < CHILD_THREADS + 1)
        expect(pthread_cond_wait(&t->all_here, &t->mutex), 0, "wait in the child");
    expect(pthread_mutex_unlock(&t->mutex), 0, "unlock of a new mutex in the child");
}

// Runs in the child, on a copy of the forking thread. Its progress is written into the forking thread's place on the
// board, which is waiting for this child and nothing else.
static _Noreturn void child(struct worker *w, uint64_t visits)
{
    AT(w, "child: releasing what the parent held");
    probe_leave(&hot_probe, w);
    expect(pthread_mutex_unlock(&hot), 0, "unlock in the child of what the forking thread held");
    AT(w, "child: relock");
    visit(&hot, &hot_probe, w);

    struct table table = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };
    struct progress scratch[CHILD_THREADS] = { 0 };
    struct worker crew[CHILD_THREADS];
    for (int i = 0; i < CHILD_THREADS; i++) {
        worker_init(&crew[i], w->run, i == w->id ? CHILD_THREADS + 1 : i, child_thread_body, &table);
        crew[i].progress = &scratch[i];
        crew[i].rng = mix(w->rng, (uint64_t)i);
        worker_start(&crew[i], 0);
    }
    AT(w, "child: sharing locks with new threads");
    struct worker me = *w;
    struct progress mine = { 0 };
    me.progress = &mine;
    me.arg = &table;
    child_thread_body(&me);
    AT(w, "child: joining");
    for (int i = 0; i < CHILD_THREADS; i++)
        worker_join(&crew[i]);
    uint64_t wanted = visits + 1 + (CHILD_THREADS + 1) * CHILD_VISITS;
    if (hot_probe.seq != wanted)
        fail("child: %llu sections counted, expected %llu", (unsigned long long)hot_probe.seq,
             (unsigned long long)wanted);
    _exit(0);
}

// ---- the parent -----------------------------------------------------------------------------------------------------

// Forks with `hot` held. A few children fork again the same way: generations must not be confused either.
static pid_t fork_holding(struct worker *w, bool again)
{
    lock(w, &hot);
    probe_enter(&hot_probe, w);
    uint64_t visits = hot_probe.seq;
    pid_t pid = fork_child();
    if (pid == 0 && again) {
        pid_t grandchild = fork_child();
        if (grandchild == 0)
            child(w, visits);
        if (wait_child(grandchild, "grandchild"))
            fail("grandchild ended with an error");
    }
    if (pid == 0)
        child(w, visits);
    probe_leave(&hot_probe, w);
    unlock(w, &hot);
    return pid;
}

static void expect_clean_end(int status)
{
    if (WIFSIGNALED(status))
        fail("the forked child was killed by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status))
        fail("the forked child ended with status %d", WEXITSTATUS(status));
}

static void fork_body(struct worker *w)
{
    // A few forks are certain; the others are rare enough for the lock to stay contended.
    for (bool first = w->id <= 8; first || !stopping(); first = false) {
        if (first || one_in(w, 200)) {
            pid_t pid = fork_holding(w, one_in(w, 8));
            expect_clean_end(wait_child(pid, "fork"));
            atomic_fetch_add(&forks, 1);
        }
        lock(w, &hot);
        probe_visit(&hot_probe, w);
        unlock(w, &hot);
        if (one_in(w, 4)) {
            lock(w, &at_fork);
            probe_visit(&at_fork_probe, w);
            unlock(w, &at_fork);
        }
        count_op(w);
    }
}

void run_fork(struct run *run)
{
    expect(pthread_atfork(before_fork, after_fork, after_fork), 0, "pthread_atfork");
    crew_run(run, run->threads, fork_body, NULL);
    if (hot_probe.seq != total_ops())
        fail("lost update: %llu sections, %llu counted", (unsigned long long)total_ops(),
             (unsigned long long)hot_probe.seq);
    note("forks=%llu", (unsigned long long)atomic_load(&forks));
}
