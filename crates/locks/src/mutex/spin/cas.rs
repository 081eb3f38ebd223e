//! # cas: compare-and-swap, again and again
//!
//! `cas` is the naive spinlock: a thread that wants the lock repeats the compare-and-swap until it succeeds. **Use it**
//! to compare with what papers call "a spinlock": `flashlock simulate rcl-lines --locks cas,tas`. **Rather not** for
//! anything else: each attempt takes the line away from the holder, whose release waits behind the attempts of all
//! other threads.
//!
//! **Problem.** Papers compare their locks with "a spinlock" that should not be used in programs. A usable one, such as
//! [`tas`](super::tas), looks before it tries, and backs off. **Idea.** The simplest loop: a thread tries to take the
//! lock until it succeeds. **Source.** Lozi, David, Thomas, Lawall & Muller, *Remote Core Locking*, USENIX ATC 2012,
//! figure 6: "CAS loop on a shared cache line".
//!
//! ```text
//!   A  ■■■■■■■■■■■■ · · · · │                  ■ has the lock      · its release waits for the line
//!   B    ?   ?   ?   ?   ?  ■■■■■■             ? tries, by an atomic operation
//!   C      ?   ?   ?   ?   ?   ?   ?
//! ```
//!
//! **Departures.** None.
//!
//! ## State
//! | word | meaning |
//! |------|---------|
//! | 0 | free |
//! | 1 | held |
//!
//! ## Invariants
//! 1. The thread that changes the word from 0 to 1 holds the lock; it alone changes it back.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `word` CAS | Acquire | the store in `unlock` | sees what the last section wrote |
//! | `word` store in `unlock` | Release | the CAS | hands over what this section wrote |
//!
//! **Cannot:** be fair, nor let any thread sleep: with more threads than CPUs it stands still for time slices. No
//! program can be run under it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::{Deadline, Machine, Pause, TimedOut, Word};
use crate::parts::raw::RawLock;

/// The naive spinlock.
pub struct Cas;

impl Cas {
    /// 0 -> 1
    #[inline(always)]
    fn take<M: Machine>(word: &M::Word) -> bool {
        word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }
}

// SAFETY: it has no nodes.
unsafe impl<M: Machine> RawLock<M> for Cas {
    type Queue = ();

    #[inline]
    unsafe fn try_acquire(word: &M::Word, (): &()) -> bool {
        Self::take::<M>(word)
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, (): &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        while !Self::take::<M>(word) {
            if until.is_some_and(M::expired) {
                return Err(TimedOut);
            }
            M::pause(Pause::Steps(1));
        }
        Ok(())
    }

    /// 1 -> 0
    #[inline]
    unsafe fn release(word: &M::Word, (): &()) {
        word.store(0, Release);
    }

    unsafe fn is_locked(word: &M::Word, (): &()) -> bool {
        word.load(Relaxed) != 0
    }
}
