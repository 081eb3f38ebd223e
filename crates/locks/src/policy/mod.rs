//! # Admission policies
//!
//! Which waiters a shuffler puts next to each other (ShflLocks, slides 39–40, 82: *shuffling is generic*). A policy answers one
//! question about two queued nodes and touches no lock.

use crate::machine::{Machine, Word};
use crate::node::Node;
use core::sync::atomic::Ordering::Relaxed;

/// A Bernoulli trial: true once in `times` on average; never for 0, always for 1.
pub fn one_in<M: Machine>(times: u32) -> bool {
    // The high half of the product is uniform below `times`; no division.
    times != 0 && (u64::from(M::random()) * u64::from(times)) >> 32 == 0
}

/// Decides who is grouped with whom.
pub trait Admission: 'static {
    /// Whether `waiter` should follow directly behind `shuffler`'s group.
    fn together<M: Machine>(shuffler: &Node<M>, waiter: &Node<M>) -> bool;

    /// How many sleepers one walk may wake ahead of their turn, where there are CPUs for them; `tuned` is what the user says.
    #[inline]
    fn wakes<M: Machine>(_shuffler: &Node<M>, tuned: u32) -> u32 {
        tuned
    }
}

/// Waiters of one NUMA node together: the lock and its data stay in one last-level cache for a while.
pub struct SameNumaNode;

impl Admission for SameNumaNode {
    /// Relaxed: a node's number is written before the node is published by the queue's own Acquire/Release.
    #[inline]
    fn together<M: Machine>(shuffler: &Node<M>, waiter: &Node<M>) -> bool {
        shuffler.numa.load(Relaxed) == waiter.numa.load(Relaxed)
    }
}

/// Writers together, and readers with those of their NUMA node: readers that follow each other hold the lock at the same time, and
/// writers that do so leave the readers' copies of the data alone for a while.
pub struct RolesApart;

impl Admission for RolesApart {
    /// Relaxed: as for [`SameNumaNode`].
    #[inline]
    fn together<M: Machine>(shuffler: &Node<M>, waiter: &Node<M>) -> bool {
        let role = shuffler.role.load(Relaxed);
        role == waiter.role.load(Relaxed) && (role != 0 || SameNumaNode::together(shuffler, waiter))
    }

    /// Readers next to each other will come in one right after the other.
    #[inline]
    fn wakes<M: Machine>(shuffler: &Node<M>, tuned: u32) -> u32 {
        if tuned != 0 && shuffler.role.load(Relaxed) == 0 { u32::MAX } else { tuned }
    }
}
