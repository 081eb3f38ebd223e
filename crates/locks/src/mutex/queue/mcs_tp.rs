//! # MCS-TP: a queue lock that passes over waiters that do not run
//!
//! An MCS lock whose releaser skips preempted waiters. **Use it** when you would use `mcs` with `wait=spin`, but cannot
//! be sure of a CPU for each thread. **Rather not** when order matters.
//!
//! **Problem.** With more threads than CPUs, a strict queue hands the lock to waiters that have lost their CPU. Then
//! all threads wait until such a waiter has a CPU again. **Idea.** A waiter that polls **publishes the time**: it says
//! when it last polled. A releaser that finds an old time takes that waiter out of the queue and goes on to the next.
//! The waiter that was taken out queues again when it runs. **Source.** He, Scherer & Scott, *Preemption Adaptivity in
//! Time-Published Queue-Based Spin Locks*, HiPC 2005.
//!
//! **Departures.** Those of [`mcs`](super::mcs), whose queue this is.
//! 1. Waiters may sleep (`wait=stp`). A waiter that sleeps is woken, not passed over.
//! 2. The holder does not publish when its section began. A waiter whose spin budget is spent sleeps, or offers its
//!    CPU, whether the holder runs or not.
//! 3. The last waiter is passed over like any other: then the lock is free.
//! 4. A waiter that offers its CPU to other threads says so: it publishes a time long ago. (It has just polled, and
//!    would pass for running at the very moment when it stops.) A waiter that has polled for a millisecond offers its
//!    CPU again and again. So it may lose its place although no thread wanted its CPU.
//!
//! This is MCS with the option that `mcscr` has as `evict=1` (Dice, *Malthusian Locks*, §7). So `mcs` has no option of
//! that name.
//!
//! ## State
//! As in `mcs`. A node may also be in these states:
//! ```text
//!   WAITING ── releaser finds `since` old ──> LEAVING ── out of the queue ──> EVICTED ──> (its thread queues anew)
//!                                                │                             │
//!                                                └─ its thread sleeps: PARTING ┘
//! ```
//!
//! ## Invariants (beside those of `mcs`)
//! 1. Only the releaser makes a node LEAVING, only from WAITING, and only if the node's thread publishes (`PUBLISHES`).
//!    After that, the thread only waits for EVICTED.
//! 2. An EVICTED node is named by no link, and belongs to its thread.
//!
//! ## Orderings (beside those of `mcs`)
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `state` -> EVICTED | Release | `state` loads, Acquire | the releaser has accessed the node for the last time |
//! | `state` -> LEAVING, -> PARTING | Relaxed | – | what its thread wrote came with the link that names it |
//! | `since` | Relaxed | – | a hint: an old value costs a place in the queue |
//!
//! **Cannot:** what `mcs` cannot, except that a preempted waiter stops no other thread. Cannot be fair: a preempted
//! waiter loses its place.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::event::Event;
use crate::machine::node::{Node, PUBLISHES, is_head, state};
use crate::machine::{Deadline, Machine, Patience, Word};
use crate::mutex::queue::mcs::Mcs;
use crate::parts::queue::service::{Service, Turn};
use crate::parts::wait::left::LeftBehind;
use crate::parts::wait::{self, SpinThenPark, WaitPolicy};

/// A waiter that has published nothing for this long (µs) does not run.
const STALE: i32 = 50;

/// The time-published MCS lock; waiters wait by policy `W`.
pub type McsTp<W = SpinThenPark> = Mcs<W, TimePublished>;

/// Serves waiters that run or sleep, and passes over waiters that have lost their CPU.
pub struct TimePublished;

impl Service for TimePublished {
    /// Relaxed: what names the node publishes it.
    fn arrive<M: Machine>(node: &Node<M>) {
        node.batch.store(PUBLISHES, Relaxed);
        publish(node);
    }

    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: &LeftBehind<M>) -> Turn {
        if W::SPINS {
            poll::<M, W>(node, W::patience(until, Patience::Budget));
        }
        if W::PARKS {
            // WAITING -> PARKED. If it fails, it is our turn, or we are passed over; the loop below sees which.
            let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
        }
        loop {
            let seen = node.state.load(Acquire);
            match seen {
                state::EVICTED => return Turn::Evicted,
                state::LEAVING => {
                    // The thread that takes the node out of the queue may not run while we poll.
                    let patience = W::patience(None, Patience::Budget);
                    let notified = W::SPINS
                        && M::spin_until(&node.state, Acquire, patience, |seen| seen != state::LEAVING).is_some();
                    if !notified {
                        let _ = node.state.compare_exchange(state::LEAVING, state::PARTING, Relaxed, Relaxed);
                    }
                }
                state::PARTING => {
                    M::trace(Event::Park);
                    M::park(&node.state, state::PARTING, None);
                }
                _ if is_head(seen) => return Turn::Head,
                _ if until.is_some_and(|deadline| M::expired(&deadline)) => {
                    if wait::abandon(node, seen, left).is_err() {
                        return Turn::TimedOut;
                    }
                }
                state::PARKED => {
                    M::trace(Event::Park);
                    M::park(&node.state, state::PARKED, until);
                }
                _ => poll::<M, W>(node, W::patience(until, Patience::Budget)),
            }
        }
    }

    /// WAITING, but not running -> LEAVING
    fn passes_over<M: Machine>(node: &Node<M>) -> bool {
        // Relaxed: what the waiter wrote before it queued came with the link that names it. A waiter that queued before
        // the option was known does not publish, and does not know what EVICTED means.
        let evicted = node.batch.load(Relaxed) & PUBLISHES != 0
            && is_stale(M::micros(), node.since.load(Relaxed))
            && node.state.compare_exchange(state::WAITING, state::LEAVING, Relaxed, Relaxed).is_ok();
        if evicted {
            M::trace(Event::Evict);
        }
        evicted
    }
}

/// Whether `since` is too long ago. It may be a little later than `now`: it is read after that, and clocks of two CPUs
/// may differ.
fn is_stale(now: u32, since: u32) -> bool {
    now.wrapping_sub(since).cast_signed() > STALE
}

/// Says that the waiter runs. Relaxed: a hint.
fn publish<M: Machine>(node: &Node<M>) {
    node.since.store(M::micros(), Relaxed);
}

/// Polls until the waiter is notified, or the patience is spent, and publishes meanwhile that the waiter runs.
fn poll<M: Machine, W: WaitPolicy>(node: &Node<M>, patience: Patience) {
    let is_notified = |seen| is_head(seen) || matches!(seen, state::LEAVING | state::EVICTED);
    if W::RESTS {
        M::rest_until(&node.state, Acquire, patience, |seen| {
            let notified = is_notified(seen);
            if !notified {
                publish(node);
            }
            notified
        });
    } else {
        M::spin_published(&node.state, &node.since, Acquire, patience, is_notified);
    }
}

#[cfg(test)]
mod tests {
    use super::is_stale;
    use crate::machine::LONG_AGO;

    #[test]
    fn who_has_published_lately_runs() {
        for now in [0, 3, 1 << 31, u32::MAX] {
            let stale = |ago: u32| is_stale(now, now.wrapping_sub(ago));
            assert_eq!([0, 50, 51, LONG_AGO, LONG_AGO + 1_000_000].map(stale), [false, false, true, true, true]);
            assert!(!is_stale(now, now.wrapping_add(1)), "published after the clock was read");
        }
    }
}
