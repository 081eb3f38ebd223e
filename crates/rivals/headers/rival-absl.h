// SPDX-License-Identifier: MIT OR Apache-2.0
// absl::Mutex
#pragma once
#include <absl/synchronization/mutex.h>
#include <new>
typedef absl::Mutex rival_mutex;
struct rival_guard {};
static inline void rival_init(rival_mutex *m) { (void)m; }
static inline void rival_lock(rival_mutex *m, rival_guard *) { m->Lock(); }
static inline void rival_unlock(rival_mutex *m, rival_guard *) { m->Unlock(); }
typedef absl::CondVar rival_cond;
static inline void rival_cond_init(rival_cond *c) { new (c) rival_cond; }
static inline void rival_cond_wait(rival_cond *c, rival_mutex *m, rival_guard *) { c->Wait(m); }
static inline void rival_cond_signal(rival_cond *c) { c->Signal(); }
static inline void rival_cond_broadcast(rival_cond *c) { c->SignalAll(); }
