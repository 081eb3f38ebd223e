//! # Waiting in a ShflLock's queue
//!
//! The wait from the failed attempt on the word to the front of the queue, for all three ShflLocks: the one arrival
//! that polls, and the wait for the turn. See [`shfl`](crate::mutex::shuffle::shfl), departures 4 and 5.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Machine, Patience, Unparked, Word};
use crate::parts::counted::park;
use crate::parts::policy::Admission;
use crate::parts::shuffle::front::{ARRIVAL, ShflQueue, is_noted, was_noted};
use crate::parts::shuffle::rouse::{rouse, rouse_any};
use crate::parts::shuffle::{batch, shuffler};
use crate::parts::wait::{self, STAY, WaitPolicy};

/// A waiter that has not seen the head asleep looks for the lock itself after this long (µs), then after twice as long,
/// and so on without end.
pub(crate) const LOOK: u32 = 16_000;
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

/// How a head's contention for the lock ended. In each case the node is out of the queue.
pub(crate) enum Contended {
    /// This thread has the lock.
    Won,
    /// The deadline has passed.
    TimedOut,
    /// Evicted, because this thread did not run. The node still belongs to it.
    Evicted,
}

/// What a waiter in the queue may do about the lock before its turn. The three ShflLocks differ in this.
pub(crate) trait Waiter {
    /// For how long (µs) it waits before it looks at the lock by itself: the first time, or after this time.
    fn look_after(&self, last: Option<u32>) -> u32;
    /// Acquires the lock out of turn, if it may. `late`: its deadline has passed.
    fn take(&mut self, late: bool) -> bool;
    /// It has done so: evicts the head if that does not run.
    fn has_taken(&self);
    /// Whether it is certain that the head is woken. `behind`: the node behind which this waiter joined.
    fn trusts(&self, behind: Option<Handle>) -> bool;
}

/// A wait in the queue, for any lock in front of it.
impl<M: Machine> ShflQueue<M> {
    /// Waits in the queue, where it joined behind the node `behind`.
    ///
    /// If it may sleep, it sleeps until its state changes. Now and then, ever more seldom, it wakes up by itself: the
    /// head may be frozen while it polls. Then the head does not take the lock, and no release notices that. Once the
    /// waiter has seen that the head sleeps, and that its own predecessor has linked itself, it looks only at its own
    /// node. The thread that wakes the head leaves a note there
    /// ([`note_awake`](crate::parts::shuffle::front::note_awake)). A waiter that is woken although its state has not
    /// changed has been roused, because the head may be frozen. It looks at the lock. The lock may be gone: threads
    /// may be blocked for good when a program ends. So a waiter looks only if the lock
    /// [may be there](ShflQueue::may_be_there).
    pub(crate) fn wait_turn<W: WaitPolicy, P: Admission>(
        &self,
        me: Handle,
        behind: Option<Handle>,
        until: Option<Deadline>,
        mut waiter: impl Waiter,
    ) -> Turn {
        let node = me.node::<M>();
        let (stays, mut look) = (M::sooner(STAY, until), waiter.look_after(None));
        let (mut trusts, mut is_there, mut called) = (false, true, false);
        loop {
            let limit = if W::PARKS { stays } else { M::sooner(look, until) };
            // Do not poll at a lock that may be gone: a polling waiter may shuffle, which writes to other nodes.
            if W::SPINS && (is_there || !W::PARKS) && self.spin_while_shuffled::<W, P>(me, limit) {
                return Turn::Head;
            }
            let (seen, ended) = self.sleep_in_queue::<W>(node, &mut look, trusts, &mut called, until);
            match seen {
                // It was moved to the lock's word, and slept there until its own time had come.
                state::NAPPING if !ended.is_by_others() && self.stays_gone(me, until) => return Turn::TimedOut,
                notified if is_notified(notified) => return Turn::Head,
                state::WAITING if W::PARKS => continue, // Woken ahead of its turn: spin.
                _ => {}
            }
            let late = until.is_some_and(|deadline| M::expired(&deadline));
            is_there = self.may_be_there(node);
            let won = is_there && waiter.take(late);
            if won || late {
                let turn = self.leave_node(node, won);
                if matches!(turn, Turn::Won) {
                    waiter.has_taken();
                    rouse::<M>(me); // A waiter that joined behind it may have relied on it.
                } else if matches!(turn, Turn::TimedOut) && (called || was_noted(node)) {
                    rouse_any::<M>(self.mark()); // Another one looks for the lock instead.
                }
                return turn;
            }
            (look, trusts) = (waiter.look_after(Some(look)), is_there && waiter.trusts(behind));
            called &= !trusts;
        }
    }

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
    fn spin_while_shuffled<W: WaitPolicy, P: Admission>(&self, me: Handle, limit: Deadline) -> bool {
        loop {
            if self.spin_in_queue::<W, P>(me, limit) {
                return true;
            }
            let goes_on = W::PARKS && batch::is_shuffled(me.node::<M>()) && !M::crowded();
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
            if !is_notified(seen) && polls.is_multiple_of(WALK_EVERY) && batch::has_role(node) {
                shuffler::walk::<M, P>(me, self, || is_notified(node.state.load(Relaxed)));
            }
            is_notified(seen)
        };
        wait::poll::<M, W>(&node.state, Acquire, patience, notified).is_some()
    }

