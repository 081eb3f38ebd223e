//! # TAS: test-and-set, politely
//!
//! `tas` is a spinlock whose waiters look before they try, and back off after each failure. **Use it** when few threads
//! want the lock at a time, and sections are short: it is among the fastest then, and no thread ever waits for a waiter
//! that does not run. **Rather not** when a wait must be bounded.
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
//! | 2 | held, and a thread may sleep on the word; a thread that has slept there acquires with 2, as in [`futex`](super::futex) |
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
//! | `word` CAS in `try_take` | Acquire | `word.hand_back` in `unlock` | sees what the last section wrote |
//! | `word.hand_back` in `unlock`, an exchange | Release | the CAS | hands over what this section wrote |
//! | `word.load` while polling | Relaxed | – | only decides when to try the CAS |
//!
//! **Cannot:** be fair. Waiters may be passed over without bound.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Deadline, Machine, Patience, Pause, TimedOut};
use crate::mutex::spin::word::{FREE, OneWord, sleep, try_take};

/// Back-off starts here (µs) …
const BACKOFF_MIN: u32 = 8;
/// … and doubles up to here.
const BACKOFF_MAX: u32 = 1024;

/// A thread that has waited for so long (µs) sleeps until it is woken.
const LONG: u32 = 10_000;

/// The test-and-set lock.
pub struct Tas;

impl OneWord for Tas {
    fn wait<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
        contend::<M>(word, until)
    }
}

/// 0 -> 1, with back-off between the attempts. After [`LONG`], 0 -> 2, with sleep. (The release is an exchange.)
pub(crate) fn contend<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
    poll::<M>(word, M::sooner(LONG, until)).or_else(|late| {
        if until.is_some_and(|deadline| M::expired(&deadline)) { Err(late) } else { sleep::<M>(word, until) }
    })
}

/// 0 -> 1, with back-off between the attempts, until a deadline.
fn poll<M: Machine>(word: &M::Word, until: Deadline) -> Result<(), TimedOut> {
    let mut limit = BACKOFF_MIN;
    loop {
        let taken = |seen| seen == FREE && try_take::<M>(word);
        if M::spin_until(word, Relaxed, Patience::Contend, taken).is_some() {
            return Ok(());
        }
        M::pause(Pause::Nap(1 + M::random() % limit));
        if M::expired(&until) {
            return Err(TimedOut);
        }
        limit = (limit * 2).min(BACKOFF_MAX);
    }
}
