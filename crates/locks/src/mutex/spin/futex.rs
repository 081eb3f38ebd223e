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

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Unparked, Word};
use crate::parts::adoption::Chain;
use crate::parts::raw::RawLock;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// The three-state futex lock.
pub struct Futex;

impl Futex {
    /// [`RawLock::lock`] without counting it: for locks inside other objects.
    #[inline]
    pub(crate) fn acquire<M: Machine>(word: &M::Word) {
        if !try_take::<M>(word) {
            while word.swap(CONTENDED, Acquire) != FREE {
                M::park(word, CONTENDED, None);
            }
        }
    }

    /// [`RawLock::adopt`]. (word, sleepers) -> (2 if held, sleepers + chain). If the lock is free, wakes one of them
    /// (invariant 4).
    ///
    /// The first waiter is moved like the others, but stays CLAIMED until the word has been accessed for the last time.
    /// A waiter that is not asleep on its node (it may be stopped) is neither moved nor woken, and delays no other.
    pub(super) fn adopt_on_word<M: Machine>(word: &M::Word, chain: &Chain) {
        let address: *const M::Word = word;
        let claim = chain.claim_on_first::<M>();
        M::requeue(chain.first().node::<M>(), address);
        chain.park_followers::<M>(|follower| M::requeue(follower, address));
        if word.compare_exchange(HELD, CONTENDED, Relaxed, Relaxed) == Err(FREE) {
            M::wake(address, 1);
        }
        chain.park_first::<M>(claim);
    }

    /// [`RawLock::lock_adopted`]: 0 -> 2, sleeping while it is not 0.
    pub(super) fn lock_as_sleeper<M: Machine>(word: &M::Word, me: Handle) {
        M::trace(Event::Acquire);
        // Without a deadline it cannot time out.
        let _ = Self::lock_slow::<M>(word, None);
        M::give_node(me);
    }

    /// [`RawLock::unlock`] without counting it.
    #[inline]
    pub(crate) fn release<M: Machine>(word: &M::Word) {
        if word.hand_back(FREE, HELD, Release) {
            M::wake(word, 1);
        }
    }

    /// 0 -> 2, sleeping while it is not 0.
    #[cold]
    fn lock_slow<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
        M::trace(Event::Contended);
        let stamp = M::stamp();
        let ended = Self::sleep::<M>(word, until);
        ended.inspect(|()| M::waited(stamp)).inspect_err(|_| M::trace(Event::TimedOut))
    }

    /// The same, without counting it.
    pub(crate) fn sleep<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
        while word.swap(CONTENDED, Acquire) != FREE {
            M::trace(Event::Park);
            if M::park(word, CONTENDED, until) == Unparked::TimedOut {
                // The word stays 2, because others may sleep. One last try, in case a release raced the time-out.
                if word.compare_exchange(FREE, CONTENDED, Acquire, Relaxed).is_ok() {
                    break;
                }
                return Err(TimedOut);
            }
        }
        Ok(())
    }
}

/// 0 -> 1
#[inline(always)]
fn try_take<M: Machine>(word: &M::Word) -> bool {
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
}

impl<M: Machine> RawLock<M> for Futex {
    type Queue = ();

    const GLIBC_WORD: bool = true;

    fn new_queue() {}

    #[inline]
    fn try_lock(word: &M::Word, _: &()) -> bool {
        let taken = try_take::<M>(word);
        if taken {
            M::trace(Event::Acquire);
        }
        taken
    }

    #[inline]
    fn lock(word: &M::Word, _: &()) {
        M::trace(Event::Acquire);
        if !try_take::<M>(word) {
            // Without a deadline it cannot time out.
            let _ = Self::lock_slow::<M>(word, None);
        }
    }

    #[inline]
    fn lock_until(word: &M::Word, _: &(), until: Deadline) -> Result<(), TimedOut> {
        if !try_take::<M>(word) {
            Self::lock_slow::<M>(word, Some(until))?;
        }
        M::trace(Event::Acquire);
        Ok(())
    }

    /// 1 -> 0, or 2 -> 0 and a wake-up.
    #[inline]
    fn unlock(word: &M::Word, _: &()) {
        if word.hand_back(FREE, HELD, Release) {
            M::trace(Event::Wake);
            M::wake(word, 1);
        }
    }

    fn is_locked(word: &M::Word, _: &()) -> bool {
        word.load(Relaxed) != FREE
    }

    fn adopt(word: &M::Word, _: &(), chain: Chain) {
        Self::adopt_on_word::<M>(word, &chain);
    }

    fn lock_adopted(word: &M::Word, _: &(), me: Handle) {
        Self::lock_as_sleeper::<M>(word, me);
    }
}
