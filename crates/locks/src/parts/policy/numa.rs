//! # Waiters of one NUMA node together
//!
//! Groups waiters by NUMA node. It is the default policy.
//!
//! **Problem.** A hand-off to another NUMA node moves the lock, and the data of the section, from one last-level cache
//! to another. **Idea.** The waiters of the shuffler's node come next, as long as there are any. **Source.** ShflLocks,
//! slides 34–38, 45–57.

use crate::machine::Machine;
use crate::parts::policy::{Admission, Place, Waiter};

/// Waiters of one NUMA node together: the lock and its data stay in one last-level cache for a while.
pub struct SameNumaNode;

impl Admission for SameNumaNode {
    #[inline]
    fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        if shuffler.numa() == waiter.numa() { Place::Next } else { Place::Stay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::shuffle::bench::{Waiter, shuffled};

    #[test]
    fn the_heads_node_first_then_arrival_order() {
        let queue = [0, 3, 0, 3, 0, 3].map(Waiter::on);
        assert_eq!(shuffled::<SameNumaNode>(&queue), [0, 2, 4, 1, 3, 5]);
        assert_eq!(shuffled::<SameNumaNode>(&queue[1..]), [0, 2, 1, 3, 4], "the tail is not moved");
    }
}
