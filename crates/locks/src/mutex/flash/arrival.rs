//! # Polling, and offering one's CPU
//!
//! How arrivals and the head poll, and how they offer their CPU to others. A thread that finds the lock free looks a
//! second time before it takes it. If the thread that has released the lock takes it again at once, the lock is hot,
//! and should stay on that CPU.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Deadline, Look, Machine, Pause, Word};
use crate::mutex::flash::FREE;
use crate::mutex::flash::evidence::{
    HOT, LONGEST_PAUSE, LONGEST_SECOND, SPIN, SPIN_BETWEEN, TOO_HOT, patience, second_look,
};
use crate::mutex::flash::state::{GRANT, HANDOFF, Lock, Role, Seen};
use crate::mutex::flash::turn;

/// How one stage of a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// The caller has the lock.
    Won,
    /// It does not. The number is how many acquisitions it saw.
    Lost(u32),
}

/// What one poll has seen so far.
struct Poll {
    role: Role,
    second: u32,
    /// Steps until the next look.
    pause: u32,
    /// Acquisitions by others that it has seen.
    moves: u32,
    /// What it saw at the last look.
    seen: Seen,
}

impl<M: Machine> Lock<'_, M> {
    /// The caller has just taken the word: changes `state` as its role demands.
    fn finish(&self, role: Role) {
        if role.is_head() {
            self.update(|state| role.after(state));
            self.note_time();
        }
    }

    /// free -> held, by a waiter of that role.
    pub(super) fn take(&self, role: Role) -> bool {
        let taken = self.grab(role.is_dirty());
        if taken {
            self.finish(role);
        }
        taken
    }

    /// GRANT -> held, by a head.
    pub(super) fn take_granted(&self, role: Role) -> bool {
        let taken = role.is_head() && self.state() & GRANT != 0 && self.take_grant(role);
        if taken && role.is_dirty() {
            self.word.swap(super::SLEEPERS, Relaxed); // Relaxed: the holder's own.
        }
        taken
    }

    /// Polls for this many µs.
    pub(super) fn spin(&self, role: Role, micros: u32) -> Polled {
        let mut poll = Poll { role, second: second_look::<M>(), pause: 1, moves: 0, seen: self.see() };
        let mut won = false;
        M::poll(self.word, &self.queue.turn, micros, |word, turn| {
            won = self.take_granted(role);
            if won { Look::End { came: false } } else { self.look((word, turn), &mut poll, &mut won) }
        });
        if won { Polled::Won } else { Polled::Lost(poll.moves) }
    }

    /// One look of a poll.
    fn look(&self, mut now: Seen, poll: &mut Poll, won: &mut bool) -> Look {
        let came = now != poll.seen;
        if now.0 == FREE {
            match self.found_free(poll, now.1) {
                Ok(()) => {
                    *won = true;
                    return Look::End { came };
                }
                Err(later) => now = later,
            }
        }
        let moved = turn::between(poll.seen.1, now.1);
        poll.seen = now;
        if moved == 0 {
            poll.pause = (poll.pause / 2).max(1);
        } else {
            poll.moves += moved;
            poll.pause = (poll.pause * 2).min(LONGEST_PAUSE);
            if poll.moves >= TOO_HOT {
                return Look::End { came };
            }
        }
        Look::Again { pause: poll.pause, came }
    }

    pub(super) fn see(&self) -> Seen {
        (self.word.load(Relaxed), self.queue.turn.load(Relaxed))
    }

    /// The word was free when `turn` was `now`: takes it, unless another thread takes it first. Otherwise returns what
    /// was seen last.
    fn found_free(&self, poll: &mut Poll, now: u32) -> Result<(), Seen> {
        // A head whose wait is overdue takes it at once.
        if self.state() & HANDOFF == 0 {
            self.look_again(poll, now)?;
        }
        let since = self.is_to_be_timed().then(M::steps);
        if self.grab(poll.role.is_dirty()) {
            self.finish(poll.role);
            since.inspect(|&since| self.begin_timing(since));
            return Ok(());
        }
        Err(self.see())
    }

    /// Leaves a free lock to others for a moment. If another thread has had the lock meanwhile, the error is what was
    /// seen last.
    fn look_again(&self, poll: &Poll, now: u32) -> Result<(), Seen> {
        if let Some(cost) = self.is_to_be_watched() {
            return self.watch(now, cost, poll.second);
        }
        let stay = self.stay();
        let pause = if poll.pause > poll.second { poll.pause.min(LONGEST_SECOND) } else { poll.second };
        M::pause(Pause::Steps(pause.max(stay)));
        let later = self.see();
        if later.0 != FREE || turn::between(now, later.1) != 0 {
            return Err(later);
        }
        if stay != 0 {
            self.stayed_in_vain(stay);
        }
        Ok(())
    }

    /// Polls as an arrival, then offers its CPU to others. Returns whether it has the lock.
    pub(super) fn arrive(&self, until: Option<Deadline>) -> bool {
        match self.spin(Role::Arrival, SPIN) {
            Polled::Won => true,
            Polled::Lost(moves) if moves >= HOT => false,
            Polled::Lost(_) => self.offer(Role::Arrival, patience::<M>(), until) == Polled::Won,
        }
    }

    /// Offers its CPU to others, and polls in between, until the patience (µs) is spent or the lock seems hot.
    pub(super) fn offer(&self, role: Role, patience: u32, until: Option<Deadline>) -> Polled {
        let (began, mut moves) = (M::micros(), 0);
        loop {
            M::pause(Pause::Offer);
            if self.take_granted(role) {
                return Polled::Won;
            }
            // No second look: a thread that has made way for this one does not come back at once.
            if self.word.load(Relaxed) == FREE && self.take(role) {
                return Polled::Won;
            }
            match self.spin(role, SPIN_BETWEEN) {
                Polled::Won => return Polled::Won,
                Polled::Lost(seen) => moves += seen,
            }
            let waited = M::micros().wrapping_sub(began);
            if moves >= HOT || waited > patience || until.is_some_and(|deadline| M::expired(&deadline)) {
                return Polled::Lost(moves);
            }
        }
    }
}
