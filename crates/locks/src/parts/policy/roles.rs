//! # Readers with readers, writers with writers
//!
//! Groups writers, and the readers of each NUMA node. It is the policy of [`shfl-rw`](crate::rw::shfl).
//!
//! **Problem.** In a queue in arrival order, each writer ends a phase of readers that could have held the lock at the
//! same time. **Idea.** Writers are grouped together, and readers with those of their NUMA node. Readers that follow
//! each other hold the lock at the same time. Writers that follow each other leave the readers' copies of the data
//! alone for a while. **Source.** ShflLocks, slides 40 ("RWlock: Group writers together"), 72.
//!
//! A waiter that has queued for `bound=` insists on its place: later arrivals of other kinds are not moved before it.
//! Otherwise a reader could wait for as many sections of writers as `shuffles=` says.
//!
//! The queue of `shfl-rw` is a ShflLock's, and the same shuffler walks it. The lock writes into each node what the
//! node's thread wants, and since when it queues.

use crate::machine::Machine;
use crate::parts::policy::{Admission, Place, SameNumaNode, Waiter};

/// The [role](crate::parts::policy::Waiter::role) of a reader.
pub const READS: u32 = 0;
/// The role of a writer.
pub const WRITES: u32 = 1;

/// Writers together, and readers with those of their NUMA node.
pub struct GroupByRole;

impl Admission for GroupByRole {
    #[inline]
    fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        match (shuffler.role(), waiter.role()) {
            (READS, READS) => SameNumaNode::place(shuffler, waiter),
            (one, other) if one == other => Place::Next,
            _ => Place::Stay,
        }
    }

    #[inline]
    fn insists<M: Machine>(waiter: Waiter<'_, M>) -> bool {
        waiter.queued_for() >= M::tunables().bound_us
    }

    /// Readers that stand next to each other in the queue enter one directly after another.
    #[inline]
    fn wakes<M: Machine>(shuffler: Waiter<'_, M>, tuned: u32) -> u32 {
        if tuned != 0 && shuffler.role() == READS { u32::MAX } else { tuned }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::shuffle::bench::{Waiter, awake_after, shuffled};

    /// A reader or a writer, asleep.
    fn waiter((role, numa): (u32, u32)) -> Waiter {
        Waiter { asleep: true, ..Waiter::of(numa, role) }
    }

    #[test]
    fn writers_of_any_node_and_readers_of_one() {
        let queue = [(READS, 0), (WRITES, 0), (READS, 0), (READS, 1), (WRITES, 1), (READS, 0), (READS, 1)].map(waiter);
        assert_eq!(shuffled::<GroupByRole>(&queue), [0, 2, 5, 1, 3, 4, 6]);
        assert_eq!(shuffled::<GroupByRole>(&queue[1..]), [0, 3, 1, 2, 4, 5]);
        assert_eq!(awake_after::<GroupByRole>(&queue), [2, 5], "all readers of the group");
        let long = Waiter { waited: 1_000, ..queue[1] };
        assert_eq!(shuffled::<GroupByRole>(&[queue[0], queue[2], long, queue[2]]), [0, 1, 2, 3], "it insists");
        let writers = [(WRITES, 0), (WRITES, 1), (WRITES, 0), (READS, 0)].map(waiter);
        assert_eq!(awake_after::<GroupByRole>(&writers), [1], "one writer after the other");
    }
}
