// SPDX-License-Identifier: MIT OR Apache-2.0
// parking_lot 0.13. See ../src/functions.rs.
#pragma once
struct rival_mutex {
    alignas(64) unsigned char bytes[64];
};
struct rival_guard {};
extern "C" void rival_pl13_init(rival_mutex *);
extern "C" void rival_pl13_lock(rival_mutex *, rival_guard *), rival_pl13_unlock(rival_mutex *, rival_guard *);
static inline void rival_init(rival_mutex *m) { rival_pl13_init(m); }
static inline void rival_lock(rival_mutex *m, rival_guard *guard) { rival_pl13_lock(m, guard); }
static inline void rival_unlock(rival_mutex *m, rival_guard *guard) { rival_pl13_unlock(m, guard); }
struct rival_cond {
    alignas(64) unsigned char bytes[64];
};
extern "C" void rival_pl13_cond_init(rival_cond *), rival_pl13_cond_wait(rival_cond *, rival_mutex *, rival_guard *);
extern "C" void rival_pl13_cond_signal(rival_cond *), rival_pl13_cond_broadcast(rival_cond *);
static inline void rival_cond_init(rival_cond *c) { rival_pl13_cond_init(c); }
static inline void rival_cond_wait(rival_cond *c, rival_mutex *m, rival_guard *guard)
{
    rival_pl13_cond_wait(c, m, guard);
}
static inline void rival_cond_signal(rival_cond *c) { rival_pl13_cond_signal(c); }
static inline void rival_cond_broadcast(rival_cond *c) { rival_pl13_cond_broadcast(c); }
