//! # Sleeping at a cancellation point
//!
//! A raw futex call is not a cancellation point. So a thread that may be cancelled sleeps in glibc's `sem_wait` or
//! `sem_clockwait` instead, on a semaphore in its own node; see `cancel.c`. The function is glibc's own, looked up
//! behind ours.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    fence,
};

use flashlock_locks::machine::{Clock, Deadline, Handle};
use flashlock_locks::sem::Slept;
use flashlock_native::{Word32, pool};
use libc::{clockid_t, sem_t, timespec};

use crate::glibc;

type Wait = unsafe extern "C-unwind" fn(*mut sem_t, clockid_t, *const timespec) -> c_int;

/// The function that runs if the thread is cancelled.
pub(crate) type Cleanup = unsafe extern "C-unwind" fn(*mut c_void);

unsafe extern "C-unwind" {
    fn flashlock_wait_cancellable(
        wait: Wait,
        semaphore: *mut sem_t,
        clock: clockid_t,
        until: *const timespec,
        cleanup: Cleanup,
        arg: *mut c_void,
    ) -> c_int;
    fn flashlock_call_cancellable(call: Call, cleanup: Cleanup, arg: *mut c_void) -> c_int;
}

/// A function in which the thread may be cancelled.
type Call = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// Calls `call(arg)`; if the thread is cancelled during it, `cleanup(arg)` runs.
///
/// # Safety
/// As for the two functions.
pub(crate) unsafe fn call(call: Call, cleanup: Cleanup, arg: *mut c_void) -> c_int {
    // SAFETY: callers guarantee it; `arg` outlives the call, and a cancelled thread's cleanup.
    unsafe { flashlock_call_cancellable(call, cleanup, arg) }
}

/// glibc's `sem_wait`, or `sem_clockwait` if there is a deadline.
unsafe extern "C-unwind" fn wait(semaphore: *mut sem_t, clock: clockid_t, until: *const timespec) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe { if until.is_null() { glibc::sem_wait(semaphore) } else { glibc::sem_clockwait(semaphore, clock, until) } }
}

/// [`Waiting::park`](flashlock_locks::machine::Waiting::park) for the calling thread and its own node, as a
/// cancellation point. If the thread is cancelled, `cleanup(arg)` runs.
pub(crate) fn park(
    me: Handle,
    word: &Word32,
    expected: u32,
    until: Option<Deadline>,
    cleanup: Cleanup,
    arg: *mut c_void,
) -> Slept {
    let mut clock = libc::CLOCK_MONOTONIC;
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    let mut time_at = core::ptr::null();
    if let Some(deadline) = until {
        if deadline.clock == Clock::Realtime {
            clock = libc::CLOCK_REALTIME;
        }
        // A time before 1970 has passed, but the kernel would reject it as invalid.
        time = timespec { tv_sec: deadline.sec.max(0), tv_nsec: deadline.nsec.into() };
        time_at = &raw const time;
    }
    let slot = pool::slot(me);
    slot.at_semaphore.store(1, Relaxed);
    // Pairs with the fence in `pool::unpark`.
    fence(SeqCst);
    let mut result = 0;
    if word.0.load(Relaxed) == expected {
        // SAFETY: the semaphore is never freed; `time` and `arg` outlive the call, and a cancelled thread's cleanup.
        result = unsafe { flashlock_wait_cancellable(wait, slot.semaphore.as_ptr(), clock, time_at, cleanup, arg) };
    }
    awake(me);
    let _ = time;
    match result {
        libc::ETIMEDOUT => Slept::TimedOut,
        libc::EINTR => Slept::Interrupted,
        _ => Slept::Woken,
    }
}

/// Notes that the calling thread no longer sleeps at its semaphore. `cleanup` must call it too.
pub(crate) fn awake(me: Handle) {
    pool::slot(me).at_semaphore.store(0, Relaxed);
}

unsafe extern "C-unwind" {
    /// glibc's function.
    pub(crate) fn pthread_testcancel();
}
