//! Time stands still: no patience of an algorithm's own ever ends, and a nap ends only if a thread has changed a word
//! since it began.
//!
//! So a wake-up that is lost, or one that never was, is a deadlock, whatever safety net would set it right in time. All
//! locks of the catalogue, with each of their ways of waiting.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::{for_each_lock, for_each_rw_lock};
use flashlock_model::meddle::{Access, Instead, Meddler};
use flashlock_model::shuttle::{By, Draws, explore, find};
use flashlock_model::{Field, Op, Setup, Shuttle};

use crate::common::{FLOWING, Load, Lock, STILL, rounds};
use crate::flash_mutants::{MutantFlash, SOUND, adopts_without_a_look};
use crate::mutants::{LooksNowAndThen, MutantFutex, SleepsForAWhile};
use crate::{cond, rw, sem};

const LOAD: Load = Load { threads: 4, rounds: 3, nodes: 2, timed: false, hold: 0 };
const MOTIONLESS: Setup = Setup { still: true, nodes: 24, ..STILL };

/// What a model does with a lock.
type Model = (&'static str, Body);
type Body = Box<dyn Fn() + Send + Sync>;

const SECTIONS: &str = "sections";
const BROADCAST: &str = "one broadcast";
const ITEMS: &str = "producers and consumers";

/// A model that cannot do without time.
struct NeedsTime {
    lock: &'static str,
    waits: &'static [&'static str],
    models: &'static [&'static str],
    why: &'static str,
}

/// All of them. Each must fail, and every other model must succeed.
const NEED_TIME: &[NeedsTime] = &[
    NeedsTime {
        lock: "tas",
        waits: &["stp"],
        models: &[SECTIONS, BROADCAST, ITEMS],
        why: "a waiter polls with naps in between, for a while; no thread wakes it",
    },
    NeedsTime { lock: "hbo", waits: &["spin"], models: &[SECTIONS, BROADCAST, ITEMS], why: "as tas" },
    NeedsTime {
        lock: "c-bo-mcs",
        waits: &["stp", "park"],
        models: &[SECTIONS],
        why: "the first waiter of a NUMA node contends as under tas",
    },
    NeedsTime {
        lock: "flash",
        waits: &["stp"],
        models: &[SECTIONS, ITEMS],
        why: "the head naps while the lock is hot, and no thread ends its nap when it is not hot any more; see below \
              for the rest of the lock",
    },
    NeedsTime {
        lock: "cst-rw",
        waits: &["spin", "park"],
        models: &[SECTIONS],
        why: "a reader that comes again while a writer is about to wait looks again after a break (read_again)",
    },
];

/// Random schedules, and PCT's. What went wrong, if anything.
fn outcome(name: &str, setup: Setup, body: Body) -> Result<(), String> {
    let body = std::sync::Arc::new(body);
    let all = || {
        for by in [By::Random, By::Pct(3)] {
            let body = body.clone();
            explore(name, by, Draws { usual: 250, full: 40_000 }, setup, move || body());
        }
    };
    catch_unwind(AssertUnwindSafe(all))
        .map_err(|panic| panic.downcast::<String>().map_or_else(|_| String::new(), |text| *text))
}

/// Each model holds, or fails, as the list says. Returns what does not. No model knows what a CPU at rest is: `umwait`
/// is `stp` here.
fn check(lock: &str, wait: &str, models: Vec<Model>) -> Vec<String> {
    if wait == "umwait" {
        return Vec::new();
    }
    let surprise = |(model, body)| {
        let name = format!("{lock}:wait={wait}, motionless, {model}");
        let is_this =
            |needs: &&NeedsTime| needs.lock == lock && needs.waits.contains(&wait) && needs.models.contains(&model);
        match (NEED_TIME.iter().find(is_this), outcome(&name, MOTIONLESS, body)) {
            (None, Err(how)) => Some(format!("{name}: {how}")),
            (Some(needs), Ok(())) => {
                Some(format!("{name} needs no time any more, although {}: take it off the list", needs.why))
            }
            _ => None,
        }
    };
    models.into_iter().filter_map(surprise).collect()
}

