// SPDX-License-Identifier: MIT OR Apache-2.0
// std::sync::Mutex of Rust; its guard lies on the stack of the thread that holds it. See ../src/functions.rs.
#pragma once
struct rival_mutex {
    alignas(64) unsigned char bytes[64];
};
struct rival_guard {
    void *words[2];
};
extern "C" void rival_std_init(rival_mutex *);
extern "C" void rival_std_lock(rival_mutex *, rival_guard *), rival_std_unlock(rival_mutex *, rival_guard *);
static inline void rival_init(rival_mutex *m) { rival_std_init(m); }
static inline void rival_lock(rival_mutex *m, rival_guard *guard) { rival_std_lock(m, guard); }
static inline void rival_unlock(rival_mutex *m, rival_guard *guard) { rival_std_unlock(m, guard); }
struct rival_cond {
    alignas(64) unsigned char bytes[64];
};
extern "C" void rival_std_cond_init(rival_cond *), rival_std_cond_wait(rival_cond *, rival_mutex *, rival_guard *);
extern "C" void rival_std_cond_signal(rival_cond *), rival_std_cond_broadcast(rival_cond *);
static inline void rival_cond_init(rival_cond *c) { rival_std_cond_init(c); }
static inline void rival_cond_wait(rival_cond *c, rival_mutex *m, rival_guard *guard)
{
    rival_std_cond_wait(c, m, guard);
}
static inline void rival_cond_signal(rival_cond *c) { rival_std_cond_signal(c); }
static inline void rival_cond_broadcast(rival_cond *c) { rival_std_cond_broadcast(c); }
