//! `flashlock compare`: a program under several locks and under glibc's, side by side, with a verdict.
//!
//! | module | holds |
//! |---|---|
//! | [`plan`] | what is to be run, under what, and how often |
//! | [`merit`] | the figure that is compared: run time, a number in the output, or the map's operations |
//! | [`process`] | one run: a process group with a time limit, its output and what it took |
//! | [`session`] | all runs: rounds, random order, when to stop |
//! | [`noise`] | a loop of constant work between the runs, which tells a noisy machine |
//! | [`text`], [`advice`] | the result for people |
//! | [`worker`] | without a program: the key-value map, as a process of its own |
//!
//! Every round runs every lock once, in random order, and ratios are taken within a round: what disturbs the machine for a while
//! disturbs all. The statistics are `flashlock_report::statistics`.

mod advice;
mod merit;
mod noise;
mod plan;
mod process;
mod session;
mod text;
pub(crate) mod worker;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use flashlock_report::chart;
use flashlock_report::results::Results;

use crate::failure::Failure;
use crate::lock_choice::{LockChoice, LockNames};
use crate::{inspect, output, screen};
use plan::Plan;
use session::Session;

/// The exit status when the program failed under a lock, and not under glibc.
const LOCK_FAILED: u8 = 3;
/// The exit status when the program fails under glibc itself: in the trial, or later and under no lock.
const FAILS_ANYWAY: u8 = 4;
/// The exit status when the metric is nowhere in the program's output.
const NO_METRIC: u8 = 5;
/// The exit status after an interruption, as a shell has it for SIGINT.
const INTERRUPTED: u8 = 130;

/// The picture that is drawn when there is no program and no `--plot`.
const PICTURE: &str = "flashlock-compare.svg";

const EXAMPLES: &str = "\
Examples:
  flashlock compare                                  this machine, in a minute
  flashlock compare -- ./server-benchmark            run time under several locks
  flashlock compare --locks shfl,mcs:wait=park -- ./bench
  flashlock compare --threads 1,8,64 -- ./bench --threads {threads}
  flashlock compare --metric 'ops/sec: ([0-9.]+)' -- ./bench
  flashlock compare --metric 'p99=([0-9.]+)ms' --lower-is-better -- ./bench
  flashlock compare --json -- ./bench > results.json

What is compared: the run time, or with --metric a number that the program
prints. REGEX is searched in its output, first standard output, then standard
error; of several matches the last one counts, and of a match its first group,
if it has one. The decimal point is '.'; commas and underscores may group three
digits. Without CMD it is a key-value map behind one mutex (CNA, EuroSys
2019, section 7.1.1), in operations per microsecond.

How: first the program is run once under glibc for each number of threads, to
see that it works; that run does not count. Then every round runs it under
glibc's mutex and under several locks, in random order, until the 95 % intervals of
all ratios are within 2 % (8 rounds at least) or the time is out (3 rounds at
least). Ratios are taken within a round. A lock is said to differ only if that
is hardly chance, the number of locks considered; that no lock differs is an
answer, too. An interruption (Ctrl-C) keeps what was measured.

The program has nothing to read: its standard input is /dev/null. When its time
is up, or after Ctrl-C, it gets SIGTERM, and SIGKILL a second later.

A lock under which the program fails, or does not end in time, is reported with
the end of its output. After two failures, or one run that did not end, a lock
is not tried again with that number of threads.

Exit status: 0 compared, 1 flashlock itself failed, 2 wrong usage or an unknown
lock, 3 the program failed under a lock, 4 it failed under glibc and under no
lock, 5 the metric is not in its output, 126 it cannot be executed, 127 it was
not found, 130 interrupted (what was measured is shown).";

