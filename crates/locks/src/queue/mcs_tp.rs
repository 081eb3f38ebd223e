//! # MCS-TP: a queue lock that passes over waiters that do not run
//!
//! **Problem.** With more threads than CPUs, a strict queue hands the lock to waiters that have lost their CPU, and everybody waits until
//! they have it again. **Idea.** Who polls also says when he last did: he **publishes the time**. A releaser that finds an old time
//! takes that waiter out of the queue and goes on to the next; who was taken out queues anew when he runs. **Source.** He, Scherer &
//! Scott, *Preemption Adaptivity in Time-Published Queue-Based Spin Locks*, HiPC 2005.
//!
//! **Use it** when you would use `mcs` with `wait=spin`, but cannot be sure of a CPU for each thread. **Rather not** when order matters.
//!
//! **Departures.** Those of [`mcs`](super::mcs), whose queue this is. (1) Waiters may sleep (`wait=stp`): one that sleeps is woken, not
//! passed over. (2) The holder does not publish when his section began; a waiter whose spin budget is spent sleeps, or offers its
//! CPU, whether the holder runs or not. (3) The last waiter is passed over like the others: then the lock is free.
//!
//! ## State
//! As in `mcs`. A node beside what it is there:
//! ```text
//!   WAITING ── releaser finds `since` old ──> LEAVING ── out of the queue ──> EVICTED ──> (its thread queues anew)
//! ```
//!
//! ## Invariants (beside those of `mcs`)
//! 1. A node becomes LEAVING only by the releaser, and only from WAITING; its thread does nothing but wait for EVICTED.
//! 2. An EVICTED node is named by no link, and is its thread's.
//!
//! ## Orderings (beside those of `mcs`)
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `state` -> EVICTED | Release | `state` loads, Acquire | the releaser has read the link for the last time |
//! | `since` | Relaxed | – | a hint: an old value costs a place in the queue |
//!
//! **Cannot:** what `mcs` cannot, but for waiters that were preempted; and be fair: who loses his CPU loses his place.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::cond::Chain;
use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, TimedOut, Word};
use crate::node::{Node, state};
use crate::queue::mcs::{FREE, HELD, Mcs, McsQueue, bury, first_waiter, link, own, skip, unlink};
use crate::raw::RawLock;
use crate::wait::{self, SpinThenPark, WaitPolicy};

/// A waiter that has published nothing for so long (µs) does not run.
const STALE: u32 = 50;

/// The time-published MCS lock; waiters wait by policy `W`.
pub struct McsTp<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

/// How a wait in the queue ended.
enum Turn {
    /// The lock is ours.
    Head,
    /// Passed over; the node is in no queue.
    Evicted,
    /// Gave up; the node is the queue's.
    TimedOut,
}

/// Says that the waiter runs.
fn publish<M: Machine>(node: &Node<M>) {
    node.since.store(M::micros(), Relaxed);
}

/// Waits for the turn, publishing the time.
fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, queue: &McsQueue<M>) -> Turn {
    let poll = |patience| {
        let told = |seen| {
            publish(node);
            matches!(seen, state::HEAD | state::EVICTED | state::LEAVING)
        };
        M::spin_until(&node.state, Acquire, patience, told);
    };
    if W::SPINS {
        poll(W::patience(until, Patience::Budget));
    }
    if W::PARKS {
        // WAITING -> PARKED. Fails if it is our turn, or if the node was adopted asleep; both show below.
        let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
    }
    loop {
        let seen = node.state.load(Acquire);
        match seen {
            state::HEAD => return Turn::Head,
            state::EVICTED => return Turn::Evicted,
            state::LEAVING => {
                M::spin_until(&node.state, Acquire, Patience::Forever, |seen| seen != state::LEAVING);
            }
            _ if until.is_some_and(|deadline| M::expired(&deadline)) => {
                queue.left.add();
                // Release orders our last look at the node before its next use.
                if node.state.compare_exchange(seen, state::ABANDONED, Release, Relaxed).is_ok() {
                    return Turn::TimedOut;
                }
                queue.left.remove();
            }
            state::PARKED => {
                M::trace(Event::Park);
                M::park(&node.state, state::PARKED, until);
            }
            _ => poll(W::patience(until, Patience::Budget)),
        }
    }
}

