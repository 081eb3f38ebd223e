/* What the checks of waits for semaphores share (sem.c). */
#ifndef SEM_H
#define SEM_H

#include "conformance.h"

#include <semaphore.h>

/* The error code of a semaphore function, 0 for success. */
int sem_code(int rc);
int sem_value(sem_t *sem);

enum { NO_CLOCK = -1, WAYS = 3 };
/* What a wait may be limited by. */
extern const clockid_t sem_clocks[WAYS];

/* A thread that waits; its answer. */
struct waiter {
    sem_t *sem;
    clockid_t clock; /* NO_CLOCK: sem_wait */
    struct timespec until;
    pthread_t thread;
    _Atomic pid_t tid;
    atomic_int answer; /* -1: none yet */
};

int waiter_wait(struct waiter *w);
/* The body of its thread. */
void *waiter_run(void *waiter);
/* Starts it, and waits until it sleeps. */
void waiter_start(struct waiter *w);

#endif
