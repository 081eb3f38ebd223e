//! `cargo xtask bound`: for how many sections of others does a thread wait, under the locks that promise a bound?
//!
//! With n others that take the lock again and again, for sections of length s, a thread has it after (n + 2) · (s + 1
//! ms) + 100 ms. Sections are short for a while, then far longer than the bound of a millisecond; counted are the long
//! ones that begin while the thread waits. Of these, the promise allows n + 2, and as many as 100 ms hold. A count, not
//! a time, so that a busy machine changes nothing.
//!
//! Every lock whose `fair` says *bounded*, with every way of waiting that fits more threads than CPUs; and one that
//! promises nothing, which must be found out.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use flashlock_locks::catalogue::rw::RW_LOCKS;
use flashlock_locks::catalogue::{Claim, LOCKS, LockId};
use flashlock_report::table;

use crate::child::Program;
use crate::locks::{Chosen, Under, note_missing_wait, with_waits};
use crate::steps::{Tally, at_once, watched};
use crate::workspace;

/// How many others there are.
const OTHERS: [u64; 3] = [2, 3, 8];
/// What holders do in their sections.
const DO: [&str; 2] = ["sleep", "compute"];
/// So many long sections are over in 100 ms: each takes 12 ms, at least.
const BESIDE: u64 = 8;
/// Programs that run at a time: of each, one thread computes, or none.
const AT_ONCE: usize = 4;
/// Against hangs only.
const LIMIT: Duration = Duration::from_secs(600);
/// A lock that must be found out, which takes a try or two: who is passed over there is a matter of luck.
const CONTROL: &str = "futex";
const CONTROL_TRIES: u32 = 20;

#[derive(Args)]
pub(crate) struct Options {
    /// How often the thread waits in each run
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    waits: u32,
    /// Use these locks, with or without options (a list with commas); by default every lock that promises a bound
    #[arg(long = "lock", value_name = "NAME[:wait=…]", value_delimiter = ',')]
    locks: Vec<String>,
}

struct Run {
    lock: String,
    is_rw: bool,
    others: u64,
    does: &'static str,
}

/// What a run says.
struct Wait {
    /// For how many long sections.
    most: u64,
    longest_us: u64,
}

impl Run {
    fn allowed(&self) -> u64 {
        let name = self.lock.split(':').next().unwrap_or_default();
        let twice = LockId::from_name(name).is_some_and(|id| id.info().claims.contains(&Claim::Twice));
        (self.others + 2) * if twice { 2 } else { 1 } + BESIDE
    }
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let program = workspace::build_tests("bound", "target/bound")?.join("bound");
    let runs = runs(options)?;
    let waits = watched("threads wait", || at_once(&runs, AT_ONCE, |run| wait(&program, run, options.waits)))?;
    let mut tally = Tally::default();
    let mut table =
        table::of_numbers(["lock", "others", "sections", "most waited for", "allowed", "longest wait, ms", ""]);
    for (run, wait) in runs.iter().zip(&waits) {
        let ok = wait.most <= run.allowed();
        tally += if ok { Tally::PASSED } else { Tally::FAILED };
        table.add_row([
            run.lock.clone(),
            run.others.to_string(),
            run.does.to_owned(),
            wait.most.to_string(),
            run.allowed().to_string(),
            (wait.longest_us / 1000).to_string(),
            if ok { "ok" } else { "TOO LONG" }.to_owned(),
        ]);
    }
    println!("{table}");
    if options.locks.is_empty() {
        note_missing_wait();
        let run = Run { lock: CONTROL.to_owned(), is_rw: false, others: OTHERS[2], does: "sleep" };
        let mut tries = (0..CONTROL_TRIES).map(|_| wait(&program, &run, options.waits));
        let found = tries.find_map(|wait| {
            wait.map(|wait| wait.most > run.allowed())
                .map_or_else(|error| Some(Err(error)), |found| found.then_some(Ok(true)))
        });
        let found = found.transpose()?.unwrap_or(false);
        println!(
            "{} {CONTROL}: a lock without a bound is {}found out",
            if found { "ok" } else { "not ok" },
            if found { "" } else { "not " }
        );
        tally += if found { Tally::PASSED } else { Tally::FAILED };
    }
    Ok(tally)
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
        for (others, does) in OTHERS.into_iter().flat_map(|others| DO.map(|does| (others, does))) {
            runs.push(Run { lock: lock.clone(), is_rw, others, does });
        }
    }
    Ok(runs)
}

/// A lock with its waits. Not `spin`, where there is another: more threads than CPUs poll then, and who is next may
/// have none.
fn sensible(name: &str) -> Result<Vec<String>> {
    let sleeping = with_waits(name, |wait| wait != "spin")?;
    if sleeping.is_empty() { with_waits(name, |_| true) } else { Ok(sleeping) }
}

fn wait(program: &Path, run: &Run, waits: u32) -> Result<Wait> {
    let mut command = Command::new(program);
    command.args([if run.is_rw { "rwlock" } else { "mutex" }, &run.others.to_string(), run.does, &waits.to_string()]);
    Under::lock(&run.lock)?.apply(&mut command, &[]);
    let printed = Program::new(command, LIMIT).run()?.successful().with_context(|| format!("under {}", run.lock))?;
    parse(&printed)
}

/// `threads=8 most=7 longest_us=98062`
fn parse(line: &str) -> Result<Wait> {
    let number = |name: &str| -> Result<u64> {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|word| word.parse().ok()).with_context(|| format!("no {name}= in: {line}"))
    };
    Ok(Wait { most: number("most")?, longest_us: number("longest_us")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_that_promises_a_bound_is_run_with_each_wait() {
        let runs = runs(&Options { waits: 1, locks: Vec::new() }).expect("the catalogue is whole");
        let has = |lock: &str| runs.iter().filter(|run| run.lock == lock).count();
        assert_eq!(
            [has("shfl:wait=park"), has("loiter:wait=stp"), has("cst-rw:wait=stp"), has("mcs:wait=stp")],
            [6, 6, 6, 0]
        );
    }

    #[test]
    fn waits_are_read() {
        assert_eq!(parse("threads=8 most=7 longest_us=98062\n").expect("well-formed").most, 7);
        assert!(parse("threads=8").is_err());
    }
}
