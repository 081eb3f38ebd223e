//! # Waiting for a permit
//!
//! What a thread that finds no permit does: it polls a little, announces itself, sleeps, and takes a permit or leaves.
//! [`queue`](super::queue) has the state, the list and the invariants.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::node::state;
use crate::machine::{Deadline, Handle, Machine, Patience, Unparked, Word};
use crate::parts::counted::about;
use crate::parts::naps::nap_longer;
use crate::parts::settle::try_settle;
use crate::sem::call::{LISTED, acknowledge, is_listed, kind, prepare, waiting};
use crate::sem::queue::{BUSY, NEWS, QUEUED, Semaphore, has_list, is_busy, permits};

/// How long (µs) a thread naps at first while another thread of a forked child drops the list of the parent process.
const PAUSE: u32 = 50;

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// Woken, or a spurious wake-up.
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
    /// The thread has announced itself: go on with [`Semaphore::wait_with`].
    Queued(Handle),
    /// There was a permit, or time ran out.
    Over(Ended),
}

impl<M: Machine> Semaphore<'_, M> {
    /// Takes a permit, sleeping until there is one, or until the deadline has passed.
    pub fn wait(self, until: Option<Deadline>) -> Ended {
        if self.try_wait() {
            return Ended::Acquired;
        }
        // SAFETY: the handle goes to `wait_with`.
        match unsafe { self.begin(until) } {
            Entry::Over(how) => how,
            Entry::Queued(me) => self.wait_with(me, until, |word, expected| match M::park(word, expected, until) {
                Unparked::TimedOut => Slept::TimedOut,
                _ => Slept::Woken, // Nodes live for ever.
            }),
        }
    }

    /// The calling thread has found no permit. It polls a little, while no thread is queued and there are enough CPUs.
    /// Then it queues.
    ///
    /// # Safety
    /// The calling thread passes the handle, if it gets one, to [`wait_with`](Semaphore::wait_with) of this semaphore,
    /// once, and does nothing else with it. If the wait ends without returning, it passes the handle to
    /// [`cancel`](Semaphore::cancel), once.
    #[cold]
    pub unsafe fn begin(self, until: Option<Deadline>) -> Entry {
        about::<M, _, _>(self.word, || self.poll_and_join(until))
    }

    fn poll_and_join(self, until: Option<Deadline>) -> Entry {
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
        // SAFETY: its life at the semaphore is that of invariants 1, 4 and 5.
        let me = unsafe { M::take_node() };
        match self.join(me, M::tunables().sem_order.prepends::<M>(), until) {
            None => {
                M::trace(Event::SemQueued);
                Entry::Queued(me)
            }
            Some(how) => Entry::Over(how),
        }
    }

    /// Announces that the calling thread waits, with a node that is in no list. If it does not wait, gives the node
    /// back, and returns how the wait ended.
    fn join(self, me: Handle, front: bool, until: Option<Deadline>) -> Option<Ended> {
        let node = me.node::<M>();
        prepare(node, self.address(), front);
        let mut nap = PAUSE;
        while !try_settle::<M>(&self.queue.epoch, || self.drop_list()) {
            let over = if self.take() {
                M::trace(Event::SemAcquire);
                Ended::Acquired
            } else if until.is_some_and(|until| M::expired(&until)) {
                Ended::TimedOut
            } else {
                nap_longer::<M>(&mut nap, until);
                continue;
            };
            M::give_node(me);
            return Some(over);
        }
        node.epoch.store(M::epoch(), Relaxed); // A fork may have come since `prepare`.
        let free = |word| !is_busy(word) || permits(word) > 0;
        if !free(self.word.load(Relaxed)) {
            M::spin_until(self.word, Relaxed, Patience::Budget, free);
        }
        node.state.store(waiting(node), Release);
        self.announce(me)
    }

    /// Invariant 2, for a waiter whose state is WAITS. If it is in no list, it puts itself into the list, or becomes a
    /// stray if another thread is at the list. If there is a permit, it takes that instead, and no longer needs the
    /// node.
    fn announce(self, me: Handle) -> Option<Ended> {
        let node = me.node::<M>();
        loop {
            let seen = self.word.load(Relaxed);
            if permits(seen) > 0 {
                if self.take() {
                    return Some(self.served(me));
                }
                continue;
            }
            // This may be a stray that has just been put into the list.
            let joins = !is_busy(seen) && !is_listed(node.state.load(Relaxed));
            let announced = match (is_busy(seen), joins) {
                (true, _) => seen | NEWS,
                (false, true) => seen | QUEUED | BUSY,
                (false, false) => seen,
            };
            if self.word.compare_exchange(seen, announced, AcqRel, Relaxed).is_ok() {
                if joins {
                    self.sweep();
                    self.adopt(me);
                    self.leave(0);
                }
                return None;
            }
        }
    }

    /// Announces itself again after it was called and found no permit. If its node is still in the list, it stays
    /// there.
    fn announce_again(self, me: Handle, until: Option<Deadline>) -> Option<Ended> {
        let node = me.node::<M>();
        let mut seen = node.state.load(Acquire);
        while node.is_alive() && is_listed(seen) {
            match node.state.compare_exchange(seen, waiting(node) | LISTED, AcqRel, Acquire) {
                Ok(_) => return self.announce(me),
                Err(now) => seen = now,
            }
        }
        self.join(me, true, until)
    }

    /// Sleeps, by `park`, until there is a permit for the calling thread, or a sleep has ended otherwise. `park` gets
    /// the word and the value as [`Waiting::park`](crate::machine::Waiting::park) does. It may end the wait by not
    /// returning; the clean-up then calls [`Semaphore::cancel`].
    pub fn wait_with(self, me: Handle, until: Option<Deadline>, park: impl FnMut(&M::Word, u32) -> Slept) -> Ended {
        about::<M, _, _>(self.word, || self.sleep(me, until, park))
    }

    fn sleep(self, me: Handle, until: Option<Deadline>, mut park: impl FnMut(&M::Word, u32) -> Slept) -> Ended {
        let node = me.node::<M>();
        loop {
            let (mut why, seen) = (Slept::Woken, node.state.load(Acquire));
            if kind(seen) == state::WAITS {
                why = park(&node.state, seen);
            }
            let seen = acknowledge(node);
            if self.take() {
                return self.served(me);
            }
            match why {
                Slept::TimedOut => return self.give_up(me, Ended::TimedOut),
                Slept::Interrupted => return self.give_up(me, Ended::Interrupted),
                // Called, but another thread took the permit; or the list is not this process's (invariant 7).
                Slept::Woken if kind(seen) != state::WAITS || !node.is_alive() => {
                    if let Some(how) = self.announce_again(me, until) {
                        return how;
                    }
                }
                Slept::Woken => {}
            }
        }
    }

    /// The calling thread has a permit. If it was called and has not noticed that, the call was for another permit.
    fn served(self, me: Handle) -> Ended {
        M::trace(Event::SemAcquire);
        if self.quit(me) == state::CALLED {
            self.pass_on();
        }
        Ended::Acquired
    }

    /// The calling thread has found no permit, and stops waiting. If it was called since, it looks again.
    fn give_up(self, me: Handle, how: Ended) -> Ended {
        if self.quit(me) == state::CALLED && self.take() {
            M::trace(Event::SemAcquire);
            return Ended::Acquired;
        }
        how
    }

    /// The calling thread stops waiting. It takes its node out of the list, or leaves it there (invariant 5). Returns
    /// what its state was: WAITS, CALLED or NOTIFIED.
    fn quit(self, me: Handle) -> u32 {
        let node = me.node::<M>();
        let mut seen = node.state.load(Acquire);
        while node.is_alive() {
            if is_listed(seen) && self.try_enter() {
                seen = node.state.swap(state::LEAVING, AcqRel);
                if is_listed(seen) {
                    self.list().unlink(node);
                }
                self.leave(0);
                M::give_node(me);
                return kind(seen);
            }
            let left = if is_listed(seen) { state::ABANDONED | LISTED } else { state::LEAVING };
            match node.state.compare_exchange(seen, left, AcqRel, Acquire) {
                Ok(_) if is_listed(seen) => return kind(seen),
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        M::give_node(me);
        kind(seen)
    }

    /// Ends the wait of the calling thread, which has been cancelled, without a permit. If it was called, another
    /// waiter is called.
    pub fn cancel(self, me: Handle) {
        about::<M, _, _>(self.word, || {
            if self.quit(me) != state::WAITS {
                self.pass_on();
            }
        });
    }
}
