//! # The pool of queue nodes
//!
//! Type-stable and never unmapped: a stale handle names a valid node. One pool for all copies of this code in a process: its words are in
//! the [`registry`]. Nodes come in chunks that double in size. The first is
//! part of the registry, half a megabyte of addresses without memory behind them until nodes are used, from the first one up: so the first
//! [`FIRST`] simultaneous waiters of a process cost no system call, neither time on the way to a lock nor a permission that a sandbox
//! may have taken away. Who needs one more maps the next chunk, in the lock call in which he waits.
//!
//! ```text
//!   handle h >= 2    index = h - 2
//!   chunk 0: 4096 nodes | chunk 1: 4096 | chunk 2: 8192 | …  chunk k >= 1 begins at index 4096 << (k - 1)
//! ```
//!
//! ## Invariants
//! 1. A chunk's address is written once; its nodes live for ever.
//! 2. A node is in the free list, in a thread's own hands (see [`thread`](crate::thread)), or in a queue.
//! 3. The free list's top carries a tag that each change advances, so a `pop` that was overtaken fails (ABA).

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use flashlock_locks::machine::Handle;
use flashlock_locks::node::Node;

use crate::machine::{Native, Sink};
use crate::{futex, registry, sys};

/// Nodes that need not be mapped.
pub const FIRST: u32 = 4096;
/// Chunks that are.
pub(crate) const LATER: usize = 16;
/// Handles 0 and 1 name no node.
const OFFSET: u32 = Handle::RESERVED + 1;

/// What the pool is made of: a node, on a line of its own, and what its thread needs to sleep at a cancellation point.
#[repr(C, align(128))]
pub struct Slot {
    node: [AtomicU32; 16],
    /// Whether the thread sleeps on `semaphore`, or is about to; else, if at all, on the node's state.
    pub at_semaphore: AtomicU32,
    /// A `sem_t` of glibc's, all-zero: private, and no tokens.
    pub semaphore: Semaphore,
}

/// A private `sem_t`. glibc keeps the tokens in the first word, and sleeps on it.
#[repr(C, align(8))]
pub struct Semaphore([AtomicU32; 8]);

const _: () = assert!(size_of::<Slot>() == 128 && size_of::<Semaphore>() == size_of::<libc::sem_t>());

impl Semaphore {
    /// For `sem_wait` and its kin.
    pub fn as_ptr(&self) -> *mut libc::sem_t {
        (&raw const *self).cast_mut().cast()
    }

    /// The first half of `sem_post`: whoever looks at the semaphore goes on. The word to wake sleepers at.
    fn post(&self) -> &AtomicU32 {
        self.0[0].fetch_add(1, Release);
        &self.0[0]
    }
}

impl Slot {
    /// One that was never used.
    pub(crate) const fn zero() -> Self {
        Self {
            node: [const { AtomicU32::new(0) }; 16],
            at_semaphore: AtomicU32::new(0),
            semaphore: Semaphore([const { AtomicU32::new(0) }; 8]),
        }
    }
}

/// The chunk of an index, and the index in it.
#[inline]
fn locate(index: u32) -> (usize, u32) {
    if index < FIRST {
        return (0, index);
    }
    let chunk = (index / FIRST).ilog2();
    ((chunk + 1) as usize, index - (FIRST << chunk))
}

/// The slot that a handle names.
#[inline]
pub fn slot(handle: Handle) -> &'static Slot {
    let (chunk, offset) = locate(handle.word() - OFFSET);
    match chunk {
        0 => &registry::get().first[offset as usize],
        // SAFETY: a handle is made by `take` alone, after its chunk was mapped (invariant 1). A slot is made of atomic words,
        // for which all-zero is valid.
        _ => unsafe { &*registry::get().later[chunk - 1].load(Acquire).add(offset as usize) },
    }
}

/// The node that a handle names.
#[inline]
pub fn node<S: Sink>(handle: Handle) -> &'static Node<Native<S>> {
    const { assert!(size_of::<Node<Native<S>>>() == size_of::<[AtomicU32; 16]>()) };
    // SAFETY: a node is made of atomic words, fills the slot's sixteen, and its layout does not depend on `S`.
    unsafe { &*(&raw const slot(handle).node).cast() }
}

/// Wakes the thread that waits with this node, wherever it sleeps; whether it did.
///
/// The fence in `bed` pairs with that of whoever is about to sleep: it says where before it looks at the state once more, we
/// have changed the state before we ask where.
pub fn unpark<S: Sink>(node: &Node<Native<S>>) -> u32 {
    futex::wake(bed(node), 1)
}

