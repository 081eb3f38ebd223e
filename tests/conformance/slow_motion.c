/* The machinery of slow_motion.h. */
#include "slow_motion.h"

#ifdef __x86_64__

#include <ucontext.h>
#include <x86intrin.h>

enum { TRAP_FLAG = 0x100, SIGCANCEL = 32 };

/* What is known of a slow thread. */
static struct slow {
    atomic_long steps, stop_at;
    _Atomic pid_t tid; /* 0 until it begins */
    void (*at_step)(void);
    atomic_bool let_go;
    struct gate stopped, proceed;
} slow[SLOW_MOST];

static _Thread_local struct slow *mine = slow;

static void trapped(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    int saved = errno;
    atomic_fetch_add(&mine->steps, 1);
    if (mine->at_step) mine->at_step();
    if (atomic_load(&mine->let_go)) ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    errno = saved;
}

void slow_is(int which)
{
    mine = &slow[which];
}

void slow_let_go_of(int which)
{
    atomic_store(&slow[which].let_go, true);
}

void slow_begin(void (*hook)(void))
{
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    /*
     * A cancellation must arrive at the instruction that was reached, not in the handler: glibc from 2.41 on looks
     * where its signal interrupted the thread, and loses one that comes while a handler stands on its cancellable
     * system call. sigaddset refuses this signal.
     */
    *(unsigned long *)&action.sa_mask |= 1UL << (SIGCANCEL - 1);
    CHECK_EQ(sigaction(SIGTRAP, &action, NULL), 0);
    mine->at_step = hook;
    atomic_store(&mine->let_go, false);
    atomic_store(&mine->steps, 0);
    atomic_store(&mine->tid, gettid());
    __writeeflags(__readeflags() | TRAP_FLAG);
}

long slow_end(void)
{
    __writeeflags(__readeflags() & ~(unsigned long long)TRAP_FLAG);
    mine->at_step = NULL;
    return atomic_load(&mine->steps);
}

long slow_steps_of(int which)
{
    return atomic_load(&slow[which].steps);
}

void slow_stop(void)
{
    if (atomic_load(&mine->steps) != atomic_load(&mine->stop_at)) return;
    gate_open(&mine->stopped);
    gate_wait(&mine->proceed, 1);
}

void slow_stop_at_of(int which, long step)
{
    atomic_store(&slow[which].stop_at, step);
    if (!step) return;
    slow[which].stopped = slow[which].proceed = (struct gate){0};
    atomic_store(&slow[which].tid, 0);
}

/* Whether it has begun, and sleeps or has ended: one that makes no steps may only have no CPU. */
static bool is_at_rest(const struct slow *one)
{
    pid_t tid = atomic_load(&one->tid);
    return tid && is_asleep(tid);
}

bool slow_await_stop_of(int which)
{
    enum { QUIET_MS = 20, LIMIT_MS = 60000 }; /* the limit is against hangs */
    long seen = -1;
    for (int quiet_ms = 0, still_ms = 0; quiet_ms < QUIET_MS; quiet_ms++, still_ms++) {
        if (still_ms > LIMIT_MS) FAIL("after %ld steps a slow thread neither goes on nor sleeps", seen);
        for (int i = 0; i < 10 && gate_count(&slow[which].stopped) == 0; i++) nap_us(100);
        if (gate_count(&slow[which].stopped) > 0) return true;
        if (slow_steps_of(which) != seen)
            quiet_ms = still_ms = 0;
        else if (!is_at_rest(&slow[which]))
            quiet_ms = 0;
        seen = slow_steps_of(which);
    }
    return false;
}

bool slow_has_stopped(int which)
{
    return gate_count(&slow[which].stopped) > 0;
}

void slow_go_on_of(int which)
{
    gate_open(&slow[which].proceed);
}

void slow_settle_of(int which)
{
    settle(atomic_load(&slow[which].tid));
}

#else

void slow_is(int which)
{
    (void)which;
}

void slow_let_go_of(int which)
{
    (void)which;
}

void slow_begin(void (*hook)(void))
{
    (void)hook;
    SKIP("needs x86-64's trap flag");
}

long slow_end(void)
{
    return 0;
}

long slow_steps_of(int which)
{
    (void)which;
    return 0;
}

void slow_stop(void)
{
}

void slow_stop_at_of(int which, long step)
{
    (void)which, (void)step;
}

bool slow_await_stop_of(int which)
{
    (void)which;
    return false;
}

bool slow_has_stopped(int which)
{
    (void)which;
    return false;
}

void slow_go_on_of(int which)
{
    (void)which;
}

void slow_settle_of(int which)
{
    (void)which;
}

#endif

void slow_let_go(void)
{
    slow_let_go_of(0);
}

long slow_steps(void)
{
    return slow_steps_of(0);
}

void slow_stop_at(long step)
{
    slow_stop_at_of(0, step);
}

bool slow_await_stop(void)
{
    return slow_await_stop_of(0);
}

void slow_go_on(void)
{
    slow_go_on_of(0);
}

bool slow_everything(void)
{
    const char *full = getenv("FLASHLOCK_FULL");
    return full && *full && strcmp(full, "0") != 0;
}
