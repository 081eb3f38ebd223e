//! # Whether the lock should stay where it is
//!
//! A thread that takes the lock over from another CPU finds the section's data there, and must fetch them. If the last
//! holder comes back and completes its next section in less time, one CPU alone does more than two that take turns.
//!
//! Waiters measure both, now and then:
//! - **what a move costs**: the time from taking over a lock from another CPU to releasing it. The new holder sets
//!   [`TIMED`], so that its release takes the slow path and reads the clock;
//! - **what staying costs**: a waiter that finds the lock free does not take it, but waits, and counts how many
//!   sections others complete meanwhile.
//!
//! If a section of others takes less time than a move, all waiters ([`Lock::stay`]) look again after that time before
//! they take a free lock. Each waiter that has waited for that time in vain shortens it.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Kept, Machine, Pause, Word};
use crate::mutex::flash::FREE;
use crate::mutex::flash::evidence::{LONGEST_STAY, TIME_EVERY, TIME_FIRST, WATCH_EVERY, WATCH_SELDOM};
use crate::mutex::flash::state::{CALL, Lock, STAY, Seen, TIMED, UNIT};
use crate::mutex::flash::turn;

/// How often a sleeper was called between two looks at `calls`; wraps.
pub(super) fn calls_between(before: u32, after: u32) -> u32 {
    (after / CALL).wrapping_sub(before / CALL) & (u32::MAX / CALL)
}

/// Whether there was no call between two looks.
pub(super) fn is_same_call(before: u32, after: u32) -> bool {
    (before ^ after) < CALL
}

impl<M: Machine> Lock<'_, M> {
    /// For how many steps a free lock is left to its last holder; 0: no longer than its line needs to get here and
    /// back.
    pub(super) fn stay(&self) -> u32 {
        // Relaxed: a hint.
        (self.queue.calls.load(Relaxed) & STAY) * UNIT
    }

    /// Relaxed: a hint, tried once: if another thread changes the word first, this change is dropped. It is a
    /// read-modify-write, so a thread that reads it still sees what came before the last call.
    fn set_stay(&self, stay: u32) {
        let seen = self.queue.calls.load(Relaxed);
        let _ = self.queue.calls.compare_exchange(seen, seen & !STAY | (stay / UNIT).min(STAY), Relaxed, Relaxed);
    }

    /// A waiter has waited for this long, and no thread came back.
    pub(super) fn stayed_in_vain(&self, stay: u32) {
        self.set_stay(stay - stay / 4);
    }

    /// A number that mostly distinguishes this lock from others.
    fn tag(&self) -> u32 {
        ((&raw const *self.word).addr() >> 2) as u32
    }

    /// Whether a waiter that has found the lock free should time its section.
    pub(super) fn is_to_be_timed(&self) -> bool {
        let every = if Kept::Timed.get::<M>() == self.tag() { TIME_EVERY } else { TIME_FIRST };
        M::random() % every == 1
    }

    /// The caller has just taken the lock; it began to take it at `since`.
    pub(super) fn begin_timing(&self, since: u32) {
        if Kept::Timed.get::<M>() != self.tag() {
            Kept::Timed.set::<M>(self.tag());
            Kept::MoveCost.set::<M>(0);
            Kept::WatchEvery.set::<M>(WATCH_EVERY);
            Kept::Watch.set::<M>(0);
        }
        Kept::TimedSince.set::<M>(since);
        self.update(|state| state | TIMED);
    }

    /// The release found [`TIMED`].
    pub(super) fn end_timing(&self) {
        self.update(|state| state & !TIMED);
        if Kept::Timed.get::<M>() == self.tag() {
            let took = M::steps().wrapping_sub(Kept::TimedSince.get::<M>()).clamp(1, 4 * LONGEST_STAY);
            let before = Kept::MoveCost.get::<M>();
            let cost = if before == 0 || took < before { took } else { before + (took - before).div_ceil(8) };
            Kept::MoveCost.set::<M>(cost);
        }
    }

    /// Whether a waiter that has found the lock free should watch it; if so, what a move costs.
    pub(super) fn is_to_be_watched(&self) -> Option<u32> {
        if Kept::Timed.get::<M>() != self.tag() {
            return None;
        }
        let cost = Kept::MoveCost.get::<M>();
        if cost == 0 || cost > LONGEST_STAY {
            return None;
        }
        let left = Kept::Watch.get::<M>();
        Kept::Watch.set::<M>(left.saturating_sub(1));
        (left == 0).then_some(cost)
    }

    /// Watches a lock that was free when `turn` was `now`, instead of taking it, for up to twice as long as a move
    /// costs. An error is what was seen last, if another thread has had the lock meanwhile.
    ///
    /// It looks only once or twice: each look takes the line from the threads that use it.
    pub(super) fn watch(&self, now: u32, cost: u32, second: u32) -> Result<(), Seen> {
        let began = M::steps();
        let look = || {
            M::pause(Pause::Steps(cost));
            let seen = self.see();
            (seen, turn::between(now, seen.1), M::steps().wrapping_sub(began))
        };
        let (mut seen, mut taken, mut took) = look();
        if seen.0 != FREE || taken != 0 {
            (seen, taken, took) = look();
        }
        let pays = taken * cost > took;
        let every = Kept::WatchEvery.get::<M>();
        let every = if pays { WATCH_EVERY } else { (2 * every).min(WATCH_SELDOM) };
        Kept::WatchEvery.set::<M>(every);
        Kept::Watch.set::<M>(every);
        if pays {
            self.set_stay(took / taken + second);
        }
        if seen.0 != FREE || taken != 0 { Err(seen) } else { Ok(()) }
    }
}
