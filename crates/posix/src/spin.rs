//! # The semantics of `pthread_spin_*`
//!
//! A spinlock is always [`Polite`], on all four bytes, whichever lock serves the mutexes. This holds for private memory
//! and for memory that processes share. Initialisation writes the same as glibc's, so a spinlock initialised by code
//! that bypasses us is free, and so is one in zeroed memory. No call fails, except a `trylock` of a held lock. `errno`
//! is never changed.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Release;

use flashlock_locks::machine::{Machine, Word};
use flashlock_locks::mutex::spin::{Polite, polite};
use flashlock_locks::parts::raw::RawLock;
use flashlock_native::Word32;
use libc::{EBUSY, pthread_spinlock_t};

const _: () = assert!(size_of::<pthread_spinlock_t>() == size_of::<Word32>());

/// # Safety
/// There is a `pthread_spinlock_t` at the address for as long as the reference is used.
#[inline(always)]
unsafe fn at<'a>(lock: *mut pthread_spinlock_t) -> &'a Word32 {
    // SAFETY: callers guarantee the object. An atomic is valid for any bytes.
    unsafe { &*lock.cast::<Word32>() }
}

/// `pthread_spin_init`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn init(lock: *mut pthread_spinlock_t, _shared: c_int) -> c_int {
    // Release, as in `Polite`'s unlock; pairs with the Acquire of the first thread that acquires the lock.
    // SAFETY: callers guarantee it.
    unsafe { at(lock) }.store(polite::FREE, Release);
    0
}

/// `pthread_spin_lock`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn lock<M: Machine<Word = Word32>>(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe { <Polite as RawLock<M>>::lock(at(lock), &()) };
    0
}

/// `pthread_spin_trylock`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn trylock<M: Machine<Word = Word32>>(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: callers guarantee it.
    if unsafe { <Polite as RawLock<M>>::try_lock(at(lock), &()) } { 0 } else { EBUSY }
}

/// `pthread_spin_unlock`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn unlock<M: Machine<Word = Word32>>(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: callers guarantee it. The lock may be freed once it is released; nothing is accessed afterwards.
    unsafe { <Polite as RawLock<M>>::unlock(at(lock), &()) };
    0
}

/// `pthread_spin_destroy`: does nothing, as in glibc.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn destroy(_lock: *mut pthread_spinlock_t) -> c_int {
    0
}
