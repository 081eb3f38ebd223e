//! # Who holds a waiter's mutex, and wakes the waiter when it releases that
//!
//! What a condition variable asks of its waiters' mutexes, to [defer](super::fifo) a wake-up, and how a mutex does it.
//!
//! **The mutex** has an owner, which its holder writes after acquiring it and clears before releasing it, and room for
//! a waiter: its [`Place`]. A release that finds a waiter there takes it before it releases the lock, and wakes it
//! afterwards.
//!
//! A thread other than the owner may release the mutex, although POSIX does not allow that. It may do so while the
//! owner [leaves](leave) a waiter there. So both do one thing, pass a full fence, and look at the other's: the owner
//! writes the waiter, then looks whether it is still the owner; the other clears the owner, then looks for a waiter. At
//! least one of the two sees what the other has done. If it is the owner, it takes the waiter back. A release by the
//! owner needs no fence. A signal handler that interrupts it, and signals, finds the owner cleared, or is seen.
//!
//! In a forked child, the waiter does not exist. The epoch of the process is written beside it, and a release in
//! another process leaves it alone.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::{Handle, Memory, Word};

/// Where a mutex keeps the waiter that its release wakes.
pub trait Place<M: Memory> {
    /// Whether the calling thread is recorded as the owner.
    fn is_mine(&self) -> bool;
    /// The waiter's handle, or 0.
    fn waiter(&self) -> &M::Word;
    /// Writes the epoch that belongs to the waiter.
    fn mark(&self, epoch: u32);
    /// Removes it.
    fn unmark(&self);
    /// Whether that is the epoch.
    fn is_marked(&self, epoch: u32) -> bool;
    /// A full fence.
    fn fence(&self);
}

/// Leaves a waiter to the release, if the calling thread is the owner, and there is room. Returns whether it did.
pub fn leave<M: Memory>(place: &impl Place<M>, waiter: Handle) -> bool {
    if !place.is_mine() || place.waiter().load(Relaxed) != 0 {
        return false;
    }
    place.mark(M::epoch());
    // It fails if a signal handler has left another one here meanwhile. Release: whoever takes the waiter sees the
    // mark, and the links behind the waiter.
    if place.waiter().compare_exchange(0, waiter.word(), Release, Relaxed).is_err() {
        return false;
    }
    place.fence();
    place.is_mine() || !take_back(place, waiter)
}

/// Takes the waiter, before the release and after the owner is cleared; if another thread than the owner releases the
/// mutex, with a [fence](Place::fence) between the two.
///
/// ```compile_fail,E0133
/// use flashlock_locks::cond::deferral::{Place, take};
/// use flashlock_locks::machine::{Memory, Word};
/// use std::sync::atomic::Ordering::Relaxed;
///
/// fn gives_a_node_of_another_thread_back<M: Memory>(place: &impl Place<M>) {
///     place.waiter().store(17, Relaxed);
///     take::<M>(place).map(M::give_node);
/// }
/// ```
///
/// # Safety
/// That of [`Handle::new`], for the word: only [`leave`] has put a handle there, and no code but this and [`take_back`]
/// has changed it since then. The caller passes the waiter to [`signal_all`](crate::parts::adoption::signal_all) once.
pub unsafe fn take<M: Memory>(place: &impl Place<M>) -> Option<Handle> {
    if place.waiter().load(Acquire) == 0 || !place.is_marked(M::epoch()) {
        return None;
    }
    place.unmark();
    // Relaxed: whatever is there now was there, or left by a handler of this thread. `take_back` may be faster.
    Handle::from_word(place.waiter().swap(0, Relaxed))
}

/// Takes a waiter back. Returns whether it was still there. Relaxed: all that matters is who takes it.
pub fn take_back<M: Memory>(place: &impl Place<M>, waiter: Handle) -> bool {
    place.waiter().compare_exchange(waiter.word(), 0, Relaxed, Relaxed).is_ok()
}

/// Leaves the wake-up of a waiter to the release of its mutex, which is named by its address.
///
/// # Safety
/// A waiter for which `defer` returned true is passed to [`signal_all`](crate::parts::adoption::signal_all) once, in
/// this process: by the next release of the mutex, after that has released the lock. If `recall` returned true for it,
/// no release does so.
pub unsafe trait Defer {
    /// If the calling thread holds the mutex, leaves the waiter, and those linked behind it, to its release. Returns
    /// whether it did. The mutex exists: the waiter has yet to acquire it.
    fn defer(&self, mutex: u64, waiter: Handle) -> bool;

    /// Takes a waiter back that was left to a release, with those linked behind it. Returns false if a release has
    /// taken it already. The mutex exists.
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
