//! Mutual exclusion, and that each critical section sees the ones before it.

use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::Loiter;
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::wait::Park;
use flashlock_locks::{for_each_lock, for_each_standalone_lock};
use flashlock_model::Setup;
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::explore;

use crate::common::{ALL, HASTY, excludes, last_frees, sections};
use crate::modelled::{MUTEXES, RW_LOCKS, STANDALONE, assert_complete, each};
use crate::{closures, cohort, rcl, rw};

/// How many preemptions are explored with two threads that come back, and with three threads; both
/// [in full](Depth::in_full).
fn preemptions(lock: &str, wait: &str) -> [usize; 2] {
    let again = match (lock, wait) {
        ("tas" | "cas" | "futex" | "hbo", _) | ("mcs", "spin") | ("shfl", "park") => 4,
        ("flash" | "loiter" | "loiter-cna", _) => 2,
        _ => 3,
    };
    let three = match (lock, wait) {
        ("tas" | "flash", _) => 1,
        ("mcs" | "shfl" | "shfl-spin", "spin") | ("mcs-tp" | "qspin-cna" | "loiter" | "loiter-cna", "park") => 2,
        ("mcs" | "qspin", "stp") => 3,
        (_, "spin") => 1,
        (_, "stp") => 2,
        _ => 3,
    };
    [again, three]
}

/// `cas` does not poll by the machine: its pauses let other threads run.
fn setup(lock: &str) -> Setup {
    Setup { pauses: lock == "cas", polls: 1, ..Setup::new(4) }
}

macro_rules! excluding {
    ($lock:literal, $wait:ident, $type:ty) => {
        const NAME: &str = concat!($lock, ":wait=", stringify!($wait));

        #[test]
        fn two_threads() {
            excludes::<$type>(&format!("{NAME} 1+1"), ALL, setup($lock), &[1, 1]);
        }

        #[test]
        fn two_threads_again() {
            let recycling = Setup { recycles: true, ..setup($lock) }.in_a_child();
            let [again, _] = preemptions($lock, stringify!($wait)).map(Depth::in_full);
            excludes::<$type>(&format!("{NAME} 2+2"), again, recycling, &[2, 2]);
        }

        #[test]
        fn three_threads() {
            let [_, three] = preemptions($lock, stringify!($wait)).map(Depth::in_full);
            excludes::<$type>(&format!("{NAME} 1+1+1"), three, setup($lock), &[1, 1, 1]);
        }

        #[test]
        fn nothing_is_touched_after_release() {
            let overdue = Setup { tunables: &HASTY, micros_step: 3, ..setup($lock) };
            for (what, setup) in [("freed", setup($lock)), ("freed, overdue", overdue)] {
                explore(&format!("{NAME} {what}"), Preemptions(2), setup, last_frees::<$type>);
            }
        }
    };
}

macro_rules! mutexes {
    ($($rows:tt)*) => { each! { of: excluding, crate::cohort::unless_cohort: $($rows)* } };
}
for_each_lock!(mutexes);

macro_rules! standalone_mutexes {
    ($($rows:tt)*) => { each! { standalone: excluding, crate::modelled::standalone_mutexes: $($rows)* } };
}
for_each_standalone_lock!(standalone_mutexes);

#[test]
fn every_lock_of_the_catalogue_is_here() {
    let mutexes = [of::modelled(), standalone::modelled(), cohort::of::modelled()];
    let others = [closures::of::modelled(), rcl::of::modelled(), rw::of::modelled()];
    assert_complete(&[MUTEXES, RW_LOCKS, STANDALONE], &[mutexes, others].concat());
}

#[test]
fn loiter_grants() {
    let overdue = Setup { tunables: &HASTY, micros_step: 3, polls: 1, ..Setup::new(4) };
    let body = sections::<Loiter<Mcs<Park>, Park>>(&[1, 1]);
    explore("loiter, impatient", Preemptions(3), overdue, body).shows(&[Event::Grant]);
}
