// SPDX-License-Identifier: MIT OR Apache-2.0
// absl::Mutex
#pragma once
#include <absl/synchronization/mutex.h>
typedef absl::Mutex rival_mutex;
struct rival_guard {};
static inline void rival_init(rival_mutex *m) { (void)m; }
static inline void rival_lock(rival_mutex *m, rival_guard *) { m->Lock(); }
static inline void rival_unlock(rival_mutex *m, rival_guard *) { m->Unlock(); }
