//! `cargo xtask instructions`: statistics that are switched off cost nothing, and an uncontended pair costs at most
//! what glibc's costs.
//!
//! Shown in instructions, which repeat exactly, and not in seconds, which do not: the benchmark of uncontended pairs
//! runs under callgrind with the ordinary preload library and with one built without the feature `stats`. Each runs
//! with two numbers of pairs; their difference leaves out what happens once, at the start.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_report::table;

use crate::child::Program;
use crate::files;
use crate::locks::{self, Under};
use crate::steps::{Tally, watched};
use crate::workspace;

#[derive(Args)]
pub(crate) struct Options {
    /// Use these locks (may be repeated, or a list with commas); by default the default lock
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    lock: Vec<String>,
    /// The number of measured pairs of lock and unlock
    #[arg(long, value_name = "PAIRS", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1000..))]
    count: u64,
}

/// What is measured: a kind of pair, and its functions.
type Pair = (&'static str, [&'static str; 2]);
const PAIRS: [Pair; 5] = [
    ("default", ["pthread_mutex_lock", "pthread_mutex_unlock"]),
    ("spin", ["pthread_spin_lock", "pthread_spin_unlock"]),
    ("sem", ["sem_wait", "sem_post"]),
    ("read", ["pthread_rwlock_rdlock", "pthread_rwlock_unlock"]),
    ("write", ["pthread_rwlock_wrlock", "pthread_rwlock_unlock"]),
];

/// A lock function that this library defines is ours, and not glibc's of the same name.
pub(crate) const LIBRARY: &str = "libflashlock_preload";

/// Instructions of a pair's functions, with all that they call.
type Costs = [u64; 2];

/// What a pair of a mutex of the default kind may cost, as a multiple of what it costs under glibc, by what the process
/// has.
const MOST: [(&str, &[&str], f64); 2] = [("one thread", &["--single"], 1.15), ("two threads", &[], 1.0)];

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let names = if options.lock.is_empty() { vec![locks::default_name()?] } else { options.lock.clone() };
    let locks = locks::select(&names)?;
    let pair = pair_program()?;
    // Both now, so that both are made from the same source.
    workspace::build()?;
    let (with, without) = (workspace::preload()?, build_without()?);

    let mut tally = Tally::default();
    let mut table = table::of_numbers(["lock", "function", "with stats", "without", "difference"]);
    // All but mutexes are the same under every lock.
    let all = locks.iter().enumerate();
    for (lock, what) in
        all.flat_map(|(i, lock)| PAIRS[..if i == 0 { PAIRS.len() } else { 1 }].iter().map(move |what| (lock, what)))
    {
        let measured = |preload: &Path| {
            let under = Under::of(&lock.name, preload.to_owned());
            watched(&lock.name, || measure(&pair, what, &under, options.count))
        };
        let (with, without) = (measured(&with)?, measured(&without)?);
        for (i, function) in what.1.iter().enumerate() {
            tally += if with[i] == without[i] { Tally::PASSED } else { Tally::FAILED };
            let each = [with[i], without[i]].map(|cost| cost as f64 / options.count as f64);
            let numbers = [each[0], each[1], each[0] - each[1]].map(|number| format!("{number:.3}"));
            table.add_row([lock.name.clone(), (*function).to_owned()].into_iter().chain(numbers));
        }
    }
    println!("instructions for each call, over {} calls:\n{table}", options.count);
    if tally.failed > 0 {
        println!("statistics that are off cost instructions");
    }
    tally += beside_glibc(&pair, &Under::of(&locks::default_name()?, with), options.count)?;
    Ok(tally)
}

/// The default lock's pair and glibc's, with the calls and the loop around them.
fn beside_glibc(pair: &Path, lock: &Under, count: u64) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut table = table::of_numbers(["a process with", "glibc", "the default lock", "ratio", "at most"]);
    for (threads, options, most) in MOST {
        let each = |under| watched(threads, || whole(pair, options, under, count)).map(|all| all as f64 / count as f64);
        let (glibc, ours) = (each(&Under::Glibc)?, each(lock)?);
        let ratio = ours / glibc;
        tally += if ratio <= most { Tally::PASSED } else { Tally::FAILED };
        let numbers = [format!("{glibc:.1}"), format!("{ours:.1}"), format!("{ratio:.3}"), format!("{most}")];
        table.add_row(std::iter::once(threads.to_owned()).chain(numbers));
    }
    println!("instructions for each pair of lock and unlock of a default mutex, over {count} pairs:\n{table}");
    if tally.failed > 0 {
        println!("an uncontended pair costs more than it may");
    }
    Ok(tally)
}

/// The instructions of `count` pairs, with all around them.
fn whole(pair: &Path, options: &[&str], under: &Under, count: u64) -> Result<u64> {
    let total = |count: u64| {
        let count = count.to_string();
        total(&callgrind(pair, under, &[], &[], &[options, &["--count", &count][..]].concat())?)
    };
    let (once, twice) = (total(count)?, total(2 * count)?);
    twice.checked_sub(once).filter(|cost| *cost >= count).with_context(|| format!("{once} and {twice} instructions"))
}

