//! # The head of a readers-writer ShflLock's queue
//!
//! How the first waiter contends for the counter. No other waiter of the queue does. It polls, bars newcomers when it
//! must, and sleeps on the counter. See [`shfl`](super), departure 3.
//!
//! ```text
//!            poll ──in vain──> (a writer: bar readers, poll) ──in vain──> sleep on the counter ──> poll …
//!                                                                         without bars, and until overdue;
//!                                                                         then with bars, until it is woken
//! ```

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::event::Event;
use crate::machine::node::{Node, ROLE, state};
use crate::machine::{Deadline, Handle, Machine, Patience, Word};
use crate::parts::counted::park;
use crate::parts::policy::{Admission, roles};
use crate::parts::shuffle::front::{named, note_asleep, note_awake, waited};
use crate::parts::shuffle::rouse::wake;
use crate::parts::shuffle::turn::{Contended, WALK_EVERY};
use crate::parts::shuffle::{batch, shuffler};
use crate::parts::wait::WaitPolicy;
use crate::rw::Writer;
use crate::rw::shfl::wait::Wait;
use crate::rw::shfl::{ASLEEP, BAR_READERS, BAR_WRITERS, BARS, SLEEPER, ShflRwState, Want, has_no_readers};

/// How long (µs) a head that does not sleep polls at a time. After that it publishes that it runs.
const HEARTBEAT: u32 = 5_000;
/// A head that is awake and has not published for this long (µs) that it runs does not run.
const IDLE: u32 = 25_000;

impl<M: Machine> ShflRwState<M> {
    /// Whether this head does not run, although it should: it is awake, and has not published for long that it runs; or
    /// it should sleep, and the kernel says that it does not. (If it does sleep, it is woken in vain.) A guess: a stale
    /// value is from a time when the head did run, or from an earlier wait.
    pub(super) fn is_idle(&self, head: &Node<M>) -> bool {
        if waited(head) <= IDLE {
            return false;
        }
        let ran = head.granted_at.load(Relaxed);
        match head.state.load(Relaxed) {
            state::HEAD => {
                ran != 0 && M::micros().wrapping_sub(ran) > IDLE.max(M::tunables().bound_us.saturating_mul(2))
            }
            state::NAPPING => M::wake(&raw const self.count, u32::MAX) == 0,
            _ => false,
        }
    }

    /// Contends for the counter as the head, until the lock is won (`holding`: it already is, or it was won elsewhere).
    /// Then leaves the queue.
    pub(super) fn contend<W: WaitPolicy, P: Admission>(
        &self,
        me: Handle,
        wait: &Wait<'_>,
        until: Option<Deadline>,
        holding: bool,
    ) -> Contended {
        let (node, want, mut look) = (me.node::<M>(), wait.want, wait.look::<M>());
        batch::start_at_head(node);
        self.wake_up(me);
        let mut holding = holding;
        let mut won = holding;
        while !won {
            publish_running(node);
            if node.state.load(Acquire) == state::EVICTED {
                return Contended::Evicted;
            }
            let raised = self.bar_if_due(want, node, false);
            won = self.poll_as_head::<W, P>(me, want, until);
            if !won && !raised && W::SPINS && self.bar_if_due(want, node, true) {
                won = self.poll_as_head::<W, P>(me, want, until);
            }
            if !won && wait.is_over() {
                (won, holding) = (true, true);
            }
            if !won && until.is_some_and(|deadline| M::expired(&deadline)) {
                return self.give_up(me);
            }
            if !won && W::PARKS {
                let limit = if wait.looks_around() { Some(M::sooner(look, until)) } else { until };
                let woken = self.park_on_count(me, want, limit);
                if !woken && self.queue.stays_gone(me, until) {
                    return Contended::TimedOut;
                }
                self.wake_up(me);
                look = look.saturating_mul(2);
            }
        }
        if holding {
            self.count.fetch_and(!(BARS | ASLEEP), Relaxed);
        }
        self.pass_on(me, want);
        Contended::Won
    }

    /// The holder leaves the queue. If the next head sleeps, a reader wakes it at once; for a writer, its release does.
    fn pass_on(&self, me: Handle, want: Want) {
        let onto = want.writes().then_some(&self.count);
        match self.depart(me, onto) {
            Some(next) if onto.is_some() => {
                // Keep readers out until the next preferred writer runs.
                let follows = next.node::<M>().role.load(Relaxed) & ROLE == roles::WRITES;
                self.note_sleeper(if follows && want == Want::Write(Writer::Preferred) { BAR_READERS } else { 0 });
            }
            Some(next) => wake::<M>(next),
            None => {}
        }
    }

