//! `flashlock compare`: runs a program with several locks and with glibc's, side by side, and gives a verdict.
//!
//! | module | holds |
//! |---|---|
//! | [`plan`] | what is run, with which locks, and how often |
//! | [`contestant`], [`rivals`] | the compared locks; C++ locks that a program must be written for |
//! | [`merit`] | the figure that is compared: run time, a number in the output, or the map's operations |
//! | [`process`] | one run: a process group with a time limit, its output and its resources |
//! | [`schedule`] | how long it will take, and what fits into the time |
//! | [`session`] | all runs: rounds, random order, when to stop |
//! | [`noise`](flashlock_measure::noise) | a loop of constant work between the runs, which detects a noisy machine |
//! | [`text`], [`advice`] | the result as text |
//! | [`worker`] | without a program: the key-value map, as a process of its own |
//!
//! Every round runs every lock once, in random order. Ratios are taken within a round, so a temporary disturbance of
//! the machine affects all locks. The statistics are in `flashlock_report::statistics`.

mod advice;
mod contestant;
mod merit;
mod plan;
mod process;
mod rivals;
mod schedule;
mod session;
mod text;
pub(crate) mod worker;

use std::ffi::OsString;
use std::path::PathBuf;

use flashlock_report::chart;
use flashlock_report::results::Results;

use crate::failure::Failure;
use crate::lock_choice::{LockChoice, LockNames};
use crate::usage::number;
use crate::{inspect, output, screen};
use plan::Plan;
use schedule::Until;
use session::{Measured, Session};

/// The exit status if there is no answer: there is no verdict on any lock.
const NO_ANSWER: u8 = 3;
/// The exit status if there is no answer because the program fails with glibc itself.
const FAILS_ANYWAY: u8 = 4;
/// The exit status if the program's output does not contain the metric.
const NO_METRIC: u8 = 5;
/// The exit status after an interruption, as shells report SIGINT.
const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = "\
Examples:
  flashlock compare                        this machine, in a minute
  flashlock compare -- ./server-benchmark  the run time under several locks
  flashlock compare --locks flash,mcs:wait=park -- ./bench
  flashlock compare --threads 1,8,64 -- ./bench --threads {threads}
  flashlock compare --metric 'ops/sec: ([0-9.]+)' -- ./bench
  flashlock compare --metric 'p99=([0-9.]+)' --lower-is-better -- ./bench
  flashlock compare --rivals none --closures rcl,flat-combining,cc-synch
  flashlock compare --plot result.svg --json -- ./bench > results.json

What is compared: the run time, or with --metric a number that the program
prints. The run time says something if each run does the same work. If the
program runs for a fixed time, use --metric. flashlock looks for REGEX in the
standard output, then in the standard error. The last match counts; if the regex
has a group, its first group counts. The decimal point is '.'; commas and
underscores may separate groups of three digits.

Without CMD: a key-value map behind one mutex (CNA, EuroSys 2019, section
7.1.1), in operations per microsecond, first without work outside the lock, then
with 2 µs of it. The mutex is glibc's, one of flashlock's locks, or one that
programs embed: std (Rust), parking_lot-0.12, parking_lot-0.13, tbb, absl,
nsync. The last three are C++. They need a compiler (c++, g++, clang++, or the
one that CXX names), a directory below TMPDIR, and Debian's libtbb-dev,
libabsl-dev and libnsync-dev. Those that are not installed are left out, and a
note names them. --closures adds locks that run closures: flat-combining,
cc-synch, and variants of rcl.

How: first the program runs under glibc, to check that it works and to learn how
long it takes. That run does not count. Then each round runs it under glibc's
mutex and under all locks, in random order. Rounds continue until the 95 %
intervals of all ratios are within 2 % (after at least 8 rounds), or until the
time is up. Ratios are taken within a round. A lock is said to differ only if
chance is an unlikely explanation, corrected for the number of locks. That no
lock differs is an answer, too. Ctrl-C ends the comparison and shows what was
measured.

How long: flashlock says so at the start (of a program, after its first run),
and keeps to it. With --runs, that is a minimum: the comparison ends when all
runs are done, however slow a lock is. A verdict needs 3 rounds. If --time is
too short for all locks, the last ones are left out. Locks that turn out to be
too slow for it are given up. Notes name both.

