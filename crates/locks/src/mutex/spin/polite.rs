//! # Polite: a spinlock of four bytes for any number of threads
//!
//! `Polite` is a spinlock whose waiters give their CPUs away, and whose long-time waiters get the lock next. It serves
//! `pthread_spinlock_t`, which has four bytes. **Use it** where a lock has one word, possibly in memory that processes
//! share. **Rather not** when the order of waiters matters.
//!
//! **Problem.** Spinlocks are used where sections are short, and waiters poll. With more threads than CPUs, waiters
//! poll away the time that the holder needs. And however many CPUs there are, a thread that releases and acquires in a
//! tight loop may pass a waiter over for ever. **Idea.** Test-and-set with random back-off, in which a waiter gives its
//! CPU away ([`Tas`](super::Tas)). A waiter that has waited for too long *claims* the lock. A release leaves the claim
//! in the word: it writes only the word's high byte, without reading the word. A free lock with a claim is taken by its
//! claimant only, until the claim lapses. A claimant renews its claim as long as the lock is held. So a claimant that
//! does not run, or has died, delays the others for a moment only. **Source.** Anderson, TPDS 1(1), 1990, and Dice,
//! *Malthusian Locks*, §5.1, for the polling; the claim is ours.
//!
//! Nothing in the word depends on the process, and no thread sleeps on it: waiters nap. So the lock works in memory
//! that processes share. Each process measures the time of claims by itself. If processes were started separately,
//! their clocks may differ by more than a claim lasts, after a minute or later. Then they ignore each other's claims,
//! and such a waiter has no bound.
//!
//! ## State
//! | word | meaning |
//! |---|---|
//! | 0 | free: memory that was zeroed |
//! | [`FREE`] | free: what glibc's `pthread_spin_init` and `pthread_spin_unlock` write on x86 |
//! | [`HELD`], [`FREE`] | held |
//! | [`HELD`], [`FREE`], [`CLAIMED`], time | held; the waiter that claimed it at that time is next |
//! | [`FREE`], [`CLAIMED`], time | free, but claimed |
//!
//! The bit [`FREE`] of a held lock is what remains when the release removes [`HELD`].
//!
//! A held lock is negative, which is "held" in glibc's protocol, too. (glibc's holder writes 0, which is free here: a
//! spinlock that is held through code that bypasses flashlock does not exclude. A program that zeroes a spinlock means
//! a free one, and the two cannot be distinguished.)
//!
//! ## Invariants
//! 1. The thread that changes the word from one without [`HELD`] to one with it holds the lock; only the holder removes
//!    it.
//! 2. No bit of the high byte is ever set but [`HELD`], and all else is in the other bytes. So a claim that is made at
//!    the moment of a release is not lost.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS to [`HELD`] | Acquire | the store in `release` | sees the last section |
//! | store in `release` | Release | that CAS | hands over this section |
//! | CAS of a claim | Relaxed | – | orders nothing; it comes before the holder's release |
//! | loads | Relaxed | – | decide when to try the CAS |
//!
//! **Cannot:** be fair in the short run. The bound of a wait is the number of waiters, times the time that a claim
//! takes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::{Deadline, HIGH_BYTE, Machine, Patience, Pause, TimedOut, Word};
use crate::parts::raw::RawLock;

/// The word of a free lock without a claim.
pub const FREE: u32 = 1;
/// Bit of the word: the lock is held.
pub const HELD: u32 = 1 << 31;
/// Bit of the word: a waiter has waited long.
pub const CLAIMED: u32 = 1 << 23;
/// The time of the claim: 16 bits.
const WHEN: u32 = 0xffff << WHEN_FROM;
const WHEN_FROM: u32 = 1;
/// The clock of claims advances once in so many µs (a power of two); it wraps after 67 s.
const TICK: u32 = 1024;

/// How long a waiter waits before it claims, in µs.
const CLAIM_AFTER: u32 = 2_000;
/// For how many ticks a claim lasts.
const CLAIM_LASTS: u32 = 8;
/// Back-off starts here (µs) …
const BACKOFF_MIN: u32 = 8;
/// … and doubles up to here; a claimant's does not double.
const BACKOFF_MAX: u32 = 1024;

const _: () = assert!((FREE | CLAIMED | WHEN) & HIGH_BYTE == 0 && HELD & HIGH_BYTE == HELD);
const _: () = assert!(FREE & WHEN == 0 && CLAIMED & WHEN == 0 && FREE & CLAIMED == 0);

const fn is_held(word: u32) -> bool {
    word & HELD != 0
}

/// A claim made at this moment.
fn claim_now<M: Machine>() -> u32 {
    FREE | CLAIMED | ((M::micros() / TICK) << WHEN_FROM & WHEN)
}

/// How many ticks ago the claim in the word was made.
fn age<M: Machine>(word: u32) -> u32 {
    (claim_now::<M>().wrapping_sub(word) & WHEN) >> WHEN_FROM
}

