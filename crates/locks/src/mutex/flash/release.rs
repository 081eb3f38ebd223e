//! # The release of a lock that threads wait for
//!
//! A release frees the word, or hands the lock to a head that has asked for it. If the holder was the head, its release
//! also calls a sleeper to be the next head.

use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::{Machine, Pause, Word};
use crate::mutex::flash::evidence::LOOK_EVERY;
use crate::mutex::flash::state::{HANDOFF, HEAD, Lock, PASS, SLEEPS, TIMED, TRANSIT, has_sleepers};
use crate::mutex::flash::turn;
use crate::mutex::flash::{FREE, HELD, SLEEPERS};
use crate::parts::counted::wake;

/// Whether a release has more to do than to free the word. All of that is for a head, or for the next head.
#[inline(always)]
pub(super) fn is_special(state: u32, turn: u32) -> bool {
    state & (PASS | TRANSIT | HANDOFF | SLEEPS | TIMED) != 0
        || (state & HEAD != 0 && turn::is_multiple(turn, LOOK_EVERY))
}

impl<M: Machine> Lock<'_, M> {
    /// held -> free; or handed to the head, if it has asked.
    pub(super) fn release_special(&self) {
        self.settle();
        // Released by a thread that does not hold it: nothing happens. Relaxed: a holder sees its own value.
        if self.word.load(Relaxed) == FREE {
            return;
        }
        if self.state() & TIMED != 0 {
            self.end_timing();
        }
        let makes_way = self.head_waits_long();
        let mut slept = false;
        let called = loop {
            let seen = self.state();
            if seen & PASS != 0 {
                // `TRANSIT` before the call: a sleeper that sees the call finds the place of the head free.
                if self.change(seen, seen & !PASS | TRANSIT) {
                    self.note_time(); // From now on the next head waits.
                    break Some(self.call());
                }
            } else if makes_way && seen & TRANSIT != 0 && has_sleepers(seen) {
                break Some(self.call()); // A sleeper that was called does not run.
            } else if seen & HANDOFF == 0 && !(seen & SLEEPS != 0 && self.head_is_overdue()) {
                break None;
            } else if self.hand_over(seen, &mut slept) {
                return;
            }
        };
        let word: *const M::Word = self.word;
        let awaited = self.word.hand_back(FREE, HELD, Release);
        // The lock's memory may be freed now; from here on only addresses are used.
        if awaited {
            wake::<M>(word, 1);
        }
        if let Some(calls) = called {
            wake::<M>(calls, 1);
        }
        if makes_way {
            M::pause(Pause::Offer);
        }
    }

    /// (HANDOFF, or head asleep) -> GRANT. `false` if the head has just fallen asleep, or left: then the caller looks
    /// again. `slept`: whether a thread that sleeps on the word must be woken.
    fn hand_over(&self, seen: u32, slept: &mut bool) -> bool {
        let word: *const M::Word = self.word;
        if seen & SLEEPS != 0 && !self.take_sleeps_back(seen) {
            return false;
        }
        // A thread that is about to sleep does so only while the word is 3, and otherwise writes the 3 again. Relaxed:
        // the word is the holder's own, except for such marks.
        if seen & SLEEPS != 0 || self.word.load(Relaxed) >= SLEEPERS {
            *slept = true;
            self.word.store(SLEEPERS, Relaxed);
        }
        if seen & SLEEPS != 0 {
            return false;
        }
        self.note_time();
        if !self.grant(seen) {
            return false;
        }
        M::trace(Event::Grant);
        if *slept {
            wake::<M>(word, u32::MAX); // All: others may have slept there before the head.
        }
        true
    }

    /// Whether a sleeping head has waited for the bound. (The release calls the kernel for the head anyway, so it may
    /// as well look at the clock.) A bound of more than half a second counts as half a second: ages repeat after one
    /// second.
    fn head_is_overdue(&self) -> bool {
        turn::age(self.queue.turn.load(Relaxed), M::micros()) >= M::tunables().bound_us.min(turn::OLDEST / 2)
    }

    /// Whether the head, or a sleeper that was called to be the head, has waited beyond the bound, and may need this
    /// CPU. A head that does not sleep is looked at now and then, a called sleeper at each release.
    fn head_waits_long(&self) -> bool {
        let (seen, state) = (self.queue.turn.load(Relaxed), self.state());
        let looks = turn::is_multiple(seen, LOOK_EVERY) || state & TRANSIT != 0;
        if !looks || state & HEAD == 0 || state & SLEEPS != 0 {
            return false;
        }
        let (now, bound) = (M::micros(), M::tunables().bound_us);
        if turn::age(seen, now) <= (bound + bound / 8).min(turn::OLDEST / 2) {
            return false;
        }
        self.queue.turn.store(turn::at(seen, now), Relaxed); // Relaxed: the holder's own.
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bench::{Bench, Plain};
    use crate::mutex::flash::FlashQueue;
    use crate::mutex::flash::state::GRANT;
    use crate::parts::zeroed::Zeroed as _;

    /// It would be granted to the head, though another thread may take the free word.
    #[test]
    fn a_free_lock_is_not_handed_over() {
        for (word, granted) in [(FREE, 0), (HELD, GRANT)] {
            let (word, queue) = (Plain::new(word), FlashQueue::<Bench>::zeroed());
            let lock = Lock { word: &word, queue: &queue };
            lock.update(|_| HEAD | HANDOFF);
            lock.release_special();
            assert_eq!(lock.state() & GRANT, granted);
        }
    }
}
