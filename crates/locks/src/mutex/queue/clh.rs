//! # CLH: a queue in which each thread waits on its predecessor's node
//!
//! A queue lock that serves threads in the order in which they came. Its release takes the same few steps whatever the
//! waiters do. **Use it** where you would use `mcs`, and a release must never depend on a thread that is joining.
//! **Rather not** when most acquisitions find the lock free: each takes a node, and each release gives one back. Both
//! cost an additional atomic exchange, of the word in which the thread keeps a spare node.
//!
//! **Problem.** In MCS a thread that has joined is unknown until it has linked itself to its predecessor, and a
//! releaser may have to wait for that. **Idea.** No thread links itself. A waiter remembers which node it found at the
//! tail, and waits on *that* node. A release is one access to the holder's own node, whichever thread waits. When the
//! wait is over, the predecessor's node belongs to the waiter. **Source.** Craig, TR 93-02-02, University of
//! Washington, 1993; Magnusson, Landin & Hagersten, IPPS 1994; the way out by time-out as in Scott & Scherer,
//! PPoPP 2001.
//!
//! **Departures.**
//! 1. "Free" is 0, not a node that no thread holds, so that all-zero is a free lock. The release of a lock that has no
//!    waiters is a compare-and-swap.
//! 2. The lock names its holder's node, so that any thread may release (POSIX). A thread needs a node for each lock
//!    that it holds.
//! 3. A waiter may sleep, on its predecessor's node.
//! 4. In a forked child, the first thread that uses the lock forgets the parent's waiters ([`settle`]).
//!
//! ## State, and the queue
//! ```text
//! | tail | owner | meaning                              |           tail ─────────────────────────────┐
//! |------|-------|--------------------------------------|                                             v
//! | 0    | 0     | free                                 |           owner ──> [A] <─ B polls ─ [B] <─ C sleeps ─ [C]
//! | node | node  | held; the queue ends at `tail`       |                   WAITING          PARKED          WAITING
//! | node | 0     | between a release and the next owner |           (the state says what the *successor* does)
//! ```
//! The last waiters may give up at the moment when the threads before them do, or release. Then `tail` may lead through
//! ABANDONED nodes to a RELEASED one. Such a lock is free, too, and the next thread that joins gives the nodes back.
//!
//! ## A node, which belongs to the thread that joined with it until …
//! ```text
//!   WAITING | PARKED ── released ──> RELEASED (HEAD): its successor has the lock, and the node
//!   WAITING | PARKED ── gave up ───> ABANDONED: its successor waits on `prev` instead, and has the node
//! ```
//!
//! ## Invariants
//! 1. `owner` is written only by the holder, or by the thread that settles.
//! 2. A node has at most one successor: the thread that got the node's name from `tail`, by an exchange. Only that
//!    thread gives the node back; or its own thread does, if there is no successor.
//! 3. After the store to its node (or `tail` = 0) a releaser touches neither lock nor node, except that it wakes an
//!    address.
//! 4. A tried acquisition looks at a node that may serve elsewhere by now. Whatever it saw, its exchange of `tail`
//!    makes it the successor of that node, in the state that the node has then. So it waits, if it must, like any other
//!    waiter (for a few instructions, or for a section).
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail` exchange | AcqRel | itself; `tail` CAS node -> 0, Release | publishes the node; sees the last section if the lock was free |
//! | `tail` load of a try, and of `is_locked` | Acquire | `tail` exchange | the node that it names is seen prepared |
//! | `tail` CAS of a waiter that leaves, me -> previous | Release | the next exchange of `tail` | `previous` is published anew |
//! | `state` -> RELEASED, -> ABANDONED | Release | `state` loads of the successor, Acquire | hands over the section; the way on (`prev`), and the node |
//! | `owner` | Relaxed | – | only the holder uses it; the hand-off orders it |
//!
//! No checker can distinguish the orderings of the second and third rows from Relaxed. [The
//! models](../models.md#what-neither-can-tell) say why they stay.
//!
//! **Cannot:** let a newcomer in while the first waiter is not running. Cannot share its mutex with code that bypasses
//! flashlock. Every acquisition takes a node, so an uncontended one costs more than with [`mcs`](super::mcs).

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::node::state;
use crate::machine::{Clock, Deadline, Handle, Machine, Patience, TimedOut, Word};
use crate::parts::counted::{contended, park};
use crate::parts::raw::RawLock;
use crate::parts::settle::{settle, settle_soon};
use crate::parts::wait::{self, SpinThenPark, WaitPolicy, hand_off, notify};

/// How many abandoned nodes at the tail a tried acquisition passes over.
const LONGEST: u32 = 10_000;
/// A deadline that has passed.
const PAST: Deadline = Deadline { clock: Clock::Monotonic, sec: 0, nsec: 0 };
/// A node's state after the release.
const RELEASED: u32 = state::HEAD;

/// The CLH lock; waiters wait by policy `W`.
pub struct Clh<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

/// The queue of a CLH lock: 12 bytes. The lock's word is not used.
#[repr(C)]
pub struct ClhQueue<M: Machine> {
    /// The node of the last thread that joined, or 0.
    pub tail: M::Word,
    /// The holder's node.
    pub owner: M::Word,
    /// The epoch of the threads that have joined.
    pub epoch: M::Word,
}

crate::zeroed!(ClhQueue<M> { tail, owner, epoch });

/// What a waiter finds in its predecessor's node.
enum Before {
    /// The lock is ours.
    Released,
    /// The predecessor has given up; wait on this node.
    Gone(Handle),
    /// The deadline has passed.
    TimedOut,
}

impl<M: Machine> ClhQueue<M> {
    /// Call it before joining and releasing. In a forked child only the holder, if there is one, is left of the queue.
    #[inline]
    fn settle(&self) {
        settle::<M>(&self.epoch, || self.reset());
    }

    fn reset(&self) {
        self.tail.store(self.owner.load(Relaxed), Relaxed);
    }

    /// A node for a thread that joins.
    fn new_node() -> Handle {
        // SAFETY: its life in the queue is that of invariants 2 and 3.
        let me = unsafe { M::take_node() };
        me.node::<M>().prepare(state::WAITING);
        me
    }

    /// Whether the lock is free: the last node that was not abandoned, if there is one, was released. A hint: the nodes
    /// may serve elsewhere by now, hence the limit.
    fn is_free(tail: u32) -> bool {
        let mut here = Handle::from_word(tail);
        for _ in 0..LONGEST {
            let Some(node) = here.map(Handle::node::<M>) else { return true };
            match node.state.load(Acquire) {
                state::ABANDONED => here = Handle::from_word(node.prev.load(Relaxed)),
                state => return state == RELEASED,
            }
        }
        false
    }

    /// (tail = seen, free) -> (tail = me)
    #[cold]
    fn try_join<W: WaitPolicy>(&self, seen: u32) -> bool {
        if !Self::is_free(seen) {
            return false;
        }
        let me = Self::new_node();
        if self.tail.compare_exchange(seen, me.word(), AcqRel, Relaxed).is_err() {
            M::give_node(me);
            return false;
        }
        // The node may have been given back since, and be at the tail again as the node of a waiter or of the holder. A
        // try does not wait for that thread.
        let taken = self.wait_behind::<W>(me, Handle::from_word(seen), Some(PAST)).is_ok();
        if taken {
            self.owner.store(me.word(), Relaxed);
        }
        taken
    }

    /// Joins, and waits until the lock is ours.
    fn join<W: WaitPolicy>(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let me = Self::new_node();
        let previous = Handle::from_word(self.tail.swap(me.word(), AcqRel));
        if previous.is_some_and(|previous| previous.node::<M>().state.load(Acquire) != RELEASED) {
            contended::<M>(|| self.wait_behind::<W>(me, previous, until))?;
        } else {
            self.wait_behind::<W>(me, previous, None)?;
        }
        self.owner.store(me.word(), Relaxed);
        Ok(())
    }

    /// Waits until no thread is before `me`, and gives the nodes of those threads back.
    fn wait_behind<W: WaitPolicy>(
        &self,
        me: Handle,
        mut before: Option<Handle>,
        until: Option<Deadline>,
    ) -> Result<(), TimedOut> {
        while let Some(previous) = before {
            match wait_on::<M, W>(previous, until) {
                Before::Released => {
                    M::give_node(previous);
                    break;
                }
                Before::Gone(prior) => {
                    M::give_node(previous);
                    before = Some(prior);
                }
                Before::TimedOut => {
                    self.leave(me, previous);
                    return Err(TimedOut);
                }
            }
        }
        Ok(())
    }

    /// (tail = me) -> (tail = previous). Or leaves `previous` to the successor, which waits on that node from then on.
    fn leave(&self, me: Handle, previous: Handle) {
        // Release: a thread that joins behind `previous` now sees its node prepared, as we did.
        if self.tail.compare_exchange(me.word(), previous.word(), Release, Relaxed).is_ok() {
            return M::give_node(me);
        }
        let node = me.node::<M>();
        node.prev.store(previous.word(), Relaxed);
        notify::<M>(&node.state, state::ABANDONED);
    }

    /// (owner = me, tail = me) -> free, or a hand-off to the successor.
    #[inline]
    fn release(&self, me: Handle) {
        self.owner.store(0, Relaxed);
        if self.tail.compare_exchange(me.word(), 0, Release, Relaxed).is_ok() {
            return M::give_node(me);
        }
        let node = me.node::<M>();
        hand_off(M::numa_node, node).count::<M>();
        notify::<M>(&node.state, RELEASED);
    }
}

/// Waits until the predecessor has released, or has given up.
fn wait_on<M: Machine, W: WaitPolicy>(previous: Handle, until: Option<Deadline>) -> Before {
    let node = previous.node::<M>();
    let is_notified = |seen| matches!(seen, RELEASED | state::ABANDONED);
    let mut notified = None;
    if W::SPINS {
        notified = wait::poll::<M, W>(&node.state, Acquire, W::patience(until, Patience::Budget), is_notified);
    }
    loop {
        let seen = notified.take().unwrap_or_else(|| node.state.load(Acquire));
        match seen {
            RELEASED => return Before::Released,
            state::ABANDONED => match Handle::from_word(node.prev.load(Relaxed)) {
                Some(prior) => return Before::Gone(prior),
                None => return Before::Released, // Not reached: a waiter that leaves has a predecessor.
            },
            _ if until.is_some_and(|deadline| M::expired(&deadline)) => {
                // PARKED -> WAITING: the next waiter on that node must set PARKED itself. If the exchange fails, the
                // predecessor has just released or given up.
                if node.state.compare_exchange(seen, state::WAITING, Relaxed, Relaxed).is_ok() {
                    return Before::TimedOut;
                }
            }
            state::PARKED => {
                park::<M>(&node.state, state::PARKED, until);
            }
            // WAITING -> PARKED. If it fails, the predecessor has just released or given up.
            _ if W::PARKS => drop(node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed)),
            _ => notified = wait::poll::<M, W>(&node.state, Acquire, W::patience(until, Patience::Budget), is_notified),
        }
    }
}

// SAFETY: invariants 1 to 4.
unsafe impl<M: Machine, W: WaitPolicy> RawLock<M> for Clh<W> {
    type Queue = ClhQueue<M>;

    #[inline]
    unsafe fn try_acquire(_: &M::Word, queue: &ClhQueue<M>) -> bool {
        settle_soon::<M>(&queue.epoch, || queue.reset()) && queue.try_join::<W>(queue.tail.load(Acquire))
    }

    #[inline]
    unsafe fn acquire(_: &M::Word, queue: &ClhQueue<M>, until: Option<&Deadline>) -> Result<(), TimedOut> {
        queue.settle();
        queue.join::<W>(until.copied())
    }

    /// Does nothing if the lock is free.
    #[inline]
    unsafe fn release(_: &M::Word, queue: &ClhQueue<M>) {
        queue.settle();
        if let Some(me) = Handle::from_word(queue.owner.load(Relaxed)) {
            queue.release(me);
        }
    }

    unsafe fn is_locked(_: &M::Word, queue: &ClhQueue<M>) -> bool {
        !ClhQueue::<M>::is_free(queue.tail.load(Acquire))
    }

    /// Gives back the nodes that are left in a free lock: the one that was released last, and those of waiters that
    /// gave up behind it.
    unsafe fn destroy(_: &M::Word, queue: &ClhQueue<M>) {
        queue.settle();
        if !ClhQueue::<M>::is_free(queue.tail.load(Acquire)) {
            return;
        }
        let mut here = Handle::from_word(queue.tail.swap(0, Acquire));
        while let Some(handle) = here {
            let node = handle.node::<M>();
            let gone = node.state.load(Acquire) == state::ABANDONED;
            here = if gone { Handle::from_word(node.prev.load(Relaxed)) } else { None };
            M::give_node(handle);
        }
    }
}
