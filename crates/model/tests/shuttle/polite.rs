//! The spinlock: every thread gets it, alone, with claims and without; frozen waiters hold no thread up.

use flashlock_locks::mutex::spin::Polite;
use flashlock_model::Setup;
use flashlock_model::shuttle::{By, find};

use crate::common::{FLOWING, Load, Lock, SCHEDULES, STILL, both, rounds};
use crate::polite_mutants::{ClaimsByStore, LeavesItHeld, MutantPolite, TakesWhatIsHeld};

const UNTIMED: Load = Load { threads: 4, rounds: 3, nodes: 1, timed: false, hold: 1 };
/// A waiter that looks at the clock twice has waited for long enough to claim; one that looks four times more has lost
/// the claim.
const CLAIMING: Setup = Setup { micros_step: 2_500, ..STILL };

#[test]
fn rounds_of_four() {
    both("polite", SCHEDULES, STILL, rounds::<Polite>(UNTIMED));
    both("polite, claims", SCHEDULES, CLAIMING, rounds::<Polite>(UNTIMED));
    let flowing = Setup { micros_step: 2_500, ..FLOWING };
    both("polite, timed and tried", SCHEDULES, flowing, rounds::<Polite>(Load { timed: true, ..UNTIMED }));
}

#[test]
fn bugs_are_found() {
    fn broken<L: Lock>(name: &str, setup: Setup) {
        let load = Load { threads: 3, rounds: 2, ..UNTIMED };
        find(name, By::Random, 5_000, setup, rounds::<L>(load));
    }
    broken::<MutantPolite<ClaimsByStore>>("claims by a store", STILL);
    broken::<MutantPolite<TakesWhatIsHeld>>("takes what is held", STILL);
    broken::<MutantPolite<LeavesItHeld>>("left held if claimed", STILL);
}