    /// WAITING -> PARKED. Sleeps until its state changes, it is woken for another reason, its deadline has passed, or
    /// `look` µs are over. If it `trusts` the head to be woken, it sleeps on after `look`, twice as long each time,
    /// until there is a note that the head is awake. Returns the state then, and why it got up the last time. Sets
    /// `called` if another thread wants this one to look for the lock: by such a note, or because it was roused.
    fn sleep_in_queue<W: WaitPolicy>(
        &self,
        node: &Node<M>,
        look: &mut u32,
        trusts: bool,
        called: &mut bool,
        until: Option<Deadline>,
    ) -> (u32, Unparked) {
        let mut ended = Unparked::Changed;
        if W::PARKS {
            // If this fails, it is this waiter's turn, or the node was adopted asleep. The loop below sees both.
            let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
        }
        while node.state.load(Acquire) == state::PARKED {
            ended = park::<M>(&node.state, state::PARKED, Some(M::sooner(*look, until)));
            let late = || until.is_some_and(|deadline| M::expired(&deadline));
            *called |= trusts && is_noted(node);
            // In a child forked by a signal handler no thread will wake this one.
            if ended.is_other() || !trusts || *called || late() || !node.is_alive() {
                break;
            }
            *look = look.saturating_mul(2);
        }
        let seen = node.state.load(Acquire);
        *called |= seen == state::PARKED && ended == Unparked::Woken;
        (seen, ended)
    }

    /// For a head that was asleep on the lock's word, and got up by itself. If the lock seems to be gone, it sleeps on
    /// its own node, and asks again more and more seldom. (If it is being evicted, the queue may be empty for a
    /// moment.) Returns whether its deadline has passed at a lock that is gone. Then it has left its node.
    pub(crate) fn stays_gone(&self, me: Handle, until: Option<Deadline>) -> bool {
        let (node, mut look) = (me.node::<M>(), LOOK);
        while node.state.load(Acquire) == state::NAPPING && !self.may_be_there(node) {
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                // From now on the node is its evictor's, if there is one; otherwise it is lost. Release pairs with
                // `evict`.
                if node.state.compare_exchange(state::NAPPING, state::ABANDONED, Release, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            park::<M>(&node.state, state::NAPPING, Some(M::sooner(look, until)));
            look = look.saturating_mul(2);
        }
        false
    }

    /// WAITING | PARKED -> ABANDONED, unless the waiter has just become head.
    fn leave_node(&self, node: &Node<M>, won: bool) -> Turn {
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
fn is_notified(seen: u32) -> bool {
    matches!(seen, state::HEAD | state::NAPPING | state::EVICTED)
}
