//! # The word `batch` of a waiter in a ShflLock's queue
//!
//! Whether the waiter is in a group, and whether it is the [shuffler](crate::parts::shuffle::shuffler), whose
//! invariants the comments below cite.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::node::{Node, RETIRED, SHUFFLER, WALKING};
use crate::machine::{Machine, Word};

/// Whether this waiter is the shuffler: the role was passed to it.
pub fn has_role<M: Machine>(node: &Node<M>) -> bool {
    node.batch.load(Acquire) & SHUFFLER != 0
}

/// Whether this waiter is in a group: it was moved there, or stood there already.
pub fn is_shuffled<M: Machine>(node: &Node<M>) -> bool {
    node.batch.load(Relaxed) != 0
}

/// A new head that is in no group takes the role (invariant 2). If there was a shuffler before it, that was at the
/// front and has left.
pub fn start_at_head<M: Machine>(node: &Node<M>) {
    // If this fails, the head is in a group, or RETIRED.
    let _ = node.batch.compare_exchange(0, SHUFFLER | 1, Acquire, Relaxed);
}

/// Takes the role away from a head that is to be evicted. Returns false if it is walking: then it must stay in the
/// queue.
pub fn retire<M: Machine>(node: &Node<M>) -> bool {
    let seen = node.batch.load(Relaxed);
    seen & WALKING == 0 && node.batch.compare_exchange(seen, seen & !SHUFFLER | RETIRED, AcqRel, Relaxed).is_ok()
}
