//! # The queue of MCS, whose holder keeps no node
//!
//! MCS in the variant known as K42: the queue of a part of [`cohort`](crate::mutex::numa::cohort) and
//! [`cst`](crate::mutex::numa::cst). Take it where a thread other than the one that acquired a part may release it, as
//! in cohorts, or where a lock has several levels.
//!
//! **Problem.** In MCS the holder keeps its node until it releases. A thread would need a node for each level of a
//! lock, and the node would have to travel with the lock. **Idea.** On acquisition, the successor's name moves from the
//! node into the lock, and the node is free again. So any thread may release, and a thread needs one node however many
//! levels a lock has. The cost: the holder accesses its node just when the successor writes its name there. If there is
//! no successor, the holder also accesses the tail. So a lock of one level ([`mcs`](crate::mutex::queue::mcs)) does
//! without it. "Held, no waiter" is the constant [`HELD`]. **Source.** Auslander et al., 2003.
//!
//! **Departures.**
//! 1. Waiters may sleep after their spin budget.
//! 2. Waiters may leave by time-out. The node stays behind, and the releaser that reaches it skips it. A queue full of
//!    such nodes lets no thread join ([`LeftBehind`]).
//! 3. No thread waits for a waiter that has joined and has not linked itself yet: not the releaser, and not a thread
//!    that has just acquired and needs its successor's name. It leaves a **note** where the link will be. The joining
//!    waiter links itself by an exchange, and so finds the note (as in [`culling`](super::culling)).
//!
//! ## State, and the queue
//! ```text
//! | tail | next | meaning                                  |           tail ──────────────────────┐
//! |------|------|------------------------------------------|                                      v
//! | 0    | 0    | free                                     |           next ─> [B] ──next─> [C] ──> 0
//! | HELD | 0    | held, no waiter                          |                   WAITING      PARKED
//! | node | 0    | held, the first waiter is linking itself |           (the holder, A, has no node any more)
//! | node | B    | held, B is next, the queue ends at node  |
//! | node | GIVEN| given to the first, not yet linked       |
//! ```
//! | in `next` of a node, when a waiter is behind it in the queue | that waiter |
//! |---|---|
//! | 0 | has yet to link itself |
//! | node | has linked itself |
//! | MOVED | has yet to link itself, and does so in the lock's `next`. The node belongs to it, and it gives the node back. Exception: a thread that finds MOVED in its own node when it is granted the lock has no waiter behind that node, and gives it back itself |
//!
//! ## Invariants
//! 1. `next` is written by the holder, and by the one waiter that found `HELD` in `tail`, or MOVED. It is 0 when `tail`
//!    becomes `HELD`, or a node MOVED.
//! 2. A node that has been linked changes state only by its own thread (WAITING -> PARKED, -> ABANDONED) and by the
//!    holder (-> HEAD). (A node that came from a condition variable may be CLAIMED: its thread sleeps until it is
//!    HEAD.)
//! 3. A node is given back by its thread after HEAD, or by the holder after ABANDONED, or by the waiter that finds
//!    MOVED in it; never while it is reachable from `next`.
//! 4. After HEAD or GIVEN is stored, or `tail` set to 0, the releaser touches neither lock nor node, except that it
//!    wakes an address.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap(node)` | AcqRel | itself, `tail` CAS in `unlock` | publishes the node; sees the last section if it was free |
//! | `tail` CAS HELD -> 0 | Release | `tail` swap/CAS of the next locker | hands over this section |
//! | `next` exchange / load | Release / Acquire | each other | the successor's node must be seen prepared |
//! | `next` 0 -> note / exchange | Release / Acquire | each other | hands over this section; the lock's `next` is 0 by then |
//! | `state` exchange -> HEAD | AcqRel | `state` load in `wait::turn`, Acquire; ABANDONED there, Release | hands over this section; takes the node of a waiter that has given up, after that waiter's last look at it |
//!
//! No checker can distinguish the links' orderings, or the Release with which a waiter gives up, from Relaxed. [The
//! models](../models.md#what-neither-can-tell) say why they stay.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::copied::copied;
use crate::machine::event::Event;
use crate::machine::node::state;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::parts::wait::left::{self, LeftBehind};
use crate::parts::wait::{self, WaitPolicy};

const FREE: u32 = 0;
/// Held, and no thread waits.
pub(crate) const HELD: u32 = Handle::RESERVED;
/// A note in the lock's `next`.
const GIVEN: u32 = u32::MAX;
/// A note in a node's `next`.
pub(crate) const MOVED: u32 = u32::MAX - 1;

const _: () = assert!(MOVED >= Handle::LIMIT);

/// The words of a queue, wherever they are: in a lock, or in a part of its [side block](crate::parts::side).
///
/// `tail`: the last waiter, [`HELD`], or 0. `next`: the holder's successor.
pub(crate) struct Words<'a, M: Machine> {
    pub(crate) tail: &'a M::Word,
    pub(crate) next: &'a M::Word,
}