/// Whether the word holds a claim that has not lapsed.
fn is_claimed<M: Machine>(word: u32) -> bool {
    word & CLAIMED != 0 && age::<M>(word) < CLAIM_LASTS
}

/// The spinlock.
pub struct Polite;

/// free -> held, if the word is free and holds no claim that still lasts, except `claim` (0: none).
fn try_take<M: Machine>(word: &M::Word, seen: u32, claim: u32) -> bool {
    let mine = claim != 0 && seen == claim;
    !is_held(seen)
        && (mine || !is_claimed::<M>(seen))
        && word.compare_exchange_between_processes(seen, HELD | FREE, Acquire, Relaxed).is_ok()
}

/// held -> (held, claimed). Returns our claim: `claim`, if that stands, unless it would lapse soon; then a new one.
/// Returns 0 if we have none: another claim stands, or the lock is not held.
fn stake<M: Machine>(word: &M::Word, claim: u32) -> u32 {
    let mut seen = word.load(Relaxed);
    loop {
        let ours = claim != 0 && seen & !HELD == claim;
        if ours && (!is_held(seen) || age::<M>(seen) < CLAIM_LASTS / 2) {
            return claim;
        }
        if !is_held(seen) || (!ours && is_claimed::<M>(seen)) {
            return 0;
        }
        let new = claim_now::<M>();
        match word.compare_exchange_between_processes(seen, HELD | new, Relaxed, Relaxed) {
            Ok(_) => return new,
            Err(now) => seen = now,
        }
    }
}

#[cold]
fn lock_slow<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
    if try_take::<M>(word, word.load(Relaxed), 0) {
        return Ok(()); // Zeroed memory.
    }
    M::trace(Event::SpinContended);
    let (begun, mut claim, mut limit) = (M::micros(), 0, BACKOFF_MIN);
    loop {
        let taken = |seen| try_take::<M>(word, seen, claim);
        if M::spin_until(word, Relaxed, Patience::Contend, taken).is_some() {
            return Ok(());
        }
        if M::micros().wrapping_sub(begun) >= CLAIM_AFTER {
            claim = stake::<M>(word, claim);
        }
        M::pause(Pause::Nap(1 + M::random() % if claim == 0 { limit } else { BACKOFF_MIN }));
        if until.is_some_and(|deadline| M::expired(&deadline)) {
            return Err(TimedOut);
        }
        limit = (limit * 2).min(BACKOFF_MAX);
    }
}

// SAFETY: it has no nodes.
unsafe impl<M: Machine> RawLock<M> for Polite {
    type Queue = ();

    const ACQUIRED: Event = Event::SpinAcquire;

    /// free -> held. Passes over a claim, but leaves it in the word.
    #[inline]
    unsafe fn try_acquire(word: &M::Word, _: &()) -> bool {
        let mut seen = word.load(Relaxed);
        while !is_held(seen) {
            let claim = if seen & CLAIMED != 0 { seen } else { 0 };
            match word.compare_exchange_between_processes(seen, HELD | FREE | claim, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, _: &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        match word.compare_exchange_between_processes(FREE, HELD | FREE, Acquire, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => lock_slow::<M>(word, until.copied()),
        }
    }

    /// held -> free, (held, claimed) -> (free, claimed)
    #[inline]
    unsafe fn release(word: &M::Word, _: &()) {
        word.clear_high_byte(Release);
    }

    unsafe fn is_locked(word: &M::Word, _: &()) -> bool {
        is_held(word.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bench::{Bench, Plain, stop_clock};

    #[test]
    fn a_claim_is_renewed_as_long_as_the_lock_is_held() {
        let word = Plain::new(HELD | FREE);
        let mut claim = 0;
        for tick in 0..10 * CLAIM_LASTS {
            stop_clock(tick * TICK);
            claim = stake::<Bench>(&word, claim);
            assert_eq!(word.load(Relaxed), HELD | claim);
            assert!(is_claimed::<Bench>(claim), "it lapses though its claimant runs");
        }
    }

    /// The lock was released between the claimant's last poll and this.
    #[test]
    fn a_claim_outlives_the_release() {
        stop_clock(0);
        let word = Plain::new(HELD | FREE);
        let claim = stake::<Bench>(&word, 0);
        word.clear_high_byte(Release);
        assert_eq!((stake::<Bench>(&word, claim), word.load(Relaxed)), (claim, claim));
        assert!(!try_take::<Bench>(&word, claim, 0), "another thread takes it");
        assert!(try_take::<Bench>(&word, claim, claim));
        assert_eq!(word.load(Relaxed), HELD | FREE);
    }

    #[test]
    fn another_claim_stands_until_it_lapses() {
        stop_clock(0);
        let word = Plain::new(HELD | FREE);
        let claim = stake::<Bench>(&word, 0);
        stop_clock((CLAIM_LASTS - 1) * TICK);
        assert_eq!((stake::<Bench>(&word, 0), word.load(Relaxed)), (0, HELD | claim));
        stop_clock(CLAIM_LASTS * TICK);
        let new = stake::<Bench>(&word, 0);
        assert!(new != 0 && new != claim);
    }
}
