//! # Who holds a waiter's mutex, and wakes the waiter when it releases that
//!
//! What a condition variable asks of its waiters' mutexes, to [defer](super::fifo) a wake-up.

use crate::machine::Handle;

/// Leaves the wake-up of a waiter to the release of its mutex, which is named by its address.
///
/// # Safety
/// A waiter for which `defer` returned true is passed to [`signal_all`](crate::parts::adoption::signal_all) once, in this
/// process: by the next release of the mutex, after that has released the lock. If `recall` returned true for it, no
/// release does so.
pub unsafe trait Defer {
    /// If the calling thread holds the mutex, leaves the waiter, and those linked behind it, to its release. Returns
    /// whether it did. The mutex exists: the waiter has yet to acquire it.
    fn defer(&self, mutex: u64, waiter: Handle) -> bool;

    /// Takes a waiter back that was left to a release. Returns false if a release has taken it already. The mutex
    /// exists.
    fn recall(&self, mutex: u64, waiter: Handle) -> bool;
}

/// Wakes every waiter at once.
pub struct AtOnce;

// SAFETY: it never returns true.
unsafe impl Defer for AtOnce {
    fn defer(&self, _mutex: u64, _waiter: Handle) -> bool {
        false
    }

    fn recall(&self, _mutex: u64, _waiter: Handle) -> bool {
        false
    }
}