/// The thread that waits with this node goes on sleeping, if it does, but on the word at `address`.
///
/// A semaphore is posted first: woken there, its sleeper finds the token, and does not go back to sleep on the semaphore.
pub fn requeue<S: Sink>(node: &Node<Native<S>>, address: *const AtomicU32) {
    futex::requeue(bed(node), address);
}

/// The word on which the thread that waits with this node sleeps. If that is its semaphore, it is posted.
fn bed<S: Sink>(node: &Node<Native<S>>) -> &AtomicU32 {
    // SAFETY: all nodes of this machine are the first field of a slot.
    let slot = unsafe { &*(&raw const *node).cast::<Slot>() };
    fence(SeqCst);
    if slot.at_semaphore.load(Relaxed) != 0 { slot.semaphore.post() } else { &node.state.0 }
}

/// A node nobody else has. Lock-free, and safe in signal handlers.
pub fn take<S: Sink>() -> Handle {
    let free = &registry::get().free;
    let mut top = free.load(Acquire);
    while let Some(handle) = Handle::from_word(top as u32) {
        let next = node::<S>(handle).pool_next.0.load(Relaxed);
        let new = advance(top, next);
        match free.compare_exchange(top, new, AcqRel, Acquire) {
            Ok(_) => return handle,
            Err(now) => top = now,
        }
    }
    grow()
}

/// Gives a node back.
pub fn give<S: Sink>(handle: Handle) {
    let free = &registry::get().free;
    let mut top = free.load(Relaxed);
    loop {
        node::<S>(handle).pool_next.0.store(top as u32, Relaxed);
        match free.compare_exchange(top, advance(top, handle.word()), Release, Relaxed) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

/// How many nodes there are, free ones included.
pub fn size() -> u32 {
    registry::get().used.load(Relaxed)
}

fn advance(top: u64, handle: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(handle)
}

#[cold]
fn grow() -> Handle {
    let index = registry::get().used.fetch_add(1, Relaxed);
    let (chunk, _) = locate(index);
    if chunk > 0 && registry::get().later[chunk - 1].load(Acquire).is_null() {
        map_chunk(chunk);
    }
    match Handle::from_word(index + OFFSET) {
        Some(handle) => handle,
        None => exhausted(),
    }
}

fn map_chunk(chunk: usize) {
    let bytes = (FIRST as usize * size_of::<Slot>()) << (chunk - 1);
    let Some(fresh) = sys::map_anonymous(bytes) else { exhausted() };
    let slot = &registry::get().later[chunk - 1];
    if slot.compare_exchange(core::ptr::null_mut(), fresh.cast(), AcqRel, Relaxed).is_err() {
        // SAFETY: mapped just now, and lost to another thread's chunk before anybody saw it.
        unsafe { sys::syscall(libc::SYS_munmap, [fresh as usize, bytes, 0, 0, 0, 0]) };
    }
}

/// No memory for a node: the thread can neither wait nor fail. It sleeps until the process is ended by whoever runs out of
/// memory first; nothing is corrupted.
fn exhausted() -> ! {
    sys::warn_line(&[b"flashlock: out of memory for a queue node"]);
    loop {
        sys::nap(999_999);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::NoStats;

    #[test]
    fn indices_fall_into_doubling_chunks() {
        assert_eq!(locate(0), (0, 0));
        assert_eq!(locate(FIRST - 1), (0, FIRST - 1));
        assert_eq!(locate(FIRST), (1, 0));
        assert_eq!(locate(2 * FIRST - 1), (1, FIRST - 1));
        assert_eq!(locate(2 * FIRST), (2, 0));
        assert_eq!(locate(4 * FIRST - 1), (2, 2 * FIRST - 1));
        assert_eq!(locate(4 * FIRST), (3, 0));
        assert!(locate(Handle::LIMIT - OFFSET - 1).0 <= LATER);
    }

    #[test]
    fn nodes_are_distinct_and_come_back() {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(|| {
                    for round in 0..200 {
                        let taken: Vec<_> = (0..50).map(|_| take::<NoStats>()).collect();
                        for (i, &handle) in taken.iter().enumerate() {
                            node::<NoStats>(handle).since.0.store(round * 100 + i as u32, Relaxed);
                        }
                        for (i, &handle) in taken.iter().enumerate() {
                            assert_eq!(node::<NoStats>(handle).since.0.load(Relaxed), round * 100 + i as u32);
                            give::<NoStats>(handle);
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
