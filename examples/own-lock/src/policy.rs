//! # Waiters of the same group of CPUs first
//!
//! Serves the waiters next that share a last-level cache with the head, or else, where a NUMA node has only one such
//! cache, its core. **Use it** where threads share cores: the lock and its data then stay in the core's own caches.
//!
//! A ShflLock asks the policy about each waiter behind the head. It moves the waiters itself, loses none, and bounds
//! how often one is passed over.

use flashlock_locks::machine::{Division, Machine};
use flashlock_locks::parts::policy::{Admission, Place, Waiter};

/// The policy.
pub struct SameGroup;

impl Admission for SameGroup {
    /// What a thread says of itself before it queues: the node, and the group of CPUs in it.
    fn role<M: Machine>() -> u32 {
        M::numa_node() << 16 | M::part(Division::Groups { depth: 0 })
    }

    fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        if shuffler.role() == waiter.role() { Place::Next } else { Place::Stay }
    }
}
