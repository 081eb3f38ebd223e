//! # The queue of MCS, whose holder keeps no node
//!
//! MCS as [`cohort`](crate::numa::cohort) and [`cst`](crate::numa::cst) have it in their parts: in the variant known as K42
//! (Auslander et al., 2003). On acquisition the successor's name moves from the node into the lock, and the node is free again. So a
//! part may be released by another thread than the one that acquired it, as cohorts do, and a thread needs one node however many levels a lock has. What it costs: an
//! access to the node just when the successor writes its name there, and to the tail if there is none; so a lock of one level ([`mcs`](super::mcs)) does
//! without it. "Held, nobody waits" is the constant [`HELD`].
//!
//! Waiters may sleep after their spin budget; and leave by time-out: the node stays behind and the releaser that reaches it skips it; a queue full of such nodes
//! lets nobody join ([`LeftBehind`]).
//!
//! ## State                                                           ## The queue
//! ```text
//! | tail | next | meaning                                  |           tail ──────────────────────┐
//! |------|------|------------------------------------------|                                      v
//! | 0    | 0    | free                                     |           next ─> [B] ──next─> [C] ──> 0
//! | HELD | 0    | held, nobody waits                       |                   WAITING      PARKED
//! | node | 0    | held, the first waiter is linking itself |           (the holder, A, has no node any more)
//! | node | B    | held, B is next, the queue ends at node  |
//! ```
//!
//! ## Invariants
//! 1. `next` is written by the holder, and by the one waiter that found `HELD` in `tail`; it is 0 when `tail` becomes `HELD`.
//! 2. A node that has been linked changes state only by its own thread (WAITING -> PARKED, -> ABANDONED) and by the holder
//!    (-> HEAD). (One that came from a condition variable may be CLAIMED: its thread sleeps until it is HEAD.)
//! 3. A node is given back by its thread after HEAD, or by the holder after ABANDONED; never while reachable from `next`.
//! 4. After HEAD is stored, or `tail` set to 0, the releaser touches neither lock nor node, but for the wake of an address.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap(node)` | AcqRel | itself, `tail` CAS in `unlock` | publishes the node; sees the last section if it was free |
//! | `tail` CAS HELD -> 0 | Release | `tail` swap/CAS of the next locker | hands over this section |
//! | `next.store` / `next.load` | Release / Acquire | each other | the successor's node must be seen prepared |
//! | `state` -> HEAD | Release | `state` load in `wait::turn` | hands over this section |
//!
//! No checker can tell the links' orderings, nor what a waiter that gives up says with Release, from Relaxed: [the models](../models.md#what-neither-can-tell) argue for them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::{Deadline, Handle, Machine, Patience, TimedOut, Word};
use crate::node::{Node, state};
use crate::wait::left::{self, LeftBehind};
use crate::wait::{self, WaitPolicy};

const FREE: u32 = 0;
/// Held, and nobody waits.
pub(crate) const HELD: u32 = Handle::RESERVED;

/// The words of a queue, wherever they are: in a lock, or in a part of its [side block](crate::side).
///
/// `tail`: the last waiter, [`HELD`], or 0. `next`: the holder's successor.
pub(crate) struct Words<'a, M: Machine> {
    pub(crate) tail: &'a M::Word,
    pub(crate) next: &'a M::Word,
}

impl<M: Machine> Clone for Words<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Words<'_, M> {}

/// What becomes of a lock that nobody waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    /// Free.
    Freed,
    /// Still held by who would have passed it on.
    Kept,
}

impl Alone {
    const fn tail(self) -> u32 {
        match self {
            Self::Freed => FREE,
            Self::Kept => HELD,
        }
    }
}

