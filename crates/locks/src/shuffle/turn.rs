//! # Waiting in a ShflLock's queue
//!
//! From the failed attempt on the word to the front of the queue: the one arrival that polls, the wait for the turn,
//! and what a waiter may do that gets up without having been told. See [`shfl`](super::shfl), departures 4 and 5.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, Unparked, Word};
use crate::node::{Node, state};
use crate::policy::Admission;
use crate::shuffle::front::{ARRIVAL, BESIDE, GRANTED, PROMISED, ROUSE, ShflQueue, is_noted, named, waited};
use crate::shuffle::release::{is_idle, rouse, stood_still};
use crate::shuffle::shfl::{FREE, Lock, SLEEPERS, try_take};
use crate::shuffle::shuffler;
use crate::wait::{STAY, WaitPolicy};

/// A waiter that has not seen the head asleep looks for itself after so long (µs), then after twice as long, and so on
/// without end.
pub(crate) const LOOK: u32 = 16_000;
/// A grant that has not been taken for so long (µs), or for two bounds, may be taken back.
const STALE_GRANT: u32 = 10_000;
/// The shuffler walks once in so many polls.
pub(crate) const WALK_EVERY: u32 = 2;

/// How a wait in the queue ended.
#[derive(Clone, Copy)]
pub(crate) enum Turn {
    /// First in the queue.
    Head,
    /// First in the queue, and the lock was won on the way.
    HeadHolding,
    /// The lock was won out of turn; the node stayed behind.
    Won,
    /// Gave up; the node stayed behind.
    TimedOut,
}

impl<M: Machine> Lock<'_, M> {
    /// One newcomer polls the word before it queues. Whether the lock was won.
    pub(super) fn arrive(&self) -> bool {
        self.queue.arrive(self.word, |seen| seen == FREE && try_take::<M>(self.word))
    }

    /// Waits in the queue, where it joined `behind` somebody.
    ///
    /// It sleeps until it is told. Now and then, ever more seldom, it gets up: it may be that the head is frozen as it
    /// polls, and so neither takes the lock nor is missed by a release. Once it has seen that the head sleeps, and that
    /// who is before it has linked itself, it then looks at nothing but its own node, where whoever wakes the head
    /// leaves word ([`note_awake`](crate::shuffle::front::note_awake)). Who was moved here looks at the lock, too. And
    /// whoever is woken without being told has been roused, for the head may be frozen.
    pub(super) fn wait_turn<W: WaitPolicy, P: Admission>(
        &self,
        me: Handle,
        behind: Option<Handle>,
        until: Option<Deadline>,
    ) -> Turn {
        let node = me.node::<M>();
        let (stays, mut look, mut trusts) = (M::sooner(STAY, until), LOOK, false);
        loop {
            let limit = if W::PARKS { stays } else { M::sooner(look, until) };
            if W::SPINS && self.queue.spin_while_shuffled::<W, P>(me, limit) {
                return Turn::Head;
            }
            match self.queue.sleep_in_queue::<W>(node, &mut look, trusts, until) {
                notified if is_notified(notified) => return Turn::Head,
                state::WAITING if W::PARKS => continue, // woken ahead of its turn: spin
                _ => {}
            }
            let (won, revoked) =
                if try_take::<M>(self.word) { (true, false) } else { (self.revoke_stale_grant(), true) };
            if won || until.is_some_and(|deadline| M::expired(&deadline)) {
                let turn = self.queue.leave_node(node, won);
                if matches!(turn, Turn::Won) {
                    self.evict_idle_head(revoked);
                    rouse::<M>(me); // Who joined behind it may have counted on it.
                }
                return turn;
            }
            (look, trusts) = (look.saturating_mul(2), behind.is_some() && self.is_in_good_hands(behind));
        }
    }

    /// Whether the head sleeps on the word, so that a release wakes it, or hears from the kernel that it does not
    /// sleep; and whether a waiter that joined `behind` somebody is linked. Relaxed: what is seen is of now, or of a
    /// moment ago, when it was true.
    pub(super) fn is_in_good_hands(&self, behind: Option<Handle>) -> bool {
        let head = self.queue.front();
        let asleep =
            |head: Handle| head.node::<M>().is_alive() && head.node::<M>().state.load(Relaxed) == state::NAPPING;
        head & GRANTED == 0
            && named(head).is_some_and(asleep)
            && self.word.load(Relaxed) == SLEEPERS
            && behind.is_none_or(ShflQueue::<M>::is_linked)
    }

    /// (head = somebody, GRANTED) -> (head = somebody), if he has not taken it for long: the lock is ours.
    pub(super) fn revoke_stale_grant(&self) -> bool {
        let head = self.queue.head.load(Acquire) & !BESIDE;
        let Some(taker) = named(head).filter(|_| head & PROMISED == GRANTED) else { return false };
        let age = M::micros().wrapping_sub(taker.node::<M>().granted_at.load(Relaxed));
        let stale = M::tunables().bound_us.saturating_mul(2).max(STALE_GRANT);
        let taken = age > stale && self.queue.change_head(head, head & !GRANTED);
        if taken {
            stood_still::<M>(age);
        }
        taken
    }

    /// The holder, who has won the lock out of turn, throws the head out of the queue if that does not run: because it
    /// has let a grant become stale (`revoked`); or as far as the clock says, or the kernel, if it should be asleep.
    /// Nobody else may look for the lock by himself: so the holder's release wakes another sleeper.
    pub(super) fn evict_idle_head(&self, revoked: bool) {
        let Some(waiter) = named(self.queue.front()).filter(|waiter| waiter.node::<M>().is_alive()) else { return };
        let node = waiter.node::<M>();
        let idle = match node.state.load(Relaxed) {
            _ if revoked => true,
            state::NAPPING => M::wake(self.word, u32::MAX) == 0 && waited(node) > LOOK,
            _ => is_idle(node),
        };
        if idle {
            self.evict(waiter);
        }
        // Relaxed: for our own release.
        self.queue.head.fetch_or(ROUSE, Relaxed);
    }
}

