//! # The waiters of a broadcast, on their way to the mutex
//!
//! A broadcast claims all waiters, and lets at most one at a time contend for the mutex. The mutex's lock decides where
//! they go ([`RawLock::adopt`](crate::parts::raw::RawLock::adopt)): into its queue, to sleep on its word, or hand over
//! hand, where each waiter wakes the next.
//!
//! ```text
//!   first ─next─> second ─next─> … ─next─> last ─next─> 0        all CLAIMED: asleep, or about to be
//! ```
//!
//! ## Invariants
//! 1. A CLAIMED waiter cannot go on, whatever wakes it, until another thread changes its state. Before it sleeps on
//!    its state, it announces that (AWAITED).
//! 2. The first waiter stays CLAIMED until the broadcaster has finished with the mutex. That waiter has yet to acquire
//!    the mutex, so nobody may free it. So the broadcaster, which need not hold the mutex, can work on the lock's
//!    state. In a lock's queue, a thread that passes the head on may make that waiter HEAD. So a broadcaster that still
//!    has to do something with that waiter names the wait by its generation.
//! 3. A node's handle is used only while the node is CLAIMED, or while no other thread can reach it. A link is read
//!    before its node's state changes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::node::{Node, state};
use crate::machine::{Handle, Machine, Word};

/// CLAIMED waiters of one mutex, linked by `next`.
pub struct Chain {
    first: Handle,
    last: Handle,
}

impl Chain {
    /// The chain from `first` to `last`, which has no successor.
    pub fn new(first: Handle, last: Handle) -> Self {
        Self { first, last }
    }

    /// The first in the order of the queue. It stays CLAIMED (invariant 2).
    pub fn first(&self) -> Handle {
        self.first
    }

    /// The last in the order of the queue.
    pub fn last(&self) -> Handle {
        self.last
    }

    /// How many there are.
    pub fn count<M: Machine>(&self) -> u32 {
        let (mut here, mut count) = (next::<M>(self.first), 1);
        while let Some(handle) = here {
            (here, count) = (next::<M>(handle), count + 1);
        }
        count
    }

    /// CLAIMED | AWAITED -> PARKED, for all waiters except the first: they are moved. Before it moves a waiter, it
    /// calls `settle` with it, while the waiter cannot go on.
    pub fn park_followers<M: Machine>(&self, mut settle: impl FnMut(&Node<M>)) {
        M::trace(Event::CondMoved); // For the first waiter, which is moved later.
        let mut here = next::<M>(self.first);
        while let Some(handle) = here {
            here = next::<M>(handle); // Invariant 3.
            M::trace(Event::CondMoved);
            let node = handle.node::<M>();
            settle(node);
            let awaited = awaited(claimed(node));
            // Release: a waiter that finds that it was moved sees its links as they are.
            if node.state.swap(state::PARKED, Release) == awaited {
                M::wake(&raw const node.state, 1);
            }
        }
    }

    /// What [`Chain::park_first`] needs. It is read while the first waiter cannot go on.
    pub fn claim_on_first<M: Machine>(&self) -> u32 {
        claimed(self.first.node::<M>())
    }

    /// CLAIMED | AWAITED -> PARKED, for the first waiter, in a queue where other threads may have made it head. It may
    /// even have left the queue, and its node may serve another wait (which has another generation).
    pub fn park_first<M: Machine>(&self, claim: u32) {
        let state = &self.first.node::<M>().state;
        // Release: as above. A state never goes back from AWAITED to CLAIMED.
        if state.compare_exchange(claim, state::PARKED, Release, Relaxed).is_err()
            && state.compare_exchange(awaited(claim), state::PARKED, Release, Relaxed).is_ok()
        {
            M::wake(&raw const *state, 1);
        }
    }

    /// Lets the first waiter go. It wakes the second when it has the mutex, and so on. For locks in which no waiter can
    /// sleep.
    pub fn hand_over_hand<M: Machine>(self) {
        signal::<M>(self.first);
    }

    /// Lets all waiters go at once.
    pub(crate) fn scatter<M: Machine>(self) {
        signal_all::<M>(self.first);
    }
}

fn next<M: Machine>(handle: Handle) -> Option<Handle> {
    Handle::from_word(handle.node::<M>().next.load(Relaxed))
}

/// The state of a node that is CLAIMED.
pub fn claimed<M: Machine>(node: &Node<M>) -> u32 {
    state::CLAIMED | node.generation.load(Relaxed) << state::GENERATION
}

/// The same, AWAITED.
fn awaited(claimed: u32) -> u32 {
    claimed ^ state::CLAIMED ^ state::AWAITED
}

/// Waits while CLAIMED: CLAIMED -> AWAITED, and sleeps. Returns the state after that. In a forked child (the thread has
/// forked in a signal handler), the thread that claimed it does not exist: it goes on as if it were signalled.
pub fn until_notified<M: Machine>(node: &Node<M>) -> u32 {
    let claimed = claimed(node);
    loop {
        // Relaxed: it says only where this thread sleeps.
        let _ = node.state.compare_exchange(claimed, awaited(claimed), Relaxed, Relaxed);
        match node.state.load(Acquire) {
            asleep if asleep == awaited(claimed) && node.is_alive() => drop(M::park(&node.state, asleep, None)),
            asleep if asleep == awaited(claimed) => return state::SIGNALED,
            notified => return notified,
        }
    }
}

/// CLAIMED -> SIGNALED: the waiter may go.
pub fn signal<M: Machine>(waiter: Handle) {
    let node = waiter.node::<M>();
    node.state.store(state::SIGNALED, Release);
    M::unpark(node);
}

/// [`signal`], for each waiter from this one on.
pub fn signal_all<M: Machine>(first: Handle) {
    let mut here = Some(first);
    while let Some(handle) = here {
        here = next::<M>(handle);
        handle.node::<M>().next.store(0, Relaxed); // No baton.
        signal::<M>(handle);
    }
}

/// Wakes the next waiter, if waiters go hand over hand. A waiter that a broadcast woke calls this once it has the
/// mutex.
pub fn pass_baton<M: Machine>(next: Option<Handle>) {
    if let Some(next) = next {
        signal::<M>(next);
    }
}
