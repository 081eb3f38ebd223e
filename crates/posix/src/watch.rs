//! # Watching glibc's own locks
//!
//! With `FLASHLOCK=glibc` the program keeps glibc's locks. If there are counters, these functions count what the
//! program does with them. They first call glibc's `try` function, to see whether the lock is free. If it is not,
//! glibc's own function waits, and the time is counted. Everything else is glibc's: kinds, owners, robust mutexes,
//! cancellation.
//!
//! | not visible | because |
//! |---|---|
//! | which threads sleep, which are woken, which come next | it happens inside glibc |
//! | the mutex that a wait on a condition variable acquires again | the same |
//! | whether a signal found a waiter | glibc does not say |

use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::Word;
use flashlock_locks::machine::event::Event;
use flashlock_native::stats::count;
use flashlock_native::thread;
use libc::{
    EAGAIN, EBUSY, EINVAL, EOWNERDEAD, ETIMEDOUT, clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t,
    pthread_spinlock_t, sem_t, timespec,
};

use crate::cancel::pthread_testcancel;
use crate::glibc;
use crate::kind::{Kind, decode};
use crate::layout::{Mutex, RwLock};
use crate::mutex::{clock_of, deadline};

/// The events that are counted for a kind of lock.
struct Events {
    acquired: Event,
    contended: Event,
    timed_out: Option<Event>,
}

const MUTEX: Events =
    Events { acquired: Event::Acquire, contended: Event::Contended, timed_out: Some(Event::TimedOut) };
const READ: Events = Events { acquired: Event::RwRead, ..WRITE };
const WRITE: Events =
    Events { acquired: Event::RwWrite, contended: Event::RwContended, timed_out: Some(Event::RwTimedOut) };
const SPIN: Events = Events { acquired: Event::SpinAcquire, contended: Event::SpinContended, timed_out: None };
const SEMAPHORE: Events = Events { acquired: Event::SemAcquire, contended: Event::SemQueued, timed_out: None };

impl Events {
    /// Counts the result of an attempt, and returns it.
    fn tried(&self, result: c_int) -> c_int {
        if is_acquired(result) {
            count(self.acquired);
        }
        result
    }

    /// Tries; if that fails, waits.
    fn take(&self, attempt: impl FnOnce() -> c_int, wait: impl FnOnce() -> c_int) -> c_int {
        let result = attempt();
        if is_acquired(result) {
            return self.tried(result);
        }
        if result == EBUSY {
            count(self.contended);
        }
        let result = self.tried(wait());
        if let (ETIMEDOUT, Some(timed_out)) = (result, self.timed_out) {
            count(timed_out);
        }
        result
    }
}

/// Whether the caller now has the lock, perhaps after its owner died.
fn is_acquired(result: c_int) -> bool {
    result == 0 || result == EOWNERDEAD
}

/// If none of our locks could serve the mutex, counts its use. Returns whether that is so.
///
/// # Safety
/// There is a mutex at the address.
unsafe fn note_kind(address: *mut pthread_mutex_t) -> bool {
    // SAFETY: callers guarantee it.
    match decode(unsafe { Mutex::at(address) }.kind.load(Relaxed)) {
        Kind::Glibc(why) => {
            count(why);
            true
        }
        _ => false,
    }
}

/// Tries a mutex. A mutex that none of our locks could serve is only looked at, because trying a robust mutex that
/// cannot be recovered leaves it locked for ever (seen in glibc 2.36).
///
/// # Safety
/// As for `pthread_mutex_trylock`.
unsafe fn try_mutex(address: *mut pthread_mutex_t) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        if !note_kind(address) {
            return glibc::pthread_mutex_trylock(address);
        }
        let mutex = Mutex::at(address);
        let held = mutex.word.load(Relaxed) != 0 && mutex.owner.load(Relaxed) != thread::id();
        if held { EBUSY } else { EAGAIN }
    }
}

