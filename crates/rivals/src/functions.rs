//! The rivals in Rust, as three functions each, for Rust and for C (`headers/rival-*.h`).
//!
//! Each `lock` and each `unlock` is one plain call and never inlined, as for all rivals and for a pthread mutex. A
//! mutex has [`MUTEX_BYTES`]. The data that a holder keeps, such as the guard of a `std` mutex, has [`GUARD_BYTES`] on
//! its stack.
//!
//! For `cargo xtask regret`, each also has its condition variables, of [`MUTEX_BYTES`], as four functions.

use std::ffi::c_void;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The room for a mutex or a condition variable, and its alignment, in bytes.
pub const MUTEX_BYTES: usize = 64;
/// The room for a guard, in bytes.
pub const GUARD_BYTES: usize = 16;

const _: () = assert!(size_of::<Mutex<()>>() <= MUTEX_BYTES && size_of::<MutexGuard<'_, ()>>() <= GUARD_BYTES);
const _: () = assert!(size_of::<Condvar>() <= MUTEX_BYTES);
const _: () = assert!(size_of::<parking_lot_12::Mutex<()>>() <= MUTEX_BYTES);
const _: () = assert!(size_of::<parking_lot_12::Condvar>() <= MUTEX_BYTES);
const _: () = assert!(size_of::<parking_lot_13::Mutex<()>>() <= MUTEX_BYTES);
const _: () = assert!(size_of::<parking_lot_13::Condvar>() <= MUTEX_BYTES);

/// Makes a free mutex in memory that nothing else uses yet.
pub type Init = unsafe extern "C" fn(mutex: *mut c_void);
/// Acquires or releases a mutex. Acquiring writes the guard, which releasing takes.
pub type Call = unsafe extern "C" fn(mutex: *mut c_void, guard: *mut c_void);

/// The functions of a lock.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Makes a free mutex.
    pub init: Init,
    /// Acquires it.
    pub lock: Call,
    /// Releases it.
    pub unlock: Call,
}

pub(crate) const STD: Functions = Functions { init: rival_std_init, lock: rival_std_lock, unlock: rival_std_unlock };
pub(crate) const PARKING_LOT_12: Functions =
    Functions { init: rival_pl12_init, lock: rival_pl12_lock, unlock: rival_pl12_unlock };
pub(crate) const PARKING_LOT_13: Functions =
    Functions { init: rival_pl13_init, lock: rival_pl13_lock, unlock: rival_pl13_unlock };

/// Makes a free mutex.
///
/// # Safety
///
/// `mutex` has [`MUTEX_BYTES`], aligned to as many, and nothing else uses it yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rival_std_init(mutex: *mut c_void) {
    // SAFETY: the callers' promise; the room suffices, as asserted above.
    unsafe { mutex.cast::<Mutex<()>>().write(Mutex::new(())) }
}

/// Acquires the mutex.
///
/// # Safety
///
/// The mutex was made by `rival_std_init` and lives until it is released; `guard` has [`GUARD_BYTES`], aligned to 8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rival_std_lock(mutex: *mut c_void, guard: *mut c_void) {
    // SAFETY: the callers' promise.
    let mutex: &'static Mutex<()> = unsafe { &*mutex.cast() };
    let held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the callers' promise.
    unsafe { guard.cast::<MutexGuard<'static, ()>>().write(held) }
}

/// Releases the mutex.
///
/// # Safety
///
/// `rival_std_lock` has written the guard in this thread, and it is released once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rival_std_unlock(_mutex: *mut c_void, guard: *mut c_void) {
    // SAFETY: the callers' promise.
    drop(unsafe { guard.cast::<MutexGuard<'static, ()>>().read() });
}

/// The functions of a condition variable. `$condvar`: its type.
macro_rules! condvar {
    ($condvar:ty, $init:ident, $signal:ident, $broadcast:ident) => {
        /// Makes a condition variable on which nobody waits.
        ///
        /// # Safety
        ///
        /// `cond` has [`MUTEX_BYTES`], aligned to as many, and nothing else uses it yet.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(cond: *mut c_void) {
            // SAFETY: the callers' promise; the room suffices, as asserted above.
            unsafe { cond.cast::<$condvar>().write(<$condvar>::new()) }
        }

        /// Wakes a thread that waits on it, if there is one.
        ///
        /// # Safety
        ///
        /// The condition variable was made by the function above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $signal(cond: *mut c_void) {
            // SAFETY: the callers' promise.
            let _ = unsafe { &*cond.cast::<$condvar>() }.notify_one();
        }

        /// Wakes all threads that wait on it.
        ///
        /// # Safety
        ///
        /// The condition variable was made by the function above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $broadcast(cond: *mut c_void) {
            // SAFETY: the callers' promise.
            let _ = unsafe { &*cond.cast::<$condvar>() }.notify_all();
        }
    };
}

