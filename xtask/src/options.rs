//! `cargo xtask options`: what a lock does only with other options than its defaults, or only on a machine with several
//! NUMA nodes: a part of the suites under such a choice, and the proof by counters that it took the paths it is about.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail};
use flashlock_locks::catalogue::{LOCKS, OptionId};
use flashlock_locks::machine::event::Event;
use flashlock_native::umwait;
use flashlock_report::run_stats::RunStats;

use crate::child::{AGAINST_HANGS, Program};
use crate::conformance;
use crate::locks::{Chosen, is_rw};
use crate::steps::{Tally, watched};
use crate::torture;
use crate::workspace;

/// Two nodes: without them `cna` never has a waiter for its secondary queue, nor `shfl` one to move. Of two cores of
/// two hardware threads each: of the threads that share such a part `hmcs` with more than two levels makes a group.
const TOPOLOGY: &str = "2x2x2";

/// A lock with options, and what must happen under it.
type Choice = (&'static str, &'static [Event]);

/// The choices. Small numbers, so that it happens often.
const CHOICES: [Choice; 24] = [
    ("flash:bound=50", &[Event::Grant]),
    ("cna:threshold=8,reduction=2,refresh=3", &[Event::Alteration, Event::HandoffOther]),
    ("cna:countdown=1,threshold=8,wait=park", &[Event::Alteration, Event::HandoffOther]),
    ("qspin-cna:flush=3,stay=0", &[Event::Alteration, Event::HandoffOther]),
    ("qspin-cna:stay=50,scan=2,urgent=1", &[Event::Alteration, Event::HandoffOther]),
    ("qspin-cna:incremental=1,flush=3,wait=park", &[Event::Alteration, Event::HandoffOther]),
    ("c-bo-mcs:passes=4", &[Event::SideBlock, Event::CohortPass, Event::CohortMove]),
    ("hmcs:passes=4", &[Event::SideBlock, Event::CohortPass, Event::CohortMove]),
    ("hmcs:levels=3,near=2,passes=4", &[Event::SideBlock, Event::CohortNear, Event::CohortPass, Event::CohortMove]),
    ("hmcs:levels=4,near=2,passes=4", &[Event::SideBlock, Event::CohortNear, Event::CohortPass, Event::CohortMove]),
    ("cst:passes=4", &[Event::SideBlock, Event::CohortPass, Event::CohortMove, Event::CohortCulling]),
    ("shfl", &[Event::Shuffle, Event::HandoffOther]),
    ("shfl:policy=llc", &[Event::Shuffle, Event::HandoffOther]),
    ("shfl:policy=levels,shuffles=8", &[Event::Shuffle, Event::HandoffOther]),
    ("shfl:policy=ahead", &[Event::HandoffOther]),
    ("shfl:policy=cr,shuffles=8", &[Event::HandoffOther]),
    ("shfl:policy=priority", &[Event::HandoffOther]),
    ("shfl:policy=none", &[Event::HandoffOther]),
    ("mcscr:eldest=4", &[Event::Cull, Event::Reprovision, Event::Eldest]),
    ("mcscr:eldest=4,wait=park", &[Event::Cull, Event::Reprovision, Event::Eldest]),
    ("mcscrn:eldest=4", &[Event::Cull, Event::Eldest, Event::Rehome]),
    ("lifo-cr:eldest=4", &[Event::Eldest]),
    ("loiter:bound=50", &[Event::Grant]),
    ("loiter-cna:bound=50,threshold=8", &[Event::Grant, Event::HandoffOther]),
];

/// What must not happen: a policy that is to move no waiter moves one.
const NEVER: [(&str, &[Event]); 2] =
    [("shfl:policy=ahead", &[Event::Shuffle]), ("shfl:policy=none", &[Event::Shuffle, Event::WakeAhead])];

/// The waits that spin. Where threads outnumber CPUs, a queue that hands itself to descheduled spinners is too slow for
/// the same checks: fewer threads, and fewer checks.
const SPINNING: [Choice; 9] = [
    ("mcs:wait=spin", &[Event::HandoffOther]),
    ("cna:wait=spin,threshold=8,reduction=2", &[Event::Alteration, Event::HandoffOther]),
    ("mcs-tp:wait=spin", &[Event::Evict]),
    ("mcscr:wait=spin,eldest=4", &[Event::Cull, Event::Reprovision]),
    ("mcscr:wait=spin,evict=1,eldest=4", &[Event::Cull, Event::Evict]),
    ("mcscrn:wait=spin,evict=1,eldest=4", &[Event::HandoffOther, Event::Evict]),
    ("shfl:wait=spin", &[Event::HandoffOther]),
    ("shfl-spin", &[Event::HandoffOther]),
    ("shfl-spin:policy=levels", &[Event::HandoffOther]),
];
/// The waits for which a CPU must be made. Where it is not, they are counted as skipped.
const RESTING: [Choice; 3] = [
    ("mcs:wait=umwait", &[Event::HandoffOther]),
    ("qspin-cna:wait=umwait,flush=3", &[Event::Alteration, Event::HandoffOther]),
    ("shfl:wait=umwait", &[Event::Shuffle, Event::HandoffOther]),
];
/// So few that a round of slices passes quickly, and so many that there are two waiters to choose from.
const SPINNERS: u32 = 4;
const GLOBS_OF_SPINNERS: [&str; 1] = ["mutex_timed.*"];