/// Which lock should I use? Run a program under several locks, and compare
///
/// Runs a program under glibc's mutex and under several locks, again and again in random order, and says which lock to
/// choose, how sure that is, and under which locks the program fails.
///
/// Without a program, a small benchmark is run: a key-value map behind one mutex, with more and more threads. It takes
/// about a minute, and draws a picture.
#[derive(clap::Args, Default)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The locks, with their options as `flashlock run --lock` takes them; by default the principal
    /// ones: tas, futex, ticket, mcs, cna, mcscr and shfl
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…],…", value_parser = LockNames::MUTEXES, hide_possible_values = true)]
    locks: Vec<String>,

    /// Numbers of threads: each replaces `{threads}` in CMD; by default 1, as many as CPUs, and four times as many. Without CMD:
    /// 1, 2, 4, … up to 32 times the CPUs
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,

    /// How often the program is run under each lock; by default until the result is clear or the time is out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,

    /// After so many seconds no new round begins
    #[arg(long, value_name = "SECONDS", visible_alias = "max-time", value_parser = seconds, conflicts_with = "runs")]
    time: Option<f64>,

    /// A run that takes longer than this many seconds is ended and counts as failed; by default 20 times as long as under
    /// glibc, and 10 s at least
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<f64>,

    /// Compare a number in the program's output instead of its run time; more is better
    #[arg(long, value_name = "REGEX", requires = "command")]
    metric: Option<String>,

    /// Of the number that --metric finds, less is better
    #[arg(long, requires = "metric")]
    lower_is_better: bool,

    /// What the random order is made from; by default the time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Print the result as JSON, every run included
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print every run as comma-separated values
    #[arg(long)]
    csv: bool,

    /// Draw the result; without CMD, into flashlock-compare.svg if nothing else is said
    #[arg(long, value_name = "FILE.svg", value_hint = clap::ValueHint::FilePath)]
    plot: Option<PathBuf>,

    /// Work between two operations of the map: rounds of a random number generator, about a nanosecond each
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "command")]
    external: u32,

    /// The program and its arguments; none for the key-value map
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    #[arg(value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number of seconds from 0.1 to 1000000".into()),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let plan = Plan::new(args)?;
    let picture = match &args.plot {
        Some(file) => Some(file.clone()),
        None if args.command.is_empty() && !args.json && !args.csv => Some(PICTURE.into()),
        None => None,
    };
    // A wrong path must not cost a long run.
    args.plot.as_deref().map(output::Writable::new).transpose()?;
    if let Some(program) = args.command.first() {
        inspect::warn_if_out_of_reach(program);
    }
    let results = Session::new(&plan)?.run()?;
    emit(args, &plan, &results)?;
    if let Some(file) = picture {
        // After an interruption there may be nothing to draw, and it was no failure.
        let must = args.plot.is_some() && !results.method.interrupted;
        draw(&results, &file, must, !args.json && !args.csv)?;
    }
    Ok(status(&results))
}

/// What `flashlock run` does without a program: the map, for a few seconds, under one lock.
pub(crate) fn demonstrate(lock: &LockChoice) -> Result<u8, Failure> {
    let threads = (4 * flashlock_native::sys::usable_cpus()).clamp(8, 4096) as u32;
    let args = Args { locks: vec![lock.text.clone()], threads: vec![threads], time: Some(6.0), ..Args::default() };
    let plan = Plan::new(&args)?;
    let results = Session::new(&plan)?.run()?;
    emit(&args, &plan, &results)?;
    Ok(status(&results))
}

fn emit(args: &Args, plan: &Plan, results: &Results) -> Result<(), Failure> {
    let text = match () {
        () if args.json => results.json().map_err(Failure::new)?,
        () if args.csv => results.csv(),
        () => text::render(results, plan, screen::width(libc::STDOUT_FILENO)),
    };
    screen::emit(&text)
}

/// Draws the picture. Where it need not be, what goes wrong is no failure.
fn draw(results: &Results, file: &Path, must: bool, tell: bool) -> Result<(), Failure> {
    let drawn = chart::draw(results).map_err(Failure::new);
    let written = drawn.and_then(|svg| fs::write(file, svg).map_err(|error| output::cannot_write(file, &error)));
    match written {
        Ok(()) if tell => screen::emit(&format!("\nThe picture is in {}.\n", file.display())),
        Ok(()) => Ok(()),
        Err(failure) if must => Err(failure),
        Err(failure) => {
            screen::complain(Some("warning"), &failure.to_string());
            Ok(())
        }
    }
}

/// The exit status of a comparison that was made.
fn status(results: &Results) -> u8 {
    let failed = |glibc: bool| {
        let mut points = results.points.iter().filter(|point| (point.lock == results.baseline()) == glibc);
        points.any(|point| !point.failures.is_empty())
    };
    match () {
        () if results.method.interrupted => INTERRUPTED,
        () if failed(false) => LOCK_FAILED,
        () if failed(true) => FAILS_ANYWAY,
        () => 0,
    }
}
