//! # The semantics of `pthread_mutex_*`, on a lock `L`
//!
//! The mutex functions that a program calls when `L` is chosen.
//!
//! | kind | relock by the holder | unlock by another | unlock of a free mutex |
//! |---|---|---|---|
//! | default, normal, adaptive | waits for ever (timed: ETIMEDOUT) | allowed | allowed, does nothing |
//! | recursive | counts (EAGAIN at 2^32 − 1) | EPERM | EPERM |
//! | error-checking | EDEADLK (`trylock`: EBUSY) | EPERM | EPERM |
//!
//! An invalid `abstime` is an error only if the call must wait. `errno` is never changed. Owner and count need no
//! ordering. If a thread reads its own id, it wrote that id itself. Any other value means "not mine" (and is protected
//! by the lock).

use core::ffi::c_int;
use core::hint::cold_path;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::compiler_fence;

use flashlock_locks::cond::deferral::{Place, take};
use flashlock_locks::machine::{Clock, Deadline, Machine, Word as _};
use flashlock_locks::parts::adoption::signal_all;
use flashlock_locks::parts::raw::RawLock;
use flashlock_native::{Word32, holder, thread};
use libc::{
    EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, clockid_t, pthread_mutex_t, pthread_mutexattr_t, timespec,
};

use crate::glibc;
use crate::kind::{DESTROYED, Kind, decode, is_plain};
use crate::layout::Mutex;

/// How an acquisition may wait.
#[derive(Clone, Copy)]
enum Wait {
    /// As long as it takes.
    Forever,
    /// The same; a signal of a condition variable has just woken the thread.
    AfterSignal,
    /// Until the timespec, which has not been checked, on a clock.
    Until(Clock, *const timespec),
}

/// The clock, if mutexes and condition variables support it.
pub(crate) fn clock_of(clock: clockid_t) -> Option<Clock> {
    match clock {
        libc::CLOCK_REALTIME => Some(Clock::Realtime),
        libc::CLOCK_MONOTONIC => Some(Clock::Monotonic),
        _ => None,
    }
}

/// The deadline in a timespec, if it is valid.
///
/// # Safety
/// `until` points to a timespec.
pub(crate) unsafe fn deadline(clock: Clock, until: *const timespec) -> Option<Deadline> {
    // SAFETY: callers guarantee it.
    let timespec { tv_sec, tv_nsec } = unsafe { *until };
    let nsec = u32::try_from(tv_nsec).ok().filter(|nsec| *nsec < 1_000_000_000)?;
    Some(Deadline { clock, sec: tv_sec, nsec })
}

/// Acquires the lock of a mutex of any kind. Returns 0, EINVAL or ETIMEDOUT.
///
/// # Safety
/// A timespec in `wait` is readable.
unsafe fn acquire<L: RawLock<M>, M: Machine<Word = Word32>>(mutex: &Mutex, wait: Wait) -> c_int {
    // SAFETY: a lock's queue is made of the words of its machine.
    let queue = unsafe { mutex.queue::<L::Queue>() };
    match wait {
        Wait::Forever => {
            // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
            unsafe { L::lock(&mutex.word, queue) };
            0
        }
        Wait::AfterSignal => {
            // SAFETY: the same.
            unsafe { L::lock_woken(&mutex.word, queue) };
            0
        }
        // SAFETY: the same.
        _ if unsafe { L::try_lock(&mutex.word, queue) } => 0,
        Wait::Until(clock, until) => {
            // SAFETY: callers guarantee it.
            let Some(until) = (unsafe { deadline(clock, until) }) else { return EINVAL };
            // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
            if unsafe { L::lock_until(&mutex.word, queue, until) }.is_ok() { 0 } else { ETIMEDOUT }
        }
    }
}

/// Records that the calling thread has acquired a recursive or error-checking mutex.
pub(crate) fn own(mutex: &Mutex) {
    mutex.owner.store(thread::id(), Relaxed);
    mutex.count.store(1, Relaxed);
}

/// Records that the calling thread has acquired a plain mutex. This is for debuggers. Here it only decides when a
/// waiter of a condition variable is woken, not who holds the mutex.
#[inline(always)]
pub(crate) fn name_holder(mutex: &Mutex) {
    mutex.owner.store(holder::id(), Relaxed);
}

pub(crate) fn is_mine(mutex: &Mutex) -> bool {
    mutex.owner.load(Relaxed) == thread::id()
}

/// Whether glibc's code, which serves the mutex, takes the calling thread for its holder. glibc compares the id that it
/// has noted itself. The kernel's id may differ, or be refused: in a child that was made by the system call alone,
/// or in a sandbox. Before 2.34 the noted id is not known here. Then each holder may be the calling thread, and glibc's
/// release of the mutex finds out.
pub(crate) fn is_mine_to_glibc(mutex: &Mutex) -> bool {
    let (noted, owner) = (holder::id(), mutex.owner.load(Relaxed));
    if noted == 0 { owner != 0 } else { owner == noted }
}

