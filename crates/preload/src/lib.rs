//! # `libflashlock_preload.so`
//!
//! The library that `flashlock run` preloads. It only exports the symbols that replace glibc's; `flashlock-posix`
//! implements them. C11's initialisers are not replaced: an object that glibc has initialised is a free lock of ours.
//! pthread's initialisers are replaced only to count objects, of kinds that C11 does not have.

use core::ffi::{c_int, c_uint};

use flashlock_posix::c11::answer;
use flashlock_posix::{common, dispatch_rw, table};
use libc::{
    clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t, pthread_rwlock_t,
    pthread_rwlockattr_t, pthread_spinlock_t, sem_t, timespec,
};

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        flashlock_posix::init();
    }
    at_load
};

macro_rules! export {
    (from $table:path; $($name:ident($($arg:ident: $type:ty),*) = $field:ident $(=> $answer:path)?;)*) => {
        $(
            /// # Safety
            /// As for the C function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
                // SAFETY: callers guarantee it.
                let result = unsafe { ($table().$field)($($arg),*) };
                $(let result = $answer(result);)?
                result
            }
        )*
    };
}

export! {
    from table;

    pthread_mutex_init(m: *mut pthread_mutex_t, a: *const pthread_mutexattr_t) = mutex_init;
    pthread_mutex_lock(m: *mut pthread_mutex_t) = mutex_lock;
    pthread_mutex_trylock(m: *mut pthread_mutex_t) = mutex_trylock;
    pthread_mutex_timedlock(m: *mut pthread_mutex_t, t: *const timespec) = mutex_timedlock;
    pthread_mutex_clocklock(m: *mut pthread_mutex_t, c: clockid_t, t: *const timespec) = mutex_clocklock;
    pthread_mutex_unlock(m: *mut pthread_mutex_t) = mutex_unlock;
    pthread_mutex_destroy(m: *mut pthread_mutex_t) = mutex_destroy;

    __pthread_mutex_lock(m: *mut pthread_mutex_t) = mutex_lock;
    __pthread_mutex_trylock(m: *mut pthread_mutex_t) = mutex_trylock;
    __pthread_mutex_unlock(m: *mut pthread_mutex_t) = mutex_unlock;
    __pthread_mutex_destroy(m: *mut pthread_mutex_t) = mutex_destroy;

    pthread_cond_init(c: *mut pthread_cond_t, a: *const pthread_condattr_t) = cond_init;
    pthread_cond_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) = cond_wait;
    pthread_cond_timedwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, t: *const timespec) = cond_timedwait;
    pthread_cond_clockwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, k: clockid_t, t: *const timespec)
        = cond_clockwait;
    pthread_cond_signal(c: *mut pthread_cond_t) = cond_signal;
    pthread_cond_broadcast(c: *mut pthread_cond_t) = cond_broadcast;
    pthread_cond_destroy(c: *mut pthread_cond_t) = cond_destroy;

    mtx_lock(m: *mut pthread_mutex_t) = mutex_lock => answer;
    mtx_trylock(m: *mut pthread_mutex_t) = mutex_trylock => answer;
    mtx_timedlock(m: *mut pthread_mutex_t, t: *const timespec) = mutex_timedlock => answer;
    mtx_unlock(m: *mut pthread_mutex_t) = mutex_unlock => answer;
    cnd_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) = cond_wait => answer;
    cnd_timedwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, t: *const timespec) = cond_timedwait => answer;
    cnd_signal(c: *mut pthread_cond_t) = cond_signal => answer;
    cnd_broadcast(c: *mut pthread_cond_t) = cond_broadcast => answer;
}

export! {
    from dispatch_rw::table;

    pthread_rwlock_init(l: *mut pthread_rwlock_t, a: *const pthread_rwlockattr_t) = rwlock_init;
    pthread_rwlock_rdlock(l: *mut pthread_rwlock_t) = rwlock_rdlock;
    pthread_rwlock_tryrdlock(l: *mut pthread_rwlock_t) = rwlock_tryrdlock;
    pthread_rwlock_timedrdlock(l: *mut pthread_rwlock_t, t: *const timespec) = rwlock_timedrdlock;
    pthread_rwlock_clockrdlock(l: *mut pthread_rwlock_t, c: clockid_t, t: *const timespec) = rwlock_clockrdlock;
    pthread_rwlock_wrlock(l: *mut pthread_rwlock_t) = rwlock_wrlock;
    pthread_rwlock_trywrlock(l: *mut pthread_rwlock_t) = rwlock_trywrlock;
    pthread_rwlock_timedwrlock(l: *mut pthread_rwlock_t, t: *const timespec) = rwlock_timedwrlock;
    pthread_rwlock_clockwrlock(l: *mut pthread_rwlock_t, c: clockid_t, t: *const timespec) = rwlock_clockwrlock;
    pthread_rwlock_unlock(l: *mut pthread_rwlock_t) = rwlock_unlock;
    pthread_rwlock_destroy(l: *mut pthread_rwlock_t) = rwlock_destroy;

    __pthread_rwlock_rdlock(l: *mut pthread_rwlock_t) = rwlock_rdlock;
    __pthread_rwlock_tryrdlock(l: *mut pthread_rwlock_t) = rwlock_tryrdlock;
    __pthread_rwlock_wrlock(l: *mut pthread_rwlock_t) = rwlock_wrlock;
    __pthread_rwlock_trywrlock(l: *mut pthread_rwlock_t) = rwlock_trywrlock;
    __pthread_rwlock_unlock(l: *mut pthread_rwlock_t) = rwlock_unlock;
    __pthread_rwlock_destroy(l: *mut pthread_rwlock_t) = rwlock_destroy;
}

export! {
    from common;

    pthread_spin_init(s: *mut pthread_spinlock_t, p: c_int) = spin_init;
    pthread_spin_lock(s: *mut pthread_spinlock_t) = spin_lock;
    pthread_spin_trylock(s: *mut pthread_spinlock_t) = spin_trylock;
    pthread_spin_unlock(s: *mut pthread_spinlock_t) = spin_unlock;
    pthread_spin_destroy(s: *mut pthread_spinlock_t) = spin_destroy;

    sem_init(s: *mut sem_t, p: c_int, v: c_uint) = sem_init;
    sem_wait(s: *mut sem_t) = sem_wait;
    sem_trywait(s: *mut sem_t) = sem_trywait;
    sem_timedwait(s: *mut sem_t, t: *const timespec) = sem_timedwait;
    sem_clockwait(s: *mut sem_t, c: clockid_t, t: *const timespec) = sem_clockwait;
    sem_post(s: *mut sem_t) = sem_post;
    sem_getvalue(s: *mut sem_t, v: *mut c_int) = sem_getvalue;
    sem_destroy(s: *mut sem_t) = sem_destroy;
}

/// # Safety
/// As for C11's `mtx_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mtx_destroy(m: *mut pthread_mutex_t) {
    // SAFETY: callers guarantee it.
    unsafe { (table().mutex_destroy)(m) };
}

/// # Safety
/// As for C11's `cnd_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cnd_destroy(c: *mut pthread_cond_t) {
    // SAFETY: callers guarantee it.
    unsafe { (table().cond_destroy)(c) };
}
