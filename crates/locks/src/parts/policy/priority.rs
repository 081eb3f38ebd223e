//! # Waiters of higher priority first
//!
//! Serves the waiter with the highest priority next. Take it where the scheduler prefers some threads.
//!
//! **Problem.** A thread that the scheduler prefers waits behind all others for a lock. **Idea.** Each new head looks
//! for the waiter with the highest priority, and makes it its successor; of equals, the first. So at most the head and
//! one more waiter are served before a waiter whose priority is higher than all others'. **Source.** ShflLocks, slide
//! 82: "Priority inheritance or boosting".
//!
//! **Where a priority comes from.** [`Special::priority`](crate::machine::Special::priority). On this computer it is
//! the thread's nice value or, above all nice values, its real-time priority, as it was when the thread first waited.
//! Later changes are not noticed. A waiter that a broadcast moved here has the priority of that time.
//!
//! **How far it goes.** This is boosting within the queue. It is not inheritance: a holder without a CPU is not given
//! one. That would need a system call for each wait, and glibc's `PTHREAD_PRIO_INHERIT` does it (such mutexes stay
//! glibc's). Nor does it hold against threads that are in no queue: a thread that finds the lock free takes it,
//! whatever its priority. **Starvation** is bounded by `shuffles=`: the first waiter that no head chose is passed over
//! by at most that many others, and then is head.

use crate::machine::Machine;
use crate::parts::policy::{Admission, Place, Waiter};

/// The highest priority first; of equals, the one that came first.
pub struct HighestFirst;

/// Roles fall when priorities rise: this is the role of the ordinary priority, 0.
const ORDINARY: u32 = 1 << 11;

impl Admission for HighestFirst {
    fn place<M: Machine>(_shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        Place::Choice(waiter.role())
    }

    fn role<M: Machine>() -> u32 {
        ORDINARY.wrapping_sub_signed(M::priority())
    }

    /// One waiter is chosen for each hand-off: a queue that was sorted in advance would be closed to waiters that come
    /// later.
    fn walks<M: Machine>(at_front: bool) -> bool {
        at_front
    }

    /// The waiter with the highest priority may have come last.
    fn finishes<M: Machine>() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::shuffle::bench::{Waiter, group_after, shuffled};

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
