//! # The head of a ShflLock's queue
//!
//! How the first waiter contends for the word. No other waiter of the queue does. It polls for a while, then sleeps on
//! the word itself, by glibc's protocol, until a release wakes it, or its deadline has passed. See
//! [`shfl`](super::shfl), invariants 1 and 2.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::event::Event;
use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Machine, Patience, Unparked, Word};
use crate::mutex::shuffle::state::{FREE, HELD, Lock, SLEEPERS, bound, record_stall};
use crate::parts::naps::nap_longer;
use crate::parts::policy::Admission;
use crate::parts::shuffle::front::{ASKED, GRANTED, PROMISED, naming, note_asleep, note_awake, waited};
use crate::parts::shuffle::rouse::wake;
use crate::parts::shuffle::turn::{Contended, WALK_EVERY};
use crate::parts::shuffle::{batch, shuffler};
use crate::parts::wait::WaitPolicy;

/// How long (µs) a head waits for a promised grant before it looks again.
const PROMISE: u32 = 10;
/// A head that polls looks at the clock once in this many polls.
const ASK_EVERY: u32 = 16;

impl<M: Machine> Lock<'_, M> {
    /// Contends for the word as the head, until it has won the word (`holding`: it already has). Then leaves the queue.
    pub(super) fn contend<W: WaitPolicy, P: Admission>(
        &self,
        me: Handle,
        until: Option<Deadline>,
        holding: bool,
    ) -> Contended {
        let node = me.node::<M>();
        batch::start_at_head(node);
        // A head that was moved to the word may have slept there: invariant 2.
        let mut taken = if self.wake_up(node) { SLEEPERS } else { HELD };
        let mut nap = PROMISE;
        let mut won = holding || (W::SPINS && self.spin_as_head::<W, P>(me, until, taken));
        while !won {
            if node.state.load(Acquire) == state::EVICTED {
                return Contended::Evicted;
            }
            let late = until.is_some_and(|deadline| M::expired(&deadline));
            // If this fails, the lock has been or is about to be granted to this thread, which takes it below, or it is
            // being evicted.
            if late && self.queue.unname(me) {
                if let Some(next) = self.queue.pass(me, None) {
                    wake::<M>(next);
                }
                return Contended::TimedOut;
            }
            if W::PARKS && late {
                nap_longer::<M>(&mut nap, None);
            } else if W::PARKS {
                let Some(parked) = self.park_on_word(me, until, &mut nap) else { return Contended::TimedOut };
                (won, taken) = (parked, SLEEPERS); // Invariant 2.
            }
            won = won || self.spin_as_head::<W, P>(me, until, taken);
        }
        if node.state.load(Relaxed) == state::EVICTED {
            // Evicted before the lock was released to this thread, which holds it now: the node is in no queue.
            M::give_node(me);
        } else if self.queue.pass(me, Some(self.word)).is_some() {
            self.note_sleeper();
        }
        Contended::Won
    }

    /// NAPPING -> HEAD. Returns whether it was NAPPING. If not, it is awake already, or evicted.
    fn wake_up(&self, node: &Node<M>) -> bool {
        node.state.compare_exchange(state::NAPPING, state::HEAD, Relaxed, Relaxed).is_ok()
    }

    /// (head = me, GRANTED) -> (head = me): takes the grant. Returns whether there was one.
    fn take_grant(&self, me: Handle) -> bool {
        let taken =
            self.queue.head.load(Relaxed) & GRANTED != 0 && self.queue.change_head(naming(me) | GRANTED, naming(me));
        if taken {
            record_stall::<M>(M::micros().wrapping_sub(me.node::<M>().granted_at.load(Relaxed)));
        }
        taken
    }

    /// Polls the word and the grant; 0 -> `taken`. Shuffles meanwhile. A head whose wait is overdue asks for the lock.
    fn spin_as_head<W: WaitPolicy, P: Admission>(&self, me: Handle, until: Option<Deadline>, taken: u32) -> bool {
        let node = me.node::<M>();
        let (mut polls, mut won) = (0u32, false);
        let is_overdue = || waited(node) >= bound(node);
        let mut asked = is_overdue();
        if asked {
            self.ask(me);
        }
        let mut attempt = |seen| {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(WALK_EVERY) {
                if node.state.load(Acquire) == state::EVICTED {
                    return true;
                }
                if batch::has_role(node) {
                    shuffler::walk::<M, P>(me, self.queue, || self.word.load(Relaxed) == FREE);
                }
            }
            if !asked && polls.is_multiple_of(ASK_EVERY) && is_overdue() {
                asked = true;
                self.ask(me);
            }
            won = match seen {
                FREE => self.word.compare_exchange(FREE, taken, Acquire, Relaxed).is_ok(),
                _ => self.take_grant(me),
            };
            won
        };
        if !W::SPINS {
            attempt(self.word.load(Relaxed));
        } else {
            M::spin_until(self.word, Relaxed, W::patience(until, Patience::Contend), attempt);
        }
        won
    }

    /// (head = me) -> (head = me, ASKED), if the lock has not been granted yet.
    fn ask(&self, me: Handle) {
        self.queue.change_head(naming(me), naming(me) | ASKED);
    }

    /// The head sleeps on the word, 1 -> 2, until it is woken, or its deadline has passed. Returns whether it won the
    /// lock; `None` if the lock is gone, and the deadline has passed. `nap`: how long it naps if the lock is about to
    /// be granted.
    fn park_on_word(&self, me: Handle, until: Option<Deadline>, nap: &mut u32) -> Option<bool> {
        let node = me.node::<M>();
        if node.state.compare_exchange(state::HEAD, state::NAPPING, Relaxed, Relaxed).is_err() {
            return Some(false); // Evicted.
        }
        note_asleep::<M>(me);
        // AcqRel: see `hand_over`.
        let won = self.word.swap(SLEEPERS, AcqRel) == FREE;
        let promise = self.queue.head.load(Relaxed) & PROMISED;
        let mut woken = false;
        if !won && promise == PROMISED {
            nap_longer::<M>(nap, None); // The releaser needs two more instructions.
        } else if !won && promise != GRANTED {
            M::trace(Event::Park);
            loop {
                let ended = M::park(self.word, SLEEPERS, until);
                woken = ended == Unparked::Woken;
                if !ended.is_by_others() && self.queue.stays_gone(me, until) {
                    return None;
                }
                // A wake-up that changed nothing came from a signal.
                let goes_on = ended.is_other()
                    && self.word.load(Relaxed) == SLEEPERS
                    && self.queue.head.load(Relaxed) & GRANTED == 0
                    && node.state.load(Relaxed) == state::NAPPING;
                if !goes_on {
                    break;
                }
            }
        }
        self.wake_up(node); // Not if it was evicted.
        if !won && !woken {
            // Nobody else does, or it was done before this head had said that it sleeps.
            note_awake::<M>(me);
        }
        Some(won)
    }
}