/// What a wait in the queue is made of, whatever the lock in front of it.
impl<M: Machine> ShflQueue<M> {
    /// One newcomer polls the word of the lock before it queues, until it has `taken` it. Whether it has.
    pub(crate) fn arrive(&self, word: &M::Word, taken: impl FnMut(u32) -> bool) -> bool {
        if self.head.fetch_or(ARRIVAL, Relaxed) & ARRIVAL != 0 {
            return false;
        }
        let won = M::spin_until(word, Relaxed, Patience::Contend, taken).is_some();
        self.head.fetch_and(!ARRIVAL, Relaxed);
        won
    }

    /// Polls for the turn. Shuffled waiters keep polling (slide 59), as long as there are CPUs for that and their
    /// patience lasts. Whether it is head.
    pub(crate) fn spin_while_shuffled<W: WaitPolicy, P: Admission>(&self, me: Handle, limit: Deadline) -> bool {
        loop {
            if self.spin_in_queue::<W, P>(me, limit) {
                return true;
            }
            let goes_on = W::PARKS && shuffler::is_shuffled(me.node::<M>()) && !M::crowded();
            if !goes_on || M::expired(&limit) {
                return false;
            }
        }
    }

    /// Polls for the turn; shuffles if the role is passed to this waiter. Whether it is head.
    fn spin_in_queue<W: WaitPolicy, P: Admission>(&self, me: Handle, limit: Deadline) -> bool {
        let node = me.node::<M>();
        let patience = if W::PARKS { Patience::Budget } else { Patience::Until(limit) };
        let mut polls = 0u32;
        let notified = |seen| {
            polls = polls.wrapping_add(1);
            if !is_notified(seen) && polls.is_multiple_of(WALK_EVERY) && shuffler::has_role(node) {
                shuffler::walk::<M, P>(me, self, || is_notified(node.state.load(Relaxed)));
            }
            is_notified(seen)
        };
        W::poll::<M>(&node.state, Acquire, patience, notified).is_some()
    }

    /// WAITING -> PARKED, and sleeps until it is told, or woken for another reason, or the deadline has passed; or
    /// `look` µs, and, if it `trusts` the head to be woken, twice as long again and again, until it is noted that the
    /// head is awake. The state then.
    pub(crate) fn sleep_in_queue<W: WaitPolicy>(
        &self,
        node: &Node<M>,
        look: &mut u32,
        trusts: bool,
        until: Option<Deadline>,
    ) -> u32 {
        if W::PARKS {
            // Fails if it is our turn, or if the node was adopted asleep; both show below.
            let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
        }
        while node.state.load(Acquire) == state::PARKED {
            M::trace(Event::Park);
            let ended = M::park(&node.state, state::PARKED, Some(M::sooner(*look, until)));
            let late = || until.is_some_and(|deadline| M::expired(&deadline));
            if ended == Unparked::Woken || !trusts || is_noted(node) || late() {
                break;
            }
            *look = look.saturating_mul(2);
        }
        node.state.load(Acquire)
    }

    /// WAITING | PARKED -> ABANDONED, unless the waiter has just become head.
    pub(crate) fn leave_node(&self, node: &Node<M>, won: bool) -> Turn {
        self.left().add();
        loop {
            let seen = node.state.load(Acquire);
            if is_notified(seen) {
                self.left().remove();
                return if won { Turn::HeadHolding } else { Turn::Head };
            }
            if node.state.compare_exchange(seen, state::ABANDONED, AcqRel, Relaxed).is_ok() {
                return if won { Turn::Won } else { Turn::TimedOut };
            }
        }
    }
}

/// Whether a waiter need not wait in the queue any more: it is head, if perhaps asleep on the lock's word until a
/// moment ago; or was, and has been thrown out before it noticed. (Who contends as the head finds out.)
pub(crate) fn is_notified(seen: u32) -> bool {
    matches!(seen, state::HEAD | state::NAPPING | state::EVICTED)
}
