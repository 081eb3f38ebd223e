//! # Waiters of higher priority first
//!
//! **Problem.** A thread that the scheduler prefers waits behind all others for a lock. **Idea.** The head, each time
//! there is a new one, looks for the waiter of the highest priority, and makes that its successor; of equals, the
//! first. So who comes with a higher priority than all others is preceded by the head and one more at most. **Source.**
//! ShflLocks, slide 82: "Priority inheritance or boosting".
//!
//! **Where a priority comes from.** [`Machine::priority`]: on this computer the thread's nice value and, above all of
//! those, its real-time priority, as they were when it first waited (a change after that is not noticed). Who was moved
//! here by a broadcast brings the one it had then.
//!
//! **How far it goes.** This is boosting within the queue. It is not inheritance: a holder that has no CPU is not given
//! one, for that is a system call for each wait, and glibc's `PTHREAD_PRIO_INHERIT` has it (such mutexes stay glibc's).
//! Nor does it hold against who is in no queue: a thread that finds the lock free takes it, whatever its priority.
//! **Starvation** is bounded by `shuffles=`: the first waiter that nobody chose is passed over by that many others at
//! most, and then is head.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Machine, Word};
use crate::node::Node;
use crate::policy::{Admission, Place};

/// The highest priority first; of equals, who came first.
pub struct HighestFirst;

/// Priorities as numbers that fall when they rise: of the ordinary one, 0, this.
const ORDINARY: u32 = 1 << 31;

impl Admission for HighestFirst {
    fn place<M: Machine>(_shuffler: &Node<M>, waiter: &Node<M>) -> Place {
        Place::Choice(waiter.role.load(Relaxed))
    }

    fn role<M: Machine>() -> u32 {
        ORDINARY.wrapping_sub_signed(M::priority())
    }

    /// One is chosen for each hand-over: a queue that was sorted ahead would be closed to who comes later.
    fn walks<M: Machine>(at_front: bool) -> bool {
        at_front
    }

    /// Who has the highest priority may have come last.
    fn finishes<M: Machine>() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::bench::{Waiter, group_after, shuffled};

    #[test]
    fn one_of_the_highest_comes_next_and_the_others_stay() {
        let queue = [0, -5, 0, 20, 150, 20, 150, 7].map(Waiter::with_priority);
        assert_eq!(shuffled::<HighestFirst>(&queue), [0, 4, 1, 2, 3, 5, 6, 7]);
        assert_eq!(group_after::<HighestFirst>(&queue), [0, 4]);
        assert_eq!(shuffled::<HighestFirst>(&queue[..5]), [0, 4, 1, 2, 3], "though it is the tail");
        assert_eq!(shuffled::<HighestFirst>(&[0, 9].map(Waiter::with_priority)), [0, 1]);
    }

    #[test]
    fn equals_keep_their_order() {
        assert_eq!(shuffled::<HighestFirst>(&[3; 5].map(Waiter::with_priority)), [0, 1, 2, 3, 4]);
        assert_eq!(shuffled::<HighestFirst>(&[9, -20, -19, -19].map(Waiter::with_priority)), [0, 2, 1, 3]);
    }
}
