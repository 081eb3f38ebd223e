//! # Calling a waiter
//!
//! A waiter's node, and how a post finds a waiter to wake. Nothing here touches the semaphore: it touches only nodes,
//! which live for ever. [`queue`](super::queue) shows that no permit is left beside a sleeper.
//!
//! ## A waiter's node
//! ```text
//!   WAITS ──a post──> CALLED ──woken, or it noticed──> NOTIFIED ──no permit──> WAITS, with the next generation
//!   any ──the waiter leaves──> LEAVING (the node is its own), or ABANDONED (the node is the list's)
//! ```
//! The state also says whether the node is in the list ([`LISTED`]), and in which generation the waiter has announced
//! itself. So a thread that was stopped while it called a waiter neither calls nor notifies the next waiter that uses
//! the node.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::event::Event;
use crate::machine::node::{Node, state};
use crate::machine::{Handle, Machine, Patience, Word};
use crate::parts::queue::link::handle_in;

/// Bit of a waiter's state: the node is in the list. Set and cleared only by the thread at the list.
pub(super) const LISTED: u32 = 1 << 4;
/// How many nodes a post looks at, from the front of the list, before it looks at all nodes.
const NEAR: u32 = 8;

const _: () = assert!(LISTED >> state::HANDED == 1 && LISTED < 1 << state::GENERATION);

/// What a semaphore's waiter does: one of [`state`].
#[inline]
pub fn kind(seen: u32) -> u32 {
    seen & (LISTED - 1)
}

#[inline]
pub(super) fn is_listed(seen: u32) -> bool {
    seen & LISTED != 0
}

/// Whether both are states of the same waiter during the same call.
fn is_same_call(now: u32, called: u32) -> bool {
    (now ^ called) & !LISTED == 0
}

/// The state of a waiter that announces itself, for the first time or again. Only the waiter's thread writes the
/// generation.
pub(super) fn waiting<M: Machine>(node: &Node<M>) -> u32 {
    let generation = node.generation.load(Relaxed).wrapping_add(1);
    node.generation.store(generation, Relaxed);
    state::WAITS | generation << state::GENERATION
}

/// Prepares a node that is in no list: which semaphore it waits for, and at which end of the list.
pub(super) fn prepare<M: Machine>(node: &Node<M>, semaphore: u64, front: bool) {
    node.prepare(state::LEAVING);
    node.batch.store(u32::from(front), Relaxed);
    node.mutex[0].store(semaphore as u32, Relaxed);
    node.mutex[1].store((semaphore >> 32) as u32, Relaxed);
}

/// Whether the node is this semaphore's, and its thread is one of this process.
pub(super) fn is_at<M: Machine>(node: &Node<M>, semaphore: u64) -> bool {
    let [low, high] = &node.mutex;
    u64::from(low.load(Relaxed)) | u64::from(high.load(Relaxed)) << 32 == semaphore && node.is_alive()
}

/// WAITS -> CALLED. Returns the new state, if the node was this semaphore's waiter.
fn claim<M: Machine>(node: &Node<M>, semaphore: u64) -> Option<u32> {
    let mut seen = node.state.load(Acquire);
    while kind(seen) == state::WAITS && is_at(node, semaphore) {
        let called = seen ^ state::WAITS ^ state::CALLED;
        match node.state.compare_exchange(seen, called, AcqRel, Acquire) {
            Ok(_) => {
                M::trace(Event::SemWake);
                return Some(called);
            }
            Err(now) => seen = now,
        }
    }
    None
}

/// CALLED -> NOTIFIED. Returns whether it was still CALLED.
fn mark_notified<M: Machine>(node: &Node<M>, called: u32) -> bool {
    let mut seen = called;
    while is_same_call(seen, called) {
        match node.state.compare_exchange(seen, seen ^ state::CALLED ^ state::NOTIFIED, AcqRel, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// CALLED -> NOTIFIED, by the waiter itself. Returns its state.
pub(super) fn acknowledge<M: Machine>(node: &Node<M>) -> u32 {
    let mut seen = node.state.load(Acquire);
    while kind(seen) == state::CALLED {
        match node.state.compare_exchange(seen, seen ^ state::CALLED ^ state::NOTIFIED, AcqRel, Acquire) {
            Ok(_) => return seen ^ state::CALLED ^ state::NOTIFIED,
            Err(now) => seen = now,
        }
    }
    seen
}

/// Calls and wakes this node's waiter, if it is this semaphore's and has not been called. Returns whether the waiter
/// runs: it slept and was woken, or has noticed the call. If `patient`, a waiter that seems to be awake gets a moment
/// to notice.
fn call<M: Machine>(handle: Handle, semaphore: u64, patient: bool) -> bool {
    let node = handle.node::<M>();
    let Some(called) = claim(node, semaphore) else { return false };
    let slept = M::unpark(node) > 0;
    let notices = |now| !is_same_call(now, called);
    let noticed = !slept && patient && M::spin_until(&node.state, Relaxed, Patience::Budget, notices).is_some();
    !mark_notified(node, called) || slept || noticed
}

/// Wakes this semaphore's waiter if it was called. The thread that called it may have been stopped before the wake-up.
pub(super) fn help<M: Machine>(handle: Handle, semaphore: u64) {
    let node = handle.node::<M>();
    let seen = node.state.load(Acquire);
    if kind(seen) == state::CALLED && is_at(node, semaphore) && M::unpark(node) > 0 {
        mark_notified(node, seen);
    }
}

/// For a permit that has just been given: calls and wakes one of the semaphore's waiters, preferably `first` or one
/// behind it, until one runs. If none does, all waiters that were called have been woken in the end. If `alone`, there
/// is no waiter except `first`.
pub(super) fn call_one<M: Machine>(semaphore: u64, first: u32, alone: bool) {
    let mut here = Handle::from_word(first);
    if alone {
        if let Some(first) = here
            && !call::<M>(first, semaphore, false)
        {
            help::<M>(first, semaphore);
        }
        return;
    }
    // This thread reads the list without being at it. A node that now serves in a lock's queue links to its successor
    // there.
    for _ in 0..NEAR {
        let Some(handle) = here else { break };
        if call::<M>(handle, semaphore, true) {
            return;
        }
        here = handle_in(handle.node::<M>().next.load(Relaxed));
    }
    // SAFETY: only a node that waits at this semaphore changes, as `queue`'s invariant 4 says.
    if unsafe { M::any_node(|handle| call::<M>(handle, semaphore, true)) } {
        return;
    }
    let help = |handle| {
        help::<M>(handle, semaphore);
        false
    };
    // SAFETY: as above.
    unsafe { M::any_node(help) };
}
