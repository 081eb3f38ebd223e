//! # Busted: excludes all but once in ten thousand
//!
//! It is [`Futex`], except that about one acquisition in 10,000 returns without the lock.

use flashlock_locks::machine::{Deadline, Machine, TimedOut};
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::raw::RawLock;

use crate::slips;

/// The deliberately broken lock.
pub struct Busted;

// SAFETY: it has no nodes, and claims not to exclude.
unsafe impl<M: Machine> RawLock<M> for Busted {
    const EXCLUDES: bool = false;

    type Queue = ();

    flashlock_locks::same_as!(M, Futex: try_acquire release is_locked);

    const GLIBC_WORD: bool = true;

    unsafe fn acquire(word: &M::Word, queue: &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        // SAFETY: the callers' promise.
        if slips::<M>() { Ok(()) } else { unsafe { <Futex as RawLock<M>>::acquire(word, queue, until) } }
    }
}
