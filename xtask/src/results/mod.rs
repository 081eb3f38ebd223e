//! `cargo xtask results`: the benchmark programs under glibc and under our locks, as `docs/results/*.md`, `.json`, `.svg`.
//!
//! What is compared is measured side by side: every round runs every lock once, in random order, and a lock's ratio is its
//! figure divided by glibc's of the same round. So a machine that slows down half-way slows down both.

mod axis;
mod benches;
mod chart;
mod machine;
mod measure;
mod report;
mod statistics;

use std::fs;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::locks::{self, Lock, Under};
use crate::workspace;
use benches::Bench;
use measure::Measured;

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure
    what: What,
    /// How long each run measures
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// How often everything is repeated
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only these locks and glibc's (may be repeated, or a list with commas); without it, every interposable lock
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    lock: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Lock and unlock without contention
    Pair,
    /// One hot lock, 1 to 64 threads
    Hot,
    /// Memory of a million mutexes
    Million,
    /// All three
    All,
}

impl Options {
    /// The command line that makes the same file again.
    fn command(&self, bench: &Bench) -> String {
        let mut command =
            format!("cargo xtask results {} --seconds {} --rounds {}", bench.name, self.seconds, self.rounds);
        if !self.lock.is_empty() {
            command += &format!(" --lock {}", self.lock.join(","));
        }
        command
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !(0.001..=3600.0).contains(&options.seconds) {
        bail!("--seconds wants a number from 0.001 to 3600");
    }
    let locks = ordered(locks::select(&options.lock)?);
    let programs = workspace::build_tests("bench", "target/bench")?;
    let mut contestants = vec![("glibc".to_owned(), Under::Glibc)];
    for lock in &locks {
        contestants.push((lock.name.clone(), Under::lock(&lock.name)?));
    }
    let chosen = |bench: &Bench| match options.what {
        What::Pair => bench.name == "pair",
        What::Hot => bench.name == "hot",
        What::Million => bench.name == "million",
        What::All => true,
    };
    let mut failures = 0;
    for bench in benches::all().iter().filter(|bench| chosen(bench)) {
        let measured = measure::run(bench, &programs, &contestants, options.seconds, options.rounds)?;
        failures += measured.failures.len();
        write(bench, &measured, &options.command(bench))?;
    }
    if failures > 0 {
        bail!("{failures} runs failed: they are listed in the files");
    }
    Ok(())
}

/// The default lock first, the others as in the catalogue.
fn ordered(mut locks: Vec<Lock>) -> Vec<Lock> {
    locks.sort_by_key(|lock| !lock.default);
    locks
}

fn write(bench: &Bench, measured: &Measured, command: &str) -> Result<()> {
    let directory = workspace::path("docs/results");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let machine = machine::Machine::this()?;
    let mut files = vec![
        (format!("{}.md", bench.name), report::markdown(bench, measured, &machine, command)),
        (format!("{}.json", bench.name), report::json(bench, measured, &machine, command)?),
    ];
    if bench.charted {
        files.push((format!("{}.svg", bench.name), chart::draw(bench, measured, &machine)?));
    }
    for (name, text) in files {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", workspace::shown(&path));
    }
    Ok(())
}
