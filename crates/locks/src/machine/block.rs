//! # Blocks
//!
//! Memory for state for which a lock has no room: two cache lines, with the owner's words and the names of the blocks
//! below. The machine keeps a pool of them. [`side`](crate::parts::side) makes a tree of blocks, and says why blocks
//! are not [queue nodes](crate::machine::node).

use core::num::NonZeroU32;

use crate::machine::{Memory, Word};

/// How many blocks a block names.
pub const SLOTS: u32 = 15;

/// Names a block. Zero is "no block". As a [`Handle`](crate::machine::Handle) is for a node, it is a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(NonZeroU32);

impl Name {
    /// Names are below this.
    pub const LIMIT: u32 = 1 << 28;

    /// The name in a word, or `None` for zero. For machines and tests.
    ///
    /// # Safety
    /// The word names a block. It is done with the name only what the invariants of [`side`](crate::parts::side), and
    /// of the lock that the block belongs to, allow. (A machine does with it what [`Memory`] says.)
    #[inline]
    pub const unsafe fn new(word: u32) -> Option<Self> {
        Self::from_word(word)
    }

    /// The name in a word, or `None` for zero.
    #[inline]
    pub(crate) const fn from_word(word: u32) -> Option<Self> {
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
    pub fn block<M: Blocks>(self) -> &'static Block<M> {
        M::block(self)
    }
}

/// A machine's blocks, for locks that need more room than a word and a queue.
pub trait Blocks: Memory {
    /// The block that a name names. Blocks are never unmapped.
    fn block(name: Name) -> &'static Block<Self>;

    /// A block for state for which a lock has no room. Safe to call from a signal handler, as
    /// [`take_node`](Memory::take_node).
    ///
    /// # Safety
    /// That of [`Name::new`]. No lock names the block yet.
    unsafe fn take_block() -> Name;

    /// Gives a block back. No thread uses or names it any more.
    fn give_block(name: Name);
}

/// A block: 128 bytes, two cache lines. Its owner defines what its words mean: [cohort
/// locks](crate::mutex::numa::cohort), [`cst-rw`](crate::rw::cst).
#[repr(C, align(64))]
pub struct Block<M: Memory> {
    /// The state of the part or index; a counter of readers; a number that is served.
    pub state: M::Word,
    /// [`Memory::epoch`] of the threads that use it.
    pub epoch: M::Word,
    /// How often the local lock was handed over within the part.
    pub passes: M::Word,
    /// The limit of `passes`.
    pub limit: M::Word,
    /// The last in the queue; the number that is drawn next.
    pub tail: M::Word,
    /// The first in the queue; the number that is served.
    pub next: M::Word,
    /// The first and the last sleeper in the secondary queue.
    pub sleepers: [M::Word; 2],
    /// How many readers have passed the waiting writer.
    pub passed: M::Word,
    /// How many writers there were.
    pub writers: M::Word,
    /// The address of the word that names the block, low and high half; 0 if the owner does not need it.
    pub(crate) owner: [M::Word; 2],
    /// Another side block.
    pub board: M::Word,
    /// The part that this one is below, or 0.
    pub(crate) above: M::Word,
    /// The pool's own link.
    pub pool_next: M::Word,
    pub(crate) below: Below<M>,
}

/// The names of the blocks below this one. They have a line of their own: each thread that uses the lock reads it,
/// while threads write to the other line.
#[repr(C, align(64))]
pub(crate) struct Below<M: Memory> {
    pub(crate) slots: [M::Word; SLOTS as usize],
    /// A block that names further parts.
    pub(crate) more: M::Word,
}

impl<M: Memory> Block<M> {
    /// A block that was never used.
    ///
    /// # Safety
    /// As for [`Node::new`](crate::machine::node::Node::new).
    pub unsafe fn new() -> Self {
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

    /// Its words, except the pool's.
    pub fn words(&self) -> impl Iterator<Item = &M::Word> {
        let ([first, last], [low, high]) = (&self.sleepers, &self.owner);
        [low, high, &self.state, &self.epoch, &self.passes, &self.limit, &self.tail, &self.next, first, last]
            .into_iter()
            .chain([&self.passed, &self.writers, &self.board, &self.above, &self.below.more])
            .chain(&self.below.slots)
    }
}
