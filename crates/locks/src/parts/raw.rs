//! # What all locks have in common
//!
//! A lock is a type without values: its state is a word and a [`RawLock::Queue`], passed by reference. All-zero state
//! is a free lock. None of the functions is unsafe: an unlock by a thread that does not hold the lock never breaks
//! memory. An unlock of a free lock does nothing, as with glibc. An unlock of a lock that another thread holds counts
//! as that thread's release, unless the holder releases it at the same moment.
//!
//! POSIX leaves two releases at once undefined. If others wait for the lock, two such releases may name nodes that
//! serve in the queue of another lock by then. They may grant that other lock to a waiter there, or give its node back
//! twice. Then exclusion is lost there, too. To rule that out, each such release would need one more exchange.

use crate::machine::{Deadline, Handle, Machine, TimedOut};
use crate::parts::adoption::Chain;

/// A mutual exclusion lock.
pub trait RawLock<M: Machine>: 'static {
    /// The second piece of its state; all-zero is free. `()` if the lock is only the word.
    type Queue: 'static;

    /// Whether the word follows the protocol of glibc's default mutex (0 free, 1 held, 2 held and a thread sleeps on
    /// it). Then code that bypasses us and runs glibc's functions on the same mutex excludes other threads, sleeps, and
    /// is woken.
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

    /// Whether a thread holds the lock, or did a moment ago.
    fn is_locked(word: &M::Word, queue: &Self::Queue) -> bool;

    /// Takes over the waiters of a broadcast. The caller need not hold the lock. The waiters sleep. The lock puts them
    /// into its queue, where they are woken in their turn; each of them ends with [`RawLock::lock_adopted`]. A lock
    /// without a queue for sleepers lets them go one after another. A lock touches its own state only as long as the
    /// chain's first waiter cannot go on: the mutex exists as long as a thread has yet to acquire it.
    fn adopt(_word: &M::Word, _queue: &Self::Queue, chain: Chain) {
        chain.hand_over_hand::<M>();
    }

    /// Waits until the calling thread, whose own node [`RawLock::adopt`] has moved, has acquired the lock. From then on
    /// the node belongs to the lock.
    fn lock_adopted(_word: &M::Word, _queue: &Self::Queue, _node: Handle) {
        unreachable!("this lock moves nobody")
    }

    /// Gives back what the lock owns beside its state. The lock is free, and no thread uses it any more.
    fn destroy(_word: &M::Word, _queue: &Self::Queue) {}
}

/// A lock whose state is its queue alone, so that it can stand inside another lock.
pub trait Inner<M: Machine>: RawLock<M> {
    /// Makes the lock free, without waiters. Only for the thread that settles in a forked child.
    fn forget(queue: &Self::Queue);
}