The program's standard input is /dev/null. When its time is up, or after Ctrl-C,
it gets SIGTERM, and SIGKILL a second later.

If the program fails or times out under a lock, the end of its output is shown.
After two failures, or one time-out, the lock is not tried again with that
number of threads. A metric of 0 is no failure, but cannot be compared as a
ratio: let the program print more digits. If glibc's lock is ten times slower
than another, it has collapsed. This is no gain of the other lock, so the ratio
is not shown.

The run time of a program that ends within 50 ms is mostly start-up, so it is
not ranked. Give the program more work, or use --metric.

Exit status: 0 there is an answer, even if a lock failed or timed out; 1
flashlock itself failed; 2 wrong usage or an unknown lock; 3 there is no answer,
because there were too few rounds, the program is too short, it works under no
lock, or the metric is 0; 4 there is no answer, because the program fails under
glibc; 5 the output does not contain the metric; 126 the program cannot be
executed; 127 it was not found; 130 interrupted (what was measured is shown).
With --runs 1 or 2, the figures are the answer.";

/// Find the best lock: run a program under several locks, and compare
///
/// Runs a program under glibc's mutex and under several locks, repeatedly and in random order. Then it tells you which
/// lock to use, how certain that is, and under which locks the program fails.
///
/// Without a program, it runs a small benchmark: a key-value map behind one mutex, with one to many threads, without
/// work outside the lock and with 2 µs of it. This takes about a minute.
#[derive(clap::Args, Default)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The locks and their options, as for `flashlock run --lock`. By default: flash, tas, futex, mcs, cna, mcscr and
    /// shfl; without CMD: flash, shfl, tas, mcs and cna
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…],…", value_parser = LockNames::MUTEXES, hide_possible_values = true)]
    locks: Vec<String>,

    /// The readers-writer lock that CMD has under each of these locks; `glibc` keeps its own. By default the lock in
    /// FLASHLOCK_RW. If that is not set: cst-rw
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…]", value_parser = LockNames::RW_LOCKS, hide_possible_values = true)]
    #[arg(requires = "command")]
    rw: Option<String>,

    /// Locks that programs embed, to compare with if there is no CMD: std, parking_lot-0.12, parking_lot-0.13, tbb,
    /// absl and nsync; or none. By default all that are installed
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "command")]
    rivals: Vec<String>,

    /// Locks that run closures, to compare with if there is no CMD: flat-combining, cc-synch, rcl (on a server, in
    /// addition to the threads), rcl-ordinary (the same lock without a server) and rcl-adaptive (on a server when that
    /// pays). By default none
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "command")]
    closures: Vec<String>,

    /// Numbers of threads, which replace `{threads}` in CMD. By default 1, the number of CPUs, and four times that;
    /// without CMD, from 1 to 16 times the number of CPUs
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = number(1, 4096))]
    threads: Vec<u32>,

    /// The number of runs under each lock. By default, runs continue until the result is clear or the time is up
    #[arg(long, value_name = "N", value_parser = number(1, 10_000))]
    runs: Option<u32>,

    /// The time limit of the whole comparison. By default 60, or longer if 3 rounds need it
    #[arg(long, value_name = "SECONDS", visible_alias = "max-time", value_parser = seconds, conflicts_with = "runs")]
    time: Option<f64>,

    /// The time limit of a run: it is ended, and counts as timed out. By default 20 times the time under glibc, and at
    /// least 10 s. If the comparison has less time left, a run gets less, but 3 times the time under glibc at least. A
    /// lock whose earlier runs succeeded is then given up, and does not count as timed out. A run may also end because
    /// the comparison's time is over. If it took more than 5 times as long as the longest other run of its lock, that
    /// lock is not recommended
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<f64>,

    /// Compare a number in the program's output instead of its run time. Higher values are better
    #[arg(long, value_name = "REGEX", requires = "command")]
    metric: Option<String>,

    /// Lower values of --metric are better
    #[arg(long)]
    lower_is_better: bool,

    /// The seed of the random order. By default, it depends on the time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Print the result as JSON, with every run
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print every run as comma-separated values
    #[arg(long)]
    csv: bool,

    /// Draw the result into this file as SVG, for light and dark pages
    #[arg(long, value_name = "FILE.svg", value_parser = output::picture, value_hint = clap::ValueHint::FilePath)]
    plot: Option<PathBuf>,

    /// Work between two operations of the map, in ns; each number gets a panel. By default 0,2000
    #[arg(long, value_name = "NS,…", value_delimiter = ',', conflicts_with = "command")]
    #[arg(value_parser = number(0, 10_000_000))]
    external: Vec<u32>,

    /// The program and its arguments; without it, the key-value map runs
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    #[arg(value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("it must be 0.1 to 1000000 seconds".into()),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    if args.lower_is_better && args.metric.is_none() {
        return Err(Failure::usage("--lower-is-better needs --metric REGEX"));
    }
    let mut plan = Plan::new(args)?;
    // A wrong path must not cost a long run.
    let picture = args.plot.as_deref().map(output::Writable::new).transpose()?;
    for program in plan.programs() {
        let inspected = inspect::program(&program)?;
        if let Some(why) = inspected.out_of_reach() {
            if inspected.inspection.cuts_off() {
                return Err(Failure::new(format_args!("there is nothing to compare: {why}")));
            }
            plan.keeps_its_locks |= inspected.inspection.program.is_none();
        }
        inspected.warn();
    }
    let measured = Session::new(&plan)?.run()?;
    emit(args, &plan, &measured)?;
    let results = &measured.results;
    match picture.map(|file| draw(results, file)) {
        // After an interruption there may be nothing to draw, which is not a failure.
        Some(Err(failure)) if !results.method.interrupted => return Err(failure),
        Some(Ok(())) if !args.json && !args.csv => {
            let file = args.plot.as_deref().map(|file| file.display().to_string()).unwrap_or_default();
            screen::emit(&format!("\nThe picture is in {file}.\n"))?;
        }
        _ => {}
    }
    Ok(status(results, &plan))
}

