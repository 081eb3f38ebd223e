//! # What all locks have in common
//!
//! A lock is a type without values: its state is a word and a [`RawLock::Queue`], passed by reference, and all-zero
//! state is a free lock. None of the functions is unsafe: an unlock by a thread that does not hold the lock never
//! breaks memory. Of a free lock it does nothing, as with glibc; of one that somebody else holds it is that one's
//! release, if his own does not come at the same moment. Two releases at once of a lock that others wait for, which
//! POSIX leaves undefined, may name nodes that serve in the queue of another lock by then: tell a waiter there that it
//! has that lock, or give its node back twice. Then exclusion is lost there, too. To rule that out would take an
//! exchange more in each such release.

use crate::cond::Chain;
use crate::machine::{Deadline, Handle, Machine, TimedOut};

/// A mutual exclusion lock.
pub trait RawLock<M: Machine>: 'static {
    /// The second piece of its state; all-zero is free. `()` where the word is all there is.
    type Queue: 'static;

    /// Whether the word follows the protocol of glibc's default mutex (0 free, 1 held, 2 held and somebody sleeps on
    /// it), so that code which bypasses us and runs glibc's on the same mutex excludes, sleeps and is woken.
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

    /// Takes the waiters of a broadcast over, from outside: the caller need not hold the lock. They sleep; it puts them
    /// in its queue, to be woken in their turn, each of which ends with [`RawLock::lock_adopted`]; or, where it has no
    /// queue for sleepers, lets them go one after the other. A lock touches its own state only as long as the chain's
    /// first waiter cannot go on: the mutex is there as long as somebody has yet to acquire it.
    fn adopt(_word: &M::Word, _queue: &Self::Queue, chain: Chain) {
        chain.hand_over_hand::<M>();
    }

    /// Waits until the calling thread, whose own node [`RawLock::adopt`] has moved, has acquired the lock. The node is
    /// the lock's from then on.
    fn lock_adopted(_word: &M::Word, _queue: &Self::Queue, _node: Handle) {
        unreachable!("this lock moves nobody")
    }

    /// Gives back what the lock owns beside its state. It is free, and nobody uses it any more.
    fn destroy(_word: &M::Word, _queue: &Self::Queue) {}
}
