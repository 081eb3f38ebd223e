//! # The queue of MCS, whose holder keeps no node
//!
//! MCS as [`cohort`](crate::numa::cohort) and [`cst`](crate::numa::cst) have it in their parts: in the variant known as
//! K42 (Auslander et al., 2003). On acquisition the successor's name moves from the node into the lock, and the node is
//! free again. So a part may be released by another thread than the one that acquired it, as cohorts do, and a thread
//! needs one node however many levels a lock has. What it costs: an access to the node just when the successor writes
//! its name there, and to the tail if there is none; so a lock of one level ([`mcs`](super::mcs)) does without it.
//! "Held, nobody waits" is the constant [`HELD`].
//!
//! Waiters may sleep after their spin budget; and leave by time-out: the node stays behind and the releaser that
//! reaches it skips it; a queue full of such //! Waiters may sleep after their spin budget; and leave by time-out: the
//! node stays behind and the releaser that reaches it skips it; a queue full of such nodes lets nobody join
//! ([`LeftBehind`]). Nobody waits for a waiter that has joined and not linked himself yet, neither who releases, nor
//! who has just acquired and wants his successor's name: he leaves a **note** where the link will be, and who links
//! himself, by an exchange, finds it (as in [`aside`](super::aside)).
//!
//!
//! ## State                                                           ## The queue
//! ```text
//! | tail | next | meaning                                  |           tail ──────────────────────┐
//! |------|------|------------------------------------------|                                      v
//! | 0    | 0    | free                                     |           next ─> [B] ──next─> [C] ──> 0
//! | HELD | 0    | held, nobody waits                       |                   WAITING      PARKED
//! | node | 0    | held, the first waiter is linking itself |           (the holder, A, has no node any more)
//! | node | B    | held, B is next, the queue ends at node  |
//! | node | GIVEN| the first, who links himself, has it     |
//! ```
//! | in `next` of a node, when somebody is behind it in the queue | he |
//! |---|---|
//! | 0 | has yet to link himself |
//! | node | has done so |
//! | MOVED | has yet to link himself, and does so in the lock's `next`. The node is his, to be given back; but for one whose thread is granted the lock with that word: nobody is behind that |
//!
//! ## Invariants
//! 1. `next` is written by the holder, and by the one waiter that found `HELD` in `tail`, or MOVED; it is 0 when `tail`
//!    becomes `HELD`, or a node MOVED.
//! 2. A node that has been linked changes state only by its own thread (WAITING -> PARKED, -> ABANDONED) and by the
//!    holder (-> HEAD). (One that came from a condition variable may be CLAIMED: its thread sleeps until it is HEAD.)
//! 3. A node is given back by its thread after HEAD, or by the holder after ABANDONED, or by who finds MOVED in it;
//!    never while reachable from `next`.
//! 4. After HEAD or GIVEN is stored, or `tail` set to 0, the releaser touches neither lock nor node, but for the wake
//!    of an address.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap(node)` | AcqRel | itself, `tail` CAS in `unlock` | publishes the node; sees the last section if it was free |
//! | `tail` CAS HELD -> 0 | Release | `tail` swap/CAS of the next locker | hands over this section |
//! | `next` exchange / load | Release / Acquire | each other | the successor's node must be seen prepared |
//! | `next` 0 -> note / exchange | Release / Acquire | each other | hands over this section; the lock's `next` is 0 by then |
//! | `state` -> HEAD | Release | `state` load in `wait::turn` | hands over this section |
//!
//! No checker can tell the links' orderings, nor what a waiter that gives up says with Release, from Relaxed: [the
//! models](../models.md#what-neither-can-tell) argue for them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::node::state;
use crate::wait::left::{self, LeftBehind};
use crate::wait::{self, WaitPolicy};

const FREE: u32 = 0;
/// Held, and nobody waits.
pub(crate) const HELD: u32 = Handle::RESERVED;
/// A note in the lock's `next`.
const GIVEN: u32 = u32::MAX;
/// A note in a node's `next`.
pub(crate) const MOVED: u32 = u32::MAX - 1;

const _: () = assert!(MOVED >= Handle::LIMIT);

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

/// Who comes next.
#[derive(Clone, Copy)]
pub(crate) enum First {
    /// He, linked.
    Waiter(Handle),
    /// One who has yet to link himself, in the lock's `next`.
    Joiner,
    /// Nobody waits.
    Nobody,
}

impl First {
    /// What a note in `next` was not written over.
    fn linked(word: u32) -> Self {
        Handle::from_word(word).map_or(Self::Nobody, Self::Waiter)
    }
}

