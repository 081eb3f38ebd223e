//! # The shuffler
//!
//! A waiter that would otherwise only burn cycles walks the queue behind itself and moves waiters that its policy wants
//! together right behind its own group; sleepers near the front it wakes before their turn. ShflLocks, slides 38–40 and
//! 45–57; blocking, slides 59–69.
//!
//! ```text
//!   t1(0) t2(3) t3(0) t4(3)        t1 is the shuffler and of node 0
//!   t1(0) t3(0) t2(3) t4(3)        t3 moved next to t1; t3 is now the shuffler
//! ```
//!
//! ## Invariants (slide 57)
//! 1. Only one waiter is a shuffler at a time.
//! 2. Shuffling starts from the head of the queue.
//! 3. The shuffler can pass its role to any of its successors.
//! 4. After passing the role, a waiter only spins.
//!
//! They make the walk safe without a lock: the shuffler rewrites only links at and behind itself, of nodes that already have
//! successors (so no joiner writes them), and only the front removes nodes, ahead of the shuffler or at it (1 and 2).
//! A role that is passed to a waiter which then gives up is lost; the first head that is in no group starts anew (2).
//!
//! **Bounded.** The group's length is carried from shuffler to shuffler; at `max_shuffles` nobody shuffles until the queue has
//! reached a waiter in no group, so no waiter is passed over more often than that.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Handle, Machine, Word};
use crate::node::{Node, RETIRED, SHUFFLER, WALKING, state};
use crate::policy::Admission;
use crate::wait::left::LeftBehind;

/// Whether this waiter is the shuffler: the role was passed to it.
pub fn has_role<M: Machine>(node: &Node<M>) -> bool {
    node.batch.load(Acquire) & SHUFFLER != 0
}

/// Whether this waiter was moved next to others of its kind, or found there.
pub fn is_shuffled<M: Machine>(node: &Node<M>) -> bool {
    node.batch.load(Relaxed) != 0
}

/// A new head that is in no group takes the role (invariant 2); the shuffler before it, if any, was at the front and is gone.
pub fn start_at_head<M: Machine>(node: &Node<M>) {
    // Fails if it is in a group, or RETIRED.
    let _ = node.batch.compare_exchange(0, SHUFFLER | 1, Acquire, Relaxed);
}

/// Takes the role away from a head that is to be evicted. Fails if it is walking: then it must not leave the queue.
pub fn retire<M: Machine>(node: &Node<M>) -> bool {
    let seen = node.batch.load(Relaxed);
    seen & WALKING == 0 && node.batch.compare_exchange(seen, seen & !SHUFFLER | RETIRED, AcqRel, Relaxed).is_ok()
}

/// One walk. The caller is the shuffler. Stops early when `stop` says that there is something better to do.
pub fn walk<M: Machine, P: Admission>(me: Handle, left: &LeftBehind<M>, mut stop: impl FnMut() -> bool) {
    let node = me.node::<M>();
    let role = node.batch.load(Relaxed);
    // Pairs with `retire`: one of the two fails. Acquire: the links as the shuffler before left them.
    let walking = role | WALKING;
    if role & SHUFFLER == 0 || node.batch.compare_exchange(role, walking, Acquire, Relaxed).is_err() {
        return;
    }
    let mut group = role & !SHUFFLER;
    let limit = M::tunables().max_shuffles;
    let mut wakes = if M::crowded() { 0 } else { P::wakes(node, M::tunables().wake_ahead) };
    // The last of the group, and the node before the one looked at.
    let (mut last, mut before) = (me, me);
    while group < limit && !stop() {
        let Some(here) = Handle::from_word(before.node::<M>().next.load(Acquire)) else { break };
        let current = here.node::<M>();
        let Some(behind) = Handle::from_word(current.next.load(Acquire)) else { break };
        // `current` has a successor, so it is not the tail and its links are the shuffler's (invariant 4 of `front`).
        // Acquire: its thread has done with it.
        if current.state.load(Acquire) == state::ABANDONED {
            // before -> current -> behind   ==>   before -> behind
            before.node::<M>().next.store(behind.word(), Release);
            left.remove();
            M::give_node(here);
            continue;
        }
        if !P::together(node, current) {
            before = here;
            continue;
        }
        group += 1;
        current.batch.store(group, Relaxed);
        if before == last {
            before = here;
        } else {
            // before -> current -> behind, last -> x   ==>   before -> behind, last -> current -> x
            before.node::<M>().next.store(behind.word(), Release);
            let second = last.node::<M>().next.load(Relaxed);
            current.next.store(second, Release);
            last.node::<M>().next.store(here.word(), Release);
            M::trace(Event::Shuffle);
        }
        last = here;
        if wakes > 0 && wake_ahead(current) {
            wakes -= 1;
        }
    }
    // Release, here and there: whoever touches the links next must see them as they are.
    if last == me {
        node.batch.fetch_and(!WALKING, Release);
    } else {
        // Invariants 3 and 4.
        node.batch.fetch_and(!(SHUFFLER | WALKING), Release);
        last.node::<M>().batch.fetch_or(SHUFFLER, Release);
    }
}

/// PARKED -> WAITING, and wakes it: shuffled waiters spin.
fn wake_ahead<M: Machine>(node: &Node<M>) -> bool {
    let woken = node.state.compare_exchange(state::PARKED, state::WAITING, AcqRel, Relaxed).is_ok();
    if woken {
        M::trace(Event::WakeAhead);
        M::unpark(node);
    }
    woken
}