/// Adds a level of recursion. EAGAIN if there are too many.
fn recurse(mutex: &Mutex) -> c_int {
    let count = mutex.count.load(Relaxed);
    if count == u32::MAX {
        return EAGAIN;
    }
    mutex.count.store(count + 1, Relaxed);
    0
}

/// Acquires a mutex that is not plain.
#[cold]
unsafe fn lock_other<L: RawLock<M>, M: Machine<Word = Word32>>(address: *mut pthread_mutex_t, wait: Wait) -> c_int {
    // SAFETY: callers guarantee it.
    let mutex = unsafe { Mutex::at(address) };
    match decode(mutex.kind.load(Relaxed)) {
        Kind::Recursive if is_mine(mutex) => return recurse(mutex),
        Kind::Checking if is_mine(mutex) => return EDEADLK,
        Kind::Glibc(why) => {
            M::trace(why);
            // SAFETY: callers guarantee it.
            return unsafe {
                match wait {
                    Wait::Forever | Wait::AfterSignal => glibc::pthread_mutex_lock(address),
                    Wait::Until(Clock::Realtime, until) => glibc::pthread_mutex_timedlock(address, until),
                    Wait::Until(Clock::Monotonic, until) => {
                        glibc::pthread_mutex_clocklock(address, libc::CLOCK_MONOTONIC, until)
                    }
                }
            };
        }
        _ => {}
    }
    // SAFETY: callers guarantee it.
    let result = unsafe { acquire::<L, M>(mutex, wait) };
    if result == 0 {
        own(mutex);
    }
    result
}

/// [`lock_other`] without a deadline. Not inlined, so that an uncontended lock and unlock need no stack.
#[cold]
#[inline(never)]
unsafe fn lock_other_forever<L: RawLock<M>, M: Machine<Word = Word32>>(address: *mut pthread_mutex_t) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe { lock_other::<L, M>(address, Wait::Forever) }
}

/// `pthread_mutex_init`: calls glibc's, which leaves a free lock of ours. Counts objects that will be left to glibc.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn init<M: Machine<Word = Word32>>(
    address: *mut pthread_mutex_t,
    attr: *const pthread_mutexattr_t,
) -> c_int {
    // SAFETY: callers guarantee it.
    let result = unsafe { glibc::pthread_mutex_init(address, attr) };
    if result == 0 {
        // SAFETY: initialised just now.
        let mutex = unsafe { Mutex::at(address) };
        if let Kind::Glibc(why) = decode(mutex.kind.load(Relaxed))
            && let Some(objects) = why.objects()
        {
            M::trace(objects);
        }
    }
    result
}

/// `pthread_mutex_lock`
///
/// # Safety
/// As for the C function.
#[inline]
pub unsafe extern "C-unwind" fn lock<L: RawLock<M>, M: Machine<Word = Word32>>(address: *mut pthread_mutex_t) -> c_int {
    // SAFETY: callers guarantee it.
    let mutex = unsafe { Mutex::at(address) };
    if !is_plain(mutex.kind.load(Relaxed)) {
        cold_path();
        // SAFETY: callers guarantee it.
        return unsafe { lock_other_forever::<L, M>(address) };
    }
    // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
    unsafe { L::lock(&mutex.word, mutex.queue::<L::Queue>()) };
    name_holder(mutex);
    0
}

/// `pthread_mutex_lock`, by a thread that a signal of a condition variable has just woken.
///
/// # Safety
/// As for the C function.
pub(crate) unsafe fn lock_woken<L: RawLock<M>, M: Machine<Word = Word32>>(address: *mut pthread_mutex_t) -> c_int {
    // SAFETY: callers guarantee it.
    let mutex = unsafe { Mutex::at(address) };
    if !is_plain(mutex.kind.load(Relaxed)) {
        cold_path();
        // SAFETY: callers guarantee it.
        return unsafe { lock_other::<L, M>(address, Wait::AfterSignal) };
    }
    // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
    unsafe { L::lock_woken(&mutex.word, mutex.queue::<L::Queue>()) };
    name_holder(mutex);
    0
}

/// `pthread_mutex_trylock`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn trylock<L: RawLock<M>, M: Machine<Word = Word32>>(
    address: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: callers guarantee it.
    let mutex = unsafe { Mutex::at(address) };
    let kind = decode(mutex.kind.load(Relaxed));
    match kind {
        Kind::Recursive if is_mine(mutex) => return recurse(mutex),
        Kind::Glibc(why) => {
            M::trace(why);
            // SAFETY: callers guarantee it.
            return unsafe { glibc::pthread_mutex_trylock(address) };
        }
        _ => {}
    }
    // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
    if !unsafe { L::try_lock(&mutex.word, mutex.queue::<L::Queue>()) } {
        return EBUSY;
    }
    if kind == Kind::Plain {
        name_holder(mutex);
    } else {
        own(mutex);
    }
    0
}

