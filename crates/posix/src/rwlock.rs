//! # The semantics of `pthread_rwlock_*`, on a lock `L`
//!
//! The readers-writer lock functions that a program calls when `L` is chosen.
//!
//! | kind | a reader that arrives while a writer waits | the same, if the reader already holds the lock for reading |
//! |---|---|---|
//! | 0, 1 (glibc: prefer readers) | waits, for at most the bound | overtakes |
//! | 2 (prefer writers, not recursive) | waits | waits: the program has promised not to do this |
//!
//! If the writer that holds the lock requests it again, for reading or writing, the answer is EDEADLK, as in glibc;
//! from `try…`, EBUSY. An invalid `abstime` or clock is an error even if the lock is free, as in glibc. glibc serves
//! locks that processes share. `errno` is never changed. Destroying a lock does not check whether it is held: glibc
//! also returns 0 for a held lock.
//!
//! The writer's id needs no ordering. If a thread reads its own id, it wrote that id itself. Any other value means "not
//! mine" (and is protected by the lock).

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Clock, Deadline, Machine};
use flashlock_locks::rw::{RawRwLock, Reader, Refusal, Writer};
use flashlock_native::{Word32, held, thread};
use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, ETIMEDOUT, clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};

use crate::glibc;
use crate::layout::RwLock;
use crate::mutex::{clock_of, deadline};

/// glibc's kind that prefers writers.
const PREFER_WRITERS: u32 = 2;

/// Whether glibc serves the lock: other processes use it too.
#[inline(always)]
fn is_glibcs(lock: &RwLock) -> bool {
    lock.shared.load(Relaxed) != 0
}

fn address_of(lock: &RwLock) -> usize {
    core::ptr::from_ref(lock) as usize
}

/// How the calling thread reads this lock.
fn reader(lock: &RwLock) -> Reader {
    if lock.kind.load(Relaxed) == PREFER_WRITERS {
        Reader::Behind
    } else if held::holds(address_of(lock)) {
        Reader::Again
    } else {
        Reader::Newcomer
    }
}

fn writer(lock: &RwLock) -> Writer {
    if lock.kind.load(Relaxed) == PREFER_WRITERS { Writer::Preferred } else { Writer::Fair }
}

/// The error number for a refusal.
fn answer(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::Busy => EBUSY,
        Refusal::TimedOut => ETIMEDOUT,
        Refusal::Overflow => EAGAIN,
    }
}

#[cold]
fn read_slow<L: RawRwLock<M>, M: Machine<Word = Word32>>(lock: &RwLock, until: Option<Deadline>) -> c_int {
    if lock.writer.load(Relaxed) == thread::id() {
        return EDEADLK;
    }
    // SAFETY: callers keep POSIX's contract, which is the lock's (`RwLock::state`).
    match unsafe { L::read(lock.state::<L::State>(), reader(lock), until) } {
        Ok(()) => {
            held::note(address_of(lock));
            0
        }
        Err(refusal) => answer(refusal),
    }
}

#[inline(always)]
fn read<L: RawRwLock<M>, M: Machine<Word = Word32>>(lock: &RwLock, until: Option<Deadline>) -> c_int {
    // SAFETY: callers keep POSIX's contract, which is the lock's (`RwLock::state`).
    if unsafe { L::enter(lock.state::<L::State>()) } {
        held::note(address_of(lock));
        return 0;
    }
    read_slow::<L, M>(lock, until)
}

fn write<L: RawRwLock<M>, M: Machine<Word = Word32>>(lock: &RwLock, until: Option<Deadline>) -> c_int {
    let me = thread::id();
    if lock.writer.load(Relaxed) == me {
        return EDEADLK;
    }
    // SAFETY: callers keep POSIX's contract, which is the lock's (`RwLock::state`).
    match unsafe { L::write(lock.state::<L::State>(), writer(lock), until) } {
        Ok(()) => {
            lock.writer.store(me, Relaxed);
            0
        }
        Err(refusal) => answer(refusal),
    }
}

/// `pthread_rwlock_init`: calls glibc's, which leaves a free lock of ours. Counts objects that will be left to glibc.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn init<M: Machine<Word = Word32>>(
    address: *mut pthread_rwlock_t,
    attr: *const pthread_rwlockattr_t,
) -> c_int {
    // SAFETY: callers guarantee it.
    let result = unsafe { glibc::pthread_rwlock_init(address, attr) };
    // SAFETY: just initialised.
    if result == 0 && is_glibcs(unsafe { RwLock::at(address) }) {
        M::trace(Event::SharedObject);
    }
    result
}

