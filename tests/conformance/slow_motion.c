/* The machinery of slow_motion.h. */
#include "slow_motion.h"

#ifdef __x86_64__

#include <ucontext.h>
#include <x86intrin.h>

enum { TRAP_FLAG = 0x100, SIGCANCEL = 32 };

static atomic_long steps;
static void (*at_step)(void);
static atomic_bool let_go;

static void trapped(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    int saved = errno;
    atomic_fetch_add(&steps, 1);
    if (at_step) at_step();
    if (atomic_load(&let_go)) ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    errno = saved;
}

void slow_let_go(void)
{
    atomic_store(&let_go, true);
}

void slow_begin(void (*hook)(void))
{
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    /*
     * A cancellation must arrive at the instruction that was reached, not in the handler: glibc from 2.41 on looks where its
     * signal interrupted the thread, and loses one that comes while a handler stands on its cancellable system call.
     * sigaddset refuses this signal.
     */
    *(unsigned long *)&action.sa_mask |= 1UL << (SIGCANCEL - 1);
    CHECK_EQ(sigaction(SIGTRAP, &action, NULL), 0);
    at_step = hook;
    atomic_store(&let_go, false);
    atomic_store(&steps, 0);
    __writeeflags(__readeflags() | TRAP_FLAG);
}

long slow_end(void)
{
    __writeeflags(__readeflags() & ~(unsigned long long)TRAP_FLAG);
    at_step = NULL;
    return slow_steps();
}

long slow_steps(void)
{
    return atomic_load(&steps);
}

static atomic_long stop_at;
static struct gate stopped, proceed;

void slow_stop(void)
{
    if (slow_steps() != atomic_load(&stop_at)) return;
    gate_open(&stopped);
    gate_wait(&proceed, 1);
}

void slow_stop_at(long step)
{
    atomic_store(&stop_at, step);
    if (step) stopped = proceed = (struct gate){0};
}

bool slow_await_stop(void)
{
    long seen = -1;
    for (int quiet_ms = 0; quiet_ms < 20; quiet_ms++) {
        for (int i = 0; i < 10 && gate_count(&stopped) == 0; i++) nap_us(100);
        if (gate_count(&stopped) > 0) return true;
        if (slow_steps() != seen) quiet_ms = 0;
        seen = slow_steps();
    }
    return false;
}

void slow_go_on(void)
{
    gate_open(&proceed);
}

#else

void slow_let_go(void)
{
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

long slow_steps(void)
{
    return 0;
}

void slow_stop(void)
{
}

void slow_stop_at(long step)
{
    (void)step;
}

bool slow_await_stop(void)
{
    return false;
}

void slow_go_on(void)
{
}

#endif
