//! # The head: the one waiter that contends while others sleep
//!
//! How the head waits. It polls, naps while the lock is hot, offers its CPU while it is not, and sleeps on the word
//! when that did not help. When its wait is overdue it asks for the lock, if it is awake; if it sleeps, a release hands
//! the lock over unasked.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Deadline, Machine, Pause, TimedOut, Unparked, Word};
use crate::mutex::flash::arrival::Polled;
use crate::mutex::flash::evidence::{HOT, LONGEST_NAP, NAP, SPIN, SPIN_OVERDUE, patience};
use crate::mutex::flash::state::{
    GRANT, HANDOFF, HEAD, Lock, Place, Role, SLEEPS, TRANSIT, after_extra_head, after_resigning,
};
use crate::mutex::flash::{AWAITED, FREE, HELD, SLEEPERS};
use crate::parts::counted::{park, wake};
use crate::parts::naps::stay_away;

/// What a head does first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// It polls, and offers its CPU.
    Polls,
    /// It sleeps, until the lock is released.
    Sleeps,
}

impl<M: Machine> Lock<'_, M> {
    /// The wait of a head, from the time when it became the head. At the end it has the lock, or has passed its place
    /// on.
    pub(super) fn contend_as_head(&self, place: Place, until: Option<Deadline>, first: First) -> Result<(), TimedOut> {
        let (began, bound) = (M::micros(), M::tunables().bound_us);
        let left = || bound.saturating_sub(M::micros().wrapping_sub(began));
        let is_overdue = || left() == 0;
        let (mut role, mut nap) = (Role::Head { is_dirty: false, place }, NAP);
        let mut patience = patience::<M>();
        if first == First::Sleeps
            && let Some(end) = self.rest(&mut role, until)
        {
            return end;
        }
        loop {
            let moves = match self.spin(role, SPIN) {
                Polled::Won => return Ok(()),
                Polled::Lost(moves) => moves,
            };
            if is_late::<M>(until) {
                return self.resign(role);
            }
            let overdue = is_overdue();
            if overdue && self.ask() {
                continue;
            }
            let is_hot = moves >= HOT && !overdue;
            let is_hot = is_hot
                || match self.offer(role, patience, until) {
                    Polled::Won => return Ok(()),
                    Polled::Lost(moves) => moves >= HOT && self.state() & HANDOFF == 0 && !is_overdue(),
                };
            if is_late::<M>(until) {
                return self.resign(role);
            }
            if is_hot {
                M::pause(Pause::Nap(nap.min(left().max(1))));
                nap = (nap * 2).min(LONGEST_NAP);
                continue;
            }
            if is_overdue() {
                self.ask();
                if self.spin(role, SPIN_OVERDUE) == Polled::Won {
                    return Ok(());
                }
            }
            // Sections are longer than that: the offer was in vain, and another one as long would be in vain, too.
            patience = M::sleep_cost();
            if let Some(end) = self.rest(&mut role, until) {
                return end;
            }
        }
    }

    /// Sleeps until the lock is released. Returns how the wait ended, if it did.
    ///
    /// It does not get up when its wait is overdue: a release sees that the head sleeps, and reads the clock for it.
    fn rest(&self, role: &mut Role, until: Option<Deadline>) -> Option<Result<(), TimedOut>> {
        match self.sleep_on_word(until)? {
            Unparked::TimedOut if is_late::<M>(until) => Some(self.resign(*role)),
            Unparked::Gone => Some(Err(stay_away::<M>(until))),
            _ => {
                *role = role.woken();
                None
            }
        }
    }

    /// Asks the next release to hand the lock over. Returns whether nothing had been asked or granted before.
    fn ask(&self) -> bool {
        let mut seen = self.state();
        while seen & (HANDOFF | GRANT) == 0 {
            if self.change(seen, seen | HANDOFF) {
                return true;
            }
            seen = self.state();
        }
        false
    }

    /// (held, head awake) -> (3, SLEEPS), and sleeps. `None` if it did not sleep, because the lock is free or granted.
    ///
    /// The head writes the word first, then `SLEEPS`. A release that is to grant the lock takes `SLEEPS` back first,
    /// then writes 2. So a head that is about to sleep sees that one of them has changed.
    fn sleep_on_word(&self, until: Option<Deadline>) -> Option<Unparked> {
        let seen = self.word.load(Relaxed);
        if seen == FREE || (seen != AWAITED && self.word.compare_exchange(seen, AWAITED, Relaxed, Relaxed).is_err()) {
            return None;
        }
        let mut state = self.state();
        loop {
            if state & GRANT != 0 {
                return None;
            }
            if self.say_sleeps(state) {
                break;
            }
            state = self.state();
        }
        // After a signal, or late, it does not know whether the lock still exists.
        let process = M::epoch();
        let unparked = match park::<M>(self.word, AWAITED, until) {
            Unparked::TimedOut | Unparked::Interrupted if !self.was_of(process) => Unparked::Gone,
            unparked => unparked,
        };
        if unparked != Unparked::Gone {
            self.update(|state| state & !SLEEPS);
        }
        Some(unparked)
    }

    /// A head whose deadline has passed passes its place on, unless it gets the lock after all.
    pub(super) fn resign(&self, role: Role) -> Result<(), TimedOut> {
        loop {
            if self.take_granted(role) {
                return Ok(());
            }
            // This head has used up a wake-up. Others that sleep on the word rely on a 2 there.
            if role.is_dirty() && self.word.compare_exchange(HELD, SLEEPERS, Relaxed, Relaxed) == Err(FREE) {
                if self.take(role) {
                    return Ok(());
                }
                continue;
            }
            if self.word.load(Relaxed) == FREE {
                if self.take(role) {
                    return Ok(());
                }
                continue;
            }
            let seen = self.state();
            let left = if role.is_extra() { after_extra_head(seen) } else { after_resigning(seen) };
            if seen & GRANT != 0 || !self.change(seen, left) {
                continue;
            }
            if role.is_extra() {
                return Err(TimedOut);
            }
            if left & TRANSIT != 0 {
                let calls = self.call();
                wake::<M>(calls, 1);
            }
            debug_assert!(left & TRANSIT != 0 || left & HEAD == 0);
            return Err(TimedOut);
        }
    }
}

/// Whether a deadline has passed.
pub(super) fn is_late<M: Machine>(until: Option<Deadline>) -> bool {
    until.is_some_and(|deadline| M::expired(&deadline))
}
