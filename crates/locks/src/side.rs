//! # Side blocks: state of a lock that is too large for the lock
//!
//! **Problem.** A lock with a part for each NUMA node wants each of them on a line of its own; a `pthread_mutex_t` has
//! no room for that, and may be in use before any constructor has run. **Idea.** There is a pool of [`Block`]s: two
//! lines, the owner's words, and the names of the blocks below. The lock keeps the name of one; that one names a block
//! for each NUMA node, its **parts**; and each of these may name parts of its own. They are made when they are first
//! needed.
//!
//! ```text
//!   lock:  … | side ──> [block]
//!                         ├─ number 0 ──> [part]
//!                         ├─ number 1 ──> [part] ─ number 0 ──> [part]  above: the part above it
//!                         ├─ …            0: nobody has come from there
//!                         └─ more ──> [block] ─ number 15, …
//! ```
//!
//! A part's number is that of a NUMA node, or of whatever parts are for. A machine with more than [`MOST`] of these
//! lets some share a part.
//!
//! **Blocks are no [queue nodes](crate::node).** Whoever names a waiter by a stale handle may still write a hint into
//! that node, which serves somebody else by then ([`node`](crate::node) lists who does). Were that one a part of a
//! lock, the hint would be written over its state, and the lock let two threads in. So blocks have memory of their own
//! kind, a pool of their own, and a [`Name`] that is no [`Handle`](crate::machine::Handle).
//!
//! ## Invariants
//! 1. `side`, a slot of a block, and its `more` change from 0 once, by an exchange; who loses gives its block back.
//!    What they name was blank before, but for `above` and what the owner wrote.
//! 2. They become 0 again only in [`Side::give_back`], by who knows that nobody uses the lock any more. Until then the
//!    blocks are the lock's: one that was given back serves somebody else, so a side block counts as memory of the
//!    lock, which may not be accessed once another thread may have destroyed it. So no name of a block is ever stale
//!    while it is used.
//! 3. The memory of a block never becomes anything but a block.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `side`, slots, `more`: exchange, load | AcqRel, Acquire | each other | the block is prepared |
//!
//! **Cannot:** be given back if the program frees the lock without destroying it: then its blocks are lost to the pool.

use core::iter::successors;
use core::num::NonZeroU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::{Machine, Word};

/// How many parts a block names.
pub const SLOTS: u32 = 15;
/// How many parts there can be, below a lock or below a part.
pub const MOST: u32 = 3 * SLOTS;

/// Names a block. Zero is "no block".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(NonZeroU32);

impl Name {
    /// Names are below this.
    pub const LIMIT: u32 = 1 << 28;

    /// The name in a word, or `None` for zero.
    #[inline]
    pub const fn from_word(word: u32) -> Option<Self> {
        match NonZeroU32::new(word) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// The word that names this block.
    #[inline]
    pub const fn word(self) -> u32 {
        self.0.get()
    }

    /// The block itself.
    #[inline]
    pub fn block<M: Machine>(self) -> &'static Block<M> {
        M::block(self)
    }
}

/// A block: 128 bytes, two cache lines. What its words mean, its owner says: [cohort locks](crate::numa::cohort),
/// [`cst-rw`](crate::rw::cst).
#[repr(C, align(64))]
pub struct Block<M: Machine> {
    /// The state of what the block is for; a counter of readers; a number that is served.
    pub state: M::Word,
    /// [`Machine::epoch`] of those who use it.
    pub epoch: M::Word,
    /// How often the local lock was passed on.
    pub passes: M::Word,
    /// How often it may be.
    pub limit: M::Word,
    /// The last in the queue; the number that is drawn next.
    pub tail: M::Word,
    /// The first in the queue; the number that is served.
    pub next: M::Word,
    /// The first and the last of those who sleep aside.
    pub sleepers: [M::Word; 2],
    /// How many have passed the one who waits.
    pub passed: M::Word,
    /// How many writers there were.
    pub writers: M::Word,
    /// Where the word is that names the block, low and high half; 0 where nobody asks.
    owner: [M::Word; 2],
    /// Another side block.
    pub board: M::Word,
    /// The part that this one is below, or 0.
    above: M::Word,
    /// The pool's own link.
    pub pool_next: M::Word,
    below: Below<M>,
}

/// The names of the blocks below one, on a line of their own: it is read by all who come by, and the other one is
/// written.
#[repr(C, align(64))]
struct Below<M: Machine> {
    slots: [M::Word; SLOTS as usize],
    /// A block that names further parts.
    more: M::Word,
}

