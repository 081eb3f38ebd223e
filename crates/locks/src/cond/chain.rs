//! # The waiters of a broadcast, on their way to the mutex
//!
//! A broadcast claims all waiters and lets at most one at a time contend for the mutex. Where they go is the lock's
//! business ([`RawLock::adopt`](crate::raw::RawLock::adopt)): into its queue, on its word, or hand over hand.
//!
//! ```text
//!   first ─next─> second ─next─> … ─next─> last ─next─> 0        all CLAIMED: asleep, or about to be
//! ```
//!
//! ## Invariants
//! 1. A CLAIMED waiter cannot go on, whatever wakes it, until somebody else changes its state; it says so (AWAITED)
//!    before it sleeps on that.
//! 2. The first waiter stays CLAIMED until the broadcaster has done with the mutex. He has yet to acquire it, so nobody
//!    may free it: the broadcaster, who need not hold it, can work on the lock's state. In a lock's queue, whoever
//!    passes the front on may make him HEAD; so a broadcaster who still wants something of him then says which wait he
//!    means, by its generation.
//! 3. Nodes are named while they are CLAIMED, or unreachable for others; a link is read before its node's state
//!    changes.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Handle, Machine, Word};
use crate::node::{Node, state};

/// CLAIMED waiters of one mutex, linked by `next`.
pub struct Chain {
    first: Handle,
    last: Handle,
}

impl Chain {
    /// From `first` to `last`, behind which there is nobody.
    pub fn new(first: Handle, last: Handle) -> Self {
        Self { first, last }
    }

    /// Who waited longest; stays CLAIMED (invariant 2).
    pub fn first(&self) -> Handle {
        self.first
    }

    /// Who came last.
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

    /// CLAIMED | AWAITED -> PARKED, all but the first: they are moved. `settle` is called with each before that, when
    /// it cannot go on yet.
    pub fn park_followers<M: Machine>(&self, mut settle: impl FnMut(&Node<M>)) {
        M::trace(Event::CondMoved); // The first, who will follow.
        let mut here = next::<M>(self.first);
        while let Some(handle) = here {
            here = next::<M>(handle); // Invariant 3.
            M::trace(Event::CondMoved);
            let node = handle.node::<M>();
            settle(node);
            let awaited = awaited(claimed(node));
            // Release: who finds that he was moved sees his links as they are.
            if node.state.swap(state::PARKED, Release) == awaited {
                M::wake(&raw const node.state, 1);
            }
        }
    }

    /// What [`Chain::park_first`] needs, taken while the first cannot go on.
    pub fn claim_on_first<M: Machine>(&self) -> u32 {
        claimed(self.first.node::<M>())
    }

    /// CLAIMED | AWAITED -> PARKED, the first, in a queue where others may have made him head; he may have left it, and
    /// his node may serve somebody else (whose generation is another).
    pub fn park_first<M: Machine>(&self, claim: u32) {
        let state = &self.first.node::<M>().state;
        // Release: as above. From CLAIMED to AWAITED there is no way back.
        if state.compare_exchange(claim, state::PARKED, Release, Relaxed).is_err()
            && state.compare_exchange(awaited(claim), state::PARKED, Release, Relaxed).is_ok()
        {
            M::wake(&raw const *state, 1);
        }
    }

    /// Lets the first go, who wakes the second when he has the mutex, and so on: for locks that have no place for
    /// sleepers.
    pub fn hand_over_hand<M: Machine>(self) {
        tell::<M>(self.first);
    }

    /// Lets all go at once.
    pub(crate) fn scatter<M: Machine>(self) {
        let mut here = Some(self.first);
        while let Some(handle) = here {
            here = next::<M>(handle);
            handle.node::<M>().next.store(0, Relaxed); // No baton.
            tell::<M>(handle);
        }
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

/// Waits while CLAIMED. CLAIMED -> AWAITED, and sleeps; the state after that.
pub fn until_notified<M: Machine>(node: &Node<M>) -> u32 {
    let claimed = claimed(node);
    loop {
        // Relaxed: says only where we sleep.
        let _ = node.state.compare_exchange(claimed, awaited(claimed), Relaxed, Relaxed);
        match node.state.load(Acquire) {
            asleep if asleep == awaited(claimed) => drop(M::park(&node.state, asleep, None)),
            notified => return notified,
        }
    }
}

/// Tells a claimed waiter that it may go. CLAIMED -> SIGNALED
pub(super) fn tell<M: Machine>(waiter: Handle) {
    let node = waiter.node::<M>();
    node.state.store(state::SIGNALED, Release);
    M::unpark(node);
}

/// To be called by a waiter that a broadcast woke, once it has the mutex: wakes the next one, where they go hand over
/// hand.
pub fn pass_baton<M: Machine>(next: Option<Handle>) {
    if let Some(next) = next {
        tell::<M>(next);
    }
}
