//! # Waiting in a ShflLock's queue
//!
//! From the failed attempt on the word to the front of the queue: the one arrival that polls, the wait for the turn, and what a
//! waiter may do when its patience is at an end. See [`shfl`](super::shfl), departures 4 and 5.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, Unparked, Word};
use crate::node::{Node, state};
use crate::policy::Admission;
use crate::shuffle::front::{
    ARRIVAL, BESIDE, GRANTED, NOTIFY, PROMISED, ROUSE, ShflQueue, named, naming, start_clock, waited,
};
use crate::shuffle::release::stood_still;
use crate::shuffle::shfl::{FREE, Lock, try_take};
use crate::shuffle::shuffler;
use crate::wait::WaitPolicy;

/// A waiter that has heard nothing for so long (µs) tries for itself; doubles up to [`PATIENCE_MAX`].
pub(crate) const PATIENCE: u32 = 20_000;
const PATIENCE_MAX: u32 = 1_000_000;
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

    /// Waits in the queue.
    pub(super) fn wait_turn<W: WaitPolicy, P: Admission>(&self, me: Handle, until: Option<Deadline>) -> Turn {
        let node = me.node::<M>();
        let mut patience = PATIENCE;
        loop {
            let limit = M::sooner(patience, until);
            if W::SPINS && self.queue.spin_while_shuffled::<W, P>(me, limit) {
                return Turn::Head;
            }
            match self.queue.sleep_in_queue::<W>(node, limit) {
                told if is_told(told) => return Turn::Head,
                state::WAITING if W::PARKS => continue, // woken ahead of its turn: spin
                _ => {}
            }
            if self.queue.claim_notice(me) {
                return Turn::Head;
            }
            let won = try_take::<M>(self.word) || self.revoke_stale_grant();
            if won || until.is_some_and(|deadline| M::expired(&deadline)) {
                let turn = self.queue.leave_node(node, won);
                if matches!(turn, Turn::Won) {
                    self.evict_idle_head();
                }
                return turn;
            }
            patience = (patience * 2).min(PATIENCE_MAX);
        }
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

    /// The holder, who has won the lock out of turn, throws the head out of the queue if that has not run for long. He may have
    /// been the only one with a patience: so his release gives it to another sleeper.
    pub(super) fn evict_idle_head(&self) {
        let head = self.queue.front();
        let Some(waiter) = named(head).filter(|waiter| waiter.node::<M>().is_alive()) else { return };
        if head & (GRANTED | NOTIFY) == 0 && waited(waiter.node::<M>()) > PATIENCE / 2 {
            let told = self.queue.evict(waiter, true);
            debug_assert!(told.is_none(), "a sleeper is told by the release");
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

    /// Polls for the turn. Shuffled waiters keep polling (slide 59), as long as there are CPUs for that and their patience lasts.
    /// Whether it is head.
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
        let told = |seen| {
            polls = polls.wrapping_add(1);
            if !is_told(seen) && polls.is_multiple_of(WALK_EVERY) && shuffler::has_role(node) {
                shuffler::walk::<M, P>(me, self, || is_told(node.state.load(Relaxed)));
            }
            is_told(seen)
        };
        W::poll::<M>(&node.state, Acquire, patience, told).is_some()
    }

    /// WAITING -> PARKED, and sleeps until the state changes or the limit has passed. The state then.
    pub(crate) fn sleep_in_queue<W: WaitPolicy>(&self, node: &Node<M>, limit: Deadline) -> u32 {
        if W::PARKS {
            // Fails if it is our turn, or if the node was adopted asleep; both show below.
            let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
        }
        while node.state.load(Acquire) == state::PARKED {
            M::trace(Event::Park);
            if M::park(&node.state, state::PARKED, Some(limit)) == Unparked::TimedOut {
                break;
            }
        }
        node.state.load(Acquire)
    }

    /// (head = me, NOTIFY) -> (head = me): the holder that was to tell us may have been released by code that tells nobody.
    pub(crate) fn claim_notice(&self, me: Handle) -> bool {
        let node = me.node::<M>();
        if self.front() != naming(me) | NOTIFY {
            return false;
        }
        start_clock(node);
        if !self.change_head(naming(me) | NOTIFY, naming(me)) {
            return false;
        }
        // WAITING | PARKED -> HEAD. Nobody else tells us any more, nor evicts one that has not been told.
        node.state.store(state::HEAD, Relaxed);
        true
    }

    /// WAITING | PARKED -> ABANDONED, unless the waiter has just become head.
    pub(crate) fn leave_node(&self, node: &Node<M>, won: bool) -> Turn {
        self.left().add();
        loop {
            let seen = node.state.load(Acquire);
            if is_told(seen) {
                self.left().remove();
                return if won { Turn::HeadHolding } else { Turn::Head };
            }
            if node.state.compare_exchange(seen, state::ABANDONED, AcqRel, Relaxed).is_ok() {
                return if won { Turn::Won } else { Turn::TimedOut };
            }
        }
    }
}

/// Whether a waiter need not wait in the queue any more: it is head, or was, and has been thrown out before it noticed. (Who
/// contends as the head finds out.)
pub(crate) fn is_told(seen: u32) -> bool {
    matches!(seen, state::HEAD | state::EVICTED)
}
