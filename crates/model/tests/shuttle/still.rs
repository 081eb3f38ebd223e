//! Time stands still: no patience of an algorithm's own ever ends, and no nap ends but because somebody has changed a
//! word since it began.
//!
//! So a wake-up that is lost, or one that never was, is a deadlock, whatever safety net would set it right in time. All
//! locks of the catalogue, with each of their ways of waiting.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flashlock_locks::{for_each_lock, for_each_rw_lock};
use flashlock_model::shuttle::{By, explore, find};
use flashlock_model::{Setup, Shuttle};

use crate::common::{FLOWING, Load, STILL, long, rounds};
use crate::mutants::{LooksNowAndThen, MutantFutex, SleepsForAWhile};
use crate::{cond, rw, sem};

const LOAD: Load = Load { threads: 4, rounds: 3, nodes: 2, timed: false, hold: 0 };
const MOTIONLESS: Setup = Setup { still: true, nodes: 24, ..STILL };

/// Which of them cannot do without time, with which ways of waiting, and why.
const NEED_TIME: &[(&str, &[&str], &str)] = &[
    ("tas", &["stp"], "who waits polls with naps in between, for a while; nobody wakes it"),
    ("hbo", &["spin"], "as tas"),
    ("c-bo-mcs", &["stp", "park"], "the first of a NUMA node contends as under tas"),
    ("flash", &["stp"], "the head naps while the lock is hot, and nobody ends its nap when it is not any more"),
    (
        "cst-rw",
        &["spin", "park"],
        "a reader that comes again while a writer is about to wait looks again after a break (read_again)",
    ),
];

type Body = Box<dyn Fn() + Send + Sync>;

/// Random schedules, and PCT's. What went wrong, if anything.
fn outcome(name: &str, body: Body) -> Result<(), String> {
    let body = std::sync::Arc::new(body);
    let all = || {
        for by in [By::Random, By::Pct(3)] {
            let body = body.clone();
            explore(name, by, long(400, 40_000), MOTIONLESS, move || body());
        }
    };
    catch_unwind(AssertUnwindSafe(all))
        .map_err(|panic| panic.downcast::<String>().map_or_else(|_| String::new(), |text| *text))
}

/// All hold, or one fails, as the list says. What a CPU at rest is, no model knows: `umwait` is `stp` here.
fn check(lock: &str, wait: &str, bodies: Vec<Body>) {
    if wait == "umwait" {
        return;
    }
    let name = format!("{lock}:wait={wait}, motionless");
    let listed = NEED_TIME.iter().find(|(needs, waits, _)| *needs == lock && waits.contains(&wait));
    let failed = bodies.into_iter().find_map(|body| outcome(&name, body).err());
    match (listed, failed) {
        (None, Some(how)) => panic!("{name}: {how}"),
        (Some((.., why)), None) => panic!("{name} needs no time any more, although {why}: take it off the list"),
        _ => {}
    }
}

macro_rules! mutexes {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn mutexes_and_condition_variables_need_no_time() {
            $($(check($name, stringify!($wait), vec![
                Box::new(rounds::<$type>(LOAD)),
                Box::new(|| cond::one_broadcast::<$type>(false, true)),
                Box::new(|| cond::producers_and_consumers::<$type>(false, true)),
            ]);)+)*
        }
    };
}
for_each_lock!(mutexes);

macro_rules! rw_locks {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn readers_writer_locks_need_no_time() {
            $($(check($name, stringify!($wait), vec![Box::new(rw::rounds::<$type>(4, 3, false))]);)+)*
        }
    };
}
for_each_rw_lock!(rw_locks);

#[test]
fn semaphores_need_no_time() {
    let post = |semaphore: &flashlock_locks::sem::Semaphore<'_, Shuttle>| semaphore.post().expect("room");
    check("sem", "stp", vec![Box::new(sem::makers_and_takers(false, post)), Box::new(sem::as_mutex)]);
}

/// What time sets right is found where it stands still, and not where it goes on.
#[test]
fn timed_retries_are_found() {
    let naps = rounds::<MutantFutex<LooksNowAndThen>>(LOAD);
    explore("looks now and then", By::Random, 2_000, STILL, naps.clone());
    find("looks now and then", By::Random, 2_000, MOTIONLESS, naps);
    let sleeps = rounds::<MutantFutex<SleepsForAWhile>>(LOAD);
    explore("sleeps for a while", By::Random, 2_000, FLOWING, sleeps.clone());
    find("sleeps for a while", By::Random, 2_000, MOTIONLESS, sleeps);
}
