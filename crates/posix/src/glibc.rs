//! # glibc's own functions
//!
//! Our code calls glibc's pthread functions through this module. Each is looked up once, as the next definition after
//! ours in the search order: all at load time, or one at its first use if that is earlier. The condition variable
//! functions have two symbol versions; the newer is requested by name. So are those of semaphores, which other
//! libraries may define, too.
//!
//! Before glibc 2.34, a thread's first look-up allocates. That must not happen to a malloc that initialises its mutexes
//! before we are loaded. So `pthread_mutex_init` and `pthread_rwlock_init` are called by other names that glibc has for
//! them, which need no look-up.

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{
    clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t, pthread_rwlock_t,
    pthread_rwlockattr_t, pthread_spinlock_t, sem_t, timespec,
};

/// The first version with the current condition variable.
const COND_VERSION: &CStr = if cfg!(target_arch = "x86_64") { c"GLIBC_2.3.2" } else { c"GLIBC_2.17" };

/// Versions of the semaphores' functions. Condition variables sleep in them. So they must be glibc's own, not those of
/// a library that defines functions of these names, and uses condition variables in them.
const SEM_VERSION: &CStr = if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" };
/// The same, of a newer function.
const SEM_CLOCK_VERSION: &CStr = c"GLIBC_2.30";

#[cold]
fn find(cell: &AtomicPtr<c_void>, name: &'static str, version: Option<&CStr>) -> *mut c_void {
    let name = name.as_ptr().cast();
    // SAFETY: the names end in NUL.
    let found = unsafe {
        match version.map(|version| libc::dlvsym(libc::RTLD_NEXT, name, version.as_ptr())) {
            Some(found) if !found.is_null() => found,
            _ => libc::dlsym(libc::RTLD_NEXT, name),
        }
    };
    cell.store(found, Relaxed);
    found
}

macro_rules! real {
    ($($(#[$cfg:meta])? $name:ident($($arg:ident: $type:ty),*) $(@ $version:expr)?;)*) => {
        $(
            $(#[$cfg])?
            #[doc = concat!("glibc's `", stringify!($name), "`; `ENOSYS` where it has none.")]
            ///
            /// # Safety
            /// As for the C function.
            pub unsafe fn $name($($arg: $type),*) -> c_int {
                let found = look_up::$name();
                if found.is_null() {
                    return libc::ENOSYS;
                }
                // SAFETY: glibc's function of this name has this type.
                let function: unsafe extern "C-unwind" fn($($type),*) -> c_int = unsafe { core::mem::transmute(found) };
                // SAFETY: callers guarantee it.
                unsafe { function($($arg),*) }
            }
        )*

        /// The address of each function.
        mod look_up {
            use super::*;
            $(
                $(#[$cfg])?
                pub(super) fn $name() -> *mut c_void {
                    static CELL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                    let known = CELL.load(Relaxed);
                    if !known.is_null() {
                        return known;
                    }
                    find(&CELL, concat!(stringify!($name), "\0"), version!($($version)?))
                }
            )*
        }

        /// Looks up all functions, so that no later call has to.
        pub fn prepare() {
            $($(#[$cfg])? look_up::$name();)*
        }
    };
}

macro_rules! version {
    () => {
        None
    };
    ($version:expr) => {
        Some($version)
    };
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C-unwind" {
    /// glibc's `pthread_mutex_init`.
    ///
    /// # Safety
    /// As for the C function.
    #[link_name = "__pthread_mutex_init"]
    pub fn pthread_mutex_init(mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t) -> c_int;

    /// glibc's `pthread_rwlock_init`.
    ///
    /// # Safety
    /// As for the C function.
    #[link_name = "__pthread_rwlock_init"]
    pub fn pthread_rwlock_init(lock: *mut pthread_rwlock_t, attr: *const pthread_rwlockattr_t) -> c_int;
}

real! {
    #[cfg(not(target_arch = "x86_64"))]
    pthread_mutex_init(mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t);
    pthread_mutex_lock(mutex: *mut pthread_mutex_t);
    pthread_mutex_trylock(mutex: *mut pthread_mutex_t);
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec);
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec);
    pthread_mutex_unlock(mutex: *mut pthread_mutex_t);
    pthread_mutex_destroy(mutex: *mut pthread_mutex_t);
    pthread_cond_init(cond: *mut pthread_cond_t, attr: *const pthread_condattr_t) @ COND_VERSION;
    pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) @ COND_VERSION;
    pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec)
        @ COND_VERSION;
    pthread_cond_clockwait(
        cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec);
    pthread_cond_signal(cond: *mut pthread_cond_t) @ COND_VERSION;
    pthread_cond_broadcast(cond: *mut pthread_cond_t) @ COND_VERSION;
    pthread_cond_destroy(cond: *mut pthread_cond_t) @ COND_VERSION;
    #[cfg(not(target_arch = "x86_64"))]
    pthread_rwlock_init(lock: *mut pthread_rwlock_t, attr: *const pthread_rwlockattr_t);
    pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t);
    pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t);
    pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, until: *const timespec);
    pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec);
    pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t);
    pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t);
    pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, until: *const timespec);
    pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec);
    pthread_rwlock_unlock(lock: *mut pthread_rwlock_t);
    pthread_rwlock_destroy(lock: *mut pthread_rwlock_t);
    pthread_spin_init(lock: *mut pthread_spinlock_t, shared: c_int);
    pthread_spin_lock(lock: *mut pthread_spinlock_t);
    pthread_spin_trylock(lock: *mut pthread_spinlock_t);
    pthread_spin_unlock(lock: *mut pthread_spinlock_t);
    pthread_spin_destroy(lock: *mut pthread_spinlock_t);
    sem_init(sem: *mut sem_t, shared: c_int, value: c_uint) @ SEM_VERSION;
    sem_wait(sem: *mut sem_t) @ SEM_VERSION;
    sem_trywait(sem: *mut sem_t) @ SEM_VERSION;
    sem_timedwait(sem: *mut sem_t, until: *const timespec) @ SEM_VERSION;
    sem_clockwait(sem: *mut sem_t, clock: clockid_t, until: *const timespec) @ SEM_CLOCK_VERSION;
    sem_post(sem: *mut sem_t) @ SEM_VERSION;
    sem_getvalue(sem: *mut sem_t, value: *mut c_int) @ SEM_VERSION;
    sem_destroy(sem: *mut sem_t) @ SEM_VERSION;
}
