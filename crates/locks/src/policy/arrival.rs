//! # Arrival order, with and without waking ahead
//!
//! **Problem.** A sleeper that becomes head has yet to wake up; meanwhile the lock waits for it, or goes to a newcomer.
//! **Idea.** The shuffler leaves the order alone, and wakes the sleepers behind itself (`ahead=` of them for each walk)
//! before their turn: whoever is next spins. **Source.** ShflLocks, slides 59–69, where grouping and waking go
//! together; here they are apart.
//!
//! [`Untouched`] does neither: the queue of a ShflLock without a shuffler, which is what the others are to be measured
//! by.

use crate::machine::Machine;
use crate::node::Node;
use crate::policy::{Admission, Place};

/// Nobody is moved; sleepers are woken ahead of their turn.
pub struct ArrivalOrder;

impl Admission for ArrivalOrder {
    #[inline]
    fn place<M: Machine>(_shuffler: &Node<M>, _waiter: &Node<M>) -> Place {
        Place::Next
    }
}

/// Nobody shuffles.
pub struct Untouched;

impl Admission for Untouched {
    fn place<M: Machine>(_shuffler: &Node<M>, _waiter: &Node<M>) -> Place {
        Place::Stay
    }

    #[inline]
    fn walks<M: Machine>(_at_front: bool) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::bench::{Waiter, awake_after, shuffled};

    #[test]
    fn nobody_is_moved_and_the_next_sleeper_is_woken() {
        let queue = [0, 1, 0, 1, 0].map(|numa| Waiter { asleep: true, ..Waiter::on(numa) });
        assert_eq!(shuffled::<ArrivalOrder>(&queue), [0, 1, 2, 3, 4]);
        assert_eq!(awake_after::<ArrivalOrder>(&queue), [1]);
        assert_eq!(shuffled::<Untouched>(&queue), [0, 1, 2, 3, 4]);
        assert_eq!(awake_after::<Untouched>(&queue), [0; 0]);
    }
}
