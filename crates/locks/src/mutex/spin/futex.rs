//! # Futex: "CAS, then sleep", in three states
//!
//! `futex` is a lock of one word whose waiters sleep in the kernel at once. **Use it** when you want to know what
//! glibc's algorithm would do; or when more threads than CPUs want the lock, and fairness does not matter.
//! **Rather not** when sections are so short that polling is cheaper than sleeping, or when a wait must be bounded.
//!
//! **Problem.** A lock for any number of threads on any number of CPUs that costs one atomic operation when it is not
//! contended. **Idea.** The third state, *held and a thread may sleep*, says whether the releaser must call the kernel.
//! **Source.** Drepper, *Futexes Are Tricky*, 2011, §5 ("mutex, take 2"). glibc's default mutex does the same. This
//! lock is here to compare with.
//!
//! **Departures.**
//! 1. A broadcast moves its waiters to the word ([`adopt`](crate::parts::raw::RawLock::adopt), invariant 4).
//! 2. A waiter may give up. It leaves a 2 behind at most, which costs a wake-up that finds no thread.
//!
//! ```text
//!        ┌──────────── 0 -> 1: it was free ──────────────────┐
//!        │                                                   v
//!      free (0) <───────── release: a swap ──────────── held (1)
//!        ^  │                                                │ a thread is about to sleep: swap 2
//!        │  └── swap 2, by a thread that has slept ──┐       v
//!        └── release, and a wake-up ─────── held, sleepers (2)   z z z
//! ```
//!
//! ## State
//! | word | meaning | next |
//! |------|---------|------|
//! | 0 | free | 1 by a locker, 2 by a locker that has slept |
//! | 1 | held, no thread sleeps | 0 by release, 2 by a locker about to sleep |
//! | 2 | held, a thread may sleep | 0 by release, which then wakes one |
//!
//! ## Invariants
//! 1. A thread sleeps only after it wrote 2, and only while the word holds 2 (the kernel checks).
//! 2. A thread that has slept acquires with 2: others may still sleep, and their wake-up is now its duty.
//! 3. After the releasing exchange only the *address* of the word is used, for the wake-up.
//! 4. The kernel moves the waiters of a broadcast to the word, asleep. They acquire with 2. If the lock is held then,
//!    its release wakes one of them; otherwise the broadcaster does.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS 0 -> 1, swap 2 | Acquire | `hand_back(0)` | sees the last section |
//! | `hand_back(0)` in `unlock`, an exchange | Release | both | hands over this section |
//! | CAS 1 -> 2 in `adopt` | Relaxed | – | orders nothing. It comes after the moves. So either the release sees it, and wakes; or the broadcaster sees the lock free, and wakes |
//!
//! **Cannot:** be fair. A running thread passes sleepers over without bound.

use core::sync::atomic::Ordering::{Acquire, Release};

use crate::machine::{Deadline, Machine, TimedOut, Word};
use crate::mutex::spin::word::{FREE, HELD, OneWord, SLEEPERS, sleep, try_take};

/// The three-state futex lock.
pub struct Futex;

impl Futex {
    /// [`RawLock::lock`](crate::parts::raw::RawLock::lock) without counting it: for locks inside other objects.
    #[inline]
    pub(crate) fn lock_uncounted<M: Machine>(word: &M::Word) {
        if !try_take::<M>(word) {
            while word.swap(SLEEPERS, Acquire) != FREE {
                M::park(word, SLEEPERS, None);
            }
        }
    }

    /// [`RawLock::unlock`](crate::parts::raw::RawLock::unlock) without counting it.
    #[inline]
    pub(crate) fn unlock_uncounted<M: Machine>(word: &M::Word) {
        if word.hand_back(FREE, HELD, Release) {
            M::wake(word, 1);
        }
    }
}

impl OneWord for Futex {
    fn wait<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
        sleep::<M>(word, until)
    }
}