/// [`note_kind`] for a readers-writer lock.
///
/// # Safety
/// There is a readers-writer lock at the address.
unsafe fn note_shared(address: *mut pthread_rwlock_t) {
    // SAFETY: callers guarantee it.
    if unsafe { RwLock::at(address) }.shared.load(Relaxed) != 0 {
        count(Event::GlibcShared);
    }
}

/// Defines functions, each from its body.
macro_rules! define {
    ($($name:ident($($arg:ident: $type:ty),*) = $body:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, of pthreads or as it is")]
        ///
        /// # Safety
        /// As for the C function.
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: callers guarantee it.
            unsafe { $body }
        }
    )*};
}

define! {
    mutex_lock(m: *mut pthread_mutex_t) = MUTEX.take(|| try_mutex(m), || glibc::pthread_mutex_lock(m));
    mutex_trylock(m: *mut pthread_mutex_t) = {
        note_kind(m);
        MUTEX.tried(glibc::pthread_mutex_trylock(m))
    };
    mutex_timedlock(m: *mut pthread_mutex_t, until: *const timespec) = {
        MUTEX.take(|| try_mutex(m), || glibc::pthread_mutex_timedlock(m, until))
    };
    mutex_clocklock(m: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) = {
        // An unknown clock is an error before anything is tried.
        let attempt = || if clock_of(clock).is_some() { try_mutex(m) } else { EINVAL };
        MUTEX.take(attempt, || glibc::pthread_mutex_clocklock(m, clock, until))
    };
    mutex_unlock(m: *mut pthread_mutex_t) = {
        note_kind(m);
        glibc::pthread_mutex_unlock(m)
    };

    cond_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) = {
        count(Event::CondWait);
        glibc::pthread_cond_wait(c, m)
    };
    cond_timedwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, until: *const timespec) = {
        count(Event::CondWait);
        glibc::pthread_cond_timedwait(c, m, until)
    };
    cond_clockwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) = {
        count(Event::CondWait);
        glibc::pthread_cond_clockwait(c, m, clock, until)
    };

    rdlock(l: *mut pthread_rwlock_t) = {
        note_shared(l);
        READ.take(|| glibc::pthread_rwlock_tryrdlock(l), || glibc::pthread_rwlock_rdlock(l))
    };
    tryrdlock(l: *mut pthread_rwlock_t) = {
        note_shared(l);
        READ.tried(glibc::pthread_rwlock_tryrdlock(l))
    };
    timedrdlock(l: *mut pthread_rwlock_t, until: *const timespec) = {
        note_shared(l);
        let realtime = libc::CLOCK_REALTIME;
        let attempt = || if is_valid(realtime, until) { glibc::pthread_rwlock_tryrdlock(l) } else { EINVAL };
        READ.take(attempt, || glibc::pthread_rwlock_timedrdlock(l, until))
    };
    clockrdlock(l: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) = {
        note_shared(l);
        let attempt = || if is_valid(clock, until) { glibc::pthread_rwlock_tryrdlock(l) } else { EINVAL };
        READ.take(attempt, || glibc::pthread_rwlock_clockrdlock(l, clock, until))
    };
    wrlock(l: *mut pthread_rwlock_t) = {
        note_shared(l);
        WRITE.take(|| glibc::pthread_rwlock_trywrlock(l), || glibc::pthread_rwlock_wrlock(l))
    };
    trywrlock(l: *mut pthread_rwlock_t) = {
        note_shared(l);
        WRITE.tried(glibc::pthread_rwlock_trywrlock(l))
    };
    timedwrlock(l: *mut pthread_rwlock_t, until: *const timespec) = {
        note_shared(l);
        let realtime = libc::CLOCK_REALTIME;
        let attempt = || if is_valid(realtime, until) { glibc::pthread_rwlock_trywrlock(l) } else { EINVAL };
        WRITE.take(attempt, || glibc::pthread_rwlock_timedwrlock(l, until))
    };
    clockwrlock(l: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) = {
        note_shared(l);
        let attempt = || if is_valid(clock, until) { glibc::pthread_rwlock_trywrlock(l) } else { EINVAL };
        WRITE.take(attempt, || glibc::pthread_rwlock_clockwrlock(l, clock, until))
    };
    rwlock_unlock(l: *mut pthread_rwlock_t) = {
        note_shared(l);
        glibc::pthread_rwlock_unlock(l)
    };

    spin_lock(s: *mut pthread_spinlock_t) = {
        SPIN.take(|| glibc::pthread_spin_trylock(s), || glibc::pthread_spin_lock(s))
    };
    spin_trylock(s: *mut pthread_spinlock_t) = SPIN.tried(glibc::pthread_spin_trylock(s));

    sem_init(s: *mut sem_t, shared: c_int, value: c_uint) = {
        let result = glibc::sem_init(s, shared, value);
        if result == 0 && shared != 0 {
            count(Event::SemObject);
        }
        result
    };
    sem_wait(s: *mut sem_t) = {
        // A cancellation point even if there is a permit.
        pthread_testcancel();
        SEMAPHORE.take(|| quietly(s), || glibc::sem_wait(s))
    };
    sem_trywait(s: *mut sem_t) = SEMAPHORE.tried(glibc::sem_trywait(s));
    sem_timedwait(s: *mut sem_t, until: *const timespec) = {
        let valid = is_valid(libc::CLOCK_REALTIME, until);
        if valid {
            pthread_testcancel();
        }
        SEMAPHORE.take(|| if valid { quietly(s) } else { EINVAL }, || glibc::sem_timedwait(s, until))
    };
    sem_clockwait(s: *mut sem_t, clock: clockid_t, until: *const timespec) = {
        let attempt = || if is_valid(clock, until) { quietly(s) } else { EINVAL };
        SEMAPHORE.take(attempt, || glibc::sem_clockwait(s, clock, until))
    };
    sem_post(s: *mut sem_t) = {
        let result = glibc::sem_post(s);
        if result == 0 {
            count(Event::SemPost);
        }
        result
    };
}

