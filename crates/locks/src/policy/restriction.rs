//! # Concurrency restriction: few waiters stay awake
//!
//! **Problem.** When more threads want a lock than keep it busy, each that circulates brings its data into the caches
//! and takes others' out, and, if it sleeps, has to be woken. **Idea.** A few threads circulate and the others sleep
//! (*passive*). Who has just come is awake; who was not served within the time that waiters poll is asleep. So the head
//! chooses the first waiter behind itself that is awake, and nobody else is kept awake: the surplus falls asleep, and
//! stays behind. With nobody awake, the eldest sleeper is next (*reprovision*). **Source.** ShflLocks, slide 82, which
//! leaves it to a lock that splits its queue; Dice, *Malthusian Locks*, §4.
//!
//! **Fair in the long run.** After `shuffles=` choices the group is closed, and the eldest sleeper is served: once in
//! 1,024 hand-overs by default, as MCSCR's eldest is once in a thousand. Each sleeper's patience holds, too.
//!
//! **Not where many sleep, or nobody does.** The walk passes over all sleepers to find who is awake: some tens of ns
//! for each, while the lock is held by another; MCSCR keeps them apart. With `wait=spin` nobody sleeps, and arrival
//! order rules; with `wait=park` nobody is awake, to the same end.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Machine, Word};
use crate::node::{Node, state};
use crate::policy::{Admission, Place};

/// The first that is awake comes next; the others fall asleep, and sleepers stay asleep.
pub struct FewAwake;

impl Admission for FewAwake {
    /// Relaxed: who falls asleep at this moment is woken when it is head, as any other.
    fn place<M: Machine>(_shuffler: &Node<M>, waiter: &Node<M>) -> Place {
        if waiter.state.load(Relaxed) == state::WAITING { Place::Choice(0) } else { Place::Stay }
    }

    /// One is chosen for each hand-over.
    fn walks<M: Machine>(at_front: bool) -> bool {
        at_front
    }

    fn wakes<M: Machine>(_shuffler: &Node<M>, _tuned: u32) -> u32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::bench::{Waiter, awake_after, group_after, shuffled, shuffled_behind_the_front};

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
