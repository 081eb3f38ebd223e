//! # CLH: a queue in which each thread waits on the node of the one before
//!
//! **Problem.** In MCS a thread that has joined is unknown until it has linked itself to its predecessor, and a
//! releaser may have to wait for that. **Idea.** Nobody links himself: a waiter remembers whom it found at the tail,
//! and waits on *his* node. A release is one access to the holder's own node, whoever waits. When the wait is over, the
//! predecessor's node is the waiter's. **Source.** Craig, TR 93-02-02, University of Washington, 1993; Magnusson,
//! Landin & Hagersten, IPPS 1994; the way out by time-out as in Scott & Scherer, PPoPP 2001.
//!
//! **Use it** when you would use `mcs`, and releases must not wait for a thread that is joining. **Rather not** when
//! most acquisitions find the lock free: each takes a node, and each release gives one back: an atomic exchange more
//! for either, with the node that the thread keeps.
//!
//! **Departures.** (1) "Free" is 0, not a node that nobody holds, so that all-zero is a free lock; the release of a
//! lock that nobody waits for is a compare-and-swap. (2) The lock names its holder's node, so that any thread may
//! release (POSIX). A thread needs a node for each lock that it holds. (3) A waiter may sleep, on its predecessor's
//! node. (4) In a forked child the waiters of the parent are forgotten by whoever first uses the lock ([`settle`]).
//!
//! ## State                                                     ## The queue
//! ```text
//! | tail | owner | meaning                              |           tail ─────────────────────────────┐
//! |------|-------|--------------------------------------|                                             v
//! | 0    | 0     | free                                 |           owner ──> [A] <─ B polls ─ [B] <─ C sleeps ─ [C]
//! | node | node  | held; the queue ends at `tail`       |                   WAITING          PARKED          WAITING
//! | node | 0     | between a release and the next owner |           (the state says what the *successor* does)
//! ```
//! If the last waiters give up just as those before them do, or release, `tail` may name nodes that are ABANDONED, then
//! one that is RELEASED: that is free, too, and whoever joins next gives them back.
//!
//! ## A node, which belongs to who joined with it until …
//! ```text
//!   WAITING | PARKED ── released ──> RELEASED (HEAD): its successor has the lock, and the node
//!   WAITING | PARKED ── gave up ───> ABANDONED: its successor waits on `prev` instead, and has the node
//! ```
//!
//! ## Invariants
//! 1. `owner` is written by the holder only, or by whoever settles.
//! 2. A node has at most one successor: whoever got its name from `tail`, by an exchange, and he alone gives it back;
//!    or its own thread, if nobody did.
//! 3. After the store to its node (or `tail` = 0) a releaser touches neither lock nor node, but for the wake of an
//!    address.
//! 4. A tried acquisition looks at a node that may serve elsewhere by now; whatever it saw, its exchange of `tail`
//!    makes it the successor of that node, as it is then: so it waits, if it must, like anybody else (a few
//!    instructions, or a section).
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail` exchange | AcqRel | itself; `tail` CAS node -> 0, Release | publishes the node; sees the last section if the lock was free |
//! | `tail` load of a try, and of `is_locked` | Acquire | `tail` exchange | the node that it names is seen prepared |
//! | `tail` CAS of who leaves, me -> previous | Release | the next exchange of `tail` | `previous` is published anew |
//! | `state` -> RELEASED, -> ABANDONED | Release | `state` loads of the successor, Acquire | hands over the section; the way on (`prev`), and the node |
//! | `owner` | Relaxed | – | the holder's, handed over with the lock |
//!
//! No checker can tell the second and the third row's from Relaxed: [the models](../models.md#what-neither-can-tell)
//! argue for them.
//!
//! **Cannot:** let a newcomer in while the first waiter is not running. Cannot share its mutex with code that bypasses
//! flashlock. Every acquisition takes a node, so that it costs more than [`mcs`](super::mcs)'s where nobody contends.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Clock, Deadline, Handle, Machine, Patience, TimedOut, Word};
use crate::node::state;
use crate::raw::RawLock;
use crate::settle::settle;
use crate::wait::{SpinThenPark, WaitPolicy, hand_off, tell};

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
    /// The last who joined, or 0.
    pub tail: M::Word,
    /// The holder's node.
    pub owner: M::Word,
    /// The epoch of those who have joined.
    pub epoch: M::Word,
}

/// What a waiter finds in its predecessor's node.
enum Before {
    /// The lock is ours.
    Released,
    /// He has gone; wait on this one.
    Gone(Handle),
    /// The deadline has passed.
    TimedOut,
}

impl<M: Machine> ClhQueue<M> {
    /// To be called before joining and releasing. In a forked child only the holder, if there is one, is left of the
    /// queue.
    #[inline]
    fn settle(&self) {
        settle::<M>(&self.epoch, || self.tail.store(self.owner.load(Relaxed), Relaxed));
    }

    /// A node for a thread that joins.
    fn new_node() -> Handle {
        let me = M::take_node();
        me.node::<M>().prepare(state::WAITING);
        me
    }

    /// Whether the last node that was not abandoned, if there is one, was released: then the lock is free. A hint: the
    /// nodes may serve elsewhere by now, hence the limit.
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
        // The node may have been given back since, and be at the tail again, of who waits or holds: a try does not wait
        // for him.
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
            M::trace(Event::Contended);
            let stamp = M::stamp();
            self.wait_behind::<W>(me, previous, until).inspect_err(|_| M::trace(Event::TimedOut))?;
            M::waited(stamp);
        } else {
            self.wait_behind::<W>(me, previous, None)?;
        }
        self.owner.store(me.word(), Relaxed);
        Ok(())
    }

    /// Waits until those before `me` have gone, and gives their nodes back.
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

    /// (tail = me) -> (tail = previous), or leaves the way on for the successor.
    fn leave(&self, me: Handle, previous: Handle) {
        // Release: who joins behind `previous` now sees its node prepared, as we did.
        if self.tail.compare_exchange(me.word(), previous.word(), Release, Relaxed).is_ok() {
            return M::give_node(me);
        }
        let node = me.node::<M>();
        node.prev.store(previous.word(), Relaxed);
        tell::<M>(&node.state, state::ABANDONED);
    }

    /// (owner = me, tail = me) -> free; or tells the successor.
    #[inline]
    fn release(&self, me: Handle) {
        self.owner.store(0, Relaxed);
        if self.tail.compare_exchange(me.word(), 0, Release, Relaxed).is_ok() {
            return M::give_node(me);
        }
        let node = me.node::<M>();
        if let Some(event) = hand_off(M::numa_node, node) {
            M::trace(event);
        }
        tell::<M>(&node.state, RELEASED);
    }
}

/// Waits until a predecessor has released, or has gone.
fn wait_on<M: Machine, W: WaitPolicy>(previous: Handle, until: Option<Deadline>) -> Before {
    let node = previous.node::<M>();
    let is_notified = |seen| matches!(seen, RELEASED | state::ABANDONED);
    let mut notified = None;
    if W::SPINS {
        notified = W::poll::<M>(&node.state, Acquire, W::patience(until, Patience::Budget), is_notified);
    }
    loop {
        let seen = notified.take().unwrap_or_else(|| node.state.load(Acquire));
        match seen {
            RELEASED => return Before::Released,
            state::ABANDONED => match Handle::from_word(node.prev.load(Relaxed)) {
                Some(prior) => return Before::Gone(prior),
                None => return Before::Released, // Not reached: who leaves has somebody before him.
            },
            _ if until.is_some_and(|deadline| M::expired(&deadline)) => {
                // PARKED -> WAITING: whoever succeeds us there says anew that he sleeps. Fails if we are told just now.
                if node.state.compare_exchange(seen, state::WAITING, Relaxed, Relaxed).is_ok() {
                    return Before::TimedOut;
                }
            }
            state::PARKED => {
                M::trace(Event::Park);
                M::park(&node.state, state::PARKED, until);
            }
            // WAITING -> PARKED. Fails if we are told just now.
            _ if W::PARKS => drop(node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed)),
            _ => notified = W::poll::<M>(&node.state, Acquire, W::patience(until, Patience::Budget), is_notified),
        }
    }
}

impl<M: Machine, W: WaitPolicy> RawLock<M> for Clh<W> {
    type Queue = ClhQueue<M>;

    fn new_queue() -> ClhQueue<M> {
        let zero = || M::Word::new(0);
        ClhQueue { tail: zero(), owner: zero(), epoch: zero() }
    }

    #[inline]
    fn try_lock(_: &M::Word, queue: &ClhQueue<M>) -> bool {
        queue.settle();
        let taken = queue.try_join::<W>(queue.tail.load(Acquire));
        if taken {
            M::trace(Event::Acquire);
        }
        taken
    }

    #[inline]
    fn lock(_: &M::Word, queue: &ClhQueue<M>) {
        M::trace(Event::Acquire);
        queue.settle();
        // Without a deadline it cannot time out.
        let _ = queue.join::<W>(None);
    }

    #[inline]
    fn lock_until(_: &M::Word, queue: &ClhQueue<M>, until: Deadline) -> Result<(), TimedOut> {
        queue.settle();
        queue.join::<W>(Some(until))?;
        M::trace(Event::Acquire);
        Ok(())
    }

    /// Of a free lock: nothing.
    #[inline]
    fn unlock(_: &M::Word, queue: &ClhQueue<M>) {
        queue.settle();
        if let Some(me) = Handle::from_word(queue.owner.load(Relaxed)) {
            queue.release(me);
        }
    }

    fn is_locked(_: &M::Word, queue: &ClhQueue<M>) -> bool {
        !ClhQueue::<M>::is_free(queue.tail.load(Acquire))
    }

    /// Gives the nodes back that stand in a free lock: the one that was released last, and those of who gave up behind
    /// it.
    fn destroy(_: &M::Word, queue: &ClhQueue<M>) {
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
