//! # The levels of cohort locks
//!
//! What a [cohort lock](super) asks of the locks that it is made of: a [local](super::local) one, in a part of the side
//! block, and a [global](super::global) one, in the lock's word and up to two words more, and in the side block if it
//! needs lines of its own.

use core::marker::PhantomData;

use crate::event::Event;
use crate::machine::{Deadline, Machine, TimedOut};
use crate::side::{Block, Side};

/// An acquisition that may have to wait, at either level: it is contended once.
pub struct Waiting<M: Machine> {
    began: Option<u64>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Waiting<M> {
    pub(super) fn new() -> Self {
        Self { began: None, machine: PhantomData }
    }

    /// It has to.
    pub(super) fn begin(&mut self) {
        if self.began.is_none() {
            M::trace(Event::Contended);
            self.began = Some(M::stamp());
        }
    }

    /// It is over.
    pub(super) fn end(self, how: Result<(), TimedOut>) -> Result<(), TimedOut> {
        match (how, self.began) {
            (Ok(()), Some(stamp)) => M::waited(stamp),
            (Ok(()), None) => {}
            (Err(_), _) => M::trace(Event::TimedOut),
        }
        how
    }
}

/// A lock among the threads of a NUMA node.
pub trait LocalLock: 'static {
    /// Whether a waiter may leave when its deadline has passed. If not, none with a deadline comes.
    const CAN_LEAVE: bool;

    /// Acquires it.
    fn lock<M: Machine>(part: &Block<M>, until: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<(), TimedOut>;

    /// For the holder: whether somebody waits, or did a moment ago.
    fn has_waiters<M: Machine>(part: &Block<M>) -> bool;

    /// Hands it to the next waiter, who cannot leave it any more, with the global lock. Whether there was one; if not,
    /// the caller still holds it.
    fn pass<M: Machine>(part: &Block<M>) -> bool;

    /// Releases it. Of a free one: nothing.
    fn unlock<M: Machine>(part: &Block<M>);

    /// In a forked child: nobody waits; free, or `held`. Nobody else is there.
    fn reset<M: Machine>(part: &Block<M>, held: bool);
}

/// A lock among NUMA nodes; any thread may release it.
pub trait Global: 'static {
    /// What it has beside the word.
    type State<M: Machine>: 'static;

    /// A free lock's.
    fn new<M: Machine>() -> Self::State<M>;

    /// Acquires it, if that is possible at once. Looks at nothing beside the lock.
    fn try_lock<M: Machine>(at: &Place<'_, M, Self::State<M>>) -> bool;

    /// Acquires it.
    fn lock<M: Machine>(
        at: &Place<'_, M, Self::State<M>>,
        until: Option<Deadline>,
        waiting: &mut Waiting<M>,
    ) -> Result<(), TimedOut>;

    /// Releases it. The last access is the store that lets another thread in.
    fn unlock<M: Machine>(at: &Place<'_, M, Self::State<M>>);

    /// Whether somebody holds it, or did a moment ago.
    fn is_held<M: Machine>(word: &M::Word, state: &Self::State<M>) -> bool;

    /// In a forked child: nobody waits; free, or `held`. Nobody else is there.
    fn reset<M: Machine>(at: &Place<'_, M, Self::State<M>>, held: bool);

    /// Gives back what it has in the side block beside the parts.
    fn destroy<M: Machine>(_: Side<M>) {}
}

/// Where a global lock is.
pub struct Place<'a, M: Machine, S> {
    pub(super) word: &'a M::Word,
    pub(super) state: &'a S,
    /// The word that names its side block, if there is one; there is, where somebody waits.
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
