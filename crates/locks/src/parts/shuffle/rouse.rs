//! # Waking the waiters of a ShflLock's queue, and leaving notes to them
//!
//! A head that is to take the lock may be frozen. So the thread that wakes it wakes another waiter, too, or leaves a
//! note to the waiter behind the head, which then looks for the lock by itself. See
//! [`shfl`](crate::mutex::shuffle::shfl), departure 5. All of this accesses nodes only: the lock may be gone.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::node::{Node, ROLE, state};
use crate::machine::{Handle, Machine, Word};
use crate::parts::counted;
use crate::parts::queue::link::handle_in;
use crate::parts::shuffle::front::{REACH, note_awake, note_down};

/// Each waiter of the queue with this mark should look for the lock itself, when it next wakes up: a head that none of
/// them has noticed was woken. They are not woken: under a policy that keeps them asleep, that would let them in.
/// Accesses nodes only.
#[cold]
pub(crate) fn note_all<M: Machine>(mark: u32) {
    // SAFETY: only hints are written.
    unsafe {
        M::any_node(|waiter| {
            let node = waiter.node::<M>();
            if node.role.load(Relaxed) & !ROLE == mark && node.state.load(Relaxed) == state::PARKED {
                note_down::<M>(node);
            }
            false
        })
    };
}

/// A release has freed the word, on which threads slept, and woken so many: waiters behind the head rely on the head.
/// If no thread slept there, although the head should, the head may be frozen: wakes one of these waiters. Otherwise
/// the head is awake: leaves a note to the first of them. Accesses nodes only.
#[cold]
pub(crate) fn vouch_for<M: Machine>(head: Handle, woken: u32) {
    // Relaxed: it slept before the release that found the word so; a wrong guess wakes a thread in vain, or leaves a
    // note in vain.
    let slept = head.node::<M>().state.load(Relaxed) == state::NAPPING;
    if woken == 0 && slept {
        return rouse::<M>(head);
    }
    note_if_woken::<M>(head);
}

/// Part of [`vouch_for`], for a head that was awake a moment ago, so that it does not seem to be frozen. It leaves
/// notes only. Nobody is woken: a policy may keep the waiters behind the head asleep.
#[cold]
pub(crate) fn note_if_woken<M: Machine>(head: Handle) {
    // Otherwise code that bypasses the lock slept on its word, and the head has been running, or should have.
    if head.node::<M>().state.load(Relaxed) == state::NAPPING {
        note_woken::<M>(head.node());
    }
    note_awake::<M>(head);
}

/// The head has just been woken: it may need a while to run. A hint, where the time of a grant is: a head that has been
/// handed the lock has been woken, too.
pub(crate) fn note_woken<M: Machine>(head: &Node<M>) {
    head.granted_at.store(M::micros(), Relaxed);
}

/// Wakes a waiter that has just been made head.
pub(crate) fn wake<M: Machine>(waiter: Handle) {
    if counted::unpark::<M>(waiter.node::<M>()) == 0 {
        // It does not sleep where it should: it is about to see its new state, or it is frozen.
        rouse::<M>(waiter);
    }
}

/// Wakes a sleeper of the queue with this mark, in case the head is frozen, which is not known. Accesses nodes only.
///
/// Relaxed: a waiter that relies on a wake-up fell asleep long ago, after `LOOK` (in [`turn`](super::turn)). If a
/// thread is not seen, or wrongly taken to be in this queue, one is woken in vain, or the next to look is later.
#[cold]
pub(crate) fn rouse_any<M: Machine>(mark: u32) {
    // SAFETY: only hints are written.
    unsafe {
        M::any_node(|waiter| {
            let node = waiter.node::<M>();
            node.role.load(Relaxed) & !ROLE == mark && calls::<M>(node)
        })
    };
}

/// Wakes the first sleeper behind the head, in case the head is frozen: that sleeper looks for the lock itself.
/// Accesses nodes only. They may have moved on meanwhile: then it wakes a thread in vain.
pub(crate) fn rouse<M: Machine>(head: Handle) {
    let mut here = head;
    for _ in 0..REACH {
        let Some(next) = handle_in(here.node::<M>().next.load(Acquire)) else { return };
        if calls::<M>(next.node::<M>()) {
            return;
        }
        here = next;
    }
}

/// Wakes this waiter, if it sleeps; returns whether it did. If it is awake, it may be about to fall asleep, and rely on
/// the head: it gets a note.
fn calls<M: Machine>(node: &Node<M>) -> bool {
    match node.state.load(Relaxed) {
        state::PARKED if M::unpark(node) > 0 => return true,
        state::PARKED | state::WAITING => note_down::<M>(node),
        _ => {}
    }
    false
}
