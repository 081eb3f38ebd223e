//! # The head of a readers-writer ShflLock's queue
//!
//! The first waiter alone contends for the counter: it polls, bars the door when it must, and sleeps on the counter. See
//! [`shfl`](super), departure 3.
//!
//! ```text
//!            poll ──in vain──> (a writer: bar readers, poll) ──in vain──> nap on the counter ──> poll …
//!                                                                         without bars, unless overdue
//! ```

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, Word};
use crate::node::{Node, state};
use crate::policy::Admission;
use crate::rw::Writer;
use crate::rw::shfl::{BAR_READERS, BAR_WRITERS, BARS, SLEEPER, ShflRwState, Want, has_no_readers};
use crate::shuffle::front::waited;
use crate::shuffle::release::wake;
use crate::shuffle::shuffler;
use crate::shuffle::turn::WALK_EVERY;
use crate::wait::WaitPolicy;

/// The longest nap (µs) of a head: after that, it says that it runs.
const HEARTBEAT: u32 = 5_000;
/// A head that has not said so for so long (µs) does not run.
const IDLE: u32 = 25_000;
/// How long (µs) a head that leaves waits for who is evicting it.
pub(super) const BREAK: u32 = 10;

/// How contending as the head ended. In any case the node is out of the queue.
pub(super) enum Contended {
    /// The lock is ours.
    Won,
    /// Gave up.
    TimedOut,
    /// Thrown out for not running; the node is still ours.
    Evicted,
}

/// Whether this head has not run for long.
pub(super) fn is_idle<M: Machine>(head: &Node<M>) -> bool {
    // Relaxed: a stale reading is of a time when it did run, or of one that is over; either way it is a guess.
    let told = matches!(head.state.load(Relaxed), state::HEAD | state::NAPPING);
    let ran = head.granted_at.load(Relaxed);
    told && ran != 0 && M::micros().wrapping_sub(ran) > IDLE.max(2 * M::tunables().bound_us) && waited(head) > IDLE
}

impl<M: Machine> ShflRwState<M> {
    /// Contends for the counter as the head, until the lock is won (`holding`: it already is); then leaves the queue.
    pub(super) fn contend<W: WaitPolicy, P: Admission>(
        &self,
        me: Handle,
        want: Want,
        until: Option<Deadline>,
        holding: bool,
    ) -> Contended {
        let node = me.node::<M>();
        shuffler::start_at_head(node);
        let mut won = holding;
        while !won {
            say_alive(node);
            if node.state.load(Acquire) == state::EVICTED {
                return Contended::Evicted;
            }
            let raised = self.bar_if_due(want, node, false);
            won = self.poll_as_head::<W, P>(me, want, until);
            if !won && !raised && W::SPINS && self.bar_if_due(want, node, true) {
                won = self.poll_as_head::<W, P>(me, want, until);
            }
            if !won && until.is_some_and(|deadline| M::expired(&deadline)) {
                return self.give_up(me);
            }
            if !won && W::PARKS {
                self.nap(want, node, until);
            }
        }
        if holding {
            self.count.fetch_and(!(BARS | SLEEPER), Relaxed);
        }
        if let Some(next) = self.depart(me, want.writes()) {
            wake::<M>(next);
        } else if want.writes() {
            self.note_untold();
        }
        Contended::Won
    }

    /// Leaves without the lock.
    fn give_up(&self, me: Handle) -> Contended {
        self.count.fetch_and(!(BARS | SLEEPER), Relaxed);
        if let Some(next) = self.depart(me, false) {
            wake::<M>(next);
        }
        Contended::TimedOut
    }

    /// Raises the bars that this head is entitled to; whether it has one. `awake`: it will poll, and readers are in its way.
    fn bar_if_due(&self, want: Want, node: &Node<M>, awake: bool) -> bool {
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
        bars != 0
    }

    /// Polls the counter, and shuffles meanwhile. Whether the lock was won; then the bars are down.
    fn poll_as_head<W: WaitPolicy, P: Admission>(&self, me: Handle, want: Want, until: Option<Deadline>) -> bool {
        let node = me.node::<M>();
        let (mut polls, mut won) = (0u32, false);
        let mut attempt = |seen| {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(WALK_EVERY) {
                if node.state.load(Acquire) == state::EVICTED {
                    return true;
                }
                if shuffler::has_role(node) {
                    shuffler::walk::<M, P>(me, &self.queue, || want.could(self.count.load(Relaxed)));
                }
            }
            won = want.could(seen) && self.admit(want, 0, BARS | SLEEPER);
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

    /// The head sleeps on the counter. It takes its bars down for that, unless it is overdue, or preferred.
    fn nap(&self, want: Want, node: &Node<M>, until: Option<Deadline>) {
        if node.state.compare_exchange(state::HEAD, state::NAPPING, Relaxed, Relaxed).is_err() {
            return; // Evicted.
        }
        let left = M::tunables().bound_us.checked_sub(waited(node));
        if left.is_some() && want == Want::Write(Writer::Fair) {
            self.count.fetch_and(!BARS, Relaxed);
        } else {
            self.bar_if_due(want, node, false);
        }
        // Relaxed: the kernel compares the counter with what we saw; all of this is one word.
        let seen = self.count.fetch_or(SLEEPER, Relaxed) | SLEEPER;
        if !want.could(seen) {
            let limit = M::sooner(left.map_or(HEARTBEAT, |left| left.clamp(1, HEARTBEAT)), until);
            M::trace(Event::Park);
            M::park(&self.count, seen, Some(limit));
        }
        // Fails if evicted; then the flag is the next head's.
        if node.state.compare_exchange(state::NAPPING, state::HEAD, Relaxed, Relaxed).is_ok() {
            self.count.fetch_and(!SLEEPER, Relaxed);
        }
    }
}

/// The head runs at this moment. (0 is for heads that have yet to run.)
fn say_alive<M: Machine>(node: &Node<M>) {
    node.granted_at.store(M::micros().max(1), Relaxed);
}

const _: () = assert!(BAR_READERS | BAR_WRITERS == BARS);
