//! Every thread gets the lock as often as it asks, alone.

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::numa::{Cst, Hmcs};
use flashlock_locks::parts::wait::{Park, SpinThenPark};
use flashlock_locks::{for_each_lock, for_each_standalone_lock};
use flashlock_model::Setup;
use flashlock_model::shuttle::Draws;

use crate::common::{FLOWING, Load, OVERDUE, SCHEDULES, STILL, both, rounds, share};
use crate::modelled::{MUTEXES, RW_LOCKS, STANDALONE, assert_complete, each};
use crate::{closures, rcl, rw};

const UNTIMED: Load = Load { threads: 4, rounds: 3, nodes: 2, timed: false, hold: 0 };
const TIMED: Load = Load { timed: true, ..UNTIMED };

/// `cas` does not poll by the machine: its pauses let other threads run.
fn setup_of(lock: &str, setup: Setup) -> Setup {
    Setup { pauses: lock == "cas", ..setup }
}

macro_rules! rounds {
    ($lock:literal, $wait:ident, $type:ty) => {
        rounds! {
            concat!($lock, ":wait=", stringify!($wait)), $type, |setup| setup_of($lock, setup),
            share($lock, stringify!($wait), SCHEDULES)
        }
    };
    ($name:expr, $type:ty, $setup:expr) => {
        rounds! { $name, $type, $setup, Draws::from(SCHEDULES) }
    };
    ($name:expr, $type:ty, $setup:expr, $draws:expr) => {
        const SETUP: fn(Setup) -> Setup = $setup;

        #[test]
        fn time_stands_still() {
            both(&format!("{}, still", $name), $draws, SETUP(STILL), rounds::<$type>(UNTIMED));
        }

        #[test]
        fn all_waits_are_overdue() {
            both(&format!("{}, overdue", $name), $draws, SETUP(OVERDUE), rounds::<$type>(UNTIMED));
        }

        #[test]
        fn time_flows() {
            both(&format!("{}, flowing", $name), $draws, SETUP(FLOWING), rounds::<$type>(TIMED));
        }
    };
}

macro_rules! mutexes {
    ($($rows:tt)*) => { each! { of: rounds, crate::modelled::all: $($rows)* } };
}
for_each_lock!(mutexes);

macro_rules! standalone_mutexes {
    ($($rows:tt)*) => { each! { standalone: rounds, crate::modelled::standalone_mutexes: $($rows)* } };
}
for_each_standalone_lock!(standalone_mutexes);

/// Waiters of `cst` sleep, for there are more tasks than CPUs.
mod cst_crowded {
    use super::*;

    rounds! { "cst:wait=stp, crowded", Cst<SpinThenPark>, |setup| Setup { crowded: true, ..setup } }
}

#[test]
fn every_lock_of_the_catalogue_is_here() {
    let lists =
        [of::modelled(), standalone::modelled(), closures::of::modelled(), rcl::of::modelled(), rw::of::modelled()];
    assert_complete(&[MUTEXES, RW_LOCKS, STANDALONE], &lists);
}

/// Six threads on two NUMA nodes: in each, two of a group of CPUs and one of another.
#[test]
fn hmcs_of_three_levels() {
    const THREE: Tunables = Tunables { levels: 3, near_passes: 1, passes: 2, ..Tunables::DEFAULT };
    let load = Load { threads: 6, rounds: 2, ..UNTIMED };
    for (setup, load) in [(STILL, load), (FLOWING, Load { timed: true, ..load })] {
        let setup = Setup { tunables: &THREE, nodes: 48, ..setup };
        for totals in both("hmcs of three levels", SCHEDULES, setup, rounds::<Hmcs<Park>>(load)) {
            totals.shows(&[Event::CohortNear, Event::CohortPass, Event::CohortMove]);
        }
    }
}
