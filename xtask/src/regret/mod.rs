//! `cargo xtask regret`: would a program have done better with another lock?
//!
//! One benchmark (`tests/regret`), compiled over each of glibc's mutex, what people embed instead of it, and our locks.
//! Over a grid of sections, work outside and numbers of threads it says of each lock how near it comes to the best one,
//! and to what is physically possible. It is a benchmark, no test: whatever comes out, the exit status is 0.

mod ablation;
mod contestants;
mod runs;
mod store;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use clap::{Args, ValueEnum};
use flashlock_report::provenance::Provenance;
use flashlock_report::regret::cells::{self, Cell, Grid};
use flashlock_report::regret::page::{Page, Part, SCHEMA, VERSION};
use flashlock_report::regret::{self, Mode, Summary};

use crate::results::origin;
use crate::setup;
use crate::steps::Tally;
use crate::workspace;
use contestants::Contestant;
pub(crate) use contestants::packages;
use runs::Plan;
use store::Store;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    contestants: contestants::Compared,
    /// Also measure builds of `flash` that each lack one mechanism
    #[arg(long)]
    ablation: bool,
    /// The share of the cells to measure
    #[arg(long, value_enum, default_value = "third")]
    cells: Extent,
    /// Measure only cells whose names contain this text, such as '3 µs' or '.25 µs outside, 4 threads'
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Measure threads that wait for each other on condition variables, such as 'in turn, 2 µs outside, 2 threads'
    #[arg(long)]
    conditions: bool,
    /// Measure the held-out cells instead of the others; only when the design of a lock is finished
    #[arg(long)]
    held_out: bool,
    /// Run a process that computes at the same time
    #[arg(long)]
    hog: bool,
    /// Run all threads on one CPU
    #[arg(long, conflicts_with = "hog")]
    one_cpu: bool,
    /// How often everything is repeated
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each run measures, in ms, without long runs that look for long waits; by default 100 or more, as the
    /// cell needs
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    ms: Option<u64>,
    /// Repeat a run that other programs disturb, for up to so many seconds (at least twice)
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    patience: u64,
    /// Keep finished runs in this file; the same command later does what is missing in it
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Repeat those runs of the file that other programs disturbed
    #[arg(long, requires = "resume")]
    again: bool,
    /// The lock whose worst cells are listed; by default the first of ours
    #[arg(long, value_name = "NAME")]
    of: Option<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Measure nothing; write docs/results/regret.md, .svg and .json from all runs in the file: with and without a
    /// competing process, on one CPU, and of the held-out cells. The contestants must be the same
    #[arg(long, requires = "resume")]
    #[arg(conflicts_with_all = ["conditions", "hog", "one_cpu", "held_out", "filter", "json"])]
    page: bool,
    /// First install the Debian packages of the rivals
    #[arg(long)]
    install: bool,
}

/// How many cells.
#[derive(Clone, Copy, ValueEnum)]
enum Extent {
    /// Every ninth
    Quick,
    /// Every third
    Third,
    /// All
    All,
}

impl Extent {
    /// One cell in so many.
    fn one_in(self) -> usize {
        match self {
            Self::Quick => 9,
            Self::Third => 3,
            Self::All => 1,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let grid = if options.conditions { Grid::Conditions } else { Grid::Mutexes };
    let cells = grid.chosen(options.cells.one_in(), options.held_out, options.filter.as_deref());
    let cells = cells.map_err(Error::msg)?;
    if options.install {
        setup::install(contestants::packages())?;
    }
    let mut compared = options.contestants.clone();
    if options.ablation {
        compared.lib.extend(ablation::libraries()?);
    }
    let mut contestants = contestants::prepare(&compared)?;
    if grid == Grid::Conditions {
        contestants.retain(|contestant| contestant.conditions);
    }
    let of = judged(options, &contestants)?;
    if options.page {
        let store = Store::open(options.resume.as_deref(), &contestants[0].program)?;
        return write_page(&store, &contestants, &of);
    }
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
        again: options.again,
    })?;
    let names = Contestant::names(&contestants);
    let summary = Summary::of(grid, mode, &store.of(&contestants), &cells, &names, cpus(mode));
    if options.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{}", regret::text(&summary, &of, options.held_out));
    }
    Ok(())
}

