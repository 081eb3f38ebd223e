// SPDX-License-Identifier: MIT OR Apache-2.0
// pthread_mutex_t: glibc's, or whichever library is preloaded.
#pragma once
#include <pthread.h>
typedef pthread_mutex_t rival_mutex;
struct rival_guard {};
static inline void rival_init(rival_mutex *m) { pthread_mutex_init(m, nullptr); }
static inline void rival_lock(rival_mutex *m, rival_guard *) { pthread_mutex_lock(m); }
static inline void rival_unlock(rival_mutex *m, rival_guard *) { pthread_mutex_unlock(m); }
typedef pthread_cond_t rival_cond;
static inline void rival_cond_init(rival_cond *c) { pthread_cond_init(c, nullptr); }
static inline void rival_cond_wait(rival_cond *c, rival_mutex *m, rival_guard *) { pthread_cond_wait(c, m); }
static inline void rival_cond_signal(rival_cond *c) { pthread_cond_signal(c); }
static inline void rival_cond_broadcast(rival_cond *c) { pthread_cond_broadcast(c); }
