/*
 * Threads that are blocked for good on an object whose memory is gone, as when a program ends with detached threads:
 * static destructors, delete. A thread that sleeps, and is not woken, must not touch that memory.
 */
#ifndef LOST_H
#define LOST_H

#include "conformance.h"

/* One kind of object, and how it is waited for. */
struct lost {
    void (*hold)(void *object);    /* makes it, in zeroed memory, so that each `wait` blocks */
    int (*wait)(void *object, int me);
    void (*then)(void *object);    /* when all are blocked; may be null. They must be blocked again afterwards */
};

/* So many threads (40 at most) wait for it. Its memory is unmapped. The program runs on for a while, and ends. */
void lost_and_gone(const struct lost *it, int count);
/* The same, but the memory becomes something else, as for another owner: one thing in each of several processes. It
 * must stay so. */
void lost_and_reused(const struct lost *it, int count);
/* The same, and signals interrupt all waiters but the first, again and again. */
void lost_and_interrupted(const struct lost *it, int count);

#endif