unsafe fn lock_within<L: RawLock<M>, M: Machine<Word = Word32>>(
    address: *mut pthread_mutex_t,
    clock: Clock,
    until: *const timespec,
) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let mutex = Mutex::at(address);
        if is_plain(mutex.kind.load(Relaxed)) {
            let result = acquire::<L, M>(mutex, Wait::Until(clock, until));
            if result == 0 {
                name_holder(mutex);
            }
            return result;
        }
        lock_other::<L, M>(address, Wait::Until(clock, until))
    }
}

/// `pthread_mutex_timedlock`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn timedlock<L: RawLock<M>, M: Machine<Word = Word32>>(
    address: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe { lock_within::<L, M>(address, Clock::Realtime, until) }
}

/// `pthread_mutex_clocklock`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn clocklock<L: RawLock<M>, M: Machine<Word = Word32>>(
    address: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    let Some(clock) = clock_of(clock) else { return EINVAL };
    // SAFETY: callers guarantee it.
    unsafe { lock_within::<L, M>(address, clock, until) }
}

/// `pthread_mutex_unlock`
///
/// # Safety
/// As for the C function.
#[inline]
pub unsafe extern "C-unwind" fn unlock<L: RawLock<M>, M: Machine<Word = Word32>>(
    address: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: callers guarantee it. The mutex may be freed once the lock is released; nothing is accessed
    // afterwards.
    let mutex = unsafe { Mutex::at(address) };
    if !is_plain(mutex.kind.load(Relaxed)) {
        cold_path();
        // SAFETY: callers guarantee it.
        return unsafe { unlock_other::<L, M>(address) };
    }
    let differs = mutex.owner.load(Relaxed) ^ holder::id();
    mutex.owner.store(0, Relaxed); // If glibc's code locks this mutex next, it requires 0.
    // A signal handler of this thread that signals a condition variable finds the 0 from here on.
    compiler_fence(SeqCst);
    if (differs | mutex.count.load(Relaxed)) != 0 {
        cold_path();
        // SAFETY: callers guarantee it.
        unsafe { unlock_and_wake::<L, M>(mutex) };
        return 0;
    }
    // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
    unsafe { L::unlock(&mutex.word, mutex.queue::<L::Queue>()) };
    0
}

#[cold]
unsafe fn unlock_other<L: RawLock<M>, M: Machine<Word = Word32>>(address: *mut pthread_mutex_t) -> c_int {
    // SAFETY: callers guarantee it.
    let mutex = unsafe { Mutex::at(address) };
    if let Kind::Glibc(why) = decode(mutex.kind.load(Relaxed)) {
        M::trace(why);
        // SAFETY: callers guarantee it.
        return unsafe { glibc::pthread_mutex_unlock(address) };
    }
    if !is_mine(mutex) {
        return EPERM;
    }
    // An error-checking mutex that glibc's code has locked has count 0.
    let left = mutex.count.load(Relaxed).saturating_sub(1);
    mutex.count.store(left, Relaxed);
    if left == 0 {
        mutex.owner.store(0, Relaxed);
        // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
        unsafe { L::unlock(&mutex.word, mutex.queue::<L::Queue>()) };
    }
    0
}

/// Releases a plain mutex whose owner is cleared, then wakes the waiters that a signal or a broadcast has left to this
/// release.
///
/// # Safety
/// The caller is the mutex's holder, or acts for it.
#[cold]
#[inline(never)]
unsafe fn unlock_and_wake<L: RawLock<M>, M: Machine<Word = Word32>>(mutex: &Mutex) {
    Place::<M>::fence(mutex); // This may be another thread than the owner: see `cond::deferral`.
    // SAFETY: in a plain mutex only `cond` leaves a waiter there, and it is woken below.
    let waiter = unsafe { take::<M>(mutex) };
    // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
    unsafe { L::unlock(&mutex.word, mutex.queue::<L::Queue>()) };
    if let Some(waiter) = waiter {
        signal_all::<M>(waiter);
    }
}

/// `pthread_mutex_destroy`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn destroy<L: RawLock<M>, M: Machine<Word = Word32>>(
    address: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: callers guarantee it.
    let mutex = unsafe { Mutex::at(address) };
    if let Kind::Glibc(why) = decode(mutex.kind.load(Relaxed)) {
        M::trace(why);
        // SAFETY: callers guarantee it.
        return unsafe { glibc::pthread_mutex_destroy(address) };
    }
    // SAFETY: callers keep POSIX's contract, which is the lock's (`Mutex::queue`).
    if unsafe { L::is_locked(&mutex.word, mutex.queue::<L::Queue>()) } || mutex.has_waiters() {
        return EBUSY;
    }
    // SAFETY: it is free, and callers guarantee that no thread uses it any more.
    unsafe { L::destroy(&mutex.word, mutex.queue::<L::Queue>()) };
    mutex.kind.store(DESTROYED, Relaxed);
    0
}
