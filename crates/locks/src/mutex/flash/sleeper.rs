//! # The sleepers: counted, and called one at a time
//!
//! Sleepers sleep on `calls`, in the kernel's order, which is the order of their arrival. A release that ends the
//! section of a head calls one of them to be the next head.
//!
//! **If the called sleeper gets no CPU** for long, because many threads want one, releases call another after each
//! `bound=`. The first of them that runs takes the place of the head. Each other becomes an *extra* head: it contends
//! like the head, and passes no place on. Otherwise it would sleep again, behind all others. A called sleeper also
//! becomes an extra head if a thread that was about to sleep has taken the place.
//!
//! Extra heads contend in no order, so there should be few. A sleeper becomes one if it was woken, not merely about to
//! sleep, and there was a call since it fell asleep. Only calls wake sleepers.
//!
//! **If sections are long**, a sleeper gets up by itself (see below) before its turn, and loses its place in the
//! kernel's order. So does a sleeper that is interrupted by a signal. From then on it counts: when as many sleepers
//! were called as there were when it came, it becomes an extra head. It gets up when that should be so, as far as the
//! calls until then tell.
//!
//! **If the head does not run**, no release calls a sleeper, and no thread notices that. So each sleeper wakes up by
//! itself, at a time by which its turn should have come, and later after twice as long each time. Signals do not put
//! that off. It checks whether there was a call meanwhile. It does not know whether the lock still exists. So it asks
//! the kernel first ([`Special::is_there`](crate::machine::Special::is_there)). Then it only reads, unless what it
//! reads is a lock whose head does not wait for a release. In that case it becomes a second head. When it goes back to
//! sleep, the memory may have become something else, too, so that `calls` looks as if there had been a call.
//!
//! Two heads do no harm: the first of them that acquires the lock passes the place on, or gives it up if no thread
//! sleeps. If `HEAD` is set without `PASS` and `TRANSIT`, some thread is head; this holds with two heads, too.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::{Deadline, Machine, TimedOut, Unparked, Word};
use crate::mutex::flash::evidence::{first_look, soonest_look};
use crate::mutex::flash::head::{First, is_late};
use crate::mutex::flash::state::{
    EPOCH, EPOCH_AT, GRANT, HEAD, Lock, PASS, Place, Role, SLEEPER, TRANSIT, after_sleeper, after_stale_grant, count,
    is_full, is_idle, is_waited_for, without_sleeper,
};
use crate::mutex::flash::stay::{calls_between, is_same_call};
use crate::mutex::flash::{AWAITED, FREE};
use crate::mutex::spin::word::sleep;
use crate::parts::counted::park;
use crate::parts::naps::{is_whole, stay_away};

/// When a sleeper came, before it was counted: then it knows all calls since, and whether it is in a forked child.
#[derive(Clone, Copy)]
struct Came {
    /// [`Memory::epoch`](crate::machine::Memory::epoch).
    process: u32,
    /// In µs. Read before `calls`.
    began: u32,
    /// What `calls` was.
    calls: u32,
}

/// When a sleeper gets up by itself. Fixed when it is set: a sleeper that is woken or interrupted before that time, and
/// sleeps again, does not begin anew.
#[derive(Clone, Copy)]
struct Alarm {
    /// In µs.
    set: u32,
    /// For how long (µs) after that it sleeps.
    nap: u32,
}

impl Alarm {
    fn after<M: Machine>(nap: u32) -> Self {
        Self { set: M::micros(), nap }
    }

    /// The rest of the nap.
    fn left<M: Machine>(self) -> u32 {
        self.nap.saturating_sub(M::micros().wrapping_sub(self.set))
    }

    /// Brings it forward, if it would ring later than in so many µs.
    fn not_after<M: Machine>(self, micros: u32) -> Self {
        if self.left::<M>() > micros { Self::after::<M>(micros) } else { self }
    }
}

/// Where a sleeper came.
struct Line {
    came: Came,
    /// How many sleepers there were, it included.
    sleepers: u32,
}

impl Line {
    /// In how many µs it is the turn of the sleeper that came there, if there were so many calls in that time.
    fn turn_in(&self, calls: u32, waited: u32) -> Option<u32> {
        if calls == 0 || calls > waited {
            return None;
        }
        let left = u64::from(self.sleepers.saturating_sub(calls)) * u64::from(waited) / u64::from(calls);
        Some(u32::try_from(left).unwrap_or(u32::MAX))
    }
}