    /// NAPPING -> HEAD, unless it is awake, or was evicted.
    ///
    /// Without its flag, no release tells the waiter behind it that the head was woken. It may have got up by itself,
    /// and may freeze: so before it takes the flag down, it leaves the note that a release would have left.
    ///
    /// If this head was evicted meanwhile, because it was stopped here, the flag belongs to the next head. Then the
    /// next head is woken, and sets the flag again. Acquire pairs with the Release in `park_on_count`: a thread that
    /// finds the next head's flag sees that it is not head itself.
    fn wake_up(&self, me: Handle) {
        let node = me.node::<M>();
        publish_running(node);
        if node.state.compare_exchange(state::NAPPING, state::HEAD, Relaxed, Relaxed).is_ok() {
            note_awake::<M>(me);
            self.count.fetch_and(!ASLEEP, Acquire);
            if named(self.queue.front()) != Some(me) {
                M::wake(&raw const self.count, u32::MAX);
            }
        }
    }

    /// Leaves without the lock.
    fn give_up(&self, me: Handle) -> Contended {
        self.count.fetch_and(!(BARS | ASLEEP), Relaxed);
        if let Some(next) = self.depart(me, None) {
            wake::<M>(next);
        }
        Contended::TimedOut
    }

    /// Raises the bars that this head may raise. Returns whether it may raise one. `awake`: it will poll, and readers
    /// are in its way.
    fn bar_if_due(&self, want: Want, node: &Node<M>, awake: bool) -> bool {
        self.raise_due_bars(want, node, awake) != 0
    }

    /// The same. Returns the bars.
    fn raise_due_bars(&self, want: Want, node: &Node<M>, awake: bool) -> u32 {
        let overdue = waited(node) >= M::tunables().bound_us;
        let bars = match want {
            Want::Read(_) if overdue => BAR_WRITERS,
            Want::Read(_) => 0,
            Want::Write(_) if overdue => BARS,
            Want::Write(Writer::Preferred) => BAR_READERS,
            Want::Write(Writer::Fair) if awake && !has_no_readers(self.count.load(Relaxed)) => BAR_READERS,
            Want::Write(Writer::Fair) => 0,
        };
        // Relaxed: flags order nothing.
        if bars != 0 && self.count.fetch_or(bars, Relaxed) & bars != bars && overdue {
            M::trace(Event::RwBarred);
        }
        bars
    }

    /// Polls the counter, and shuffles meanwhile. Returns whether the lock was won; then the bars are down.
    fn poll_as_head<W: WaitPolicy, P: Admission>(&self, me: Handle, want: Want, until: Option<Deadline>) -> bool {
        let node = me.node::<M>();
        let (mut polls, mut won) = (0u32, false);
        let mut attempt = |seen| {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(WALK_EVERY) {
                if node.state.load(Acquire) == state::EVICTED {
                    return true;
                }
                if batch::has_role(node) {
                    shuffler::walk::<M, P>(me, &self.queue, || want.could(self.count.load(Relaxed)));
                }
            }
            won = want.could(seen) && self.admit(want, 0, BARS | ASLEEP);
            won
        };
        if !W::SPINS {
            attempt(self.count.load(Relaxed));
        } else if W::PARKS {
            M::spin_until(&self.count, Relaxed, Patience::Contend, attempt);
        } else {
            M::spin_until(&self.count, Relaxed, Patience::Until(M::sooner(HEARTBEAT, until)), attempt);
        }
        won
    }

    /// The head sleeps on the counter until it is woken, or its deadline has passed, or it becomes overdue. Before it
    /// is overdue it takes its bars down for this, unless it is a preferred writer. Returns whether another thread has
    /// ended the sleep, or there was none.
    fn park_on_count(&self, me: Handle, want: Want, until: Option<Deadline>) -> bool {
        let node = me.node::<M>();
        if node.state.compare_exchange(state::HEAD, state::NAPPING, Relaxed, Relaxed).is_err() {
            return true; // Evicted.
        }
        node.check_at.store(0, Relaxed); // See `is_rarer`.
        let left = M::tunables().bound_us.checked_sub(waited(node)).filter(|left| *left > 0);
        if left.is_none() {
            note_asleep::<M>(me); // Until it is overdue, it wakes up by itself.
        }
        let bars = if left.is_some() && want == Want::Write(Writer::Fair) {
            self.count.fetch_and(!BARS, Relaxed);
            0
        } else {
            self.raise_due_bars(want, node, false)
        };
        // The kernel compares the counter with `seen`; all of this is one word. Release: see `wake_up`. Acquire: if
        // this head was evicted, and its evictor has looked for SLEEPER already (`rouse_evicted`), it sees that here.
        let seen = self.count.fetch_or(SLEEPER, AcqRel) | SLEEPER;
        if node.state.load(Relaxed) == state::EVICTED {
            self.call_head(); // The bars that were taken down here may have been the next head's.
            return true;
        }
        // Another thread may have taken the bars down by now.
        if want.could(seen) || seen & bars != bars {
            return true;
        }
        let limit = left.map_or(until, |left| Some(M::sooner(left, until)));
        park::<M>(&self.count, seen, limit).is_by_others()
    }
}

/// Publishes that the head runs at this moment. (0 is for heads that have yet to run.)
fn publish_running<M: Machine>(node: &Node<M>) {
    node.granted_at.store(M::micros().max(1), Relaxed);
}

const _: () = assert!(BAR_READERS | BAR_WRITERS == BARS);