/// Writes all three files.
fn write_page(store: &Store, contestants: &[Contestant], of: &str) -> Result<()> {
    let parts = Part::all(&store.of(contestants), &Contestant::names(contestants), cpus);
    if parts.is_empty() {
        bail!("the file has no runs of these contestants as they are built now");
    }
    // A page does not say where the file lies on this machine.
    let name = |word: String| {
        let name = Path::new(&word).file_name().filter(|_| word.starts_with('/'));
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or(word)
    };
    let command = std::env::args().skip(1).filter(|word| word != "--page").map(name);
    let command = ["cargo", "xtask"].map(str::to_owned).into_iter().chain(command).collect();
    let others = contestants.iter().filter(|contestant| !contestant.ours);
    let page = Page {
        parts,
        of,
        others: others.map(|one| (one.name.as_str(), one.version.as_str())).collect(),
        machine: store.machine(),
        provenance: Provenance { schema: SCHEMA.to_owned(), version: VERSION, ..origin::now(command)? },
    };
    let files = [("svg", page.picture()?), ("md", page.markdown()), ("json", page.json()?)];
    let file = |ending| workspace::path("docs/results").join(format!("regret.{ending}"));
    files.iter().try_for_each(|(ending, text)| workspace::write(&file(ending), text))
}

/// A cell of each grid under glibc's mutex and the default lock, for a moment; and one under a lock that does not
/// exclude, which must be detected. Speed is not checked.
pub(crate) fn smoke() -> Result<Tally> {
    /// How often the broken lock may go unnoticed: its threads must meet.
    const TRIES: u32 = 20;
    let cell = |name| cells::named(name).with_context(|| format!("no cell is called {name}"));
    let cells = [cell("3 µs, 2 µs outside, 4 threads")?, cell("barrier, 2 µs outside, 4 threads")?];
    let contestants = contestants::prepare(&contestants::Compared::glibc_and_default())?;
    let plan = |cells, contestants, rounds| Plan {
        mode: Mode::Plain,
        cells,
        beside: &[],
        contestants,
        rounds,
        window_ms: Some(20),
        // So many that no run is disturbed, and none repeated.
        cpus: u32::MAX,
        patience: Duration::ZERO,
        again: false,
    };
    let mut store = Store::open(None, &contestants[0].program)?;
    store.complete(&plan(&cells, &contestants, 2))?;
    let names = Contestant::names(&contestants);
    let mut tally = Tally::default();
    for grid in Grid::ALL {
        let summary = Summary::of(grid, Mode::Plain, &store.of(&contestants), &cells, &names, 1);
        let whole = summary.runs == 2 * contestants.len() && summary.failures.is_empty() && summary.judged.len() == 1;
        println!(
            "{} regret, {grid:?}: every run is there, and every lock excludes",
            if whole { "ok" } else { "not ok" }
        );
        summary.failures.iter().for_each(|failure| println!("{failure}"));
        tally += if whole { Tally::PASSED } else { Tally::FAILED };
    }
    let broken = contestants::broken()?;
    let mut store = Store::open(None, &contestants[0].program)?;
    store.complete(&plan(&cells[..1], &broken, TRIES))?;
    let found = store.of(&broken).iter().any(|run| run.failure().contains("does not exclude"));
    println!("{} regret: a lock that does not exclude is found out", if found { "ok" } else { "not ok" });
    tally += if found { Tally::PASSED } else { Tally::FAILED };
    Ok(tally)
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
    if mode == Mode::Hog { Vec::new() } else { cells.iter().filter_map(|cell| cell.alone()).flatten().collect() }
}

fn cpus(mode: Mode) -> u32 {
    match mode {
        Mode::OneCpu => 1,
        _ => std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1)),
    }
}