condvar!(Condvar, rival_std_cond_init, rival_std_cond_signal, rival_std_cond_broadcast);

/// Releases the mutex, waits on the condition variable and acquires the mutex again.
///
/// # Safety
///
/// `rival_std_lock` has written the guard in this thread, the mutex is not released yet, and the condition variable was
/// made by `rival_std_cond_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rival_std_cond_wait(cond: *mut c_void, _mutex: *mut c_void, guard: *mut c_void) {
    let guard = guard.cast::<MutexGuard<'static, ()>>();
    // SAFETY: the callers' promise.
    let (cond, held) = unsafe { (&*cond.cast::<Condvar>(), guard.read()) };
    let held = cond.wait(held).unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the callers' promise; the guard that was there is used up.
    unsafe { guard.write(held) }
}

/// The functions of a version of `parking_lot`. `$guard`: what shows, besides the mutex, that it is held.
macro_rules! parking_lot {
    ($parking_lot:ident, $init:ident, $lock:ident, $unlock:ident, $wait:ident $(, $guard:expr)?) => {
        /// Makes a free mutex.
        ///
        /// # Safety
        ///
        /// `mutex` has [`MUTEX_BYTES`], aligned to as many, and nothing else uses it yet.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(mutex: *mut c_void) {
            // SAFETY: the callers' promise; the room suffices, as asserted above.
            unsafe { mutex.cast::<$parking_lot::Mutex<()>>().write($parking_lot::Mutex::new(())) }
        }

        /// Acquires the mutex.
        ///
        /// # Safety
        ///
        /// The mutex was made by the function above and lives until it is released.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lock(mutex: *mut c_void, _guard: *mut c_void) {
            use $parking_lot::lock_api::RawMutex as _;
            // SAFETY: the callers' promise; the raw mutex is only locked.
            let _ = unsafe { (*mutex.cast::<$parking_lot::Mutex<()>>()).raw() }.lock();
        }

        /// Releases the mutex.
        ///
        /// # Safety
        ///
        /// The calling thread holds it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $unlock(mutex: *mut c_void, _guard: *mut c_void) {
            use $parking_lot::lock_api::RawMutex as _;
            // SAFETY: the callers' promise.
            unsafe { (*mutex.cast::<$parking_lot::Mutex<()>>()).raw().unlock($($guard)?) }
        }

        /// Releases the mutex, waits on the condition variable and acquires the mutex again.
        ///
        /// # Safety
        ///
        /// The calling thread holds the mutex, and both were made by the functions of this version.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wait(cond: *mut c_void, mutex: *mut c_void, _guard: *mut c_void) {
            // SAFETY: the callers' promise.
            let (cond, mutex) = unsafe {
                (&*cond.cast::<$parking_lot::Condvar>(), &*mutex.cast::<$parking_lot::Mutex<()>>())
            };
            // SAFETY: the callers' promise; no other guard of it exists.
            let mut held = unsafe { mutex.make_guard_unchecked($($guard)?) };
            cond.wait(&mut held);
            // It is still held: `$unlock` releases it.
            std::mem::forget(held);
        }
    };
}

parking_lot!(parking_lot_12, rival_pl12_init, rival_pl12_lock, rival_pl12_unlock, rival_pl12_cond_wait);
condvar!(parking_lot_12::Condvar, rival_pl12_cond_init, rival_pl12_cond_signal, rival_pl12_cond_broadcast);
parking_lot!(
    parking_lot_13,
    rival_pl13_init,
    rival_pl13_lock,
    rival_pl13_unlock,
    rival_pl13_cond_wait,
    parking_lot_13::lock_api::GuardNoSend::new()
);
condvar!(parking_lot_13::Condvar, rival_pl13_cond_init, rival_pl13_cond_signal, rival_pl13_cond_broadcast);
