//! A deadline that passes while the lock is handed over.

use flashlock_locks::for_each_lock;
use flashlock_locks::machine::event::Event;
use flashlock_model::Setup;
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::explore;

use crate::cohort;
use crate::common::{HASTY, timed};
use crate::modelled::{MUTEXES, assert_complete, each};

/// How deep this model is explored.
fn depth(lock: &str, wait: &str) -> Depth {
    Preemptions(match (lock, wait) {
        ("loiter" | "loiter-cna", _) => 1,
        ("tas" | "futex" | "hbo" | "mcs" | "qspin", _) => 3,
        ("qspin-cna" | "mcscr", "spin" | "park") | ("clh" | "cna" | "mcscrn" | "lifo-cr", "park") => 3,
        _ => 2,
    })
}

/// Between two polls, others run. A timed head of `shfl` that does not sleep spends one budget of polls after another.
fn setup(lock: &str, wait: &str) -> Setup {
    Setup { polls: if (lock, wait) == ("shfl", "spin") { 2 } else { 1 }, ..Setup::new(4) }
}

macro_rules! timing_out {
    ($lock:literal, $wait:ident, $type:ty) => {
        #[test]
        fn times_out() {
            let depth = depth($lock, stringify!($wait));
            let name = concat!($lock, ":wait=", stringify!($wait), " 1+timed");
            let setup = setup($lock, stringify!($wait));
            explore(name, depth, setup, timed::<$type>()).shows(&[Event::TimedOut]);
            let overdue = Setup { tunables: &HASTY, micros_step: 3, ..setup };
            explore(&format!("{name}, overdue"), depth, overdue, timed::<$type>()).shows(&[Event::TimedOut]);
            let impatient = Setup { patience: 1, ..setup };
            explore(&format!("{name}, impatient"), depth, impatient, timed::<$type>()).shows(&[Event::TimedOut]);
        }
    };
}

macro_rules! mutexes {
    ($($rows:tt)*) => { each! { of: timing_out, crate::cohort::unless_cohort: $($rows)* } };
}
for_each_lock!(mutexes);

#[test]
fn every_mutex_is_here() {
    assert_complete(&[MUTEXES], &[of::modelled(), cohort::of::modelled()]);
}
