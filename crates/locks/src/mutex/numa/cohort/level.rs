//! # The levels of cohort locks
//!
//! What a [cohort lock](super) requires of the locks that it is made of. A [local](super::local) lock stands in a part
//! of the side block. A [global](super::global) lock stands in the lock's word and in up to two words more, and in the
//! side block if it needs lines of its own.

use crate::machine::block::Block;
use crate::machine::{Deadline, Machine, TimedOut};
use crate::parts::counted::Contention;
use crate::parts::side::Side;
use crate::parts::zeroed::Zeroed;

/// A lock among the threads of a NUMA node.
///
/// # Safety
/// Its functions use `tail`, `next`, `sleepers` and, for what comes with the lock, the other words of its part, as its
/// page says; and nodes as its invariants allow.
pub unsafe trait LocalLock: 'static {
    /// Whether a waiter may leave when its deadline has passed. If not, `lock` is never called with a deadline.
    const CAN_LEAVE: bool;

    /// Acquires the lock.
    fn lock<M: Machine>(part: &Block<M>, until: Option<Deadline>, waiting: &mut Contention<M>) -> Result<(), TimedOut>;

    /// For the holder: whether a thread waits, or did a moment ago.
    fn has_waiters<M: Machine>(part: &Block<M>) -> bool;

    /// Hands the lock, and the global lock with it, to the next waiter, which can no longer leave. Returns whether
    /// there was a waiter. If not, the caller still holds the lock.
    fn pass<M: Machine>(part: &Block<M>) -> bool;

    /// Releases the lock. Does nothing if it is free.
    fn unlock<M: Machine>(part: &Block<M>);

    /// In a forked child: makes the lock free, or `held`, with no waiters. No other thread accesses it.
    fn reset<M: Machine>(part: &Block<M>, held: bool);
}

/// A lock among NUMA nodes; any thread may release it.
///
/// # Safety
/// Of the side block its functions use what is not the parts', and of nodes what the invariants on its page allow.
pub unsafe trait Global: 'static {
    /// Its state beside the word.
    type State<M: Machine>: Zeroed;

    /// Acquires the lock, if that is possible at once. Reads nothing outside the lock.
    fn try_lock<M: Machine>(at: &Place<'_, M, Self::State<M>>) -> bool;

    /// Acquires the lock.
    fn lock<M: Machine>(
        at: &Place<'_, M, Self::State<M>>,
        until: Option<Deadline>,
        waiting: &mut Contention<M>,
    ) -> Result<(), TimedOut>;

    /// Releases the lock. The last access is the store that lets another thread in.
    fn unlock<M: Machine>(at: &Place<'_, M, Self::State<M>>);

    /// Whether a thread holds the lock, or did a moment ago.
    fn is_held<M: Machine>(word: &M::Word, state: &Self::State<M>) -> bool;

    /// In a forked child: makes the lock free, or `held`, with no waiters. No other thread accesses it.
    fn reset<M: Machine>(at: &Place<'_, M, Self::State<M>>, held: bool);

    /// Gives back what the lock has in the side block beside the parts.
    fn destroy<M: Machine>(_: Side<M>) {}
}

/// Where a global lock is.
pub struct Place<'a, M: Machine, S> {
    pub(super) word: &'a M::Word,
    pub(super) state: &'a S,
    /// The word that names its side block, if there is one. There is one whenever a thread waits.
    pub(super) named: &'a M::Word,
}

impl<M: Machine, S> Place<'_, M, S> {
    /// The lock's word.
    pub fn word(&self) -> &M::Word {
        self.word
    }

    /// Its side block, if there is one.
    pub fn side(&self) -> Option<Side<M>> {
        Side::of(self.named)
    }
}
