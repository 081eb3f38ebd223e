//! `cargo xtask regret`: would a program have done better with another lock?
//!
//! One benchmark (`tests/regret`), compiled over each of glibc's mutex, what people embed instead of it, and our locks. Over a grid of
//! sections, work outside and numbers of threads it says of each lock how near it comes to the best one, and to what is
//! physically possible. It is a benchmark, no test: whatever comes out, the exit status is 0.

mod cells;
mod contestants;
mod report;
mod runs;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use crate::setup;
use cells::{Cell, Extent};
use contestants::Contestant;
use runs::{Mode, Plan, Store};
use summary::Summary;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    contestants: contestants::Compared,
    /// How many of the cells
    #[arg(long, value_enum, default_value = "third")]
    cells: Extent,
    /// Only cells whose names contain this text, such as '3 µs' or '.25 µs outside, 4 threads'
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// The cells that are held out, instead of the others: not before the design of a lock is done
    #[arg(long)]
    held_out: bool,
    /// With a process beside that computes
    #[arg(long)]
    hog: bool,
    /// All threads on one CPU
    #[arg(long, conflicts_with = "hog")]
    one_cpu: bool,
    /// How often everything is repeated
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each run measures, in ms, and no long runs that look for long waits; without it, 100 or more, as the cell needs
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    ms: Option<u64>,
    /// Repeat a run that other programs disturb for up to so many seconds (twice in any case)
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    patience: u64,
    /// Keep the runs in this file as they end; the same command does what is missing in it
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// The lock whose worst cells are listed; without it, the first of ours
    #[arg(long, value_name = "NAME")]
    of: Option<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// First install the Debian packages of the rivals
    #[arg(long)]
    install: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let cells = cells::chosen(options.cells, options.held_out, options.filter.as_deref())?;
    if options.install {
        setup::install(contestants::packages())?;
    }
    let contestants = contestants::prepare(&options.contestants)?;
    let of = judged(options, &contestants)?;
    let mode = match (options.hog, options.one_cpu) {
        (true, _) => Mode::Hog,
        (_, true) => Mode::OneCpu,
        _ => Mode::Plain,
    };
    let mut store = Store::open(options.resume.as_deref(), &contestants[0].program)?;
    store.complete(&Plan {
        mode,
        cells: &cells,
        beside: &alone(mode, &cells),
        contestants: &contestants,
        rounds: options.rounds,
        window_ms: options.ms,
        cpus: cpus(mode),
        patience: Duration::from_secs(options.patience),
    })?;
    let names: Vec<&str> = contestants.iter().map(|contestant| contestant.name.as_str()).collect();
    let summary = Summary::of(mode, &store.of(&contestants), &cells, &names, cpus(mode));
    if options.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{}", report::text(&summary, &of, options.held_out));
    }
    Ok(())
}

/// The lock whose worst cells are listed.
fn judged(options: &Options, contestants: &[Contestant]) -> Result<String> {
    let Some(name) = &options.of else {
        let first = contestants.iter().find(|contestant| contestant.ours).unwrap_or(&contestants[0]);
        return Ok(first.name.clone());
    };
    if !contestants.iter().any(|contestant| contestant.name == *name) {
        bail!("--of {name}: it is not among those that are compared");
    }
    Ok(name.clone())
}

/// The cells of one thread that the physical bound follows from. There is none with a hog.
fn alone(mode: Mode, cells: &[Cell]) -> Vec<Cell> {
    if mode == Mode::Hog { Vec::new() } else { cells.iter().flat_map(|cell| cell.alone()).collect() }
}

fn cpus(mode: Mode) -> u32 {
    match mode {
        Mode::OneCpu => 1,
        _ => std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1)),
    }
}
