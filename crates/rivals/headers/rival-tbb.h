// SPDX-License-Identifier: MIT OR Apache-2.0
// tbb::mutex. It is inline: out of line here, so that it pays for a call as all the others do. The shim pays it
// already.
#pragma once
#include <oneapi/tbb/mutex.h>
#ifndef RIVAL_CALL
#define RIVAL_CALL __attribute__((noinline))
#endif
typedef tbb::mutex rival_mutex;
struct rival_guard {};
static inline void rival_init(rival_mutex *) {}
static RIVAL_CALL void rival_lock(rival_mutex *m, rival_guard *) { m->lock(); }
static RIVAL_CALL void rival_unlock(rival_mutex *m, rival_guard *) { m->unlock(); }
#define RIVAL_NO_COND