/// Somebody is behind a waiter who has yet to link himself.
pub(crate) struct Unlinked;

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
        if previous != FREE && !self.link(previous, me) {
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

    /// Hands the lock to the first that has not given up; whether there was one.
    #[cold]
    fn hand_over(self, alone: Alone) -> bool {
        let mut first = self.first_waiter(alone);
        loop {
            first = match first {
                First::Nobody => return false,
                First::Joiner => match self.give() {
                    Ok(()) => return true,
                    Err(linked) => linked,
                },
                First::Waiter(waiter) if !waiter.node::<M>().is_alive() => self.bury(alone),
                First::Waiter(waiter) if wait::grant::<M>(waiter, M::numa_node) => return true,
                First::Waiter(waiter) => self.skip(waiter, alone),
            }
        }
    }

    /// (next = 0) -> (next = GIVEN): the lock is his who links himself there. If he has done so, it is he.
    pub(crate) fn give(self) -> Result<(), First> {
        self.next.compare_exchange(0, GIVEN, Release, Acquire).map_err(First::linked)?;
        M::trace(Event::Given);
        Ok(())
    }

    /// Who is first in the queue of a lock that somebody waits for; or nobody does.
    #[cold]
    pub(crate) fn first_waiter(self, alone: Alone) -> First {
        // Not at the last in the queue before it must be: his line is his.
        let next = self.next.load(Acquire);
        if let Some(first) = Handle::from_word(next) {
            return First::Waiter(first);
        }
        let tail = Handle::from_word(self.tail.load(Acquire));
        match tail.filter(|last| !last.node::<M>().is_alive()) {
            // In a forked child, where the waiter may have been about to link itself.
            Some(_) => self.bury(alone),
            None => First::Joiner,
        }
    }

    /// Makes `first` the successor of `previous`, which is [`HELD`] or a node. Behind a node whose thread did not
    /// survive a fork it is the first of a new queue. Whether the lock was given to it.
    fn link(self, previous: u32, first: Handle) -> bool {
        if let Some(before) = Handle::from_word(previous).filter(|previous| previous.node::<M>().is_alive()) {
            if before.node::<M>().next.swap(first.word(), AcqRel) != MOVED {
                return false;
            }
            M::give_node(before); // Invariant 3.
        }
        self.next.swap(first.word(), AcqRel) == GIVEN
    }

    /// (tail = me) -> (tail = HELD), or moves the successor's name into the lock. Then the node is free (departure 1),
    /// or the successor's, who has yet to link himself.
    fn own(self, me: Handle) {
        let node = me.node::<M>();
        let next = node.next.load(Acquire);
        if next != MOVED {
            // Before `tail` may become HELD, or the node MOVED, for then a waiter may write `next` (invariant 1).
            self.next.store(next, Relaxed);
            if next == 0 && self.tail.compare_exchange(me.word(), HELD, Release, Relaxed).is_err() {
                match node.next.compare_exchange(0, MOVED, Release, Acquire) {
                    Ok(_) => return,
                    Err(linked) => self.next.store(linked, Relaxed),
                }
            }
        }
        M::give_node(me);
    }

    /// In a forked child: forgets the waiters, whose threads do not exist here. The first waiter that has queued since,
    /// if any.
    #[cold]
    fn bury(self, alone: Alone) -> First {
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
            return First::Nobody;
        }
        First::Joiner // Or he has linked himself: who gives him the lock sees that.
    }

    /// Takes `waiter`, the first, which has given up, out of the queue, and gives its node back. Who is first then.
    pub(crate) fn skip(self, waiter: Handle, alone: Alone) -> First {
        let first = match self.unlink(waiter, alone) {
            Ok(first) => first,
            Err(Unlinked) => match waiter.node::<M>().next.compare_exchange(0, MOVED, Release, Acquire) {
                Ok(_) => {
                    self.left().remove();
                    return First::Joiner; // The node is his.
                }
                Err(linked) => First::linked(linked),
            },
        };
        self.drop_left(waiter);
        first
    }

    /// Gives the node of one that has given up back, which is in no queue any more.
    pub(crate) fn drop_left(self, waiter: Handle) {
        self.left().remove();
        M::give_node(waiter);
    }

    /// Takes `waiter`, the first, out of the queue, if who is behind it has linked himself. Who is first then; if
    /// nobody, (tail = waiter) -> free, or HELD.
    pub(crate) fn unlink(self, waiter: Handle, alone: Alone) -> Result<First, Unlinked> {
        let link = &waiter.node::<M>().next;
        if let Some(after) = Handle::from_word(link.load(Acquire)) {
            return Ok(First::Waiter(after));
        }
        self.next.store(0, Relaxed);
        if self.tail.compare_exchange(waiter.word(), alone.tail(), Release, Relaxed).is_ok() {
            return Ok(First::Nobody);
        }
        Handle::from_word(link.load(Acquire)).map(First::Waiter).ok_or(Unlinked)
    }

    /// For nobody but whoever settles in a forked child: nobody waits, and the lock is free, or `held`. Relaxed: one
    /// thread alone touches the lock.
    pub(crate) fn reset(self, held: bool) {
        self.tail.store(if held { HELD } else { FREE }, Relaxed);
        self.next.store(0, Relaxed);
        self.left().clear();
    }
}
