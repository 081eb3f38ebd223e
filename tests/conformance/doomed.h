/*
 * Objects whose next owner ends them: it destroys the object and takes its memory away, while the release that let it
 * in is still under way, in slow motion (slow_motion.h). POSIX allows that, so a release must not look back.
 */
#ifndef DOOMED_H
#define DOOMED_H

#include "slow_motion.h"

/* What can be done with one kind of object. All of it is done to the object on `doomed_page()`. */
struct doomed {
    void (*make)(int kind); /* makes it anew, for anybody to get */
    int (*hold)(void);      /* what its first owner does to get it; 0, or an error number: also below */
    int (*release)(void);   /* in slow motion */
    int (*get)(void);       /* waits for it */
    int (*try_to_get)(void);
    int busy;               /* what that says while somebody else has it */
    int (*pass_on)(void);   /* by a waiter that has got it, if there are more; nothing else than `release` if null */
    void (*destroy)(void);  /* by whoever has got it */
};

/* The page that the object is alone on. */
void *doomed_page(void);
/* After every instruction of the release, another thread tries to get the object. Once it has got it, it ends it. */
void doomed_by_a_passer_by(const struct doomed *object, int kind);
/* So many threads (3 at most) sleep as they wait for it. Each passes it on, and the last one ends it. More than
 * one only where the owner is alone. */
void doomed_by_waiters(const struct doomed *object, int kind, int count);

#endif
