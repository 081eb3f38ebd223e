//! # Waiters of the same group of CPUs first
//!
//! Serves the waiters next that share a last-level cache with the head, or else, where a NUMA node has only one such
//! cache, its core. **Use it** where threads share cores: the lock and its data then stay in the core's own caches.
//!
//! A ShflLock asks the policy about each waiter behind the head. It moves the waiters itself, loses none, and bounds
//! how often one is passed over.

use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::node::Node;
use flashlock_locks::machine::{Division, Machine, Word};
use flashlock_locks::parts::policy::{Admission, Place};

/// The policy.
pub struct SameGroup;

impl Admission for SameGroup {
    /// What a thread writes into its queue node before it queues: the node, and the group of CPUs in it.
    fn role<M: Machine>() -> u32 {
        M::numa_node() << 16 | M::part(Division::Groups { depth: 0 })
    }

    /// Relaxed: both were written before the nodes were published.
    fn place<M: Machine>(shuffler: &Node<M>, waiter: &Node<M>) -> Place {
        if shuffler.role.load(Relaxed) == waiter.role.load(Relaxed) { Place::Next } else { Place::Stay }
    }
}
