//! # The pools: queue nodes, and blocks of locks
//!
//! Two pools: [queue nodes](Slot), and the [blocks](flashlock_locks::machine::block::Block) in which locks keep state
//! that has no room elsewhere. A thread takes a node from here when it must wait. The pools work alike but never
//! exchange pieces. Both are type-stable and never unmapped, so a stale handle still names a valid node, and never a
//! block. All copies of this code in a process share both pools: their words are in the [`registry`].
//!
//! Pieces come in chunks that double in size. The first chunk is part of the registry: half a megabyte of address
//! space, which takes memory only as pieces are used, lowest numbers first. So the first [`FIRST`] simultaneous waiters
//! of a process need no system call, which would take time on the lock path and which a sandbox may forbid. A thread
//! that needs one more node maps the next chunk, inside the lock call in which it waits.
//!
//! ```text
//!   number n = 0, 1, …    (a node's handle is n + 2, a block's name is n + 1)
//!   chunk 0: 4096 pieces | chunk 1: 4096 | chunk 2: 8192 | …  chunk k >= 1 begins at number 4096 << (k - 1)
//! ```
//!
//! ## Invariants
//! 1. A chunk's address is written once; its pieces are never freed.
//! 2. A node is in the free list, kept for a thread's next wait (see [`thread`]), taken by a thread that has not queued
//!    it, or in a queue. A block is in the free list, or belongs to a lock.
//! 3. The top of the free list carries a tag that each change advances. So a `pop` that another thread overtook fails
//!    (ABA).

use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use flashlock_locks::machine::Handle;
use flashlock_locks::machine::block::{Block, Name};
use flashlock_locks::machine::node::Node;

use crate::machine::{Native, NoStats, Sink};
use crate::registry::{self, Registry};
use crate::{futex, sys, thread};

/// Pieces of each pool that are in the registry and need no mapping.
pub const FIRST: u32 = 4096;
/// How many more chunks can be mapped.
const LATER: usize = 16;
/// Handles 0 and 1 name no node.
const NODES_FROM: u32 = Handle::RESERVED + 1;
/// 0 names no block.
const BLOCKS_FROM: u32 = 1;

/// The shared words of a pool; all-zero at first.
#[repr(C)]
pub(crate) struct Pool<T: 'static> {
    /// The free list: a tag in the high half; in the low half, one plus the number of its first piece, or 0.
    free: AtomicU64,
    /// How many different pieces have been handed out.
    used: AtomicU32,
    /// The chunks after the first.
    later: [AtomicPtr<T>; LATER],
}

/// A piece of a pool: made of atomic words, all-zero at first.
pub(crate) trait Piece: Sized + 'static {
    /// The word that names the next piece of the free list, encoded as in [`Pool::free`].
    fn link(&self) -> &AtomicU32;

    /// This pool in a registry, and its first chunk.
    fn pool(registry: &'static Registry) -> (&'static Pool<Self>, &'static [Self; FIRST as usize]);
}

impl<T: Piece> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self { free: AtomicU64::new(0), used: AtomicU32::new(0), later: [const { AtomicPtr::new(null_mut()) }; LATER] }
    }
}

/// The piece with that number. Any number below the end of the mapped chunks names a piece, whether it was handed out
/// or not. Another number is not from this pool: a program, or a stray store, has written it into a lock, and the
/// process ends here rather than somewhere else.
#[inline]
fn at<T: Piece>(number: u32) -> &'static T {
    let (pool, first) = T::pool(registry::get());
    let (chunk, offset) = locate(number);
    let Some(later) = chunk.checked_sub(1) else { return &first[offset as usize] };
    let begin = pool.later.get(later).map_or(null_mut(), |chunk| chunk.load(Acquire));
    if begin.is_null() {
        not_ours();
    }
    // SAFETY: a chunk that is there has that many pieces and stays (invariant 1). A piece is made of atomic words, for
    // which all-zero is valid.
    unsafe { &*begin.add(offset as usize) }
}