/// A readers-writer lock whose readers soon use distributed counters, and soon the central one again.
const READING: [Choice; 2] = [
    ("cst-rw:meetings=1,writers=4", &[Event::RwDistributed, Event::RwTogether]),
    ("cst-rw:meetings=1,writers=1,wait=park,bound=50", &[Event::RwDistributed, Event::RwTogether, Event::RwPassed]),
];

/// The checks in which waiters are many, or give up.
const GLOBS: [&str; 4] = ["mutex_kinds.*", "mutex_timed.*", "cond_timed.*", "cond_stress.*"];
/// The scenarios that contend most.
const SCENARIOS: [&str; 7] = ["counter", "list", "trylock", "timed", "cond", "broadcast", "condtimed"];
const GLOBS_OF_READERS: [&str; 1] = ["rwlock*"];
const SCENARIOS_OF_READERS: [&str; 3] = ["rw", "rw-timed", "rw-last-frees"];
const THREADS: u32 = 8;

/// Orders of calls that are not the default, for two stopped threads. Not in full: there each of these checks takes
/// hours.
const ORDERED: [&str; 2] = ["flash:cond=lifo:0", "mcs:cond=lifo:1/2"];
const GLOBS_OF_ORDERED: [&str; 1] = ["slow_motion.cond_*"];

/// A bound (µs) that is not over before the memory of a mutex changes under its waiters: none may get up at its end,
/// and take what is there for the lock. (Readers-writer locks do: limits.md.)
const LONG_BOUND: u32 = 500_000;
const GLOBS_OF_LONG_BOUNDS: [&str; 1] = ["exit.memory_*"];

/// How often a contended program is run for what has not happened yet: the scheduler decides which thread waits when.
/// Mostly once is enough; each time takes longer than the time before.
const ATTEMPTS: u32 = 30;

/// How many of the conformance checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All, under each choice.
    Full,
    /// Each choice runs 1/[`SHARE`] of the checks, in rotation; and all scenarios of the torture.
    Brief,
}

/// They are about codes and deadlines, which are the same code whatever the options are; it is the torture that takes
/// the paths.
const SHARE: usize = 4;

pub(crate) fn run(extent: Extent) -> Result<Tally> {
    let under = |choices: &[Choice], globs: &[&str], scenarios: &[&str], threads| {
        under(choices, globs, scenarios, threads, if extent == Extent::Full { 1 } else { SHARE })
    };
    let mut tally = under(&CHOICES, &GLOBS, &SCENARIOS, THREADS)?;
    tally += under(&SPINNING, &GLOBS_OF_SPINNERS, &SCENARIOS, SPINNERS)?;
    tally += under(&READING, &GLOBS_OF_READERS, &SCENARIOS_OF_READERS, THREADS)?;
    if umwait::is_there() {
        tally += under(&RESTING, &GLOBS, &SCENARIOS, THREADS)?;
    } else {
        for (lock, _) in RESTING {
            println!("not run: {lock}: this CPU has no umwait (WAITPKG)");
        }
        tally.skipped += RESTING.len();
    }
    let bounded = Chosen::of(with_long_bounds());
    let globs = GLOBS_OF_LONG_BOUNDS.map(String::from).to_vec();
    tally += conformance::run(&conformance::Options::share(bounded, globs, 1))?;
    if extent == Extent::Brief {
        let (orders, globs) = (ORDERED.map(String::from).to_vec(), GLOBS_OF_ORDERED.map(String::from).to_vec());
        tally += conformance::run(&conformance::Options::share(Chosen::of(orders), globs, 1))?;
    }
    Ok(tally)
}

/// Every mutex of the catalogue that has a bound, with a long one.
fn with_long_bounds() -> Vec<String> {
    let bounded = LOCKS.iter().map(|lock| &lock.facts).filter(|row| row.options.contains(&OptionId::Bound));
    bounded.map(|row| format!("{}:bound={LONG_BOUND}", row.name)).collect()
}

