//! The Rust rivals of the regret benchmark, for C: `std::sync::Mutex` and two versions of `parking_lot`.
//!
//! Each `lock` and each `unlock` is one plain call, as with all rivals. The callers are `rival-*.h`; they have 16 bytes
//! for a mutex, and 16 on the thread's stack for the guard of a `std` mutex, which alone can release it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the headers have room for.
const ROOM: usize = 16;
const _: () = assert!(size_of::<Mutex<()>>() <= ROOM && size_of::<MutexGuard<'_, ()>>() <= ROOM);
const _: () = assert!(size_of::<parking_lot_12::RawMutex>() <= ROOM && size_of::<parking_lot_13::RawMutex>() <= ROOM);

/// Makes a free mutex.
///
/// # Safety
///
/// The memory is valid for writing a mutex, and nobody uses it yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regret_std_init(mutex: *mut Mutex<()>) {
    // SAFETY: the caller's promise.
    unsafe { mutex.write(Mutex::new(())) }
}

/// Acquires the mutex.
///
/// # Safety
///
/// The mutex was made by `regret_std_init` and lives until it is released; `guard` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regret_std_lock(mutex: &'static Mutex<()>, guard: *mut MutexGuard<'static, ()>) {
    let held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the caller's promise.
    unsafe { guard.write(held) }
}

/// Releases the mutex.
///
/// # Safety
///
/// `regret_std_lock` has written the guard in this thread, and it is released once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn regret_std_unlock(guard: *mut MutexGuard<'static, ()>) {
    // SAFETY: the caller's promise.
    drop(unsafe { guard.read() });
}

/// The three functions of a version of `parking_lot`.
macro_rules! parking_lot {
    ($parking_lot:ident, $init:ident, $lock:ident, $unlock:ident $(, $guard:expr)?) => {
        /// Makes a free mutex.
        ///
        /// # Safety
        ///
        /// The memory is valid for writing a mutex, and nobody uses it yet.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(mutex: *mut $parking_lot::RawMutex) {
            use $parking_lot::lock_api::RawMutex as _;
            // SAFETY: the caller's promise.
            unsafe { mutex.write($parking_lot::RawMutex::INIT) }
        }

        /// Acquires the mutex.
        #[unsafe(no_mangle)]
        pub extern "C" fn $lock(mutex: &$parking_lot::RawMutex) {
            use $parking_lot::lock_api::RawMutex as _;
            let _ = mutex.lock();
        }

        /// Releases the mutex.
        ///
        /// # Safety
        ///
        /// The calling thread holds it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $unlock(mutex: &$parking_lot::RawMutex) {
            use $parking_lot::lock_api::RawMutex as _;
            // SAFETY: the caller's promise.
            unsafe { mutex.unlock($($guard)?) }
        }
    };
}

parking_lot!(parking_lot_12, regret_pl12_init, regret_pl12_lock, regret_pl12_unlock);
parking_lot!(
    parking_lot_13,
    regret_pl13_init,
    regret_pl13_lock,
    regret_pl13_unlock,
    parking_lot_13::lock_api::GuardNoSend::new()
);
