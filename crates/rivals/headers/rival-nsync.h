// SPDX-License-Identifier: MIT OR Apache-2.0
// nsync_mu; a free lock is all zero.
#pragma once
#include <nsync.h>
typedef nsync::nsync_mu rival_mutex;
struct rival_guard {};
static inline void rival_init(rival_mutex *m) { nsync_mu_init(m); }
static inline void rival_lock(rival_mutex *m, rival_guard *) { nsync_mu_lock(m); }
static inline void rival_unlock(rival_mutex *m, rival_guard *) { nsync_mu_unlock(m); }
typedef nsync::nsync_cv rival_cond;
static inline void rival_cond_init(rival_cond *c) { nsync_cv_init(c); }
static inline void rival_cond_wait(rival_cond *c, rival_mutex *m, rival_guard *) { nsync_cv_wait(c, m); }
static inline void rival_cond_signal(rival_cond *c) { nsync_cv_signal(c); }
static inline void rival_cond_broadcast(rival_cond *c) { nsync_cv_broadcast(c); }
