//! `cargo xtask idle`: what do blocked threads cost?
//!
//! Programs may have hundreds of them, for hours. So none may use CPU time: a waiter polls for its budget, then sleeps
//! until it is woken or its deadline comes. (A timed wake-up for safety's sake comes ever more seldom.) The task
//! measures the CPU time of the process, and its context switches, over a window in which nothing happens, once all
//! threads sleep. It does not measure wall time, so a busy machine changes nothing. After a second window no thread may
//! have got up more often than a timer that doubles each time allows. A late machine makes it less often.
//!
//! The task runs every lock that can be put under a program, with every way of waiting except polling for ever
//! (`wait=spin`), which it must detect. It must also detect a thread that naps for 20 ms again and again among threads
//! that sleep, as waiters once did.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_locks::catalogue::rw::RW_LOCKS;
use flashlock_report::table;

use crate::child::Program;
use crate::locks::{Chosen, Under, note_missing_wait, with_waits};
use crate::steps::{Tally, at_once, watched};
use crate::workspace;

/// CPU time that each blocked thread may use, as a share of a CPU.
const SHARE: f64 = 0.001;
/// How often it may be switched to in the window, and the measuring thread besides.
const SWITCHES_EACH: u64 = 3;
const SWITCHES_BESIDE: u64 = 20;
/// The shortest timer (ms) that may wake a thread up for safety's sake; each is twice as long as the one before.
const FIRST_TIMER_MS: u64 = 20;
/// How many programs run at a time: they sleep.
const AT_ONCE: usize = 12;
/// Against hangs only.
const LIMIT: Duration = Duration::from_secs(300);
/// Scenarios of readers-writer locks; the others are of mutexes, and what goes with them.
const RW: &[&str] = &["readers", "writers", "behind-reader"];
/// What must be detected: a lock, if it is not glibc's, and the scenario; and what waiters do there.
const CONTROLS: [(Option<&str>, &str, &str); 2] =
    [(Some("shfl:wait=spin"), "mutex", "poll for ever"), (None, "napping", "get up every 20 ms")];

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// How long all threads have slept before measuring begins, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300)]
    settle: u64,
    /// How long to measure, twice, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1500)]
    window: u64,
    /// Run only these scenarios
    #[arg(value_name = "SCENARIO")]
    only: Vec<String>,
}

/// What a scenario cost.
#[derive(Clone, Debug, PartialEq)]
struct Cost {
    scenario: String,
    threads: u64,
    window_ms: u64,
    cpu_us: u64,
    switches: u64,
    /// Since all slept.
    asleep_ms: u64,
    /// How often the thread that got up most often has done so since then.
    got_up: u64,
}

impl Cost {
    /// Share of a CPU for each thread.
    fn share(&self) -> f64 {
        self.cpu_us as f64 / (self.window_ms * 1000 * self.threads) as f64
    }

    fn is_nothing(&self) -> bool {
        self.share() <= SHARE
            && self.switches <= SWITCHES_EACH * self.threads + SWITCHES_BESIDE
            && self.got_up <= self.timers()
    }

    /// How many timers may have fired, one after the other: FIRST, 2 * FIRST, 4 * FIRST, … One more, because the first
    /// look may have found a thread whose timer had just fired.
    fn timers(&self) -> u64 {
        u64::from((self.asleep_ms / FIRST_TIMER_MS + 1).ilog2()) + 1
    }
}

/// One run: what it is under, its name, and the scenarios.
struct Run {
    under: Under,
    name: String,
    scenarios: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let program = workspace::build_tests("idle", "target/idle")?.join("idle");
    let runs = runs(options, &scenarios(&program, &options.only)?)?;
    if let Some(first) = runs.iter().find(|run| !matches!(run.under, Under::Glibc)) {
        first.under.assert_bound(&program)?;
    }
    let results = watched("threads are blocked", || at_once(&runs, AT_ONCE, |run| costs(&program, run, options)))?;
    let mut tally = Tally::default();
    let mut table = table::of_numbers(["lock", "scenario", "threads", "% of a CPU each", "switches", "got up", ""]);
    for (run, costs) in runs.iter().zip(&results) {
        for cost in costs {
            let ok = cost.is_nothing();
            tally += if ok { Tally::PASSED } else { Tally::FAILED };
            table.add_row([
                run.name.clone(),
                cost.scenario.clone(),
                cost.threads.to_string(),
                format!("{:.4}", cost.share() * 100.0),
                cost.switches.to_string(),
                format!("{} of {}", cost.got_up, cost.timers()),
                if ok { "ok" } else { "TOO MUCH" }.to_owned(),
            ]);
        }
    }
    println!("{0} ms after {1} ms of sleep, and {0} ms more:\n{table}", options.window, options.settle);
    if options.chosen.is_everything() {
        note_missing_wait();
        for control in CONTROLS {
            tally += must_be_found(&program, options, control)?;
        }
    }
    Ok(tally)
}

