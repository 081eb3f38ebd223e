// SPDX-License-Identifier: MIT OR Apache-2.0
// A C file that exports `peer_lock` and `peer_unlock`; a free lock is all zero.
#pragma once
#include <cstring>
#include <pthread.h>
typedef pthread_mutex_t rival_mutex;
struct rival_guard {};
extern "C" void peer_lock(pthread_mutex_t *), peer_unlock(pthread_mutex_t *);
static inline void rival_init(rival_mutex *m) { std::memset(m, 0, sizeof *m); }
static inline void rival_lock(rival_mutex *m, rival_guard *) { peer_lock(m); }
static inline void rival_unlock(rival_mutex *m, rival_guard *) { peer_unlock(m); }
#define RIVAL_NO_COND
