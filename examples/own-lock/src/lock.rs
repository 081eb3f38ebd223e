//! # A ticket lock whose waiters sleep
//!
//! `ParkingTicket` serves threads in order of arrival. A waiter polls for a while, then sleeps until the next release.
//! **Use it** to see how a lock is written. **Rather not** with many waiters: each release wakes all that sleep.
//!
//! **Idea.** Two counters: an arriving thread draws the next number, and a release calls the next one (Reed & Kanodia,
//! CACM 22(2), 1979). **Departure.** The lowest bit of the called number says that a thread may sleep on it. So numbers
//! are even.
//!
//! | word | `next` | meaning |
//! |---|---|---|
//! | n | n | free; all-zero at first |
//! | n | n + 2 + 2w | n is held, w threads wait |
//! | n + 1 | the same | and a thread may sleep on the word |
//!
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | loads of the word that decide whose turn it is | Acquire | the exchange in `unlock` | sees the last section |
//! | the exchange in `unlock` | Release | those loads | hands over this section |
//! | `next` | Relaxed | – | decides only which thread has which number |
//!
//! **Cannot:** time out in the queue. A timed acquisition takes the lock only when it is free and nobody waits.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use flashlock_locks::machine::{Deadline, Machine, Patience, TimedOut, Word};
use flashlock_locks::parts::counted::{contended, park, wake};
use flashlock_locks::parts::raw::RawLock;

/// In the word: a thread may sleep on it.
const ASLEEP: u32 = 1;
/// From one number to the next.
const STEP: u32 = 2;

/// The lock. `ParkingTicket<false>` has a bug for the models to find: its loads of the word are Relaxed.
pub struct ParkingTicket<const SOUND: bool = true>;

impl<const SOUND: bool> ParkingTicket<SOUND> {
    const TURN: Ordering = if SOUND { Acquire } else { Relaxed };

    /// Draws a number, and waits until it is called.
    fn await_turn<M: Machine>(word: &M::Word, next: &M::Word) -> Result<(), TimedOut> {
        let mine = next.fetch_add(STEP, Relaxed);
        let my_turn = |seen: u32| seen & !ASLEEP == mine;
        // The machine decides how a thread polls, and for how long that is worth it.
        let polled = M::spin_until(word, Self::TURN, Patience::Budget, my_turn);
        let mut seen = polled.unwrap_or_else(|| word.fetch_or(ASLEEP, Self::TURN));
        while !my_turn(seen) {
            // Returns at once if the word has changed.
            park::<M>(word, seen | ASLEEP, None);
            seen = word.fetch_or(ASLEEP, Self::TURN);
        }
        Ok(())
    }
}

// SAFETY: it has neither nodes nor blocks.
unsafe impl<M: Machine, const SOUND: bool> RawLock<M> for ParkingTicket<SOUND> {
    const EXCLUDES: bool = SOUND;

    /// What the lock needs beside the word: `next`, the number that the next thread draws.
    type Queue = M::Word;

    /// (n, n) -> (n, n + 2)
    unsafe fn try_acquire(word: &M::Word, next: &M::Word) -> bool {
        let called = word.load(Self::TURN) & !ASLEEP;
        next.compare_exchange(called, called.wrapping_add(STEP), Relaxed, Relaxed).is_ok()
    }

    /// A timed acquisition draws no number, because a number that was drawn must be served. `contended` counts and
    /// measures the wait.
    unsafe fn acquire(word: &M::Word, next: &M::Word, until: Option<&Deadline>) -> Result<(), TimedOut> {
        // SAFETY: the callers' promise.
        let take = |_| unsafe { <Self as RawLock<M>>::try_acquire(word, next) };
        let timed = |&until| M::spin_until(word, Relaxed, Patience::Until(until), take).map(drop).ok_or(TimedOut);
        let wait = || until.map_or_else(|| Self::await_turn::<M>(word, next), timed);
        if take(0) { Ok(()) } else { contended::<M>(wait) }
    }

    /// n -> n + 2, unless the lock is free. After the exchange only the address of the word is used: the next holder
    /// may free the lock.
    unsafe fn release(word: &M::Word, next: &M::Word) {
        // Relaxed: only the holder changes the number.
        let mine = word.load(Relaxed) & !ASLEEP;
        if next.load(Relaxed) == mine {
            return;
        }
        if word.swap(mine.wrapping_add(STEP), Release) & ASLEEP != 0 {
            wake::<M>(word, u32::MAX);
        }
    }

    unsafe fn is_locked(word: &M::Word, next: &M::Word) -> bool {
        next.load(Relaxed) != word.load(Relaxed) & !ASLEEP
    }
}