copied!(Words<'_, M>);

/// What becomes of a lock that has no waiters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    /// Free.
    Freed,
    /// Still held by the thread that wanted to pass it on.
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

/// Which waiter is next.
#[derive(Clone, Copy)]
pub(crate) enum First {
    /// This waiter, which has linked itself.
    Waiter(Handle),
    /// A waiter that has yet to link itself, in the lock's `next`.
    Joiner,
    /// None: no thread waits.
    Nobody,
}

impl First {
    /// From a word in `next` that kept a note from being written.
    fn linked(word: u32) -> Self {
        Handle::from_word(word).map_or(Self::Nobody, Self::Waiter)
    }
}

/// A waiter is behind the node, and has yet to link itself.
pub(crate) struct Unlinked;

impl<M: Machine> Words<'_, M> {
    /// Nodes of waiters that gave up.
    fn left(self) -> LeftBehind<M> {
        left::of(self.tail)
    }

    /// 0 -> HELD
    #[inline]
    pub(crate) fn try_lock(self) -> bool {
        self.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Waits for a lock that was found held.
    pub(crate) fn wait<W: WaitPolicy>(self, until: Option<Deadline>) -> Result<(), TimedOut> {
        if let Some(ended) = self.left().keep_out(self.tail, until, || self.try_lock()) {
            return ended;
        }
        // SAFETY: its life in the queue is that of invariants 1 to 4.
        let me = unsafe { M::take_node() };
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        let previous = self.tail.swap(me.word(), AcqRel);
        if previous != FREE && !self.link(previous, me) {
            // If it gives up, the node belongs to the queue (invariant 3).
            wait::turn::<M, W>(node, until, self.left())?;
        }
        self.keep_node(me);
        Ok(())
    }

    /// HELD -> 0, or a hand-off. Does nothing if the lock is free.
    #[inline]
    pub(crate) fn unlock(self) {
        match self.tail.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) | Err(FREE) => {}
            Err(_) => {
                self.hand_over(Alone::Freed);
            }
        }
    }

    /// Whether a thread waits for the lock, which is held.
    #[inline]
    pub(crate) fn has_waiters(self) -> bool {
        !matches!(self.tail.load(Relaxed), FREE | HELD)
    }

    /// A hand-off, if a thread waits. Returns whether there was one. If not, the caller still holds the lock.
    #[inline]
    pub(crate) fn pass(self) -> bool {
        self.has_waiters() && self.hand_over(Alone::Kept)
    }

    /// Hands the lock to the first waiter that has not given up. Returns whether there was one.
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
                First::Waiter(waiter) if !waiter.node::<M>().is_alive() => self.discard_dead_queue(alone),
                First::Waiter(waiter) if wait::grant::<M>(waiter, M::numa_node) => return true,
                First::Waiter(waiter) => self.skip(waiter, alone),
            }
        }
    }

    /// (next = 0) -> (next = GIVEN): the lock belongs to the waiter that links itself there. If it already has, the
    /// error names it.
    pub(crate) fn give(self) -> Result<(), First> {
        self.next.compare_exchange(0, GIVEN, Release, Acquire).map_err(First::linked)?;
        M::trace(Event::Given);
        Ok(())
    }

    /// The first waiter in the queue of a lock that has waiters. In a forked child there may turn out to be none.
    #[cold]
    pub(crate) fn first_waiter(self, alone: Alone) -> First {
        // Looks at the last node of the queue only if it must: that line is in the cache of the node's thread.
        let next = self.next.load(Acquire);
        if let Some(first) = Handle::from_word(next) {
            return First::Waiter(first);
        }
        let tail = Handle::from_word(self.tail.load(Acquire));
        match tail.filter(|last| !last.node::<M>().is_alive()) {
            // In a forked child, where the waiter may have been about to link itself.
            Some(_) => self.discard_dead_queue(alone),
            None => First::Joiner,
        }
    }

    /// Makes `first` the successor of `previous`, which is [`HELD`] or a node. Behind a node whose thread did not
    /// survive a fork, `first` begins a new queue. Returns whether the lock was given to `first`.
    fn link(self, previous: u32, first: Handle) -> bool {
        if let Some(before) = Handle::from_word(previous).filter(|previous| previous.node::<M>().is_alive()) {
            if before.node::<M>().next.swap(first.word(), AcqRel) != MOVED {
                return false;
            }
            M::give_node(before); // Invariant 3.
        }
        self.next.swap(first.word(), AcqRel) == GIVEN
    }

    /// (tail = me) -> (tail = HELD), or moves the successor's name into the lock. Then the node is free. Or it belongs
    /// to the successor, if that has yet to link itself.
    fn keep_node(self, me: Handle) {
        let node = me.node::<M>();
        let next = node.next.load(Acquire);
        if next != MOVED {
            // Before `tail` may become HELD, or the node MOVED, because then a waiter may write `next` (invariant 1).
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

    /// In a forked child: forgets the waiters, whose threads do not exist here. Returns the first waiter that has
    /// queued since, if any.
    #[cold]
    fn discard_dead_queue(self, alone: Alone) -> First {
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
        First::Joiner // Or it has linked itself by now: `give` sees that.
    }

    /// Takes `waiter`, the first, which has given up, out of the queue, and gives its node back. Returns the new first
    /// waiter.
    pub(crate) fn skip(self, waiter: Handle, alone: Alone) -> First {
        let first = match self.unlink(waiter, alone) {
            Ok(first) => first,
            Err(Unlinked) => match waiter.node::<M>().next.compare_exchange(0, MOVED, Release, Acquire) {
                Ok(_) => {
                    self.left().remove();
                    return First::Joiner; // The node belongs to the joiner.
                }
                Err(linked) => First::linked(linked),
            },
        };
        self.drop_left(waiter);
        first
    }

    /// Gives back the node of a waiter that has given up and is in no queue any more.
    pub(crate) fn drop_left(self, waiter: Handle) {
        self.left().remove();
        M::give_node(waiter);
    }

    /// Takes `waiter`, the first, out of the queue, if the waiter behind it has linked itself. Returns the new first
    /// waiter. If there is none: (tail = waiter) -> free, or HELD.
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

    /// Only for the thread that settles in a forked child: no thread waits, and the lock is free, or `held`. Relaxed:
    /// one thread alone touches the lock.
    pub(crate) fn reset(self, held: bool) {
        self.tail.store(if held { HELD } else { FREE }, Relaxed);
        self.next.store(0, Relaxed);
        self.left().clear();
    }
}
