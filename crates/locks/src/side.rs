//! # Side blocks: state of a lock that is too large for the lock
//!
//! **Problem.** A lock with a part for each NUMA node wants each of them on a line of its own; a `pthread_mutex_t` has no room for that, and may be in
//! use before any constructor has run. **Idea.** The parts are [queue nodes](crate::node) of the pool, and one node more names them: the **index**. The
//! lock keeps the index's handle. Both are made when they are first needed. A part may have parts below it, by an index of its own.
//!
//! ```text
//!   lock:  … | side ──> [index]  the owner's words: state, role, epoch, batch
//!                         ├─ number 0 ──> [part]  the owner's words: all but epoch, pool_next, generation, prev, role
//!                         ├─ number 1 ──> [part] role ──> [index] ─ number 0 ──> [part]  prev: the part above it
//!                         ├─ …            0: nobody has come from there
//!                         └─ next ──> [index] ─ number 7, …
//! ```
//!
//! A part's number is that of a NUMA node, or of whatever parts are for. A machine with more than [`MOST`] of these lets some share a part.
//!
//! ## Invariants
//! 1. `side`, a slot of an index, its `next`, and the `role` of a part change from 0 once, by an exchange; who loses gives its node back. What
//!    they name was blank before, but for `prev` and what the owner wrote.
//! 2. They become 0 again only in [`Side::give_back`], by who knows that nobody uses the lock any more. Until then the nodes are the lock's: a node that
//!    was given back serves somebody else, so a side block counts as memory of the lock, which may not be accessed once another thread
//!    may have destroyed it.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `side`, slots, `next`, `role`: exchange, load | AcqRel, Acquire | each other | the node is prepared |
//!
//! **Cannot:** be given back if the program frees the lock without destroying it: then its nodes are lost to the pool.

use core::iter::successors;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::{Handle, Machine, Word};
use crate::node::Node;

/// How many parts an index names.
pub const SLOTS: u32 = 7;
/// How many parts there can be, below a lock or below a part.
pub const MOST: u32 = 5 * SLOTS;

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
    for word in rest {
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

    /// The side block of the parts below a part; made if there is none.
    #[inline]
    pub fn below(part: Handle) -> Self {
        let side = &part.node::<M>().role;
        Self::of(side).unwrap_or_else(|| Self::make(side, |_| ()))
    }

    /// A word of the index that names a part.
    #[inline]
    fn slot(self, slot: u32) -> &'static M::Word {
        let Self(node) = self;
        match slot {
            0 => &node.since,
            1 => &node.passes,
            2 => &node.check_at,
            3 => &node.granted_at,
            4 => &node.mutex[0],
            5 => &node.mutex[1],
            _ => &node.prev,
        }
    }

    /// The part of that number, if there is one.
    #[inline]
    pub fn part(self, number: u32) -> Option<Handle> {
        if number < SLOTS { Handle::from_word(self.slot(number).load(Acquire)) } else { self.far_part(number) }
    }

    /// One that another index than the first names.
    #[cold]
    fn far_part(self, number: u32) -> Option<Handle> {
        let (mut index, mut slot) = (self, number % MOST);
        while slot >= SLOTS {
            index = Self::of(&index.0.next)?;
            slot -= SLOTS;
        }
        Handle::from_word(index.slot(slot).load(Acquire))
    }

    /// The same; made, and prepared further by the owner, if there is none. Where it is below another part, that one is `above`.
    #[inline]
    pub fn part_or_make(self, number: u32, above: Option<Handle>, prepare: impl FnOnce(&Node<M>)) -> Handle {
        self.part(number).unwrap_or_else(|| self.make_part(number, above, prepare))
    }

    #[cold]
    fn make_part(self, number: u32, above: Option<Handle>, prepare: impl FnOnce(&Node<M>)) -> Handle {
        let (mut index, mut slot) = (self, number % MOST);
        while slot >= SLOTS {
            let next = &index.0.next;
            index = Self::of(next).unwrap_or_else(|| Self::make(next, |_| ()));
            slot -= SLOTS;
        }
        let fresh = blank::<M>();
        fresh.node::<M>().prev.store(above.map_or(0, Handle::word), Relaxed);
        prepare(fresh.node());
        publish::<M>(index.slot(slot), fresh)
    }

    /// The names of all parts that there are, but those below parts.
    pub fn names(self) -> impl Iterator<Item = Handle> {
        let indexes = successors(Some(self), |index| Self::of(&index.0.next));
        indexes.flat_map(|index| (0..SLOTS).filter_map(move |slot| Handle::from_word(index.slot(slot).load(Acquire))))
    }

    /// These parts.
    pub fn parts(self) -> impl Iterator<Item = &'static Node<M>> {
        self.names().map(Handle::node)
    }

    /// The names of all parts that there are, each before those below it.
    pub fn all_names(self, each: &mut dyn FnMut(Handle)) {
        for part in self.names() {
            each(part);
            if let Some(below) = Self::of(&part.node::<M>().role) {
                below.all_names(each);
            }
        }
    }

    /// Each node of the side block of that index, once. Each may be given back as soon as it was named. Relaxed: nobody else is there.
    pub fn each_node(index: Option<Handle>, each: &mut dyn FnMut(Handle)) {
        let Some(index) = index else { return };
        let node = index.node::<M>();
        for part in (0..SLOTS).filter_map(|slot| Handle::from_word(Self(node).slot(slot).load(Relaxed))) {
            Self::each_node(Handle::from_word(part.node::<M>().role.load(Relaxed)), each);
            each(part);
        }
        Self::each_node(Handle::from_word(node.next.load(Relaxed)), each);
        each(index);
    }

    /// Gives all nodes back (invariant 2).
    pub fn give_back(side: &M::Word) {
        Self::each_node(Handle::from_word(side.swap(0, Relaxed)), &mut |node| M::give_node(node));
    }
}

/// The part that a part is below, if there is one. Relaxed: it was written before the part was published, and stays.
#[inline]
pub fn above<M: Machine>(part: &Node<M>) -> Option<Handle> {
    Handle::from_word(part.prev.load(Relaxed))
}