/// Whether glibc would try a readers-writer lock or a semaphore with this deadline. An invalid deadline is an error
/// even if the object is free.
///
/// # Safety
/// `until` points to a timespec.
unsafe fn is_valid(clock: clockid_t, until: *const timespec) -> bool {
    // SAFETY: callers guarantee it.
    clock_of(clock).is_some_and(|clock| unsafe { deadline(clock, until) }.is_some())
}

/// Like `sem_trywait`, but returns 0 or `EBUSY`, and does not change `errno`.
///
/// # Safety
/// As for the C function.
unsafe fn quietly(s: *mut sem_t) -> c_int {
    // SAFETY: callers guarantee it; `errno` is the calling thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = glibc::sem_trywait(s);
        if result == 0 {
            return 0;
        }
        *errno = before;
        EBUSY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_taken_waits() {
        let calls = core::cell::Cell::new(0);
        let wait = || {
            calls.set(calls.get() + 1);
            ETIMEDOUT
        };
        assert_eq!((MUTEX.take(|| 0, wait), MUTEX.take(|| EOWNERDEAD, wait), calls.get()), (0, EOWNERDEAD, 0));
        assert_eq!((MUTEX.take(|| EBUSY, wait), calls.get()), (ETIMEDOUT, 1));
        // The called function reports the error.
        assert_eq!((READ.take(|| EINVAL, wait), calls.get()), (ETIMEDOUT, 2));
    }

    #[test]
    fn errno_is_kept_where_there_is_no_permit() {
        // SAFETY: the semaphore is the test's own; `errno` is this thread's.
        unsafe {
            let mut semaphore: sem_t = core::mem::zeroed();
            assert_eq!(glibc::sem_init(&raw mut semaphore, 0, 1), 0);
            *libc::__errno_location() = 77;
            assert_eq!((quietly(&raw mut semaphore), quietly(&raw mut semaphore)), (0, EBUSY));
            assert_eq!(*libc::__errno_location(), 77);
        }
    }
}
