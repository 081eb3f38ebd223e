//! # TAS: test-and-set, politely
//!
//! `tas` is a spinlock whose waiters look before they try, and back off after each failure. **Use it** when few threads
//! want the lock at a time, and sections are short: nothing is faster, and no thread ever waits for a waiter that does
//! not run. **Rather not** when a wait must be bounded.
//!
//! **Problem.** The simplest lock is one word, set by the first thread that gets there. Under contention every attempt
//! steals the line from the holder. **Idea.** Look before trying (test-and-test-and-set) and, after a failure, back off
//! for a random time that doubles up to a limit. **Source.** Anderson, TPDS 1(1), 1990; the randomised back-off as in
//! Dice, *Malthusian Locks*, §5.1 ("randomised back-off is more suitable for global spinning").
//!
//! **Departures.**
//! 1. A waiter whose spin budget is spent gives its CPU away for the back-off, so that more threads than CPUs do not
//!    stop each other.
//! 2. Release is an exchange, not a store, so that a sleeper on the word (value 2) is seen and woken. The sleeper may
//!    be in glibc's own lock code on the same word, or a waiter that a broadcast has moved there.
//! 3. A thread that has waited for 10 ms sleeps on the word, as under [`futex`](super::futex), so that waiting for a
//!    lock that is held for long costs nothing.
//!
//! ```text
//!   A  ■■■■■■■■■■■■│                          ■ has the lock      ? looks at the word, then backs off
//!   B    ?  ?    ?      ?■■■■■│               has waited longer than C, but C has looked first
//!   C      ?  ?   ■■■■■■│
//!   D               ?        ?      ?■■■■     each time that it finds the lock held, it backs off for longer
//! ```
//!
//! ## State
//! | word | meaning |
//! |------|---------|
//! | 0 | free |
//! | 1 | held |
//! | 2 | held, and a thread may sleep on the word; a thread that has slept there acquires with 2, as in [`Futex`] |
//!
//! ## Invariants
//! 1. The thread that changes the word from 0 holds the lock. Only that thread changes the word back, or code that
//!    bypasses flashlock.
//! 2. A thread sleeps only after the word was 2, and only while it is 2. After it has slept, it acquires with 2,
//!    because others may sleep.
//! 3. After the releasing exchange only the *address* of the word is used, for the wake-up.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `word` CAS in `try_lock` | Acquire | `word.hand_back` in `unlock` | sees what the last section wrote |
//! | `word.hand_back` in `unlock`, an exchange | Release | the CAS | hands over what this section wrote |
//! | `word.load` while polling | Relaxed | – | only decides when to try the CAS |
//!
//! **Cannot:** be fair. Waiters may be passed over without bound.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, TimedOut, Word};
use crate::mutex::spin::Futex;
use crate::parts::adoption::Chain;
use crate::parts::raw::RawLock;

/// Back-off starts here (µs) …
const BACKOFF_MIN: u32 = 8;
/// … and doubles up to here.
const BACKOFF_MAX: u32 = 1024;

/// A thread that has waited for so long (µs) sleeps until it is woken.
const LONG: u32 = 10_000;

/// The test-and-set lock.
pub struct Tas;

impl Tas {
    #[cold]
    fn lock_slow<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
        M::trace(Event::Contended);
        let stamp = M::stamp();
        let ended = contend::<M>(word, until);
        ended.inspect(|()| M::waited(stamp)).inspect_err(|_| M::trace(Event::TimedOut))
    }
}

/// 0 -> 1, with back-off between the attempts. After [`LONG`], 0 -> 2, with sleep. (The release is an exchange.)
pub(crate) fn contend<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
    poll::<M>(word, M::sooner(LONG, until)).or_else(|late| {
        if until.is_some_and(|deadline| M::expired(&deadline)) { Err(late) } else { Futex::sleep::<M>(word, until) }
    })
}

/// 0 -> 1, with back-off between the attempts, until a deadline.
fn poll<M: Machine>(word: &M::Word, until: Deadline) -> Result<(), TimedOut> {
    let mut limit = BACKOFF_MIN;
    loop {
        let taken = |seen| seen == 0 && try_take::<M>(word);
        if M::spin_until(word, Relaxed, Patience::Contend, taken).is_some() {
            return Ok(());
        }
        M::relax(1 + M::random() % limit);
        if M::expired(&until) {
            return Err(TimedOut);
        }
        limit = (limit * 2).min(BACKOFF_MAX);
    }
}

/// 1 -> 0, or 2 -> 0 and a wake-up.
#[inline(always)]
pub(crate) fn release<M: Machine>(word: &M::Word) {
    if word.hand_back(0, 1, Release) {
        M::trace(Event::Wake);
        M::wake(word, 1);
    }
}

/// 0 -> 1
#[inline(always)]
pub(crate) fn try_take<M: Machine>(word: &M::Word) -> bool {
    word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
}

impl<M: Machine> RawLock<M> for Tas {
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
        release::<M>(word);
    }

    fn is_locked(word: &M::Word, _: &()) -> bool {
        word.load(Relaxed) != 0
    }

    fn adopt(word: &M::Word, _: &(), chain: Chain) {
        Futex::adopt_on_word::<M>(word, &chain);
    }

    fn lock_adopted(word: &M::Word, _: &(), me: Handle) {
        Futex::lock_as_sleeper::<M>(word, me);
    }
}