/// Ends the process: a lock's state names a piece that does not exist.
#[cold]
fn not_ours() -> ! {
    sys::warn_line(&[b"flashlock: the state of a lock was overwritten: it names a queue node that does not exist"]);
    // SAFETY: always sound to call.
    unsafe { libc::abort() }
}

/// Takes a piece from the free list. Lock-free, and safe in signal handlers.
fn pop<T: Piece>() -> Option<u32> {
    let (pool, _) = T::pool(registry::get());
    let mut top = pool.free.load(Acquire);
    while let Some(number) = (top as u32).checked_sub(1) {
        let next = at::<T>(number).link().load(Relaxed);
        match pool.free.compare_exchange(top, advance(top, next), AcqRel, Acquire) {
            Ok(_) => return Some(number),
            Err(now) => top = now,
        }
    }
    None
}

/// Gives a piece back.
fn give_number<T: Piece>(number: u32) {
    let (pool, _) = T::pool(registry::get());
    let link = at::<T>(number).link();
    let mut top = pool.free.load(Relaxed);
    loop {
        link.store(top as u32, Relaxed);
        match pool.free.compare_exchange(top, advance(top, number + 1), Release, Relaxed) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

fn advance(top: u64, first: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(first)
}

/// The chunk of a number, and the index within it.
#[inline]
fn locate(number: u32) -> (usize, u32) {
    if number < FIRST {
        return (0, number);
    }
    let chunk = (number / FIRST).ilog2();
    ((chunk + 1) as usize, number - (FIRST << chunk))
}

#[cold]
fn grow<T: Piece>() -> u32 {
    let (pool, _) = T::pool(registry::get());
    let number = pool.used.fetch_add(1, Relaxed);
    let (chunk, _) = locate(number);
    if chunk > LATER {
        exhausted();
    }
    if chunk > 0 && pool.later[chunk - 1].load(Acquire).is_null() {
        map_chunk(pool, chunk);
    }
    number
}

fn map_chunk<T: Piece>(pool: &Pool<T>, chunk: usize) {
    let bytes = (FIRST as usize * size_of::<T>()) << (chunk - 1);
    let Some(fresh) = sys::map_anonymous(bytes) else { exhausted() };
    if pool.later[chunk - 1].compare_exchange(null_mut(), fresh.cast(), AcqRel, Relaxed).is_err() {
        // SAFETY: mapped just now; another thread's chunk won, so no other thread saw this one.
        unsafe { sys::syscall(libc::SYS_munmap, [fresh as usize, bytes, 0, 0, 0, 0]) };
    }
}

/// Out of memory: the thread can neither wait nor fail. It sleeps until something ends the process. Nothing is
/// corrupted.
fn exhausted() -> ! {
    sys::warn_line(&[
        b"flashlock: out of memory: no queue node for a waiting thread; it sleeps until the process ends",
    ]);
    loop {
        sys::nap(999_999);
    }
}

/// A piece of the node pool: a node on its own cache line, and what its thread needs to sleep at a cancellation point.
#[repr(C, align(128))]
pub struct Slot {
    node: [AtomicU32; 16],
    /// 1 if the thread sleeps on `semaphore`, or is about to. If 0, a sleeping thread sleeps on the node's state.
    pub at_semaphore: AtomicU32,
    /// A glibc `sem_t`. All-zero means private, without tokens.
    pub semaphore: Semaphore,
}

/// A private `sem_t`. glibc keeps the tokens in the first word, and sleeps on that word.
#[repr(C, align(8))]
pub struct Semaphore([AtomicU32; 8]);

const _: () = assert!(size_of::<Slot>() == 128 && size_of::<Semaphore>() == size_of::<libc::sem_t>());

impl Semaphore {
    /// For `sem_wait` and its kin.
    pub fn as_ptr(&self) -> *mut libc::sem_t {
        (&raw const *self).cast_mut().cast()
    }

    /// The first half of `sem_post`: adds a token, so a thread that looks at the semaphore continues. Returns the word
    /// at which to wake sleepers.
    fn post(&self) -> &AtomicU32 {
        self.0[0].fetch_add(1, Release);
        &self.0[0]
    }
}

impl Slot {
    /// A slot that was never used.
    pub(crate) const fn zero() -> Self {
        Self {
            node: [const { AtomicU32::new(0) }; 16],
            at_semaphore: AtomicU32::new(0),
            semaphore: Semaphore([const { AtomicU32::new(0) }; 8]),
        }
    }
}

impl Piece for Slot {
    fn link(&self) -> &AtomicU32 {
        &self.node[offset_of!(Node<Native<NoStats>>, pool_next) / size_of::<AtomicU32>()]
    }

    fn pool(registry: &'static Registry) -> (&'static Pool<Self>, &'static [Self; FIRST as usize]) {
        (&registry.nodes, &registry.first_nodes)
    }
}

/// The slot that a handle names.
#[inline]
pub fn slot(handle: Handle) -> &'static Slot {
    at(handle.word() - NODES_FROM)
}

/// The node that a handle names.
#[inline]
pub fn node<S: Sink>(handle: Handle) -> &'static Node<Native<S>> {
    const { assert!(size_of::<Node<Native<S>>>() == size_of::<[AtomicU32; 16]>()) };
    // SAFETY: a node is made of atomic words, fills the slot's sixteen, and its layout does not depend on `S`.
    unsafe { &*(&raw const slot(handle).node).cast() }
}