/// Defines functions that pass a lock of glibc's on to glibc, and do `$ours` with one of ours.
macro_rules! define {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) => $real:ident, |$lock:ident| $ours:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the C function.
        pub unsafe extern "C-unwind" fn $name<L: RawRwLock<M>, M: Machine<Word = Word32>>(
            address: *mut pthread_rwlock_t, $($arg: $type),*
        ) -> c_int {
            // SAFETY: callers guarantee it. The lock may be freed once it is released; nothing is accessed
            // afterwards.
            let $lock = unsafe { RwLock::at(address) };
            if is_glibcs($lock) {
                M::trace(Event::GlibcShared);
                // SAFETY: callers guarantee it.
                return unsafe { glibc::$real(address, $($arg),*) };
            }
            $ours
        }
    )*};
}

/// The deadline of a timed call, if its clock is supported and its timespec is valid.
///
/// # Safety
/// `until` points to a timespec.
unsafe fn deadline_on(clock: clockid_t, until: *const timespec) -> Option<Deadline> {
    // SAFETY: callers guarantee it.
    unsafe { deadline(clock_of(clock)?, until) }
}

define! {
    /// `pthread_rwlock_rdlock`
    rdlock() => pthread_rwlock_rdlock, |lock| read::<L, M>(lock, None);

    /// `pthread_rwlock_timedrdlock`
    timedrdlock(until: *const timespec) => pthread_rwlock_timedrdlock, |lock| {
        // SAFETY: callers guarantee it.
        match unsafe { deadline(Clock::Realtime, until) } {
            Some(until) => read::<L, M>(lock, Some(until)),
            None => EINVAL,
        }
    };

    /// `pthread_rwlock_clockrdlock`
    clockrdlock(clock: clockid_t, until: *const timespec) => pthread_rwlock_clockrdlock, |lock| {
        // SAFETY: callers guarantee it.
        match unsafe { deadline_on(clock, until) } {
            Some(until) => read::<L, M>(lock, Some(until)),
            None => EINVAL,
        }
    };

    /// `pthread_rwlock_tryrdlock`
    tryrdlock() => pthread_rwlock_tryrdlock, |lock| {
        // SAFETY: callers keep POSIX's contract, which is the lock's (`RwLock::state`).
        match unsafe { L::try_read(lock.state::<L::State>(), reader(lock)) } {
            Ok(()) => {
                held::note(address_of(lock));
                0
            }
            Err(refusal) => answer(refusal),
        }
    };

    /// `pthread_rwlock_wrlock`
    wrlock() => pthread_rwlock_wrlock, |lock| write::<L, M>(lock, None);

    /// `pthread_rwlock_timedwrlock`
    timedwrlock(until: *const timespec) => pthread_rwlock_timedwrlock, |lock| {
        // SAFETY: callers guarantee it.
        match unsafe { deadline(Clock::Realtime, until) } {
            Some(until) => write::<L, M>(lock, Some(until)),
            None => EINVAL,
        }
    };

    /// `pthread_rwlock_clockwrlock`
    clockwrlock(clock: clockid_t, until: *const timespec) => pthread_rwlock_clockwrlock, |lock| {
        // SAFETY: callers guarantee it.
        match unsafe { deadline_on(clock, until) } {
            Some(until) => write::<L, M>(lock, Some(until)),
            None => EINVAL,
        }
    };

    /// `pthread_rwlock_trywrlock`
    trywrlock() => pthread_rwlock_trywrlock, |lock| {
        // SAFETY: callers keep POSIX's contract, which is the lock's (`RwLock::state`).
        if unsafe { L::try_write(lock.state::<L::State>()) } {
            lock.writer.store(thread::id(), Relaxed);
            0
        } else {
            EBUSY
        }
    };

    /// `pthread_rwlock_unlock`
    unlock() => pthread_rwlock_unlock, |lock| {
        if lock.writer.load(Relaxed) != 0 {
            // Held for writing: only a writer stores an id there. It does not matter which thread releases the lock.
            lock.writer.store(0, Relaxed);
        } else {
            held::forget(address_of(lock));
        }
        // SAFETY: callers keep POSIX's contract, which is the lock's (`RwLock::state`).
        unsafe { L::unlock(lock.state::<L::State>()) };
        0
    };

    /// `pthread_rwlock_destroy`
    destroy() => pthread_rwlock_destroy, |lock| {
        // SAFETY: callers keep POSIX's contract, which is the lock's (`RwLock::state`).
        unsafe { L::destroy(lock.state::<L::State>()) };
        0
    };
}