/// A mutex, and condition variables with it.
fn of_mutex<L: Lock>() -> Vec<Model> {
    vec![
        (SECTIONS, Box::new(rounds::<L>(LOAD))),
        (BROADCAST, Box::new(|| cond::one_broadcast::<L>(false, true))),
        (ITEMS, Box::new(|| cond::producers_and_consumers::<L>(false, true))),
    ]
}

macro_rules! mutexes {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn mutexes_and_condition_variables_need_no_time() {
            let surprises = [$($(check($name, stringify!($wait), of_mutex::<$type>())),+),*].concat();
            assert!(surprises.is_empty(), "{surprises:#?}");
        }
    };
}
for_each_lock!(mutexes);

macro_rules! rw_locks {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn readers_writer_locks_need_no_time() {
            let surprises = [$($(
                check($name, stringify!($wait), vec![(SECTIONS, Box::new(rw::rounds::<$type>(4, 3, false)))])
            ),+),*].concat();
            assert!(surprises.is_empty(), "{surprises:#?}");
        }
    };
}
for_each_rw_lock!(rw_locks);

#[test]
fn semaphores_need_no_time() {
    let post = |semaphore: &flashlock_locks::sem::Semaphore<'_, Shuttle>| semaphore.post().expect("room");
    let models: Vec<Model> =
        vec![(ITEMS, Box::new(sem::makers_and_takers(false, post))), (SECTIONS, Box::new(sem::as_mutex))];
    let surprises = check("sem", "stp", models);
    assert!(surprises.is_empty(), "{surprises:#?}");
}

/// `flash`, whose waiters never see that other threads have had the lock meanwhile. So it is never hot, and its head
/// does not nap, but sleeps on the word. (The number of acquisitions is a hint.)
fn is_never_hot(access: &mut Access<'_>) -> Instead {
    const TIME: u32 = (1 << 16) - 1;
    if access.is(Field::LockTurn, Op::Load) { Instead::With(access.new & TIME) } else { Instead::AsTold }
}

/// The same, and `bug`.
fn and(bug: Meddler, access: &mut Access<'_>) -> Instead {
    match bug(access) {
        Instead::AsTold => is_never_hot(access),
        other => other,
    }
}

/// A call that wakes no sleeper.
fn calls_nobody(access: &mut Access<'_>) -> Instead {
    if access.is(Field::LockNext, Op::Wake) { Instead::Nothing } else { Instead::AsTold }
}

/// A release that wakes no thread that sleeps on the word.
fn wakes_nobody(access: &mut Access<'_>) -> Instead {
    if access.is(Field::LockWord, Op::Wake) { Instead::Nothing } else { Instead::AsTold }
}

/// Everything of `flash` except the naps of its head, and condition variables with it.
#[test]
fn flash_needs_no_time_except_for_naps() {
    let cold = |meddle| Setup { meddle: Some(meddle), ..MOTIONLESS };
    for (model, body) in of_mutex::<Flash>() {
        let name = format!("flash that is never hot, motionless, {model}");
        outcome(&name, cold(is_never_hot), body).unwrap_or_else(|how| panic!("{name}: {how}"));
    }
    let finds = |name: &str, meddle: Meddler, body: Body| {
        find(&format!("flash, motionless: {name}"), By::Random, 2_000, cold(meddle), body);
    };
    finds("a call wakes no sleeper", |access| and(calls_nobody, access), Box::new(rounds::<Flash>(LOAD)));
    finds("a release wakes no head", |access| and(wakes_nobody, access), Box::new(rounds::<Flash>(LOAD)));
    for (model, body) in of_mutex::<Flash>().into_iter().skip(1) {
        finds(&format!("a call wakes no sleeper, {model}"), |access| and(calls_nobody, access), body);
    }
    let moves = || cond::producers_and_consumers::<MutantFlash<SOUND>>(false, true);
    finds("moved, and not woken", |access| and(adopts_without_a_look, access), Box::new(moves));
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
