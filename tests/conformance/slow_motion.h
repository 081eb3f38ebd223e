/*
 * Slow motion: a thread runs one instruction at a time, by the processor's trap flag, and a hook runs after each. What
 * other threads do meanwhile happens between any two instructions of a lock's code: windows that a stress test meets
 * once a week are met in each run. x86-64 only; elsewhere the checks are skipped.
 */
#ifndef SLOW_MOTION_H
#define SLOW_MOTION_H

#include "conformance.h"

/* The calling thread only. The hook runs in a signal handler: gates and naps are fine in it, locks are not. */
void slow_begin(void (*hook)(void));
/* Back to full speed; how many instructions it took. */
long slow_end(void);
/* How many so far; any thread may ask. */
long slow_steps(void);
/* Full speed from the next step on; any thread may say so. */
void slow_let_go(void);

/* A hook that stops the slow thread at one of its steps, once. */
void slow_stop(void);
/* At which step; 0: at none. To be said before the slow thread begins, or once it is known that it will not get
 * there. */
void slow_stop_at(long step);
/* Waits for that. False if the thread has blocked, or ended, before its time came: then there are no more places to
 * stop it. */
bool slow_await_stop(void);
/* Lets it go on, now or as soon as it stops. */
void slow_go_on(void);

/* Several slow threads, by number; those above are about number 0, which a thread is that does not say otherwise. */
enum { SLOW_MOST = 2 };
/* The calling thread is this one. To be said before it begins. */
void slow_is(int which);
long slow_steps_of(int which);
void slow_let_go_of(int which);
void slow_stop_at_of(int which, long step);
bool slow_await_stop_of(int which);
/* Whether it has come to where it stops. */
bool slow_has_stopped(int which);
void slow_go_on_of(int which);
/* Gives it up to 50 ms to fall asleep, or to end. */
void slow_settle_of(int which);

/* FLASHLOCK_FULL is set: every instruction, and every pair, has its turn, which may take hours. */
bool slow_everything(void);

#endif