/// The demonstration of `flashlock run` without a program: the map, for a few seconds, with one lock.
pub(crate) fn demonstrate(lock: &LockChoice) -> Result<u8, Failure> {
    let threads = (4 * flashlock_native::sys::usable_cpus()).clamp(8, 4096) as u32;
    let args = Args {
        locks: vec![lock.text.clone()],
        rivals: vec!["none".to_owned()],
        threads: vec![threads],
        time: Some(6.0),
        ..Args::default()
    };
    let mut plan = Plan::new(&args)?;
    plan.is_demonstration = true;
    let measured = Session::new(&plan)?.run()?;
    emit(&args, &plan, &measured)?;
    Ok(status(&measured.results, &plan))
}

fn emit(args: &Args, plan: &Plan, measured: &Measured) -> Result<(), Failure> {
    let Measured { results, notes } = measured;
    let text = match () {
        () if args.json => results.json().map_err(Failure::new)?,
        () if args.csv => results.csv(),
        () => return screen::emit(&text::render(results, notes, plan, screen::width(libc::STDOUT_FILENO))),
    };
    notes.iter().for_each(|note| screen::tell(&format!("flashlock: {note}\n")));
    screen::emit(&text)
}

fn draw(results: &Results, file: output::Writable<'_>) -> Result<(), Failure> {
    file.write(&chart::draw(results).map_err(Failure::new)?)
}

/// The exit status of a completed comparison.
fn status(results: &Results, plan: &Plan) -> u8 {
    let glibc_failed = || {
        let mut points = results.points.iter().filter(|point| point.lock == results.baseline());
        points.any(|point| !point.failures.is_empty())
    };
    match () {
        () if results.method.interrupted => INTERRUPTED,
        () if is_answered(results, plan) => 0,
        () if glibc_failed() => FAILS_ANYWAY,
        () => NO_ANSWER,
    }
}

/// Whether there is an answer about some lock. With one or two rounds, which never suffice for a verdict, ratios count
/// as an answer.
fn is_answered(results: &Results, plan: &Plan) -> bool {
    use flashlock_report::statistics::verdict::LEAST_ROUNDS;
    let mut standings = results.verdicts.values().flat_map(|verdict| &verdict.standings);
    let few = matches!(plan.until, Until::Rounds(rounds) if rounds < LEAST_ROUNDS);
    standings.any(|standing| standing.p.is_some() || few)
}
