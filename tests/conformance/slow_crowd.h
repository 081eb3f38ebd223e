/*
 * One thread, or two, stopped at any instruction of what they do to a lock, while a crowd waits for the lock. Meanwhile
 * each of the crowd goes on or sleeps: none polls for ever. Once the slow ones go on, each thread must have the lock in
 * turn: none is lost, wherever the slow ones stood. (slow_crowd.c)
 */
#ifndef SLOW_CROWD_H
#define SLOW_CROWD_H

#include "slow_motion.h"

/* What a slow thread does. What is NULL is left out. */
struct slow_deed {
    const char *name;
    void (*prepare)(void); /* at full speed, before others wait: acquires what is released in slow motion */
    void (*perform)(void); /* slowly */
    void (*finish)(void);  /* at full speed again: releases what was acquired in slow motion */
    bool alone;            /* no other thread can prepare something as well */
};

enum { SLOW_CROWD = 4 };

struct slow_scene {
    const struct slow_deed *deeds;
    int count;
    void (*make)(void);             /* a free lock */
    void (*hold[2])(void);          /* by another thread, if no slow one prepares anything; taken in turn */
    void (*let_go)(void);           /* of that */
    void (*take[SLOW_CROWD])(void); /* what each of the crowd does: lock and unlock; NULL: none */
    void (*must_be_free)(void);
};

/* One thread stopped: at each instruction of that deed if there is time, or at some that are spread evenly. */
void slow_one_stopped(const struct slow_scene *scene, int deed);
/* Two stopped, one in a deed from first to last, the other in any. Pairs are drawn, the same in each run; with
 * FLASHLOCK_FULL, which takes an hour for a lock whose waiters poll for thousands of instructions: each instruction of
 * the one, with a drawn one of each other deed. */
void slow_two_stopped(const struct slow_scene *scene, int first, int last);

#endif
