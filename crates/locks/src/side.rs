//! # Side blocks: state of a lock that is too large for the lock
//!
//! **Problem.** A lock with a part for each NUMA node wants each of them on a line of its own; a `pthread_mutex_t` has no room for that, and may be in
//! use before any constructor has run. **Idea.** The parts are [queue nodes](crate::node) of the pool, and one node more names them: the **index**. The
//! lock keeps the index's handle. Both are made when they are first needed.
//!
//! ```text
//!   lock:  … | side ──> [index]  the owner's words: state, next, role
//!                         ├─ NUMA node 0 ──> [part]  the owner's words: all but epoch, pool_next, generation
//!                         ├─ NUMA node 1 ──> [part]
//!                         └─ NUMA node 2     0: nobody has come from there
//! ```
//!
//! A machine with more than [`SLOTS`] NUMA nodes lets some share a part.
//!
//! ## Invariants
//! 1. `side`, and a slot of the index, change from 0 once, by an exchange; who loses gives its node back. What they name was blank
//!    before, but for what the owner wrote.
//! 2. They become 0 again only in [`Side::give_back`], by who knows that nobody uses the lock any more. Until then the nodes are the lock's: a node that
//!    was given back serves somebody else, so a side block counts as memory of the lock, which may not be accessed once another thread
//!    may have destroyed it.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `side`, slots: exchange, load | AcqRel, Acquire | each other | the node is prepared |
//!
//! **Cannot:** be given back if the program frees the lock without destroying it: then its nodes are lost to the pool.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::{Handle, Machine, Word};
use crate::node::Node;

/// How many parts there can be.
pub const SLOTS: u32 = 7;

/// The side block of a lock, by its index.
pub struct Side<M: Machine>(pub &'static Node<M>);

impl<M: Machine> Clone for Side<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Side<M> {}

/// A node whose words are 0, but those of the pool, of condition variables, and its epoch: who holds a stale handle of a waiter may ask
/// whether that still exists, and must not take it for one that a fork has left behind. Relaxed: it is published by an exchange.
fn blank<M: Machine>() -> Handle {
    let handle = M::take_node();
    let node = handle.node::<M>();
    node.prepare_on(0, 0);
    let [low, high] = &node.mutex;
    let rest = [&node.prev, &node.since, &node.passes, &node.check_at, &node.granted_at, &node.role, low, high];
    for word in rest.into_iter().chain([&node.left.0]) {
        word.store(0, Relaxed);
    }
    handle
}

/// What `word` names: `fresh` from now on, unless it has named something before.
fn publish<M: Machine>(word: &M::Word, fresh: Handle) -> Handle {
    match word.compare_exchange(0, fresh.word(), AcqRel, Acquire) {
        Ok(_) => fresh,
        Err(winner) => {
            M::give_node(fresh);
            Handle::from_word(winner).unwrap_or(fresh)
        }
    }
}

impl<M: Machine> Side<M> {
    /// The side block that the word names, if there is one.
    #[inline]
    pub fn of(side: &M::Word) -> Option<Self> {
        Handle::from_word(side.load(Acquire)).map(|index| Self(index.node()))
    }

    /// The side block that the word names; made, and prepared further by the owner, if there is none.
    #[cold]
    pub fn make(side: &M::Word, prepare: impl FnOnce(&Node<M>)) -> Self {
        let index = blank::<M>();
        prepare(index.node());
        Self(publish::<M>(side, index).node())
    }

    /// The word that names the part of a NUMA node.
    #[inline]
    fn slot(self, numa: u32) -> &'static M::Word {
        let Self(node) = self;
        match numa % SLOTS {
            0 => &node.since,
            1 => &node.passes,
            2 => &node.check_at,
            3 => &node.granted_at,
            4 => &node.mutex[0],
            5 => &node.mutex[1],
            _ => &node.prev,
        }
    }

    /// The part of a NUMA node, if there is one.
    #[inline]
    pub fn part(self, numa: u32) -> Option<Handle> {
        Handle::from_word(self.slot(numa).load(Acquire))
    }

    /// The same; made if there is none.
    #[inline]
    pub fn part_or_make(self, numa: u32) -> Handle {
        self.part(numa).unwrap_or_else(|| self.make_part(numa))
    }

    #[cold]
    fn make_part(self, numa: u32) -> Handle {
        publish::<M>(self.slot(numa), blank::<M>())
    }

    /// The names of all parts that there are.
    pub fn names(self) -> impl Iterator<Item = Handle> {
        (0..SLOTS).filter_map(move |numa| self.part(numa))
    }

    /// All parts that there are.
    pub fn parts(self) -> impl Iterator<Item = &'static Node<M>> {
        self.names().map(Handle::node)
    }

    /// Gives all nodes back (invariant 2). Relaxed: nobody else is there.
    pub fn give_back(side: &M::Word) {
        let Some(index) = Handle::from_word(side.swap(0, Relaxed)) else { return };
        Self(index.node()).names().for_each(M::give_node);
        M::give_node(index);
    }
}
