//! # Services: which waiters a queue passes over
//!
//! A releaser hands the lock to the waiter at the head of the queue. Or, if that waiter does not run, the releaser may
//! take it out of the queue first, and turn to the next. A [`Service`] decides that. Queues are written for any
//! service; the page of [`mcs-tp`](crate::mutex::queue::mcs_tp) describes those that pass waiters over.

use core::sync::atomic::Ordering::Release;

use crate::machine::event::Event;
use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Machine, Word};
use crate::mutex::queue::mcs_tp::TimePublished;
use crate::parts::wait::left::LeftBehind;
use crate::parts::wait::{self, WaitPolicy};

/// Which waiters the lock goes to, and how they wait for it.
pub trait Service: 'static {
    /// A waiter is about to queue.
    fn arrive<M: Machine>(_: &Node<M>) {}

    /// Waits for the turn of `node`, by policy `W`.
    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: &LeftBehind<M>) -> Turn;

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
    /// Gave up; the node belongs to the queue.
    TimedOut,
}

/// Serves every waiter, running or not.
pub struct Everybody;

impl Service for Everybody {
    #[inline]
    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: &LeftBehind<M>) -> Turn {
        wait::turn::<M, W>(node, until, left).map_or(Turn::TimedOut, |()| Turn::Head)
    }
}

/// Serves every waiter; with `evict=1`, passes over waiters that do not run.
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