impl<M: Machine> Lock<'_, M> {
    /// Becomes the head if there is none, or a sleeper. `first`: what it does if it becomes the head.
    pub(super) fn queue_up(&self, until: Option<Deadline>, first: First) -> Result<(), TimedOut> {
        loop {
            let seen = self.state();
            if self.word.load(Relaxed) == FREE {
                if self.take(Role::Arrival) {
                    return Ok(());
                }
                continue;
            }
            if self.take_stale_grant() {
                return Ok(());
            }
            if seen & HEAD == 0 {
                if self.change(seen, seen | HEAD) {
                    self.note_first();
                    return self.contend_as_head(Place::Own, until, first);
                }
                continue;
            }
            if is_full(seen, 1) {
                return sleep::<M>(self.word, until);
            }
            let came = self.comes();
            if self.change(seen, seen + SLEEPER) {
                return self.sleep(came, until);
            }
        }
    }

    /// A call that comes after this thread is counted changes `calls`. Acquire pairs with `call`.
    fn comes(&self) -> Came {
        let (process, began) = (M::epoch(), M::micros());
        Came { process, began, calls: self.queue.calls.load(Acquire) }
    }

    /// The wait of a sleeper that is counted.
    fn sleep(&self, came: Came, until: Option<Deadline>) -> Result<(), TimedOut> {
        let sleepers = count(self.state());
        let (line, mut nap) = (Line { came, sleepers }, first_look::<M>(sleepers));
        let mut alarm = Alarm::after::<M>(nap);
        let (mut calls, mut expected) = (came.calls, came.calls);
        loop {
            let unparked = park::<M>(&self.queue.calls, expected, Some(M::sooner(alarm.left::<M>(), until)));
            expected = calls;
            let mut passed_over = false;
            match unparked {
                // A child that a handler has forked: the other waiters are not here.
                _ if M::epoch() != came.process && self.was_of(came.process) => {
                    self.settle();
                    return self.queue_up(until, First::Polls);
                }
                Unparked::Changed if !self.may_be(&line) => {
                    expected = self.queue.calls.load(Relaxed);
                    continue;
                }
                Unparked::Woken | Unparked::Changed => {}
                // It has lost its place. If there was a call since, it does not sleep.
                Unparked::Interrupted => match self.is_there().then(|| self.turn_in(&line)).flatten() {
                    Some(0) => passed_over = true,
                    turn => {
                        alarm = alarm.not_after::<M>(turn.unwrap_or_else(|| soonest_look::<M>(sleepers)));
                        continue;
                    }
                },
                Unparked::Gone => return Err(stay_away::<M>(until)),
                Unparked::TimedOut => {
                    let (is_late, is_there) = (is_late::<M>(until), self.is_there());
                    if is_late {
                        return if is_there && self.is_waited_for() { self.leave() } else { Err(TimedOut) };
                    }
                    let longer = nap.saturating_mul(2);
                    nap = if is_there { longer.max(first_look::<M>(count(self.state()))) } else { longer };
                    alarm = Alarm::after::<M>(nap);
                    if !is_there {
                        continue;
                    }
                    let called = !is_same_call(self.queue.calls.load(Relaxed), calls);
                    match self.turn_in(&line) {
                        Some(0) => passed_over = true,
                        Some(micros) if called => {
                            (nap, alarm) = (nap.min(micros), alarm.not_after::<M>(micros));
                            continue;
                        }
                        // Nobody was called since: the head may not run.
                        _ if self.seems_idle(calls) => {}
                        Some(micros) => {
                            let micros = micros.max(longer);
                            (nap, alarm) = (nap.min(micros), alarm.not_after::<M>(micros));
                            continue;
                        }
                        None => continue,
                    }
                }
            }
            let now = self.queue.calls.load(Acquire);
            let uncalled = is_same_call(now, calls);
            let called = unparked == Unparked::Woken && !uncalled || passed_over;
            if let Some(place) = self.take_place(uncalled && unparked == Unparked::TimedOut, called) {
                return self.contend_as_head(place, until, First::Polls);
            }
            if uncalled && self.take_stale_grant() {
                self.update(after_stale_grant);
                return Ok(());
            }
            (calls, expected) = (now, now);
        }
    }

    /// Whether there is memory where the lock was.
    fn is_there(&self) -> bool {
        is_whole::<M>(self.word, &self.queue.calls)
    }

    /// [`Lock::sleep`] for a sleeper that a broadcast has moved here, and that is counted.
    pub(super) fn sleep_on(&self) -> Result<(), TimedOut> {
        let came = self.comes();
        if !Self::is_mine(self.state()) || self.state() & HEAD == 0 {
            // Invariant 2: it is not counted here. A handler has forked since the broadcast.
            self.settle();
            return self.queue_up(None, First::Polls);
        }
        match self.take_place(false, false) {
            Some(place) => self.contend_as_head(place, None, First::Polls),
            None => self.sleep(came, None),
        }
    }

    /// Whether the lock is there, and its waiters are still those of the process in which this thread came. In a child
    /// that a handler has forked, they may have been forgotten since. Reads only.
    pub(super) fn was_of(&self, process: u32) -> bool {
        self.is_there() && {
            let (word, state) = (self.word.load(Relaxed), self.state());
            word <= AWAITED && [process, M::epoch()].iter().any(|epoch| state & EPOCH == epoch << EPOCH_AT & EPOCH)
        }
    }

    /// Takes the place of the head, if it is free, or if the sleeper waited in `vain` (for all of its nap, without a
    /// call) and the head does not wait for a release. A sleeper that was called, but finds the place taken, becomes an
    /// extra head: otherwise it would sleep again, behind all others. Returns which place it has; then it is no longer
    /// counted.
    fn take_place(&self, vain: bool, called: bool) -> Option<Place> {
        loop {
            let seen = self.state();
            let (place, new) = if seen & TRANSIT != 0 {
                (Place::Own, without_sleeper(seen) & !TRANSIT | HEAD)
            } else if vain && is_idle(self.word.load(Relaxed), seen) {
                (Place::Own, without_sleeper(seen) & !PASS | HEAD)
            } else if called {
                (Place::Extra, after_sleeper(seen))
            } else {
                return None;
            };
            if self.change(seen, new) {
                return Some(place);
            }
        }
    }

    /// How many calls there were since a sleeper came, and for how long (µs) it has waited. `None` if this is not the
    /// lock: like [`Lock::seems_idle`], this only reads, and what it reads may be something else by now. So it must
    /// look like a lock with sleepers, and there must not be more calls than there can have been.
    fn called_since(&self, line: &Line) -> Option<(u32, u32)> {
        if !self.is_waited_for() {
            return None;
        }
        let (waited, now) = (M::micros().wrapping_sub(line.came.began), self.queue.calls.load(Relaxed));
        Some((calls_between(line.came.calls, now), waited))
            .filter(|(calls, waited)| *calls <= waited.saturating_add(1000))
    }

    /// Whether this looks like a lock of this process, with sleepers.
    fn is_waited_for(&self) -> bool {
        is_waited_for(self.word.load(Relaxed), self.state(), Self::my_epoch())
    }

    /// Whether this may still be the lock at which the sleeper came.
    fn may_be(&self, line: &Line) -> bool {
        self.called_since(line).is_some()
    }

    /// In how many µs it should be the turn of a sleeper that has got up by itself, and so has lost its place among
    /// the others: 0 if as many were called as there were when it came. `None` if no call tells.
    fn turn_in(&self, line: &Line) -> Option<u32> {
        let (calls, waited) = self.called_since(line)?;
        line.turn_in(calls, waited)
    }

    /// Whether the lock, if there is one, needs a head: there was no call since, and the head does not wait for a
    /// release. Reads only, and only memory that was there a moment ago. That memory may serve for something else by
    /// now, so all of it must be what this thread's lock would hold.
    fn seems_idle(&self, calls: u32) -> bool {
        let (word, state) = (self.word.load(Relaxed), self.state());
        is_waited_for(word, state, Self::my_epoch())
            && is_same_call(self.queue.calls.load(Relaxed), calls)
            && (state & (TRANSIT | GRANT) != 0 || is_idle(word, state))
    }

    /// A sleeper whose deadline has passed is no longer counted. If it is called at this moment, it passes the call on.
    /// It takes the lock if that is free.
    fn leave(&self) -> Result<(), TimedOut> {
        loop {
            let seen = self.state();
            if seen & TRANSIT != 0 {
                if self.change(seen, without_sleeper(seen) & !TRANSIT) {
                    return self.resign(Role::Head { is_dirty: false, place: Place::Own });
                }
                continue;
            }
            if self.change(seen, after_sleeper(seen)) {
                break;
            }
        }
        if self.word.load(Relaxed) == FREE && self.take(Role::Arrival) { Ok(()) } else { Err(TimedOut) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_knows_its_turn_by_the_calls() {
        let line = Line { sleepers: 10, came: Came { process: 1, began: 0, calls: 0 } };
        assert_eq!(line.turn_in(0, 40_000), None, "nobody was called");
        assert_eq!(line.turn_in(4, 40_000), Some(60_000));
        assert_eq!((line.turn_in(10, 40_000), line.turn_in(25, 40_000)), (Some(0), Some(0)));
        assert_eq!(line.turn_in(1 << 20, 40_000), None, "not of this lock");
        assert_eq!(Line { sleepers: u32::MAX, ..line }.turn_in(1, u32::MAX), Some(u32::MAX));
    }
}
