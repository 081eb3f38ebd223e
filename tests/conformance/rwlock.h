/* What the readers-writer checks share (rwlock.c). */
#ifndef RWLOCK_H
#define RWLOCK_H

#include "conformance.h"

enum { RW_STATIC = -1 }; /* PTHREAD_RWLOCK_INITIALIZER, and no attributes */

void rw_make(pthread_rwlock_t *lock, int kind);

/* KINDS_RW(M) is M(title, kind) for each kind that a private readers-writer lock can have. */
#define KINDS_RW(M)                                                                                 \
    M(static, RW_STATIC)                                                                            \
    M(kind_0, PTHREAD_RWLOCK_PREFER_READER_NP)                                                      \
    M(kind_1, PTHREAD_RWLOCK_PREFER_WRITER_NP)                                                      \
    M(kind_2, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP)

typedef int rw_call(pthread_rwlock_t *);

/* The calls, made by a thread of their own; the return code is handed back. A lock that was got is released. */
int rw_elsewhere(rw_call *call, pthread_rwlock_t *lock);
/* What tryrdlock and trywrlock say elsewhere. */
void rw_is_free(pthread_rwlock_t *lock);
void rw_is_read(pthread_rwlock_t *lock);
void rw_is_written(pthread_rwlock_t *lock);

/* A thread that acquires the lock, opens `got`, waits until `release` is open, and releases. */
struct rw_user {
    pthread_rwlock_t *lock;
    rw_call *call;
    pthread_t thread;
    _Atomic pid_t tid;
    struct gate got, release;
};
void rw_start(struct rw_user *user, pthread_rwlock_t *lock, rw_call *call);
/* The same, but it waits until the thread holds the lock. */
void rw_start_held(struct rw_user *user, pthread_rwlock_t *lock, rw_call *call);
bool rw_has_it(struct rw_user *user);
void rw_finish(struct rw_user *user);
/* Lets all of them go, in whatever order they get the lock. */
void rw_finish_all(struct rw_user *users, int count);

/* Threads that read and write two counters, which a reader must see equal. Fails the check if one does not, or a write
 * is lost. */
void rw_check_excludes(pthread_rwlock_t *lock, int threads, int ms, rw_call *rdlock, rw_call *wrlock);

#endif