/// The suites under each of the choices, and the proof for each.
fn under(choices: &[Choice], globs: &[&str], scenarios: &[&str], threads: u32, share: usize) -> Result<Tally> {
    let chosen = Chosen::of(choices.iter().map(|(lock, _)| (*lock).to_owned()).collect()).on(TOPOLOGY);
    let globs = globs.iter().map(|glob| (*glob).to_owned()).collect();
    let names = scenarios.iter().map(|scenario| (*scenario).to_owned()).collect();
    let mut tally = conformance::run(&conformance::Options::share(chosen.clone(), globs, share))?;
    tally += torture::run_locks(&torture::Options::some(chosen.clone(), names, threads))?;
    for (lock, events) in choices {
        tally += watched(lock, || happens((lock, scenarios[0]), events, &chosen, threads))?;
    }
    Ok(tally)
}

/// Whether all these events happen under a lock when threads contend in a scenario.
fn happens((lock, scenario): (&str, &str), events: &[Event], machine: &Chosen, threads: u32) -> Result<Tally> {
    let mut seen = BTreeMap::new();
    for attempt in 1..=ATTEMPTS {
        for (event, count) in contend((lock, scenario), machine, threads, 0.3 * f64::from(attempt))?.events.0 {
            *seen.entry(event).or_insert(0) += count;
        }
        let forbidden = NEVER.iter().filter(|(name, _)| *name == lock).flat_map(|(_, events)| *events);
        for event in forbidden {
            if absent(&seen, &[*event])?.is_empty() {
                println!("not ok {lock}: {} {}", seen[event.name()], event.name());
                return Ok(Tally::FAILED);
            }
        }
        if absent(&seen, events)?.is_empty() {
            let counts: Vec<String> =
                events.iter().map(|event| format!("{} {}", seen[event.name()], event.name())).collect();
            println!("ok {lock}: {} (attempts: {attempt})", counts.join(", "));
            return Ok(Tally::PASSED);
        }
    }
    println!("not ok {lock}: none in {ATTEMPTS} attempts: {}", absent(&seen, events)?.join(", "));
    Ok(Tally::FAILED)
}

/// The names of those events that have not happened. One that is not even listed is an error: its name has changed.
fn absent(seen: &BTreeMap<String, u64>, events: &[Event]) -> Result<Vec<&'static str>> {
    let mut absent = Vec::new();
    for event in events {
        let name = event.name();
        if *seen.get(name).with_context(|| format!("the statistics have no event {name}"))? == 0 {
            absent.push(name);
        }
    }
    Ok(absent)
}

/// Counts what the lock does while threads contend for it.
fn contend((lock, scenario): (&str, &str), machine: &Chosen, threads: u32, seconds: f64) -> Result<RunStats> {
    let file = workspace::scratch("options")?.join("stats.json");
    let mut command = Command::new(workspace::command()?);
    let kind = if is_rw(lock) { "--rw" } else { "--lock" };
    command.args(["run", kind, lock, "--stats=json", "--stats-file"]).arg(&file).arg("--");
    command.arg(workspace::build_tests("torture", "target/torture")?.join("torture"));
    command.args([scenario, "--seconds", &seconds.to_string(), "--threads", &threads.to_string()]);
    machine.imagine(&mut command);
    Program::new(command, AGAINST_HANGS).run()?.successful()?;
    let stats = RunStats::read(&file)?;
    if stats.processes == 0 {
        bail!("no process counted under {lock}: the library was not loaded");
    }
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use flashlock_locks::parts::policy::chosen::NAMES;

    use super::*;

    /// The default needs no name.
    #[test]
    fn every_policy_is_chosen() {
        let chosen = |name: &str| {
            let option = format!("shfl:policy={name}");
            CHOICES.iter().any(|(lock, _)| lock.split(',').next() == Some(option.as_str()))
        };
        let missing: Vec<_> = NAMES[1..].iter().filter(|name| !chosen(name)).collect();
        assert!(missing.is_empty(), "no choice has the policies {missing:?}");
    }

    #[test]
    fn what_must_not_happen_is_watched_under_a_choice() {
        for (lock, events) in NEVER {
            let choice = CHOICES.iter().find(|(name, _)| *name == lock).expect("a choice");
            assert!(!events.is_empty() && events.iter().all(|event| !choice.1.contains(event)), "{lock}");
        }
    }

    #[test]
    fn what_did_not_happen_is_named() {
        let seen = BTreeMap::from([("alterations".to_owned(), 0), ("culls".to_owned(), 3)]);
        assert_eq!(absent(&seen, &[Event::Cull]).expect("listed"), Vec::<&str>::new());
        assert_eq!(absent(&seen, &[Event::Cull, Event::Alteration]).expect("listed"), ["alterations"]);
    }

    #[test]
    fn an_event_that_is_not_counted_is_an_error() {
        assert!(absent(&BTreeMap::new(), &[Event::Cull]).expect_err("refused").to_string().contains("no event culls"));
    }
}