impl<M: Machine> Block<M> {
    /// One that was never used. Only pools make blocks.
    pub fn new() -> Self {
        let zero = || M::Word::new(0);
        Self {
            state: zero(),
            epoch: zero(),
            passes: zero(),
            limit: zero(),
            tail: zero(),
            next: zero(),
            sleepers: [zero(), zero()],
            passed: zero(),
            writers: zero(),
            owner: [zero(), zero()],
            board: zero(),
            above: zero(),
            pool_next: zero(),
            below: Below { slots: core::array::from_fn(|_| zero()), more: zero() },
        }
    }

    /// Its words, but the pool's.
    pub fn words(&self) -> impl Iterator<Item = &M::Word> {
        let ([first, last], [low, high]) = (&self.sleepers, &self.owner);
        [low, high, &self.state, &self.epoch, &self.passes, &self.limit, &self.tail, &self.next, first, last]
            .into_iter()
            .chain([&self.passed, &self.writers, &self.board, &self.above, &self.below.more])
            .chain(&self.below.slots)
    }
}

impl<M: Machine> Default for Block<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// The side block of a lock, or of a part, by the block that names the parts.
pub struct Side<M: Machine>(pub &'static Block<M>);

impl<M: Machine> Clone for Side<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Side<M> {}

/// A block whose words are 0. Relaxed: it is published by an exchange.
fn blank<M: Machine>() -> Name {
    let name = M::take_block();
    name.block::<M>().words().for_each(|word| word.store(0, Relaxed));
    name
}

/// What `word` names: `fresh` from now on, unless it has named something before.
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
    pub fn of(side: &M::Word) -> Option<Self> {
        Name::from_word(side.load(Acquire)).map(|name| Self(name.block()))
    }

    /// The side block that the word names; made, and prepared further by the owner, if there is none.
    #[cold]
    pub fn make(side: &M::Word, prepare: impl FnOnce(&Block<M>)) -> Self {
        let fresh = blank::<M>();
        prepare(fresh.block());
        Self(publish::<M>(side, fresh).block())
    }

    /// The same, for the calling process and this very word: to be asked for one that [knows it](Self::is_of).
    #[cold]
    pub fn make_owned(side: &M::Word) -> Self {
        Self::make(side, |block| {
            let address = core::ptr::from_ref(side).addr() as u64;
            block.owner[0].store(address as u32, Relaxed);
            block.owner[1].store((address >> 32) as u32, Relaxed);
        })
    }

    /// Whether the block was made for the word at this address. If not, another process has written the name there, in
    /// memory that both map, and here it names a block of another lock, or none.
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

    /// A word that names a part.
    #[inline]
    fn slot(self, slot: u32) -> &'static M::Word {
        let Self(block) = self;
        &block.below.slots[slot as usize % SLOTS as usize]
    }

    /// The part of that number, if there is one.
    #[inline]
    pub fn part(self, number: u32) -> Option<Name> {
        if number < SLOTS { Name::from_word(self.slot(number).load(Acquire)) } else { self.far_part(number) }
    }

    /// One that another block than the first names.
    #[cold]
    fn far_part(self, number: u32) -> Option<Name> {
        let (mut here, mut slot) = (self, number % MOST);
        while slot >= SLOTS {
            here = Self::of(&here.0.below.more)?;
            slot -= SLOTS;
        }
        Name::from_word(here.slot(slot).load(Acquire))
    }

    /// The same; made, and prepared further by the owner, if there is none. Where it is below another part, that one is
    /// `above`.
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

    /// The names of all parts that there are, but those below parts.
    pub fn names(self) -> impl Iterator<Item = Name> {
        let blocks = successors(Some(self), |block| Self::of(&block.0.below.more));
        blocks.flat_map(|block| (0..SLOTS).filter_map(move |slot| Name::from_word(block.slot(slot).load(Acquire))))
    }

    /// These parts.
    pub fn parts(self) -> impl Iterator<Item = &'static Block<M>> {
        self.names().map(Name::block)
    }

    /// The names of all parts that there are, each before those below it.
    pub fn all_names(self, each: &mut dyn FnMut(Name)) {
        for part in self.names() {
            each(part);
            Self::below(part).all_names(each);
        }
    }

    /// That block, and each one that it names, once. Each may be given back as soon as it was named. Relaxed: nobody
    /// else is there.
    pub fn each_block(block: Option<Name>, each: &mut dyn FnMut(Name)) {
        let Some(name) = block else { return };
        let below = &name.block::<M>().below;
        for word in below.slots.iter().chain([&below.more]) {
            Self::each_block(Name::from_word(word.load(Relaxed)), each);
        }
        each(name);
    }

    /// Gives all blocks back (invariant 2).
    pub fn give_back(side: &M::Word) {
        Self::each_block(Name::from_word(side.swap(0, Relaxed)), &mut |block| M::give_block(block));
    }
}

/// The part that a part is below, if there is one. Relaxed: it was written before the part was published, and stays.
#[inline]
pub fn above<M: Machine>(part: &Block<M>) -> Option<Name> {
    Name::from_word(part.above.load(Relaxed))
}