impl<M: Machine> Words<'_, M> {
    /// Nodes of waiters that gave up.
    fn left(self) -> &'static LeftBehind<M> {
        left::of(self.tail)
    }

    /// 0 -> HELD
    #[inline]
    pub(crate) fn try_lock(self) -> bool {
        self.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Waits for a lock that was found held.
    pub(crate) fn wait<W: WaitPolicy>(self, until: Option<Deadline>) -> Result<(), TimedOut> {
        if let Some(ended) = self.left().keep_out(until, || self.try_lock()) {
            return ended;
        }
        let me = M::take_node();
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        let previous = self.tail.swap(me.word(), AcqRel);
        if previous != FREE {
            self.link(previous, me);
            // If it gives up, the node is the queue's (invariant 3).
            wait::turn::<M, W>(node, until, self.left())?;
        }
        self.own(me);
        Ok(())
    }

    /// HELD -> 0, or a hand-off. Of a free lock: nothing.
    #[inline]
    pub(crate) fn unlock(self) {
        match self.tail.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) | Err(FREE) => {}
            Err(_) => {
                self.hand_over(Alone::Freed);
            }
        }
    }

    /// Whether somebody waits for the lock, which is held.
    #[inline]
    pub(crate) fn has_waiters(self) -> bool {
        !matches!(self.tail.load(Relaxed), FREE | HELD)
    }

    /// A hand-off, if somebody waits. Whether there was one; if not, the lock is still held by the caller.
    #[inline]
    pub(crate) fn pass(self) -> bool {
        self.has_waiters() && self.hand_over(Alone::Kept)
    }

    fn hand_over(self, alone: Alone) -> bool {
        self.first_waiter(alone).is_some_and(|first| self.grant(first, alone))
    }

    /// Who is first in the queue of a lock that somebody waits for; or nobody does.
    #[cold]
    pub(crate) fn first_waiter(self, alone: Alone) -> Option<Handle> {
        // Not at the last in the queue before it must be: his line is his.
        let next = self.next.load(Acquire);
        if next != 0 {
            return Handle::from_word(next);
        }
        let tail = Handle::from_word(self.tail.load(Acquire));
        match tail.filter(|last| !last.node::<M>().is_alive()) {
            // In a forked child, where the waiter may have been about to link itself.
            Some(_) => self.bury(alone),
            None => Some(await_link::<M>(self.next)),
        }
    }

    /// Makes `first` the successor of `previous`, which is [`HELD`] or a node. Behind a node whose thread did not survive a fork
    /// it is the first of a new queue.
    fn link(self, previous: u32, first: Handle) {
        match Handle::from_word(previous).map(Handle::node::<M>) {
            Some(node) if node.is_alive() => node.next.store(first.word(), Release),
            _ => self.next.store(first.word(), Release),
        }
    }

    /// (tail = me) -> (tail = HELD), or moves the successor's name into the lock. Then the node is free (departure 1).
    fn own(self, me: Handle) {
        let node = me.node::<M>();
        let mut next = node.next.load(Acquire);
        // Before `tail` may become HELD, for then a waiter may write `next` (invariant 1).
        self.next.store(next, Relaxed);
        if next == 0 && self.tail.compare_exchange(me.word(), HELD, Release, Relaxed).is_err() {
            next = await_link::<M>(&node.next).word();
            self.next.store(next, Relaxed);
        }
        M::give_node(me);
    }

    /// Hands the lock to `next`, or to the first after it that has not given up; whether there was one.
    fn grant(self, mut next: Handle, alone: Alone) -> bool {
        loop {
            let node = next.node::<M>();
            let after = if !node.is_alive() {
                self.bury(alone)
            } else {
                if wait::grant::<M>(next, M::numa_node) {
                    return true;
                }
                self.skip(next, node, alone)
            };
            let Some(after) = after else { return false };
            next = after;
        }
    }

    /// In a forked child: forgets the waiters, whose threads do not exist here. The first waiter that has queued since, if any.
    #[cold]
    fn bury(self, alone: Alone) -> Option<Handle> {
        // A live waiter, which found a dead tail, may have linked itself here already.
        let next = self.next.load(Relaxed);
        if Handle::from_word(next).is_some_and(|first| !first.node::<M>().is_alive()) {
            let _ = self.next.compare_exchange(next, 0, Relaxed, Relaxed);
        }
        let tail = self.tail.load(Acquire);
        let all_dead = Handle::from_word(tail).is_none_or(|last| !last.node::<M>().is_alive());
        if all_dead {
            self.left().clear();
        }
        if all_dead && self.tail.compare_exchange(tail, alone.tail(), Release, Relaxed).is_ok() {
            return None;
        }
        Some(await_link::<M>(self.next))
    }

    /// The waiter behind `next`, which has given up; its node is given back.
    pub(crate) fn skip(self, next: Handle, node: &Node<M>, alone: Alone) -> Option<Handle> {
        self.left().remove();
        let after = self.unlink(next, node, alone);
        M::give_node(next);
        after
    }

    /// Takes `next`, the first, out of the queue. The waiter behind it; if there is none, (tail = next) -> free, or HELD.
    pub(crate) fn unlink(self, next: Handle, node: &Node<M>, alone: Alone) -> Option<Handle> {
        let after = node.next.load(Acquire);
        if after != 0 {
            return Handle::from_word(after);
        }
        self.next.store(0, Relaxed);
        if self.tail.compare_exchange(next.word(), alone.tail(), Release, Relaxed).is_ok() {
            return None;
        }
        Some(await_link::<M>(&node.next))
    }

    /// For nobody but whoever settles in a forked child: nobody waits, and the lock is free, or `held`. Relaxed: one thread alone touches
    /// the lock.
    pub(crate) fn reset(self, held: bool) {
        self.tail.store(if held { HELD } else { FREE }, Relaxed);
        self.next.store(0, Relaxed);
        self.left().clear();
    }
}

/// Waits for a successor that has swapped itself into `tail` to link itself.
fn await_link<M: Machine>(next: &M::Word) -> Handle {
    loop {
        let seen = M::spin_until(next, Acquire, Patience::Forever, |n| n != 0);
        if let Some(handle) = seen.and_then(Handle::from_word) {
            return handle;
        }
    }
}
