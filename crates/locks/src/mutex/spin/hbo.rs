//! # HBO: back off for longer when the lock is far away
//!
//! HBO is a spinlock whose waiters poll less often when the holder is on another NUMA node. **Use it** as a baseline:
//! it was one of the first NUMA-aware locks. **Rather not** when a wait must be bounded; `cna` and `shfl` also keep the
//! lock on a node, and are fair in the long run.
//!
//! **Problem.** Threads that poll one word take its line from each other, and from the holder. On several NUMA nodes
//! the line crosses the machine each time. **Idea.** The word says on which node the holder is. A waiter of the same
//! node looks again soon. A waiter of another node backs off for long. So the lock tends to stay where it is.
//! **Source.** Radovic & Hagersten, *Hierarchical Backoff Locks for Nonuniform Communication Architectures*, HPCA 2003
//! (the lock called HBO there, without its global throttling).
//!
//! **Departures.**
//! 1. The pauses have a random part, as in [`tas`](super::tas), and are made of pause instructions.
//! 2. A waiter whose spin budget is spent gives its CPU away for a while, so that more threads than CPUs do not stop
//!    each other.
//!
//! ```text
//!     word: node 0 ── held
//!       │  └── B, of node 0: looks again soon           ?  ?  ?  ?  ?  ?
//!       └───── C, of node 1: looks again late           ?           ?
//! ```
//!
//! ## State
//! | word | meaning |
//! |------|---------|
//! | 0 | free |
//! | n + 1 | held by a thread of NUMA node n |
//!
//! ## Invariants
//! 1. The thread that changes the word from 0 holds the lock; it alone changes the word back, by a store.
//! 2. The node in the word is where the holder was when it acquired. It is a hint, which affects only the pauses.
//! 3. After the releasing store the lock is not accessed: no thread sleeps there.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `word` CAS in `try_take` | Acquire | the store in `unlock` | sees what the last section wrote |
//! | `word` store in `unlock` | Release | the CAS | hands over what this section wrote |
//! | `word` load while polling | Relaxed | – | only decides when to try the CAS |
//!
//! **Cannot:** be fair: a node may keep the lock without bound. Cannot let waiters sleep until the lock is free: they
//! nap, and the waiters of a broadcast go one after the other. Cannot share its mutex with code that bypasses
//! flashlock.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::{Deadline, Machine, Patience, Pause, TimedOut, Word};
use crate::parts::counted::contended;
use crate::parts::raw::RawLock;

const FREE: u32 = 0;

/// The first and the longest pause while the holder is on the same node, in
/// [steps](Pause::Steps).
const NEAR: [u32; 2] = [4, 64];
/// The same while the holder is on another node.
const FAR: [u32; 2] = [64, 1024];
/// The first and the longest nap, in µs.
const NAP: [u32; 2] = [8, 1024];

/// The hierarchical back-off lock.
pub struct Hbo;

/// 0 -> mine
#[inline(always)]
fn try_take<M: Machine>(word: &M::Word, mine: u32) -> bool {
    word.compare_exchange(FREE, mine, Acquire, Relaxed).is_ok()
}

/// The value of the word when a thread of the caller's node holds the lock.
#[inline(always)]
fn here<M: Machine>() -> u32 {
    M::numa_node() + 1
}

impl Hbo {
    #[cold]
    fn lock_slow<M: Machine>(word: &M::Word, mine: u32, until: Option<Deadline>) -> Result<(), TimedOut> {
        contended::<M>(|| Self::wait::<M>(word, mine, until))
    }

    /// 0 -> mine, with pauses between the attempts.
    fn wait<M: Machine>(word: &M::Word, mine: u32, until: Option<Deadline>) -> Result<(), TimedOut> {
        let (mut steps, mut nap) = (0, NAP[0]);
        loop {
            let taken = |holder| {
                if holder == FREE {
                    return try_take::<M>(word, mine);
                }
                // The pause doubles at each look, within the bounds for the holder's node. So it shrinks when the lock
                // comes to this node.
                let [first, longest] = if holder == mine { NEAR } else { FAR };
                steps = (steps * 2).clamp(first, longest);
                M::pause(Pause::Steps(steps / 2 + M::random() % steps));
                false
            };
            if M::spin_until(word, Relaxed, Patience::Budget, taken).is_some() {
                return Ok(());
            }
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                return Err(TimedOut);
            }
            M::pause(Pause::Nap(1 + M::random() % nap));
            nap = (nap * 2).min(NAP[1]);
        }
    }
}

// SAFETY: it has no nodes.
unsafe impl<M: Machine> RawLock<M> for Hbo {
    type Queue = ();

    #[inline]
    unsafe fn try_acquire(word: &M::Word, _: &()) -> bool {
        try_take::<M>(word, here::<M>())
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, _: &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        let mine = here::<M>();
        if try_take::<M>(word, mine) { Ok(()) } else { Self::lock_slow::<M>(word, mine, until.copied()) }
    }

    /// n + 1 -> 0
    #[inline]
    unsafe fn release(word: &M::Word, _: &()) {
        word.store(FREE, Release);
    }

    unsafe fn is_locked(word: &M::Word, _: &()) -> bool {
        word.load(Relaxed) != FREE
    }
}
