//! # Waiters of one last-level cache together
//!
//! **Problem.** A NUMA node may have several last-level caches (a core complex of some EPYCs; half of a socket where
//! clusters share one), and a line that another of them holds is nearly as far as on another node. Where the last level
//! does not include what the cores hold, as since Skylake, it is a core's own cache that a line comes from, and the
//! group is who can be asked without leaving the chip's part. **Idea.** As by NUMA node, but the group is who shares
//! the last-level cache. **Source.** ShflLocks, slide 82: "Non-inclusive cache (Skylake architecture)".
//!
//! [`Machine::llc`] is asked once for each wait, by the waiter itself, before it queues; a walk looks at the node
//! alone. On a machine with one such cache for each NUMA node this is [`SameNumaNode`](super::SameNumaNode), and asks a
//! little more.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Machine, Word};
use crate::node::Node;
use crate::policy::{Admission, Place};

/// Waiters of one last-level cache together.
pub struct SameCache;

impl Admission for SameCache {
    #[inline]
    fn place<M: Machine>(shuffler: &Node<M>, waiter: &Node<M>) -> Place {
        if shuffler.role.load(Relaxed) == waiter.role.load(Relaxed) { Place::Next } else { Place::Stay }
    }

    fn role<M: Machine>() -> u32 {
        M::llc()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::bench::{Waiter, shuffled};

    #[test]
    fn a_nodes_other_caches_are_not_in_the_group() {
        let queue = [(0, 7), (0, 8), (1, 9), (0, 8), (0, 7), (0, 8)].map(|(numa, llc)| Waiter::of(numa, llc));
        assert_eq!(shuffled::<SameCache>(&queue), [0, 4, 1, 2, 3, 5]);
        assert_eq!(shuffled::<super::super::SameNumaNode>(&queue), [0, 1, 3, 4, 2, 5]);
    }
}