/// Wakes the thread that waits with this node, on whichever word it sleeps. Returns how many threads were woken (0 or
/// 1).
///
/// The fence in `bed` pairs with the fence of a thread that is about to sleep. That thread first says where it sleeps,
/// then looks at the state once more. The waker first changes the state, then reads where.
pub fn unpark<S: Sink>(node: &Node<Native<S>>) -> u32 {
    futex::wake(bed(node), 1)
}

/// Moves the thread that waits with this node, if it sleeps, to the word at `address`, without waking it.
///
/// A semaphore is posted first. When its sleeper is woken at the new word, it finds the token and does not sleep on the
/// semaphore again.
pub fn requeue<S: Sink>(node: &Node<Native<S>>, address: *const AtomicU32) {
    futex::requeue(bed(node), address);
}

/// The word on which the thread that waits with this node sleeps. If that is its semaphore, this posts the semaphore.
fn bed<S: Sink>(node: &Node<Native<S>>) -> &AtomicU32 {
    // SAFETY: all nodes of this machine are the first field of a slot.
    let slot = unsafe { &*(&raw const *node).cast::<Slot>() };
    fence(SeqCst);
    if slot.at_semaphore.load(Relaxed) != 0 { slot.semaphore.post() } else { &node.state.0 }
}

/// The handle of the node with this number.
///
/// # Safety
/// That of [`Handle::new`].
unsafe fn handle(number: u32) -> Option<Handle> {
    // SAFETY: the callers' promise.
    unsafe { Handle::new(number + NODES_FROM) }
}

/// Takes a node for exclusive use. Lock-free, and safe in signal handlers.
///
/// # Safety
/// That of [`Memory::take_node`](flashlock_locks::machine::Memory::take_node).
pub unsafe fn take() -> Handle {
    // Before mapping memory, take a node that some thread keeps for its next wait.
    let kept = || if size() < FIRST { None } else { thread::reclaim() };
    // SAFETY: the number is the caller's alone (invariant 2), who promises the rest.
    let named = |number| unsafe { handle(number) };
    let Some(number) = pop::<Slot>() else {
        return kept().or_else(|| named(grow::<Slot>())).unwrap_or_else(|| exhausted());
    };
    named(number).unwrap_or_else(|| exhausted())
}

/// Gives a node back.
pub fn give(handle: Handle) {
    give_number::<Slot>(handle.word() - NODES_FROM);
}

