// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions of a rival, for a library that is loaded. A `rival-NAME.h` is included before: it names the lock.
#include <cstddef>
#include <new>

constexpr std::size_t MUTEX_BYTES = 64, GUARD_BYTES = 16;
static_assert(sizeof(rival_mutex) <= MUTEX_BYTES && alignof(rival_mutex) <= MUTEX_BYTES, "no room for the mutex");
static_assert(sizeof(rival_guard) <= GUARD_BYTES, "no room for the guard");

extern "C" {
void flashlock_rival_init(void *mutex) { rival_init(new (mutex) rival_mutex); }
void flashlock_rival_lock(void *mutex, void *guard)
{
    rival_lock(static_cast<rival_mutex *>(mutex), static_cast<rival_guard *>(guard));
}
void flashlock_rival_unlock(void *mutex, void *guard)
{
    rival_unlock(static_cast<rival_mutex *>(mutex), static_cast<rival_guard *>(guard));
}
}
