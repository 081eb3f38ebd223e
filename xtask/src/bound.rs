//! `cargo xtask bound`: for how many sections of others does a thread wait, under the locks that promise a bound?
//!
//! With n others that take the lock again and again, for sections of at most s, a thread has it after (n + 2) · (s + 1
//! ms) + 100 ms; under locks whose bound counts two sections for each of these threads (`flash`, `loiter`), after 2 ·
//! (n + 2) · (s + 1 ms) + 100 ms. The lengths of sections are drawn, from a hundredth of the bound of a millisecond to
//! a hundred times that bound. The drawn lengths of the sections that begin while the thread waits are added up. How
//! long they really took is not measured, so a busy machine changes nothing. Waits during which threads that wanted
//! the lock had no CPU are left out (see `tests/bound/bound.c`).
//!
//! The task runs every lock whose `fair` says *bounded*, with every way of waiting that fits more threads than CPUs;
//! and a thread that others pass over, which it must detect. With a readers-writer lock, the waiting thread is a
//! writer, or a reader. In some runs signals interrupt it all the time.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_locks::catalogue::rw::RW_LOCKS;
use flashlock_locks::catalogue::{Claim, LOCKS, LockId};
use flashlock_report::table;

use crate::child::Program;
use crate::locks::{self, Chosen, Under, note_missing_wait, with_waits};
use crate::steps::{Tally, at_once, watched};
use crate::workspace;

/// How many others there are.
const OTHERS: [u64; 3] = [2, 3, 8];
/// The same where waiters poll until they have the lock: more of them than CPUs would take each other's.
const OTHER_POLLS: [u64; 1] = [1];
/// What holders do in their sections.
const DO: [&str; 2] = ["sleep", "compute"];
/// They sleep, and signals interrupt the thread that waits: with this many others, instead of the first.
const INTERRUPTED: (&str, u64) = ("interrupted", 3);
/// Allowed for each section besides its length, and for the whole wait, in microseconds.
const EACH_US: u64 = 1_000;
const BESIDE_US: u64 = 100_000;
/// Programs that run at a time: of each, one thread computes, or none.
const AT_ONCE: usize = 4;
/// Against hangs only: the program gives up after half of that.
const LIMIT: Duration = Duration::from_secs(1800);
/// What must be detected: a thread that lets others have the lock many times before it asks for it. (Whether a lock
/// that promises nothing passes a thread over is a matter of luck; on one CPU, `futex` hardly ever does.)
const CONTROL: &str = "passed-over";

#[derive(Args)]
pub(crate) struct Options {
    /// How often the thread waits in each run
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    waits: u32,
    /// Draw the lengths of sections as the run did that printed this number
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u32>,
    /// Use these locks, with or without options (a list with commas); by default every lock that promises a bound
    #[arg(long = "lock", value_name = "NAME[:wait=…]", value_delimiter = ',')]
    locks: Vec<String>,
}

struct Run {
    lock: String,
    /// What the thread waits for: a mutex; to read or to write, behind writers.
    waits: &'static str,
    others: u64,
    does: &'static str,
}

/// What a run says.
#[derive(Debug, PartialEq)]
struct Waits {
    seed: u32,
    /// One of them at least.
    judged: Vec<Wait>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Wait {
    /// How long the sections are that began meanwhile, all together, and the longest of them.
    passed_us: u64,
    longest_us: u64,
    took_us: u64,
}

impl Run {
    fn allowed_us(&self, wait: &Wait) -> u64 {
        let name = self.lock.split(':').next().unwrap_or_default();
        let twice = LockId::from_name(name).is_some_and(|id| id.info().claims.contains(&Claim::Twice));
        (self.others + 2) * (wait.longest_us + EACH_US) * if twice { 2 } else { 1 } + BESIDE_US
    }

    /// The wait that is nearest to what is allowed, or farthest beyond.
    fn worst(&self, waits: &Waits) -> Option<Wait> {
        let share = |wait: &Wait| wait.passed_us * 1000 / self.allowed_us(wait);
        waits.judged.iter().copied().max_by_key(share)
    }