/// The names of all scenarios, or of these.
fn scenarios(program: &Path, only: &[String]) -> Result<Vec<String>> {
    let mut list = Command::new(program);
    list.arg("--list");
    let listed = Program::new(list, LIMIT).run()?.successful()?;
    let mut names: Vec<String> =
        listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(name)) {
        bail!("no scenario is called {unknown}; there are {}", names.join(", "));
    }
    names.retain(|name| only.is_empty() || only.contains(name));
    Ok(names)
}

/// What is run: glibc first, then every lock with every way of waiting that sleeps.
fn runs(options: &Options, scenarios: &[String]) -> Result<Vec<Run>> {
    let mut runs = vec![Run { under: Under::Glibc, name: "glibc".to_owned(), scenarios: scenarios.to_vec() }];
    for lock in options.chosen.locks()? {
        let (base, given) = lock.name.split_once(':').unwrap_or((&lock.name, ""));
        let is_rw = RW_LOCKS.iter().any(|info| info.name == base);
        let scenarios: Vec<String> =
            scenarios.iter().filter(|name| RW.contains(&name.as_str()) == is_rw).cloned().collect();
        let names = if given.is_empty() { sleeping(base)? } else { vec![lock.name.clone()] };
        for name in names.into_iter().filter(|_| !scenarios.is_empty()) {
            runs.push(Run { under: Under::lock(&name)?, name, scenarios: scenarios.clone() });
        }
    }
    Ok(runs)
}

/// A lock with each of its waits but `spin`.
fn sleeping(name: &str) -> Result<Vec<String>> {
    with_waits(name, |wait| wait != "spin")
}

fn costs(program: &Path, run: &Run, options: &Options) -> Result<Vec<Cost>> {
    let mut command = Command::new(program);
    command.args([options.settle.to_string(), options.window.to_string()]).args(&run.scenarios);
    run.under.apply(&mut command, &[]);
    options.chosen.imagine(&mut command);
    let printed = Program::new(command, LIMIT).run()?.successful().with_context(|| format!("under {}", run.name))?;
    let mut costs = printed.lines().map(parse).collect::<Result<Vec<_>>>()?;
    costs.sort_by(|a, b| a.scenario.cmp(&b.scenario));
    if costs.len() != run.scenarios.len() {
        bail!("under {}: {} scenarios of {} said what they cost", run.name, costs.len(), run.scenarios.len());
    }
    Ok(costs)
}

/// `mutex threads=40 window_ms=1500 cpu_us=22 switches=1 asleep_ms=3300 got_up=1`
fn parse(line: &str) -> Result<Cost> {
    let mut words = line.split_whitespace();
    let scenario = words.next().unwrap_or_default().to_owned();
    let mut number = |name: &str| -> Result<u64> {
        let word = words.next().and_then(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|word| word.parse().ok()).with_context(|| format!("no {name}= in: {line}"))
    };
    Ok(Cost {
        threads: number("threads")?,
        window_ms: number("window_ms")?,
        cpu_us: number("cpu_us")?,
        switches: number("switches")?,
        asleep_ms: number("asleep_ms")?,
        got_up: number("got_up")?,
        scenario,
    })
}

/// Waiters that do this must be detected: if they pass, the measuring is broken.
fn must_be_found(
    program: &Path,
    options: &Options,
    (lock, scenario, what): (Option<&str>, &str, &str),
) -> Result<Tally> {
    let (under, name) = match lock {
        Some(lock) => (Under::lock(lock)?, lock),
        None => (Under::Glibc, "glibc"),
    };
    let run = Run { under, name: name.to_owned(), scenarios: vec![scenario.to_owned()] };
    let found = costs(program, &run, options)?.iter().any(|cost| !cost.is_nothing());
    let (ok, not) = if found { ("ok", "") } else { ("not ok", "not ") };
    println!("{ok} {name}: waiters that {what} are {not}found out");
    Ok(if found { Tally::PASSED } else { Tally::FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read() {
        let line = "mutex threads=40 window_ms=1000 cpu_us=20 switches=1 asleep_ms=2200 got_up=7";
        let cost = parse(line).expect("well-formed");
        assert!(cost.is_nothing() && cost.scenario == "mutex");
        assert!(parse("mutex threads=40 window_ms=1000 cpu_us=some switches=1").is_err());
        assert!(!Cost { cpu_us: 41_000, ..cost.clone() }.is_nothing());
        assert!(!Cost { switches: 141, ..cost.clone() }.is_nothing());
        assert!(!Cost { got_up: 8, ..cost.clone() }.is_nothing());
        assert!(Cost { got_up: 8, asleep_ms: 2540, ..cost }.is_nothing());
    }

    #[test]
    fn waits_that_poll_for_ever_are_left_out() {
        let names = sleeping("shfl").expect("it exists");
        assert!(
            names.iter().any(|name| name == "shfl:wait=park") && !names.iter().any(|name| name == "shfl:wait=spin")
        );
        assert!(sleeping("nosuchlock").is_err());
    }
}
