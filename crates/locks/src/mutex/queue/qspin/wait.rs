//! # Waiting for the word
//!
//! How the two waiters that are next wait for the lock's word. These are the waiter that is PENDING, and the head of
//! the queue behind it. Both poll the word. Then, if their policy lets them, they sleep on it: they set SLEEPS first,
//! and then the kernel looks at the word once more before it lets them sleep. A release that sees SLEEPS wakes both.
//! The bit stays until the head acquires, or until neither of the two is left: see
//! [`with_tail`](super::word::with_tail).

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::{Deadline, Handle, Machine, Manner, Patience, TimedOut, Word};
use crate::mutex::queue::qspin::line::{Line, Succession};
use crate::mutex::queue::qspin::word::{
    LOCKED, SLEEPS, has_pending, is_busy, is_locked, pending_mark, without_pending,
};
use crate::parts::counted::park;
use crate::parts::naps::nap_longer;
use crate::parts::wait::{self, WaitPolicy};

/// How long (µs) the waiter that is PENDING naps at first if its PENDING bit was overwritten.
const RESTORED: u32 = 10;

/// How the wait of the waiter that is PENDING ended.
#[derive(Clone, Copy)]
pub(super) enum Pending {
    /// The lock is ours.
    Won,
    /// Gave up.
    TimedOut,
    /// This is not the process in which the bit was set: we are the thread that forked, in a signal handler. We queue.
    Lost,
}

impl<M: Machine> Line<'_, M> {
    /// (LOCKED) -> (LOCKED, PENDING), from a word that was just seen. Returns the mark that was set; the error is what
    /// the word holds instead. If the PENDING waiter is about to acquire, waits a moment for that: then there is room
    /// for us.
    pub(super) fn try_pend(self, mut seen: u32, mark: u32) -> Result<u32, u32> {
        if seen == mark {
            M::spin_until(self.word, Relaxed, Patience::Budget, |now| {
                seen = now;
                now != mark
            });
        }
        if seen != LOCKED {
            return Err(seen);
        }
        self.word.compare_exchange(LOCKED, LOCKED | mark, Relaxed, Relaxed).map(|_| mark)
    }

    /// Waits while (LOCKED, PENDING); then (PENDING) -> (LOCKED).
    ///
    /// While the bit is missing, this waiter can neither acquire nor leave. Usually that is a few instructions of a
    /// joiner. But the joiner may have been stopped there: after a round in vain, this waiter naps.
    pub(super) fn wait_pending<W: WaitPolicy>(self, mark: u32, until: Option<Deadline>) -> Pending {
        let mut nap = RESTORED;
        loop {
            let mut won = false;
            let attempt = |seen| {
                won = self.take_pending(seen);
                won
            };
            self.look::<W>(until, false, attempt);
            if won {
                return Pending::Won;
            }
            if pending_mark::<M>() != Some(mark) {
                return Pending::Lost;
            }
            let late = until.is_some_and(|deadline| M::expired(&deadline));
            if late && self.leave_pending() {
                return Pending::TimedOut;
            }
            // Relaxed: only decides how to wait.
            let seen = self.word.load(Relaxed);
            if !has_pending::<M>(seen) && (late || !is_locked(seen)) {
                nap_longer::<M>(&mut nap, until);
            } else if W::PARKS {
                self.park_on_word(until, is_locked);
            }
        }
    }

    /// (PENDING) -> (LOCKED), from what was seen. Does nothing while the bit is missing: a joiner is putting it back.
    fn take_pending(self, mut seen: u32) -> bool {
        while has_pending::<M>(seen) && !is_locked(seen) {
            match self.word.compare_exchange(seen, without_pending::<M>(seen) | LOCKED, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// (LOCKED, PENDING) -> (LOCKED). Does nothing if the lock is free: then we can take it.
    fn leave_pending(self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while is_locked(seen) && has_pending::<M>(seen) {
            match self.word.compare_exchange(seen, without_pending::<M>(seen), Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The head waits until it holds the lock, or until the deadline has passed. Either way it passes the front on.
    pub fn contend<S: Succession, W: WaitPolicy>(self, me: Handle, until: Option<Deadline>) -> Result<(), TimedOut> {
        let order = S::order(self, me);
        loop {
            let mut won = false;
            let attempt = |mut seen| {
                while !won {
                    if !is_busy::<M>(seen) {
                        match self.acquire::<S, W>(me, seen, order) {
                            Ok(()) => won = true,
                            Err(now) => seen = now,
                        }
                    } else if S::reorder::<M>(me, order) {
                        seen = self.word.load(Relaxed);
                    } else {
                        break;
                    }
                }
                won
            };
            self.look::<W>(until, S::goes_on::<M>(), attempt);
            if won {
                return Ok(());
            }
            if until.is_some_and(|deadline| M::expired(&deadline)) && is_busy::<M>(self.word.load(Relaxed)) {
                self.pass::<S, W>(me, order);
                return Err(TimedOut);
            }
            if W::PARKS {
                self.park_on_word(until, is_busy::<M>);
            }
        }
    }

    /// Polls the word as long as the policy allows, and at least once. `reads_others`: `attempt` reads more than this
    /// word, so UMWAIT cannot be used.
    fn look<W: WaitPolicy>(self, until: Option<Deadline>, reads_others: bool, mut attempt: impl FnMut(u32) -> bool) {
        let patience = W::patience(until, Patience::Budget);
        // Relaxed: only decides when to try the exchange.
        if !W::SPINS {
            attempt(self.word.load(Relaxed));
        } else if reads_others {
            M::poll_until(self.word, Relaxed, patience, Manner::Scans, attempt);
        } else {
            wait::poll::<M, W>(self.word, Relaxed, patience, attempt);
        }
    }

    /// Sleeps on the word until the lock is released, if `wait` is still true of the word. Threads that join meanwhile
    /// do not end the sleep; a thread that joins just before it makes us look again.
    fn park_on_word(self, until: Option<Deadline>, wait: fn(u32) -> bool) {
        // Relaxed: orders nothing; the release that is to see it is a later change of the same word.
        let seen = self.word.fetch_or(SLEEPS, Relaxed) | SLEEPS;
        if wait(seen) {
            park::<M>(self.word, seen, until);
        }
    }
}
