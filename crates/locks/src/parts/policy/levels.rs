//! # The nearest first, over several levels
//!
//! Groups waiters by last-level cache, and chooses the nearest waiter when the group is empty. Take it on machines
//! whose NUMA nodes are not all equally far from each other.
//!
//! **Problem.** On a machine of many nodes, some are nearer than others: two sockets are neighbours, or two dies are in
//! one socket. If waiters are grouped by node, the lock goes from a node to the waiter that came first, which is
//! usually far away. **Idea.** Waiters of one last-level cache follow each other. If there are none, the head chooses
//! the nearest waiter: one on its NUMA node, then one on the nearest other node, and so on. The chosen waiter in turn
//! gathers those of its own cache. **Source.** ShflLocks, slide 82: "Multi-level NUMA hierarchy (SGI machines)".
//!
//! Only the head chooses. A shuffler in the middle of the queue would leave its cache for another as soon as no waiter
//! of its cache was left, although many such waiters may come before it is head. Far waiters are passed over as long as
//! nearer ones come: `shuffles=` says how often. Set it below its default if that matters.

use crate::machine::Machine;
use crate::parts::policy::{Admission, Place, SameCache, Waiter};

/// Waiters of one last-level cache together, and the nearest next.
pub struct NearestFirst;

impl Admission for NearestFirst {
    const ASKS_WHERE: bool = true;

    fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        match SameCache::place(shuffler, waiter) {
            Place::Next => Place::Next,
            // Never 0: a waiter of the same cache may stand behind.
            _ => Place::Choice(1 + M::distance(shuffler.numa(), waiter.numa())),
        }
    }

    fn role<M: Machine>() -> u32 {
        SameCache::role::<M>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::shuffle::bench::{Waiter, shuffled, shuffled_behind_the_front};

    #[test]
    fn the_cache_then_the_node_then_the_next_node() {
        // The bench's nodes stand in a row.
        let [near, mid, far] = [(0, 1), (1, 2), (5, 6)].map(|(numa, llc)| Waiter::of(numa, llc));
        let head = Waiter::of(0, 0);
        assert_eq!(shuffled::<NearestFirst>(&[head, far, mid, near, head, far]), [0, 4, 1, 2, 3, 5]);
        assert_eq!(shuffled::<NearestFirst>(&[head, far, mid, near, far]), [0, 3, 1, 2, 4]);
        assert_eq!(shuffled::<NearestFirst>(&[head, far, mid, mid, far]), [0, 2, 1, 3, 4]);
    }

    #[test]
    fn only_the_head_leaves_its_cache() {
        let queue = [(0, 0), (5, 6), (1, 2), (0, 0), (5, 6)].map(|(numa, llc)| Waiter::of(numa, llc));
        assert_eq!(shuffled_behind_the_front::<NearestFirst>(&queue), [0, 3, 1, 2, 4]);
        assert_eq!(shuffled_behind_the_front::<NearestFirst>(&queue[..3]), [0, 1, 2]);
    }
}
