//! # Waiters of one last-level cache together
//!
//! Groups waiters by last-level cache. Take it on machines that have several such caches in a NUMA node.
//!
//! **Problem.** A NUMA node may have several last-level caches (a core complex of some EPYCs; half of a socket where
//! clusters share one). A line that another of these caches holds is nearly as far away as one on another node. On
//! processors since Skylake the last level does not include what the cores hold. There, a line comes from a core's own
//! cache, and the group is the CPUs that can be asked without leaving that part of the chip. **Idea.** As for NUMA
//! nodes, but waiters that share the last-level cache are a group. **Source.** ShflLocks, slide 82: "Non-inclusive
//! cache (Skylake architecture)".
//!
//! A waiter asks for its last-level cache ([`Division::Llc`]) once for each wait, before it queues; a walk looks
//! only at the node. On a machine with one such cache for each NUMA node this is [`SameNumaNode`](super::SameNumaNode),
//! with one more call.

use crate::machine::{Division, Machine};
use crate::parts::policy::{Admission, Place, Waiter};

/// Waiters of one last-level cache together.
pub struct SameCache;

impl Admission for SameCache {
    const ASKS_WHERE: bool = true;

    #[inline]
    fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        if shuffler.role() == waiter.role() { Place::Next } else { Place::Stay }
    }

    fn role<M: Machine>() -> u32 {
        M::part(Division::Llc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::shuffle::bench::{Waiter, shuffled};

    #[test]
    fn a_nodes_other_caches_are_not_in_the_group() {
        let queue = [(0, 7), (0, 8), (1, 9), (0, 8), (0, 7), (0, 8)].map(|(numa, llc)| Waiter::of(numa, llc));
        assert_eq!(shuffled::<SameCache>(&queue), [0, 4, 1, 2, 3, 5]);
        assert_eq!(shuffled::<super::super::SameNumaNode>(&queue), [0, 1, 3, 4, 2, 5]);
    }
}
