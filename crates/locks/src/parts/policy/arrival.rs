//! # Arrival order, with and without waking ahead
//!
//! Keeps the queue in arrival order. Take it when order matters; take [`Untouched`] as the baseline for all others.
//!
//! **Problem.** A sleeper that becomes head must first wake up. Meanwhile the lock waits for it, or goes to a newcomer.
//! **Idea.** The shuffler leaves the order unchanged. It wakes the sleepers behind itself before their turn, `ahead=`
//! of them in each walk. So the next waiter spins. **Source.** ShflLocks, slides 59–69. There, grouping and waking go
//! together; here they are separate.
//!
//! [`Untouched`] does neither: it is the queue of a ShflLock without a shuffler, a baseline for all others.

use crate::machine::Machine;
use crate::parts::policy::{Admission, Place, Waiter};

/// Moves no waiter; wakes sleepers ahead of their turn.
pub struct ArrivalOrder;

impl Admission for ArrivalOrder {
    #[inline]
    fn place<M: Machine>(_shuffler: Waiter<'_, M>, _waiter: Waiter<'_, M>) -> Place {
        Place::Next
    }
}

/// No waiter shuffles.
pub struct Untouched;

impl Admission for Untouched {
    fn place<M: Machine>(_shuffler: Waiter<'_, M>, _waiter: Waiter<'_, M>) -> Place {
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
    use crate::parts::shuffle::bench::{Waiter, awake_after, shuffled};

    #[test]
    fn nobody_is_moved_and_the_next_sleeper_is_woken() {
        let queue = [0, 1, 0, 1, 0].map(|numa| Waiter { asleep: true, ..Waiter::on(numa) });
        assert_eq!(shuffled::<ArrivalOrder>(&queue), [0, 1, 2, 3, 4]);
        assert_eq!(awake_after::<ArrivalOrder>(&queue), [1]);
        assert_eq!(shuffled::<Untouched>(&queue), [0, 1, 2, 3, 4]);
        assert_eq!(awake_after::<Untouched>(&queue), [0; 0]);
    }
}