/// Calls `look` with each node, free ones included, until it returns true; returns whether it did. A node whose chunk
/// is not mapped yet was never taken, and is skipped.
///
/// # Safety
/// That of [`Memory::any_node`](flashlock_locks::machine::Special::any_node).
pub unsafe fn any(look: impl FnMut(Handle) -> bool) -> bool {
    let is_mapped = |index: &u32| match locate(*index) {
        (0, _) => true,
        (chunk, _) => !registry::get().nodes.later[chunk - 1].load(Acquire).is_null(),
    };
    // SAFETY: the callers' promise.
    (0..size()).filter(is_mapped).filter_map(|index| unsafe { handle(index) }).any(look)
}

/// How many nodes there are, free ones included.
pub fn size() -> u32 {
    registry::get().nodes.used.load(Relaxed)
}

/// A piece of the block pool.
#[repr(C, align(128))]
pub(crate) struct BlockSlot([AtomicU32; 32]);

impl BlockSlot {
    /// A block that was never used.
    pub(crate) const fn zero() -> Self {
        Self([const { AtomicU32::new(0) }; 32])
    }
}

impl Piece for BlockSlot {
    fn link(&self) -> &AtomicU32 {
        &self.0[offset_of!(Block<Native<NoStats>>, pool_next) / size_of::<AtomicU32>()]
    }

    fn pool(registry: &'static Registry) -> (&'static Pool<Self>, &'static [Self; FIRST as usize]) {
        (&registry.blocks, &registry.first_blocks)
    }
}

/// The block with this name.
#[inline]
pub fn block<S: Sink>(name: Name) -> &'static Block<Native<S>> {
    const { assert!(size_of::<Block<Native<S>>>() == size_of::<BlockSlot>()) };
    let slot: &BlockSlot = at(name.word() - BLOCKS_FROM);
    // SAFETY: a block is made of atomic words, fills the slot, and its layout does not depend on `S`.
    unsafe { &*(&raw const *slot).cast() }
}

/// Takes a block for exclusive use. Lock-free, and safe in signal handlers.
///
/// # Safety
/// That of [`Blocks::take_block`](flashlock_locks::machine::block::Blocks::take_block).
pub unsafe fn take_block() -> Name {
    let number = pop::<BlockSlot>().unwrap_or_else(grow::<BlockSlot>);
    // SAFETY: the number is the caller's alone (invariant 2), who promises the rest.
    unsafe { Name::new(number + BLOCKS_FROM) }.unwrap_or_else(|| exhausted())
}

/// Gives a block back.
pub fn give_block(name: Name) {
    give_number::<BlockSlot>(name.word() - BLOCKS_FROM);
}

/// How many blocks there are, free ones included.
pub fn blocks() -> u32 {
    registry::get().blocks.used.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_fall_into_doubling_chunks() {
        assert_eq!(locate(0), (0, 0));
        assert_eq!(locate(FIRST - 1), (0, FIRST - 1));
        assert_eq!(locate(FIRST), (1, 0));
        assert_eq!(locate(2 * FIRST - 1), (1, FIRST - 1));
        assert_eq!(locate(2 * FIRST), (2, 0));
        assert_eq!(locate(4 * FIRST - 1), (2, 2 * FIRST - 1));
        assert_eq!(locate(4 * FIRST), (3, 0));
        assert!(locate(Handle::LIMIT - NODES_FROM - 1).0 <= LATER);
    }

    fn taken() -> Handle {
        // SAFETY: it is in no queue, and given back once.
        unsafe { take() }
    }

    #[test]
    fn nodes_are_distinct_and_come_back() {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(|| {
                    for round in 0..200 {
                        let taken: Vec<_> = (0..50).map(|_| taken()).collect();
                        for (i, &handle) in taken.iter().enumerate() {
                            node::<NoStats>(handle).since.0.store(round * 100 + i as u32, Relaxed);
                        }
                        for (i, &handle) in taken.iter().enumerate() {
                            assert_eq!(node::<NoStats>(handle).since.0.load(Relaxed), round * 100 + i as u32);
                            give(handle);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(size() <= 8 * 50 + 64, "{} nodes for at most 400 in use", size());
    }
}