fn build_without() -> Result<PathBuf> {
    const TARGET: &str = "target/nostats";
    let arguments = ["build", "--release", "-p", "flashlock-preload", "--no-default-features", "--target-dir", TARGET];
    workspace::cargo(&arguments, Duration::from_secs(1800))?;
    let library = workspace::path(TARGET).join("release/libflashlock_preload.so");
    workspace::require(library, "its build succeeded, so its name has changed: see crates/preload/Cargo.toml")
}

/// The instructions of `count` calls.
fn measure(pair: &Path, what: &Pair, under: &Under, count: u64) -> Result<Costs> {
    let (once, twice) = (costs(pair, what, under, count)?, costs(pair, what, under, 2 * count)?);
    let mut costs = Costs::default();
    for (i, cost) in costs.iter_mut().enumerate() {
        *cost = twice[i].checked_sub(once[i]).filter(|cost| *cost >= count).with_context(|| {
            format!("{}: {} instructions for {count} calls, {} for twice as many", what.1[i], once[i], twice[i])
        })?;
    }
    Ok(costs)
}

fn costs(pair: &Path, (kind, functions): &Pair, under: &Under, count: u64) -> Result<Costs> {
    let profile = callgrind(pair, under, &[], &[], &["--kind", kind, "--count", &count.to_string()])?;
    let mut costs = Costs::default();
    for (cost, function) in costs.iter_mut().zip(functions) {
        *cost = inclusive_cost(&profile, LIBRARY, function)?;
        if *cost == 0 {
            bail!("callgrind saw no call of {function} in {LIBRARY}: is it preloaded?");
        }
    }
    Ok(costs)
}

/// The program of uncontended pairs. Fails if there is no valgrind.
pub(crate) fn pair_program() -> Result<PathBuf> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        bail!("valgrind is missing: cargo xtask setup");
    }
    workspace::require(workspace::build_tests("bench", "target/bench")?.join("pair"), "see tests/bench/build.sh")
}

/// What callgrind, called with these `options`, says of the pairs that `arguments` describe; `others` are preloaded
/// after the lock's library.
pub(crate) fn callgrind(
    pair: &Path,
    under: &Under,
    others: &[PathBuf],
    options: &[&str],
    arguments: &[&str],
) -> Result<String> {
    let mut set = |command: &mut Command| under.apply(command, others);
    Ok(profile(pair, options, arguments, &mut set)?.profile)
}

/// What callgrind says of a program, and what that printed.
pub(crate) struct Profiled {
    pub(crate) profile: String,
    pub(crate) stdout: String,
}

/// Runs a program under callgrind, in an environment that `set` changes.
pub(crate) fn profile(
    program: &Path,
    options: &[&str],
    arguments: &[&str],
    set: &mut dyn FnMut(&mut Command),
) -> Result<Profiled> {
    let out = workspace::scratch("callgrind")?.join("out");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]).args(options);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(program).args(arguments);
    set(&mut command);
    let stdout = Program::new(command, Duration::from_secs(300)).run()?.successful()?;
    Ok(Profiled { profile: files::read(&out)?, stdout })
}

/// The cost of a function and of all that it calls, from callgrind's output without compressed names: the lines of
/// numbers after `fn=`, of which the one after `calls=` is the cost of the called function.
fn inclusive_cost(profile: &str, library: &str, function: &str) -> Result<u64> {
    let (mut object, mut inside, mut sum) = ("", false, 0);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name;
        } else if let Some(name) = line.strip_prefix("fn=") {
            inside = name == function && object.contains(library);
        } else if inside && line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            sum += cost.with_context(|| format!("not a line of callgrind's output: {line}"))?;
        } else if line.starts_with("totals:") {
            break;
        }
    }
    Ok(sum)
}

/// All instructions of a program, from callgrind's output.
fn total(profile: &str) -> Result<u64> {
    let line = profile.lines().find_map(|line| line.strip_prefix("totals:")).context("callgrind gives no total")?;
    line.trim().parse().with_context(|| format!("not a number: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "version: 1\nevents: Ir\n\nob=/lib/libc.so.6\nfl=a.c\nfn=pthread_mutex_lock\n10 999\n\n\
        ob=/x/libflashlock_preload.so\nfl=???\nfn=pthread_mutex_lock\n0 40\ncfn=slow\ncalls=2 0\n0 60\n\nfn=slow\n\
        0 60\n\n\
        fn=pthread_mutex_unlock\n0 7\n\ntotals: 1066\n";

    #[test]
    fn adds_a_functions_own_cost_and_its_calls() {
        assert_eq!(inclusive_cost(PROFILE, "libflashlock_preload", "pthread_mutex_lock").expect("valid"), 100);
        assert_eq!(inclusive_cost(PROFILE, "libflashlock_preload", "pthread_mutex_unlock").expect("valid"), 7);
        assert_eq!(total(PROFILE).expect("valid"), 1066);
    }

    #[test]
    fn a_function_that_was_not_called_costs_nothing() {
        assert_eq!(inclusive_cost(PROFILE, "libflashlock_preload", "pthread_cond_wait").expect("valid"), 0);
    }
}
