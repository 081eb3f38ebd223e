//! The spinlock: exclusion, with claims and without, in zeroed memory and not; seeded bugs.

use flashlock_locks::mutex::spin::Polite;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::find;
use flashlock_model::{Field, Op, Setup, Weaken};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::common::{ALL, excludes, sections, timed};
use crate::polite_mutants::{ClaimsByStore, LeavesItHeld, MutantPolite, TakesWhatIsHeld};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(2) };
/// The clock advances by 3 ms each time that it is read: every waiter claims.
const CLAIMING: Setup = Setup { micros_step: 3_000, ..SETUP };

#[test]
fn excludes_and_hands_on_what_was_written() {
    excludes::<Polite>("polite 1+1", ALL, SETUP, &[1, 1]);
    excludes::<Polite>("polite 2+2", Preemptions(3), SETUP, &[2, 2]);
    excludes::<Polite>("polite 1+1+1", Preemptions(1), SETUP, &[1, 1, 1]);
}

#[test]
fn excludes_with_claims() {
    excludes::<Polite>("polite 1+1, claims", Preemptions(4), CLAIMING, &[1, 1]);
    excludes::<Polite>("polite 2+1, claims", Preemptions(3), CLAIMING, &[2, 1]);
    excludes::<Polite>("polite 1+1+1, claims", Preemptions(1), CLAIMING, &[1, 1, 1]);
}

#[test]
fn ordering_bugs_are_found() {
    const UNLOCK: &[Weaken] = &[Weaken { field: Field::LockWord, op: Op::And, from: Release, to: Relaxed }];
    const LOCK: &[Weaken] = &[Weaken { field: Field::LockWord, op: Op::Cas, from: Acquire, to: Relaxed }];
    for (name, weaken) in [("polite_unlock", UNLOCK), ("polite_lock", LOCK)] {
        find(name, Preemptions(3), Setup { weaken, ..SETUP }, sections::<Polite>(&[1, 1]));
    }
}

#[test]
fn protocol_bugs_are_found() {
    let bound = Preemptions(3);
    find("claims by a store", bound, SETUP, sections::<MutantPolite<ClaimsByStore>>(&[1, 1]));
    find("takes what is held", bound, SETUP, sections::<MutantPolite<TakesWhatIsHeld>>(&[1, 1]));
    find("left held if claimed", bound, SETUP, sections::<MutantPolite<LeavesItHeld>>(&[1, 1]));
}

#[test]
fn gives_up_in_time() {
    flashlock_model::loom::explore("polite timed", Preemptions(2), CLAIMING, timed::<Polite>());
}
