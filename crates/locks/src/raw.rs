//! # What all locks have in common
//!
//! A lock is a type without values: its state is a word and a [`RawLock::Queue`], passed by reference, and all-zero state
//! is a free lock. None of the functions is unsafe: an unlock by a thread that does not hold the lock is allowed by POSIX's
//! default mutex, and at worst breaks exclusion for its users, never memory.

use crate::machine::{Deadline, Handle, Machine, TimedOut};

/// A mutual exclusion lock.
pub trait RawLock<M: Machine>: 'static {
    /// The second piece of its state; all-zero is free. `()` where the word is all there is.
    type Queue: 'static;

    /// Whether the word follows the protocol of glibc's default mutex (0 free, 1 held, 2 held and somebody sleeps on it), so
    /// that code which bypasses us and runs glibc's on the same mutex excludes, sleeps and is woken.
    const GLIBC_WORD: bool = false;

    /// A free lock's queue.
    fn new_queue() -> Self::Queue;

    /// Acquires the lock if that is possible at once.
    fn try_lock(word: &M::Word, queue: &Self::Queue) -> bool;

    /// Acquires the lock.
    fn lock(word: &M::Word, queue: &Self::Queue);

    /// Acquires the lock, or gives up when the deadline has passed. A free lock is acquired even after the deadline.
    fn lock_until(word: &M::Word, queue: &Self::Queue, until: Deadline) -> Result<(), TimedOut>;

    /// Releases the lock. After the store that lets another thread in, nothing of the lock is accessed.
    fn unlock(word: &M::Word, queue: &Self::Queue);

    /// Whether somebody holds the lock, or did a moment ago.
    fn is_locked(word: &M::Word, queue: &Self::Queue) -> bool;

    /// Whether sleeping waiters can be put in its queue from outside, now. If so, [`RawLock::adopt`] must follow.
    fn may_adopt(_word: &M::Word, _queue: &Self::Queue) -> bool {
        false
    }

    /// Puts a chain of waiters, linked by `next` from `first` to `last` and all in state `PARKED`, at the end of the
    /// queue. Each of them finishes with [`RawLock::lock_adopted`]. They were given state `PARKED` after `may_adopt` said yes.
    fn adopt(_word: &M::Word, _queue: &Self::Queue, _first: Handle, _last: Handle) {
        unreachable!("this lock has no queue to move waiters to")
    }

    /// Waits until the calling thread's own node, which [`RawLock::adopt`] put in the queue, has acquired the lock.
    fn lock_adopted(_word: &M::Word, _queue: &Self::Queue, _node: Handle) {
        unreachable!("this lock has no queue to move waiters to")
    }
}
