// SPDX-License-Identifier: MIT OR Apache-2.0
// parking_lot 0.13. See rust/src/lib.rs.
#pragma once
struct rival_mutex {
    alignas(8) unsigned char bytes[16];
};
struct rival_guard {};
extern "C" void regret_pl13_init(rival_mutex *), regret_pl13_lock(rival_mutex *), regret_pl13_unlock(rival_mutex *);
static inline void rival_init(rival_mutex *m) { regret_pl13_init(m); }
static inline void rival_lock(rival_mutex *m, rival_guard *) { regret_pl13_lock(m); }
static inline void rival_unlock(rival_mutex *m, rival_guard *) { regret_pl13_unlock(m); }
