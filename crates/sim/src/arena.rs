//! # Simulated memory
//!
//! The words of locks are real 4-byte words in one block of host memory. Their addresses determine which of them share
//! a cache line, as on a real machine. Queue nodes come first, then the placed objects, each at the start of a line.
//! Lines that hold no data have numbers after the block and take no memory.
//!
//! Each host thread has one block, which is never freed, so references to its words stay valid for ever. References
//! that a finished run leaves behind still name words, though perhaps those of another run.
//!
//! ## Invariants
//! 1. The block lives as long as the program and does not move.
//! 2. All its bytes are initialised, and any bytes are a valid [`Word`](crate::Word) or node of words.
//! 3. Each placed object lies in the block, aligned, and overlaps nothing else.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::rc::Rc;

use flashlock_locks::machine::block::{Block, Name};
use flashlock_locks::machine::node::Node;
use flashlock_locks::machine::{ConstWord as _, Handle};

use crate::Sim;
use crate::machine::Word;

/// Bytes in a line.
pub(crate) const LINE: usize = 64;
/// Queue nodes: enough for those that a thread can leave behind, and for one node in each of very many threads.
pub(crate) const NODES: u32 = 1 << 14;
/// Nodes that threads can take. The last two lines hold words of the machine.
pub(crate) const FREE_NODES: u32 = NODES - 2;
/// Handles 0 and 1 name no node.
const FIRST: u32 = Handle::RESERVED + 1;
/// The size of the block: nodes, placed objects, and at its end the [side blocks](flashlock_locks::parts::side).
const BYTES: usize = 32 << 20;
/// The number of side blocks.
pub(crate) const BLOCKS: u32 = 1 << 12;
/// Where the side blocks begin: at the end, so that a lock lies at the same place whether or not side blocks are used.
const BLOCKS_AT: usize = BYTES - BLOCKS as usize * size_of::<Block<Sim>>();

const _: () = assert!(size_of::<Node<Sim>>() == LINE && BLOCKS_AT.is_multiple_of(align_of::<Block<Sim>>()));

/// A host thread's block.
pub(crate) struct Arena {
    base: NonNull<u8>,
    used: usize,
    /// How many locks use distributed counters. It is outside of the block, so accesses to it take no time.
    distributed: &'static Word,
    /// Shared with all placed objects that have not been dropped.
    block: Rc<()>,
}

impl Arena {
    /// Reserves the memory. The system provides the pages that are touched.
    pub(crate) fn new() -> Self {
        let layout = Layout::from_size_align(BYTES, 4096).expect("a constant layout");
        // SAFETY: the layout's size is not zero. The memory is zeroed (invariant 2) and never freed (invariant 1).
        let base = unsafe { alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        let distributed = Box::leak(Box::new(Word::ZERO));
        let mut this = Self { base, used: 0, distributed, block: Rc::new(()) };
        this.clear();
        this
    }

    /// Forgets all placed objects. All nodes are free and zero, and all side blocks are free.
    pub(crate) fn clear(&mut self) {
        // SAFETY: within the block (invariant 1); the placed objects have been dropped, and words may have any value.
        unsafe { self.base.as_ptr().write_bytes(0, self.used) };
        self.used = NODES as usize * LINE;
        self.distributed.clear();
    }

    /// Whether a placed object has not been dropped yet.
    pub(crate) fn is_in_use(&self) -> bool {
        Rc::strong_count(&self.block) > 1
    }

    /// The token that each placed object keeps.
    pub(crate) fn block(&self) -> Rc<()> {
        Rc::clone(&self.block)
    }

    /// Room for a value, from the start of a line to the end of a line.
    pub(crate) fn reserve<T>(&mut self) -> NonNull<T> {
        let bytes = size_of::<T>().max(1).next_multiple_of(LINE);
        assert!(align_of::<T>() <= LINE, "nothing that is placed needs more than a line's alignment");
        assert!(self.used + bytes <= BLOCKS_AT, "simulated memory is full");
        // SAFETY: within the block, by the assertion above.
        let at = unsafe { self.base.add(self.used) };
        self.used += bytes;
        at.cast()
    }

    /// The line of an address; `None` outside of the block.
    #[inline]
    pub(crate) fn line(&self, address: *const u32) -> Option<u32> {
        let offset = (address as usize).wrapping_sub(self.base.as_ptr() as usize);
        (offset < BYTES).then_some((offset / LINE) as u32)
    }

    /// The address of a line's first byte.
    pub(crate) fn address(&self, line: u32) -> usize {
        self.base.as_ptr().expose_provenance() + line as usize * LINE
    }

    /// All lines of the block.
    pub(crate) const fn lines() -> u32 {
        (BYTES / LINE) as u32
    }

    /// The node that a handle names.
    #[inline]
    pub(crate) fn node(&self, handle: Handle) -> &'static Node<Sim> {
        let index = handle.word() - FIRST;
        assert!(index < FREE_NODES, "handle {} names no node", handle.word());
        // SAFETY: the first lines of the block, except the last two of `NODES`, are nodes for ever (invariants 1 and
        // 2).
        unsafe { self.base.cast::<Node<Sim>>().add(index as usize).as_ref() }
    }

    /// The count of nodes left behind, one for all locks, in the last node's line.
    pub(crate) fn left(&self) -> &'static Word {
        // SAFETY: the line is in the block for ever (invariant 1), and it consists of words (invariant 2).
        unsafe { self.base.cast::<Node<Sim>>().add(NODES as usize - 1).cast().as_ref() }
    }

    /// The drain word: all locks whose writers wait for readers to leave share it. It is in the line before.
    pub(crate) fn drain_word(&self) -> &'static Word {
        // SAFETY: the line is in the block for ever (invariant 1), and it consists of words (invariant 2).
        unsafe { self.base.cast::<Node<Sim>>().add(NODES as usize - 2).cast().as_ref() }
    }

    /// How many locks use distributed counters.
    pub(crate) fn distributed(&self) -> &'static Word {
        self.distributed
    }

    /// The side block that a name names.
    #[inline]
    pub(crate) fn side(&self, name: Name) -> &'static Block<Sim> {
        let index = name.word() - 1;
        assert!(index < BLOCKS, "{} names no block", name.word());
        // SAFETY: `BLOCKS` side blocks are at the end of the block for ever (invariants 1 and 2).
        unsafe { self.base.add(BLOCKS_AT).cast::<Block<Sim>>().add(index as usize).as_ref() }
    }

    /// The word of the handle of the node with this number.
    pub(crate) const fn handle_word(index: u32) -> u32 {
        index + FIRST
    }

    /// The handle of the node with this number.
    ///
    /// # Safety
    /// That of [`Handle::new`].
    pub(crate) unsafe fn handle(index: u32) -> Handle {
        // SAFETY: the callers' promise.
        unsafe { Handle::new(Self::handle_word(index)) }.expect("nodes begin behind the reserved handle")
    }
}
