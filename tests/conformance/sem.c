/* The vocabulary of the checks of waits for semaphores: see sem.h. */
#include "sem.h"

int sem_code(int rc)
{
    if (rc == 0) return 0;
    CHECK_EQ(rc, -1);
    return errno;
}

int sem_value(sem_t *sem)
{
    int value = -1;
    CHECK_OK(sem_getvalue(sem, &value));
    return value;
}

const clockid_t sem_clocks[WAYS] = {NO_CLOCK, CLOCK_REALTIME, CLOCK_MONOTONIC};

int waiter_wait(struct waiter *w)
{
    if (w->clock == NO_CLOCK) return sem_wait(w->sem);
    if (w->clock == CLOCK_REALTIME) return sem_timedwait(w->sem, &w->until);
    return sem_clockwait(w->sem, w->clock, &w->until);
}

void *waiter_run(void *waiter)
{
    struct waiter *w = waiter;
    atomic_store(&w->tid, gettid());
    int rc = waiter_wait(w);
    atomic_store(&w->answer, sem_code(rc));
    return NULL;
}

void waiter_start(struct waiter *w)
{
    atomic_store(&w->tid, 0);
    atomic_store(&w->answer, -1);
    w->thread = thread_start(waiter_run, w);
    while (atomic_load(&w->tid) == 0) sched_yield();
    settle(atomic_load(&w->tid));
}
