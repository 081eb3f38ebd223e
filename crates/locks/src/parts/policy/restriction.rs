//! # Concurrency restriction: few waiters stay awake
//!
//! Lets a few waiters circulate and the others sleep. Take it when there are more threads than keep the lock busy, and
//! sections take a microsecond or more.
//!
//! **Problem.** When more threads want a lock than keep it busy, each thread that circulates brings its data into the
//! caches and evicts other data. If it sleeps, it must be woken as well. **Idea.** A few threads circulate and the
//! others sleep (they are *passive*). A waiter that came lately is awake; one that was not served within the time that
//! waiters poll is asleep. So the head chooses the first waiter behind itself that is awake, and no other is kept
//! awake: the surplus falls asleep and stays behind. If no waiter is awake, the eldest sleeper is next (*reprovision*).
//! **Source.** ShflLocks, slide 82, which leaves it to a lock that splits its queue; Dice, *Malthusian Locks*, §4.
//!
//! **Fair in the long run.** After `shuffles=` choices the group is closed, and the eldest sleeper is served. That is
//! once in 1,024 hand-offs by default; MCSCR serves its eldest once in a thousand. The lock's promises hold for each
//! sleeper, too.
//!
//! **Do not use it** where many waiters sleep, or none does. The walk passes all sleepers to find a waiter that is
//! awake. That takes some tens of ns for each, while another thread holds the lock; MCSCR keeps sleepers apart. With
//! `wait=spin` no waiter sleeps, and waiters are served in arrival order. With `wait=park` none is awake, with the same
//! result.

use crate::machine::Machine;
use crate::parts::policy::{Admission, Place, Waiter};

/// The first waiter that is awake is next; the others fall asleep, and sleepers stay asleep.
pub struct FewAwake;

impl Admission for FewAwake {
    /// Relaxed: a waiter that falls asleep at this moment is woken when it is head, as any other is.
    fn place<M: Machine>(_shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        if waiter.is_awake() { Place::Choice(0) } else { Place::Stay }
    }

    /// One waiter is chosen for each hand-off.
    fn walks<M: Machine>(at_front: bool) -> bool {
        at_front
    }

    fn wakes<M: Machine>(_shuffler: Waiter<'_, M>, _tuned: u32) -> u32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::shuffle::bench::{Waiter, awake_after, group_after, shuffled, shuffled_behind_the_front};

    const AWAKE: Waiter = Waiter::on(0);
    const ASLEEP: Waiter = Waiter { asleep: true, ..AWAKE };

    #[test]
    fn the_first_awake_passes_the_sleepers_alone() {
        let queue = [AWAKE, ASLEEP, ASLEEP, AWAKE, AWAKE, ASLEEP];
        assert_eq!(shuffled::<FewAwake>(&queue), [0, 3, 1, 2, 4, 5]);
        assert_eq!(group_after::<FewAwake>(&queue), [0, 3], "the others are not kept awake");
        assert_eq!(shuffled_behind_the_front::<FewAwake>(&queue), [0, 1, 2, 3, 4, 5]);
        assert_eq!(shuffled::<FewAwake>(&queue[..4]), [0, 3, 1, 2], "though it is the tail");
    }

    #[test]
    fn sleepers_stay_asleep() {
        let queue = [AWAKE, ASLEEP, ASLEEP, ASLEEP];
        assert_eq!(awake_after::<FewAwake>(&queue), [0; 0]);
        assert_eq!(shuffled::<FewAwake>(&queue), [0, 1, 2, 3]);
    }
}
