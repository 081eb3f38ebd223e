//! # Waiting for a permit
//!
//! What a thread does that finds none: poll a little, queue, sleep, take a permit or leave. State, list and invariants are
//! [`queue`](super::queue)'s.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, Unparked, Word};
use crate::node::state;
use crate::sem::queue::{BUSY, Semaphore, has_list, is_busy, permits};
use crate::settle::settle;

/// For how long (µs) somebody naps who cannot get at the list, for the one who is there does not run.
const PAUSE: u32 = 50;
/// `word` of an empty list that somebody is about to fill.
const JOINING: u32 = 1 << 31 | BUSY;

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// Woken, or for no reason at all.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler has run.
    Interrupted,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a permit.
    Acquired,
    /// Without: the deadline has passed.
    TimedOut,
    /// Without: a signal handler has run.
    Interrupted,
}

/// How a wait began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The thread is in the list: go on with [`Semaphore::wait_with`].
    Queued(Handle),
    /// There was a permit, or no time.
    Over(Ended),
}

impl<M: Machine> Semaphore<'_, M> {
    /// Takes a permit, sleeping until there is one, or until the deadline has passed.
    pub fn wait(self, until: Option<Deadline>) -> Ended {
        if self.try_wait() {
            return Ended::Acquired;
        }
        match self.begin(until) {
            Entry::Over(how) => how,
            Entry::Queued(me) => self.wait_with(me, until, |word, expected| match M::park(word, expected, until) {
                Unparked::Woken => Slept::Woken,
                Unparked::TimedOut => Slept::TimedOut,
            }),
        }
    }

    /// The calling thread has found no permit: it polls a little, while nobody is queued and there are CPUs enough, and then
    /// queues.
    #[cold]
    pub fn begin(self, until: Option<Deadline>) -> Entry {
        if !M::crowded() && !has_list(self.word.load(Relaxed)) {
            let mut taken = false;
            let done = |seen| {
                taken = permits(seen) > 0 && self.take();
                taken || has_list(seen)
            };
            M::spin_until(self.word, Relaxed, Patience::Budget, done);
            if taken {
                M::trace(Event::SemAcquire);
                return Entry::Over(Ended::Acquired);
            }
        }
        let me = M::take_node();
        match self.join(me, M::tunables().sem_order.prepends::<M>(), until) {
            None => {
                M::trace(Event::SemQueued);
                Entry::Queued(me)
            }
            Some(how) => {
                M::give_node(me);
                Entry::Over(how)
            }
        }
    }

    /// Puts the node into the list, or says why not.
    fn join(self, me: Handle, front: bool, until: Option<Deadline>) -> Option<Ended> {
        let node = me.node::<M>();
        node.prepare(state::QUEUED);
        node.epoch.store(settle::<M>(&self.queue.epoch, || self.drop_list()), Relaxed); // A fork may have come since `prepare`.
        loop {
            let seen = self.word.load(Relaxed);
            if permits(seen) > 0 {
                if self.take() {
                    M::trace(Event::SemAcquire);
                    return Some(Ended::Acquired);
                }
            } else if is_busy(seen) {
                let go = |word| !is_busy(word) || permits(word) > 0;
                if M::spin_until(self.word, Relaxed, Patience::Budget, go).is_none() {
                    M::relax(PAUSE);
                    if until.is_some_and(|until| M::expired(&until)) && permits(self.word.load(Relaxed)) == 0 {
                        return Some(Ended::TimedOut);
                    }
                }
            } else if self.word.compare_exchange(seen, JOINING, Acquire, Relaxed).is_ok() {
                // Invariant 3.
                self.sweep();
                self.list().link(me, front);
                self.leave(0);
                return None;
            }
        }
    }

    /// Sleeps, by `park`, until there is a permit for the calling thread, or a sleep has ended otherwise. `park` gets the word
    /// and the value as [`Machine::park`] does, and may end the wait by not returning; who cleans up then calls
    /// [`Semaphore::cancel`].
    pub fn wait_with(self, me: Handle, until: Option<Deadline>, mut park: impl FnMut(&M::Word, u32) -> Slept) -> Ended {
        let node = me.node::<M>();
        loop {
            let mut why = Slept::Woken;
            if node.state.load(Acquire) == state::QUEUED {
                why = park(&node.state, state::QUEUED);
            }
            if self.take() {
                M::trace(Event::SemAcquire);
                self.quit(me);
                return Ended::Acquired;
            }
            match why {
                // Whoever was called, and finds no permit now, owes nothing to anybody (invariant 2).
                Slept::TimedOut => return self.give_up(me, Ended::TimedOut),
                Slept::Interrupted => return self.give_up(me, Ended::Interrupted),
                // Called, but passed over; or the list is not this process's (invariant 6).
                Slept::Woken if node.state.load(Acquire) != state::QUEUED || !node.is_alive() => {
                    if let Some(how) = self.join(me, true, until) {
                        M::give_node(me);
                        return how;
                    }
                }
                Slept::Woken => {}
            }
        }
    }

    fn give_up(self, me: Handle, how: Ended) -> Ended {
        self.quit(me);
        how
    }

    /// The calling thread does not wait any more: takes its node out of the list, or leaves it there.
    fn quit(self, me: Handle) {
        let node = me.node::<M>();
        let goes = |to| node.state.compare_exchange(state::QUEUED, to, Release, Acquire).is_ok();
        if node.is_alive() && node.state.load(Acquire) == state::QUEUED {
            if self.try_enter() {
                if goes(state::LEAVING) {
                    self.list().unlink(node);
                }
                self.leave(0);
            } else if goes(state::ABANDONED) {
                return; // Invariant 5: it is the list's.
            }
        }
        M::give_node(me);
    }

    /// Ends the wait of the calling thread, which has been cancelled, without a permit. If it was called, another is.
    pub fn cancel(self, me: Handle) {
        self.quit(me);
        self.call_another();
    }
}
