//! # Waiting in a ShflLock's queue
//!
//! The wait from the failed attempt on the word to the front of the queue: the one arrival that polls, the wait for the
//! turn, and what a waiter that wakes up before its turn may do. See [`shfl`](super::shfl), departures 4 and 5.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Machine, Patience, Unparked, Word};
use crate::mutex::shuffle::release::{is_idle, record_stall, rouse};
use crate::mutex::shuffle::shfl::{FREE, Lock, SLEEPERS, try_take};
use crate::parts::counted::park;
use crate::parts::policy::Admission;
use crate::parts::shuffle::front::{ARRIVAL, BESIDE, GRANTED, PROMISED, ROUSE, ShflQueue, is_noted, named, waited};
use crate::parts::shuffle::shuffler;
use crate::parts::wait::{STAY, WaitPolicy};

/// A waiter that has not seen the head asleep looks for the lock itself after this long (µs), then after twice as long,
/// and so on without end.
pub(crate) const LOOK: u32 = 16_000;
/// A grant that has not been taken for this long (µs), or for two bounds if that is more, may be revoked.
const STALE_GRANT: u32 = 10_000;
/// The shuffler walks once in this many polls.
pub(crate) const WALK_EVERY: u32 = 2;

/// How a wait in the queue ended.
#[derive(Clone, Copy)]
pub(crate) enum Turn {
    /// First in the queue.
    Head,
    /// First in the queue, and the lock was won on the way.
    HeadHolding,
    /// The lock was won out of turn; the node stayed in the queue.
    Won,
    /// The waiter gave up; the node stayed in the queue.
    TimedOut,
}

impl<M: Machine> Lock<'_, M> {
    /// One newcomer polls the word before it queues. Returns whether it won the lock.
    pub(super) fn arrive(&self) -> bool {
        self.queue.arrive(self.word, |seen| seen == FREE && try_take::<M>(self.word))
    }

    /// Waits in the queue, where it joined behind the node `behind`.
    ///
    /// It sleeps until its state changes. Now and then, ever more seldom, it wakes up by itself: the head may be frozen
    /// while it polls. Then the head does not take the lock, and no release notices that. Once the waiter has seen that
    /// the head sleeps, and that its own predecessor has linked itself, it looks only at its own node. The thread that
    /// wakes the head leaves a note there ([`note_awake`](crate::parts::shuffle::front::note_awake)). A waiter that a
    /// broadcast moved here goes on looking at the lock. A waiter that is woken although its state has not changed has
    /// been roused, because the head may be frozen. It looks at the lock.
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
                state::WAITING if W::PARKS => continue, // Woken ahead of its turn: spin.
                _ => {}
            }
            let (won, revoked) =
                if try_take::<M>(self.word) { (true, false) } else { (self.revoke_stale_grant(), true) };
            if won || until.is_some_and(|deadline| M::expired(&deadline)) {
                let turn = self.queue.leave_node(node, won);
                if matches!(turn, Turn::Won) {
                    self.evict_idle_head(revoked);
                    rouse::<M>(me); // A waiter that joined behind it may have relied on it.
                }
                return turn;
            }
            (look, trusts) = (look.saturating_mul(2), behind.is_some() && self.is_wake_up_assured(behind));
        }
    }

    /// Whether the head sleeps on the word, so that a release wakes it or learns from the kernel that it does not
    /// sleep; and whether the waiter that joined behind `behind` is linked. Relaxed: this is true now, or was true a
    /// moment ago.
    pub(super) fn is_wake_up_assured(&self, behind: Option<Handle>) -> bool {
        let head = self.queue.front();
        let asleep =
            |head: Handle| head.node::<M>().is_alive() && head.node::<M>().state.load(Relaxed) == state::NAPPING;
        head & GRANTED == 0
            && named(head).is_some_and(asleep)
            && self.word.load(Relaxed) == SLEEPERS
            && behind.is_none_or(ShflQueue::<M>::is_linked)
    }

    /// (head = waiter, GRANTED) -> (head = waiter), if the grant is stale: then this thread has the lock. Returns
    /// whether it has.
    pub(super) fn revoke_stale_grant(&self) -> bool {
        let head = self.queue.head.load(Acquire) & !BESIDE;
        let Some(taker) = named(head).filter(|_| head & PROMISED == GRANTED) else { return false };
        let age = M::micros().wrapping_sub(taker.node::<M>().granted_at.load(Relaxed));
        let stale = M::tunables().bound_us.saturating_mul(2).max(STALE_GRANT);
        let taken = age > stale && self.queue.change_head(head, head & !GRANTED);
        if taken {
            record_stall::<M>(age);
        }
        taken
    }

    /// The holder, which has won the lock out of turn, evicts the head if the head does not run. The head does not run
    /// if it has let a grant become stale (`revoked`); otherwise the clock decides, and for a head that should be
    /// asleep also the kernel. It may be that no other waiter looks for the lock by itself. So the holder's release
    /// wakes another sleeper.
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
        // Relaxed: for this thread's own release.
        self.queue.head.fetch_or(ROUSE, Relaxed);
    }
}

/// The steps of a wait in the queue, for any lock in front of it.
impl<M: Machine> ShflQueue<M> {
    /// One newcomer polls the word of the lock before it queues, until it has `taken` it. Returns whether it has.
    pub(crate) fn arrive(&self, word: &M::Word, taken: impl FnMut(u32) -> bool) -> bool {
        if self.head.fetch_or(ARRIVAL, Relaxed) & ARRIVAL != 0 {
            return false;
        }
        let won = M::spin_until(word, Relaxed, Patience::Contend, taken).is_some();
        self.head.fetch_and(!ARRIVAL, Relaxed);
        won
    }

    /// Polls for the turn. Shuffled waiters go on polling (slide 59), as long as there are CPUs for it and until
    /// `limit`. Returns whether this waiter is head.
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

    /// Polls for the turn; shuffles if the role is passed to this waiter. Returns whether it is head.
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

    /// WAITING -> PARKED. Sleeps until its state changes, it is woken for another reason, its deadline has passed, or
    /// `look` µs are over. If it `trusts` the head to be woken, it sleeps on after `look`, twice as long each time,
    /// until there is a note that the head is awake. Returns the state then.
    pub(crate) fn sleep_in_queue<W: WaitPolicy>(
        &self,
        node: &Node<M>,
        look: &mut u32,
        trusts: bool,
        until: Option<Deadline>,
    ) -> u32 {
        if W::PARKS {
            // If this fails, it is this waiter's turn, or the node was adopted asleep. The loop below sees both.
            let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
        }
        while node.state.load(Acquire) == state::PARKED {
            let ended = park::<M>(&node.state, state::PARKED, Some(M::sooner(*look, until)));
            let late = || until.is_some_and(|deadline| M::expired(&deadline));
            if matches!(ended, Unparked::Woken | Unparked::Changed) || !trusts || is_noted(node) || late() {
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

/// Whether a waiter need not wait in the queue any more: it is head (perhaps it slept on the lock's word until a moment
/// ago), or it was head, and has been evicted before it noticed. (A head that contends finds out.)
pub(crate) fn is_notified(seen: u32) -> bool {
    matches!(seen, state::HEAD | state::NAPPING | state::EVICTED)
}
