//! # Calling a waiter
//!
//! What a waiter's node says of it, and how a post finds somebody to wake. Nothing here touches the semaphore: only
//! nodes, which live for ever. The argument that no permit lies beside a sleeper is [`queue`](super::queue)'s.
//!
//! ## A waiter's node
//! ```text
//!   WAITS ──a post──> CALLED ──woken, or noticed by the waiter──> NOTIFIED ──no permit──> WAITS, with the next generation
//!   any ──the waiter goes──> LEAVING (the node is its own), or ABANDONED (the node is the list's)
//! ```
//! The state also says whether the node is in the list ([`LISTED`]), and in which generation the waiter has announced
//! itself: a thread that was stopped in the middle of calling a waiter neither calls nor tells that node's next one.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::event::Event;
use crate::machine::{Handle, Machine, Patience, Word};
use crate::node::{Node, state};
use crate::queue::link::handle_in;

/// Bit of a waiter's state: the node is in the list. Set and cleared only by who is at the list.
pub(super) const LISTED: u32 = 1 << 4;
/// How many nodes a post looks at from the front of the list on, before it looks at all nodes.
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

/// Whether both are states of one waiter that was called once.
fn is_same_call(now: u32, called: u32) -> bool {
    (now ^ called) & !LISTED == 0
}

/// The state of a waiter that announces itself, for the first time or again. Only its thread writes the generation.
pub(super) fn waiting<M: Machine>(node: &Node<M>) -> u32 {
    let generation = node.generation.load(Relaxed).wrapping_add(1);
    node.generation.store(generation, Relaxed);
    state::WAITS | generation << state::GENERATION
}

/// Makes a node ready that is in no list: for which semaphore it waits, and at which end of the list.
pub(super) fn prepare<M: Machine>(node: &Node<M>, semaphore: u64, front: bool) {
    node.prepare(state::LEAVING);
    node.batch.store(u32::from(front), Relaxed);
    node.mutex[0].store(semaphore as u32, Relaxed);
    node.mutex[1].store((semaphore >> 32) as u32, Relaxed);
}

/// Whether it is a node of this semaphore's, and of a thread of this process.
pub(super) fn is_at<M: Machine>(node: &Node<M>, semaphore: u64) -> bool {
    let [low, high] = &node.mutex;
    u64::from(low.load(Relaxed)) | u64::from(high.load(Relaxed)) << 32 == semaphore && node.is_alive()
}

/// WAITS -> CALLED. The new state, if it was this semaphore's waiter.
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

/// CALLED -> NOTIFIED. Whether it was still CALLED.
fn tell<M: Machine>(node: &Node<M>, called: u32) -> bool {
    let mut seen = called;
    while is_same_call(seen, called) {
        match node.state.compare_exchange(seen, seen ^ state::CALLED ^ state::NOTIFIED, AcqRel, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// CALLED -> NOTIFIED, by the waiter itself. Its state.
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

/// Calls and wakes this node's waiter, if it is this semaphore's and has not been called. Whether it runs: it slept and
/// was woken, or has noticed. If `patient`, one that seems to be awake gets a moment to notice.
fn call<M: Machine>(handle: Handle, semaphore: u64, patient: bool) -> bool {
    let node = handle.node::<M>();
    let Some(called) = claim(node, semaphore) else { return false };
    let slept = M::unpark(node) > 0;
    let notices = |now| !is_same_call(now, called);
    let noticed = !slept && patient && M::spin_until(&node.state, Relaxed, Patience::Budget, notices).is_some();
    !tell(node, called) || slept || noticed
}

/// Wakes this semaphore's waiter that somebody has called, and perhaps was stopped before he woke it.
pub(super) fn help<M: Machine>(handle: Handle, semaphore: u64) {
    let node = handle.node::<M>();
    let seen = node.state.load(Acquire);
    if kind(seen) == state::CALLED && is_at(node, semaphore) && M::unpark(node) > 0 {
        tell(node, seen);
    }
}

/// For a permit that has just been given: calls and wakes one of the semaphore's waiters that runs, preferably `first`
/// or one behind it; if there is none, all that were called have been woken in the end. There is none but `first`, if
/// it is `alone`.
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
    // A look without being at the list: a node that serves in a lock's queue by now has a link to who follows it there.
    for _ in 0..NEAR {
        let Some(handle) = here else { break };
        if call::<M>(handle, semaphore, true) {
            return;
        }
        here = handle_in(handle.node::<M>().next.load(Relaxed));
    }
    if !M::any_node(|handle| call::<M>(handle, semaphore, true)) {
        M::any_node(|handle| {
            help::<M>(handle, semaphore);
            false
        });
    }
}