    fn is_broken_by(&self, wait: &Wait) -> bool {
        wait.passed_us > self.allowed_us(wait)
    }
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let program = workspace::build_tests("bound", "target/bound")?.join("bound");
    let runs = runs(options)?;
    let waits = watched("threads wait", || at_once(&runs, AT_ONCE, |run| wait(&program, run, options)))?;
    let mut tally = Tally::default();
    let mut table = table::of_numbers([
        "lock",
        "who waits",
        "others",
        "sections",
        "waits",
        "waited for, ms",
        "allowed, ms",
        "took, ms",
        "seed",
        "",
    ]);
    for (run, waits) in runs.iter().zip(&waits) {
        let worst = run.worst(waits).with_context(|| format!("under {}: no wait", run.lock))?;
        let (verdict, said) =
            if run.is_broken_by(&worst) { (Tally::FAILED, "TOO LONG") } else { (Tally::PASSED, "ok") };
        tally += verdict;
        let ms = |us: u64| format!("{:.1}", us as f64 / 1000.0);
        table.add_row([
            run.lock.clone(),
            run.waits.to_owned(),
            run.others.to_string(),
            run.does.to_owned(),
            waits.judged.len().to_string(),
            ms(worst.passed_us),
            ms(run.allowed_us(&worst)),
            ms(worst.took_us),
            waits.seed.to_string(),
            said.to_owned(),
        ]);
    }
    println!("{table}");
    if options.locks.is_empty() {
        note_missing_wait();
        tally += control(&program, options)?;
    }
    Ok(tally)
}

/// A thread that is passed over must be detected: if it is not, the measuring is broken.
fn control(program: &Path, options: &Options) -> Result<Tally> {
    let run = Run { lock: locks::default_name()?, waits: CONTROL, others: OTHERS[2], does: "sleep" };
    let waits = wait(program, &run, &Options { waits: 1, locks: Vec::new(), ..*options })?;
    let found = run.worst(&waits).is_some_and(|worst| run.is_broken_by(&worst));
    println!("{} a thread that is passed over is found out", if found { "ok" } else { "not ok" });
    Ok(if found { Tally::PASSED } else { Tally::FAILED })
}

fn runs(options: &Options) -> Result<Vec<Run>> {
    let facts = LOCKS.iter().map(|info| &info.facts).chain(RW_LOCKS.iter().map(|info| &info.facts));
    let bounded = facts.filter(|facts| facts.fair.starts_with("bounded")).map(|facts| facts.name);
    let locks = if options.locks.is_empty() {
        bounded.map(sensible).collect::<Result<Vec<_>>>()?.concat()
    } else {
        Chosen::of(options.locks.clone()).locks()?.into_iter().map(|lock| lock.name).collect()
    };
    let mut runs = Vec::new();
    for lock in locks {
        let is_rw = RW_LOCKS.iter().any(|info| lock.split(':').next() == Some(info.name));
        let waiting: &[&str] = if is_rw { &["writer", "reader"] } else { &["mutex"] };
        let others: &[u64] = if lock.ends_with("wait=spin") { &OTHER_POLLS } else { &OTHERS };
        for (&others, does) in others.iter().flat_map(|others| DO.map(|does| (others, does))) {
            let does = if does == DO[0] && others == INTERRUPTED.1 { INTERRUPTED.0 } else { does };
            runs.extend(waiting.iter().map(|waits| Run { lock: lock.clone(), waits, others, does }));
        }
    }
    Ok(runs)
}

/// A lock with its waits. Not `spin`, where there is another.
fn sensible(name: &str) -> Result<Vec<String>> {
    let sleeping = with_waits(name, |wait| wait != "spin")?;
    if sleeping.is_empty() { with_waits(name, |_| true) } else { Ok(sleeping) }
}

fn wait(program: &Path, run: &Run, options: &Options) -> Result<Waits> {
    let mut command = Command::new(program);
    command.args([run.waits, &run.others.to_string(), run.does, &options.waits.to_string()]);
    command.args(options.seed.map(|seed| seed.to_string()));
    Under::lock(&run.lock)?.apply(&mut command, &[]);
    let printed = Program::new(command, LIMIT).run()?.successful().with_context(|| format!("under {}", run.lock))?;
    parse(&printed).with_context(|| format!("under {}", run.lock))
}

/// `seed=7 threads=8`, a line `passed_us=7012 longest_us=5012 took_us=9062` for each wait, `judged=1 left_out=0`.
fn parse(text: &str) -> Result<Waits> {
    let number = |line: &str, name: &str| -> Result<u64> {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|word| word.parse().ok()).with_context(|| format!("no {name}= in: {line}"))
    };
    let first = text.lines().next().unwrap_or_default();
    let judged = text.lines().filter(|line| line.starts_with("passed_us=")).map(|line| {
        let [passed_us, longest_us, took_us] = ["passed_us", "longest_us", "took_us"].map(|name| number(line, name));
        Ok(Wait { passed_us: passed_us?, longest_us: longest_us?, took_us: took_us? })
    });
    let waits = Waits { seed: number(first, "seed")?.try_into()?, judged: judged.collect::<Result<Vec<_>>>()? };
    if waits.judged.is_empty() {
        bail!("no wait could be judged: threads had no CPU during each, for a quarter of an hour");
    }
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_that_promises_a_bound_is_run_with_each_wait() {
        let runs = runs(&Options { waits: 1, seed: None, locks: Vec::new() }).expect("the catalogue is whole");
        let has = |lock: &str| runs.iter().filter(|run| run.lock == lock).count();
        assert_eq!(
            ["shfl:wait=park", "shfl-spin:wait=spin", "cst-rw:wait=stp", "mcs:wait=stp"].map(has),
            [6, 2, 12, 0]
        );
    }

    #[test]
    fn waits_are_read() {
        let text = "seed=7 threads=8\npassed_us=3 longest_us=2 took_us=5\npassed_us=9 longest_us=4 took_us=6\n";
        let waits = parse(text).expect("well-formed");
        assert_eq!(waits.seed, 7);
        assert_eq!(waits.judged[1], Wait { passed_us: 9, longest_us: 4, took_us: 6 });
        assert!(parse("seed=7 threads=8\njudged=0 left_out=99\n").is_err() && parse("threads=8").is_err());
    }

    #[test]
    fn sections_are_compared_with_the_longest_of_their_wait() {
        let run = Run { lock: "shfl".to_owned(), waits: "mutex", others: 2, does: "sleep" };
        let wait = |passed_us, longest_us| Wait { passed_us, longest_us, took_us: 0 };
        assert!(!run.is_broken_by(&wait(148_000, 11_000)) && run.is_broken_by(&wait(148_001, 11_000)));
        let waits = Waits { seed: 1, judged: vec![wait(120_000, 11_000), wait(110_000, 1_000)] };
        assert_eq!(run.worst(&waits), Some(wait(110_000, 1_000)));
    }
}
