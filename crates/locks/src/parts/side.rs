//! # Side blocks: state of a lock that is too large for the lock
//!
//! A side block holds state for which a lock has no room, such as a part for each NUMA node.
//!
//! **Problem.** A lock with a part for each NUMA node needs each part on a line of its own. A `pthread_mutex_t` has no
//! room for that, and may be in use before any constructor has run. **Idea.** There is a pool of [`Block`]s. A block
//! has two lines: the owner's words, and the names of the blocks below. The lock keeps the name of one block. That
//! block names a block for each NUMA node, its **parts**, and each of these may name parts of its own. Blocks are made
//! when they are first needed.
//!
//! ```text
//!   lock:  … | side ──> [block]
//!                         ├─ number 0 ──> [part]
//!                         ├─ number 1 ──> [part] ─ number 0 ──> [part]  above: the part above it
//!                         ├─ …            0: no thread has come from there
//!                         └─ more ──> [block] ─ number 15, …
//! ```
//!
//! A part's number is that of a NUMA node, or of whatever else the lock's parts stand for. If there are more than
//! [`MOST`] of these, some share a part.
//!
//! **Blocks are not [queue nodes](crate::machine::node).** A thread with a stale handle may still write a hint into the
//! node that the handle names, although another thread uses the node by then ([`node`](crate::machine::node) lists all
//! such stores). If the node were a part of a lock, the hint would overwrite the part's state, and the lock would let
//! two threads in. So blocks have memory of their own kind, a pool of their own, and a [`Name`] that is not a
//! [`Handle`](crate::machine::Handle).
//!
//! ## Invariants
//! 1. `side`, a slot of a block, and its `more` change from 0 once, by an exchange. A thread that loses the exchange
//!    gives its block back. The block that they name was blank before, except `above` and what the owner wrote.
//! 2. They become 0 again only in [`Side::give_back`], by a thread that knows that no thread uses the lock any more.
//!    Until then the blocks belong to the lock. A block that was given back serves another lock. So a side block counts
//!    as memory of the lock, and may not be accessed once another thread may have destroyed the lock. So no name of a
//!    block is ever stale while it is used.
//! 3. The memory of a block never becomes anything but a block.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `side`, slots, `more`: exchange, load | AcqRel, Acquire | each other | the block is prepared |
//!
//! **Cannot:** be given back if the program frees the lock without destroying it. Then its blocks are lost to the pool.

use core::iter::successors;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::block::{Block, Name, SLOTS};
use crate::machine::copied::copied;
use crate::machine::{Machine, Word};

/// How many parts there can be, below a lock or below a part.
pub const MOST: u32 = 3 * SLOTS;

