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

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Machine, Patience, Word};
use crate::node::{Node, state};
use crate::queue::mcs::{Mcs, Service, Turn};
use crate::wait::left::LeftBehind;
use crate::wait::{SpinThenPark, WaitPolicy};

/// A waiter that has published nothing for so long (µs) does not run.
const STALE: i32 = 50;

/// The time-published MCS lock; waiters wait by policy `W`.
pub type McsTp<W = SpinThenPark> = Mcs<W, TimePublished>;

/// Who runs, or sleeps, is served in order; who has lost his CPU is passed over.
pub struct TimePublished;

impl Service for TimePublished {
    /// Says that the waiter runs.
    fn arrive<M: Machine>(node: &Node<M>) {
        node.since.store(M::micros(), Relaxed);
    }

    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: &LeftBehind<M>) -> Turn {
        let poll = |patience| {
            let told = |seen| {
                Self::arrive(node);
                matches!(seen, state::HEAD | state::EVICTED | state::LEAVING)
            };
            W::poll::<M>(&node.state, Acquire, patience, told);
        };
        if W::SPINS {
            poll(W::patience(until, Patience::Budget));
        }
        if W::PARKS {
            // WAITING -> PARKED. Fails if it is our turn, or if we are passed over; both show below.
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
                    left.add();
                    // Release orders our last look at the node before its next use.
                    if node.state.compare_exchange(seen, state::ABANDONED, Release, Relaxed).is_ok() {
                        return Turn::TimedOut;
                    }
                    left.remove();
                }
                state::PARKED => {
                    M::trace(Event::Park);
                    M::park(&node.state, state::PARKED, until);
                }
                _ => poll(W::patience(until, Patience::Budget)),
            }
        }
    }

    /// WAITING, but not running -> LEAVING
    fn passes_over<M: Machine>(node: &Node<M>) -> bool {
        let is_stale = is_stale(M::micros(), node.since.load(Relaxed));
        // Acquire: the link that the releaser reads next.
        let evicted = is_stale && node.state.compare_exchange(state::WAITING, state::LEAVING, Acquire, Relaxed).is_ok();
        if evicted {
            M::trace(Event::Skip);
        }
        evicted
    }
}

/// Whether a waiter that said at `since` that it runs does not run any more. It may have said so after the clock was read, or by another CPU's
/// clock, which is ahead: then it runs.
fn is_stale(now: u32, since: u32) -> bool {
    now.wrapping_sub(since).cast_signed() > STALE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_after_the_clock_was_read_is_no_old_one() {
        for now in [0, 7, 1 << 31, u32::MAX] {
            let earlier = |us: u32| is_stale(now, now.wrapping_sub(us));
            assert!(earlier(STALE.cast_unsigned() + 1) && earlier(1 << 30));
            assert!(!earlier(STALE.cast_unsigned()) && !earlier(0) && !earlier(u32::MAX) && !earlier(u32::MAX - 100));
        }
    }
}