/// Hands the lock to `next`, or to the first after it that runs, or sleeps, and has not given up; frees the lock if there is none.
fn hand_over<M: Machine>(queue: &McsQueue<M>, mut next: Handle) {
    loop {
        let node = next.node::<M>();
        let after = if !node.is_alive() {
            bury(queue)
        } else if evict(node) {
            let after = unlink(queue, next, node);
            node.state.store(state::EVICTED, Release);
            after
        } else if wait::grant::<M>(next, M::numa_node()) {
            return;
        } else {
            skip(queue, next, node)
        };
        let Some(after) = after else { return };
        next = after;
    }
}

/// WAITING, but not running -> LEAVING
fn evict<M: Machine>(node: &Node<M>) -> bool {
    let is_stale = M::micros().wrapping_sub(node.since.load(Relaxed)) > STALE;
    // Acquire: the link that we read next.
    let evicted = is_stale && node.state.compare_exchange(state::WAITING, state::LEAVING, Acquire, Relaxed).is_ok();
    if evicted {
        M::trace(Event::Skip);
    }
    evicted
}

impl<W: WaitPolicy> McsTp<W> {
    #[cold]
    fn lock_slow<M: Machine>(queue: &McsQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        M::trace(Event::Contended);
        let stamp = M::stamp();
        let take = || queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        if let Some(ended) = queue.left.keep_out(until, take) {
            return ended.inspect(|()| M::waited(stamp)).inspect_err(|_| M::trace(Event::TimedOut));
        }
        let me = M::take_node();
        let node = me.node::<M>();
        loop {
            node.prepare(state::WAITING);
            publish(node);
            let previous = queue.tail.swap(me.word(), AcqRel);
            if previous != FREE {
                link(queue, previous, me);
                match await_turn::<M, W>(node, until, queue) {
                    Turn::Head => {}
                    Turn::Evicted => continue,
                    Turn::TimedOut => {
                        M::trace(Event::TimedOut);
                        return Err(TimedOut);
                    }
                }
            }
            own(queue, me);
            M::waited(stamp);
            return Ok(());
        }
    }
}

impl<M: Machine, W: WaitPolicy> RawLock<M> for McsTp<W> {
    type Queue = McsQueue<M>;

    fn new_queue() -> McsQueue<M> {
        <Mcs<W> as RawLock<M>>::new_queue()
    }

    #[inline]
    fn try_lock(word: &M::Word, queue: &McsQueue<M>) -> bool {
        <Mcs<W> as RawLock<M>>::try_lock(word, queue)
    }

    #[inline]
    fn lock(_: &M::Word, queue: &McsQueue<M>) {
        M::trace(Event::Acquire);
        if queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            // Without a deadline it cannot time out.
            let _ = Self::lock_slow(queue, None);
        }
    }

    #[inline]
    fn lock_until(_: &M::Word, queue: &McsQueue<M>, until: Deadline) -> Result<(), TimedOut> {
        if queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            Self::lock_slow(queue, Some(until))?;
        }
        M::trace(Event::Acquire);
        Ok(())
    }

    /// HELD -> 0, or a hand-off. Of a free lock: nothing.
    #[inline]
    fn unlock(_: &M::Word, queue: &McsQueue<M>) {
        match queue.tail.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) | Err(FREE) => {}
            Err(_) => {
                if let Some(first) = first_waiter(queue) {
                    hand_over(queue, first);
                }
            }
        }
    }

    fn is_locked(word: &M::Word, queue: &McsQueue<M>) -> bool {
        <Mcs<W> as RawLock<M>>::is_locked(word, queue)
    }

    fn adopt(word: &M::Word, queue: &McsQueue<M>, chain: Chain) {
        <Mcs<W> as RawLock<M>>::adopt(word, queue, chain);
    }

    /// Who was moved here sleeps, or has slept, so that nobody passes him over.
    fn lock_adopted(word: &M::Word, queue: &McsQueue<M>, me: Handle) {
        <Mcs<W> as RawLock<M>>::lock_adopted(word, queue, me);
    }
}
