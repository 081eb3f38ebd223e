//! # Whom a queue serves
//!
//! A releaser hands the lock to the waiter whose turn it is, or takes that one out of the queue first, because it does
//! not run, and turns to the next. Queues are written for any [`Service`]; what is said here of one that passes waiters
//! over is on the page of [`mcs-tp`](super::mcs_tp).

use core::sync::atomic::Ordering::Release;

use crate::event::Event;
use crate::machine::{Deadline, Machine, Word};
use crate::node::{Node, state};
use crate::queue::mcs_tp::TimePublished;
use crate::wait::left::LeftBehind;
use crate::wait::{self, WaitPolicy};

/// Which waiters the lock goes to, and how they wait for it.
pub trait Service: 'static {
    /// A waiter is about to queue.
    fn arrive<M: Machine>(_: &Node<M>) {}

    /// Waits for the turn of `node`, by policy `W`.
    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: &LeftBehind<M>) -> Turn;

    /// Whether the waiter, whose turn it is, is to be passed over; then its state is LEAVING, or PARTING, until it is
    /// [let go](Service::let_go).
    fn passes_over<M: Machine>(_: &Node<M>) -> bool {
        false
    }

    /// LEAVING | PARTING -> EVICTED: the waiter was passed over, is out of the queue, and its node is its thread's.
    ///
    /// Release: we have accessed it for the last time. (Who sleeps there is woken by the address.)
    fn let_go<M: Machine>(node: &Node<M>) {
        if node.state.swap(state::EVICTED, Release) == state::PARTING {
            M::trace(Event::Wake);
            M::wake(&raw const node.state, 1);
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
    /// Gave up; the node is the queue's.
    TimedOut,
}

/// Whoever waits, running or not.
pub struct Everybody;

impl Service for Everybody {
    #[inline]
    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: &LeftBehind<M>) -> Turn {
        wait::turn::<M, W>(node, until, left).map_or(Turn::TimedOut, |()| Turn::Head)
    }
}

/// Whoever waits; but with `evict=1` those pass who do not run.
pub struct AsTuned;

impl AsTuned {
    fn evicts<M: Machine>() -> bool {
        M::tunables().evict != 0
    }
}

impl Service for AsTuned {
    fn arrive<M: Machine>(node: &Node<M>) {
        if Self::evicts::<M>() {
            TimePublished::arrive(node);
        }
    }

    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: &LeftBehind<M>) -> Turn {
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
