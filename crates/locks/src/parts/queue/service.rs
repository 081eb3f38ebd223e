//! # Services: which waiters a queue passes over
//!
//! A releaser hands the lock to the waiter at the head of the queue. If that waiter does not run, the releaser may
//! instead take it out of the queue, and turn to the next. A [`Service`] decides that. Queues are written for any
//! service; the page of [`mcs-tp`](crate::mutex::queue::mcs_tp) describes those that pass waiters over.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::node::{Node, PUBLISHES, is_head, state};
use crate::machine::{Deadline, Machine, Manner, Patience, Word};
use crate::parts::counted::{park, wake};
use crate::parts::wait::left::LeftBehind;
use crate::parts::wait::{self, WaitPolicy};

/// Which waiters the lock goes to, and how they wait for it.
///
/// # Safety
/// The functions change a node only as they say. [`await_turn`](Service::await_turn) returns [`Turn::Head`] only when
/// the state has become HEAD, and each other variant only in its own state.
pub unsafe trait Service: 'static {
    /// A waiter is about to queue.
    fn arrive<M: Machine>(_: &Node<M>) {}

    /// Waits for the turn of `node`, by policy `W`.
    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: LeftBehind<M>) -> Turn;

    /// Whether to pass over the waiter, whose turn it is. If so, its state is LEAVING, or PARTING, until it is [let
    /// go](Service::let_go).
    fn passes_over<M: Machine>(_: &Node<M>) -> bool {
        false
    }

    /// LEAVING | PARTING -> EVICTED: the waiter was passed over, is out of the queue, and its node belongs to its
    /// thread.
    ///
    /// Release: we have accessed the node for the last time. (A thread that sleeps there is woken by the address.)
    fn let_go<M: Machine>(node: &Node<M>) {
        if node.state.swap(state::EVICTED, Release) == state::PARTING {
            wake::<M>(&raw const node.state, 1);
        }
    }
}

/// How a wait in the queue ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// The lock is ours.
    Head,
    /// Passed over; the node is in no queue.
    Evicted,
    /// Gave up; the node belongs to the queue.
    TimedOut,
}

/// Serves every waiter, running or not.
pub struct Everybody;

// SAFETY: `turn` waits for HEAD, or leaves the node to the queue.
unsafe impl Service for Everybody {
    #[inline]
    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: LeftBehind<M>) -> Turn {
        wait::turn::<M, W>(node, until, left).map_or(Turn::TimedOut, |()| Turn::Head)
    }
}

/// Serves waiters that run or sleep, and passes over waiters that have lost their CPU.
pub struct TimePublished;

// SAFETY: the loop of `await_turn`; LEAVING comes from WAITING only, and EVICTED after it.
unsafe impl Service for TimePublished {
    /// Relaxed: the access that puts the node's name into the queue publishes it.
    fn arrive<M: Machine>(node: &Node<M>) {
        node.batch.store(PUBLISHES, Relaxed);
        publish(node);
    }

    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: LeftBehind<M>) -> Turn {
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
                    park::<M>(&node.state, state::PARTING, None);
                }
                _ if is_head(seen) => return Turn::Head,
                _ if until.is_some_and(|deadline| M::expired(&deadline)) => {
                    if wait::abandon(node, seen, left).is_err() {
                        return Turn::TimedOut;
                    }
                }
                state::PARKED => {
                    park::<M>(&node.state, state::PARKED, until);
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

/// Serves every waiter; with `evict=1`, passes over waiters that do not run.
pub struct AsTuned;

impl AsTuned {
    fn evicts<M: Machine>() -> bool {
        M::tunables().evict != 0
    }
}

// SAFETY: those of the other two.
unsafe impl Service for AsTuned {
    fn arrive<M: Machine>(node: &Node<M>) {
        if Self::evicts::<M>() {
            TimePublished::arrive(node);
        }
    }

    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: LeftBehind<M>) -> Turn {
        if Self::evicts::<M>() {
            TimePublished::await_turn::<M, W>(node, until, left)
        } else {
            Everybody::await_turn::<M, W>(node, until, left)
        }
    }

    fn passes_over<M: Machine>(node: &Node<M>) -> bool {
        Self::evicts::<M>() && TimePublished::passes_over(node)
    }
}

/// A waiter that has published nothing for this long (µs) does not run.
const STALE: i32 = 50;
/// A waiter that is about to offer its CPU publishes a time this long (µs) ago.
pub const LONG_AGO: u32 = 1 << 30;

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
    let offers = || node.since.store(M::micros().wrapping_sub(LONG_AGO), Relaxed);
    let how = if W::RESTS { Manner::Rests } else { Manner::Publishes(&offers) };
    M::poll_until(&node.state, Acquire, patience, how, |seen| {
        let notified = is_head(seen) || matches!(seen, state::LEAVING | state::EVICTED);
        if !notified {
            publish(node);
        }
        notified
    });
}

#[cfg(test)]
mod tests {
    use super::{LONG_AGO, is_stale};

    #[test]
    fn who_has_published_lately_runs() {
        for now in [0, 3, 1 << 31, u32::MAX] {
            let stale = |ago: u32| is_stale(now, now.wrapping_sub(ago));
            assert_eq!([0, 50, 51, LONG_AGO, LONG_AGO + 1_000_000].map(stale), [false, false, true, true, true]);
            assert!(!is_stale(now, now.wrapping_add(1)), "published after the clock was read");
        }
    }
}