/// The side block of a lock, or of a part, by the block that names the parts.
pub struct Side<M: Machine>(pub(crate) &'static Block<M>);

copied!(Side<M>);

/// A block whose words are 0. Relaxed: it is published by an exchange.
fn blank<M: Machine>() -> Name {
    // SAFETY: it is named by one word, or given back (invariants 1 and 2).
    let name = unsafe { M::take_block() };
    name.block::<M>().words().for_each(|word| word.store(0, Relaxed));
    name
}

/// Makes `word` name `fresh`, unless it names a block already. Returns what it names.
fn publish<M: Machine>(word: &M::Word, fresh: Name) -> Name {
    match word.compare_exchange(0, fresh.word(), AcqRel, Acquire) {
        Ok(_) => fresh,
        Err(winner) => {
            M::give_block(fresh);
            Name::from_word(winner).unwrap_or(fresh)
        }
    }
}

impl<M: Machine> Side<M> {
    /// The side block that the word names, if there is one.
    #[inline]
    pub(crate) fn of(side: &M::Word) -> Option<Self> {
        Name::from_word(side.load(Acquire)).map(|name| Self(name.block()))
    }

    /// The side block that the word names. If there is none, makes one, which the owner prepares further.
    #[cold]
    pub(crate) fn make(side: &M::Word, prepare: impl FnOnce(&Block<M>)) -> Self {
        let fresh = blank::<M>();
        prepare(fresh.block());
        Self(publish::<M>(side, fresh).block())
    }

    /// The same, but the block knows for which word it was made: see [`is_of`](Self::is_of).
    #[cold]
    pub(crate) fn make_owned(side: &M::Word, prepare: impl FnOnce(&Block<M>)) -> Self {
        Self::make(side, |block| {
            prepare(block);
            let address = core::ptr::from_ref(side).addr() as u64;
            block.owner[0].store(address as u32, Relaxed);
            block.owner[1].store((address >> 32) as u32, Relaxed);
        })
    }

    /// Whether the block was made for the word at this address. If not, the lock was copied from another address; or
    /// another process has written the name there, in memory that both map. Then the name stands for a block of another
    /// lock, or for none.
    pub fn is_of(self, side: &M::Word) -> bool {
        let address = core::ptr::from_ref(side).addr() as u64;
        let [low, high] = &self.0.owner;
        u64::from(low.load(Relaxed)) | u64::from(high.load(Relaxed)) << 32 == address
    }

    /// The parts below a part.
    #[inline]
    pub fn below(part: Name) -> Self {
        Self(part.block())
    }

    /// The word that names a part.
    #[inline]
    fn slot(self, slot: u32) -> &'static M::Word {
        let Self(block) = self;
        &block.below.slots[slot as usize % SLOTS as usize]
    }

    /// The part with that number, if there is one.
    #[inline]
    pub fn part(self, number: u32) -> Option<Name> {
        if number < SLOTS { Name::from_word(self.slot(number).load(Acquire)) } else { self.far_part(number) }
    }

    /// A part that is named by a block other than the first.
    #[cold]
    fn far_part(self, number: u32) -> Option<Name> {
        let (mut here, mut slot) = (self, number % MOST);
        while slot >= SLOTS {
            here = Self::of(&here.0.below.more)?;
            slot -= SLOTS;
        }
        Name::from_word(here.slot(slot).load(Acquire))
    }

    /// The same. If there is no such part, makes one, which the owner prepares further. If it is below another part,
    /// that one is `above`.
    #[inline]
    pub fn part_or_make(self, number: u32, above: Option<Name>, prepare: impl FnOnce(&Block<M>)) -> Name {
        self.part(number).unwrap_or_else(|| self.make_part(number, above, prepare))
    }

    #[cold]
    fn make_part(self, number: u32, above: Option<Name>, prepare: impl FnOnce(&Block<M>)) -> Name {
        let (mut here, mut slot) = (self, number % MOST);
        while slot >= SLOTS {
            let more = &here.0.below.more;
            here = Self::of(more).unwrap_or_else(|| Self::make(more, |_| ()));
            slot -= SLOTS;
        }
        let fresh = blank::<M>();
        fresh.block::<M>().above.store(above.map_or(0, Name::word), Relaxed);
        prepare(fresh.block());
        publish::<M>(here.slot(slot), fresh)
    }

    /// The names of all parts, except those below parts.
    pub fn names(self) -> impl Iterator<Item = Name> {
        let blocks = successors(Some(self), |block| Self::of(&block.0.below.more));
        blocks.flat_map(|block| (0..SLOTS).filter_map(move |slot| Name::from_word(block.slot(slot).load(Acquire))))
    }

    /// All parts, except those below parts.
    pub fn parts(self) -> impl Iterator<Item = &'static Block<M>> {
        self.names().map(Name::block)
    }

    /// The names of all parts, each before those below it.
    pub fn all_names(self, each: &mut dyn FnMut(Name)) {
        for part in self.names() {
            each(part);
            Self::below(part).all_names(each);
        }
    }

    /// Visits that block, and each block that it names, once. Each block may be given back as soon as it was visited.
    /// Relaxed: no other thread uses them.
    pub fn each_block(block: Option<Name>, each: &mut dyn FnMut(Name)) {
        let Some(name) = block else { return };
        let below = &name.block::<M>().below;
        for word in below.slots.iter().chain([&below.more]) {
            Self::each_block(Name::from_word(word.load(Relaxed)), each);
        }
        each(name);
    }

    /// Gives all blocks back (invariant 2).
    pub(crate) fn give_back(side: &M::Word) {
        Self::each_block(Name::from_word(side.swap(0, Relaxed)), &mut |block| M::give_block(block));
    }
}

/// The part above this one, if there is one. Relaxed: it was written before the part was published, and does not
/// change.
#[inline]
pub fn above<M: Machine>(part: &Block<M>) -> Option<Name> {
    Name::from_word(part.above.load(Relaxed))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::machine::bench::Bench;

    #[test]
    fn a_side_block_names_as_many_parts_as_it_says() {
        let word = Word::new(0);
        let side = Side::<Bench>::make(&word, |_| ());
        let parts: Vec<_> = (0..MOST).map(|number| side.part_or_make(number, None, |_| ())).collect();
        assert!((0..MOST).all(|number| side.part(number) == Some(parts[number as usize])));
        assert!(side.names().eq(parts.iter().copied()), "in the order of their numbers, each once");
        assert_eq!(side.part(MOST), Some(parts[0]), "beyond, parts are shared");
        Side::<Bench>::give_back(&word);
        assert!(Side::<Bench>::of(&word).is_none());
    }
}
