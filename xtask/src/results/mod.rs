//! `cargo xtask results`: the benchmark programs under glibc and under our locks, as `docs/results/*.md`, `.json`,
//! `.svg`.
//!
//! What is compared is measured side by side: every round runs every lock once, in random order, and a lock's ratio is
//! its figure divided by glibc's of the same round. So a machine that slows down half-way slows down both.
//!
//! The JSON is the result, of the schema that `docs/results-schema.md` describes; page and picture follow from it, now
//! or later (`--render`).

mod benches;
mod measure;
pub(crate) mod origin;
mod programs;
mod scans;
mod studies;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use flashlock_report::results::Results;
use flashlock_report::{chart, page};

use crate::apps::Stage;
use crate::child::{AGAINST_HANGS, Program};
use crate::files;
use crate::locks::{self, Lock, Under};
use crate::setup;
use crate::workspace;
use benches::Bench;
use measure::Extent;

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure
    what: What,
    /// How long each run measures (except `compare`, `scans`, and those of `programs` with a fixed amount of work)
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// How often everything is repeated (except `compare`, which takes a minute, and `scans`)
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Use only these locks and glibc's (may be repeated, or a list with commas); by default every interposable lock
    /// (except `scans`)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    lock: Vec<String>,
    /// Measure nothing; make the page, the picture and all derived figures again from the runs in the JSON
    #[arg(long, visible_alias = "redraw", conflicts_with_all = ["seconds", "rounds", "lock"])]
    render: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Lock and unlock without contention
    Pair,
    /// One hot lock, 1 to 64 threads
    Hot,
    /// Memory of a million mutexes
    Million,
    /// Start and end of a program that does nothing
    Start,
    /// A readers-writer lock without contention
    RwPair,
    /// One hot readers-writer lock, mostly read, 1 to 64 threads
    RwHot,
    /// Real programs, from Kyoto Cabinet to Perl, by `flashlock compare`
    Programs,
    /// Our driver of LevelDB, by `flashlock compare`
    Leveldb,
    /// Our driver of Kyoto Cabinet, by `flashlock compare`
    Kyoto,
    /// The picture of the README: `flashlock compare` without a program, for a minute, with all rivals
    Compare,
    /// How far a head of the kernel's lock looks, simulated: about 12 minutes
    Scans,
    /// All of them
    All,
}

impl What {
    fn includes(self, name: &str) -> bool {
        self == Self::All || self.to_possible_value().is_some_and(|value| value.get_name() == name)
    }
}

impl Options {
    /// The command line that makes the same file again.
    fn command(&self, name: &str) -> Vec<String> {
        let mut command = format!("cargo xtask results {name}");
        let has_extent = name != MAP && name != scans::NAME;
        if has_extent {
            command += &format!(" --seconds {}", self.seconds);
        }
        if has_extent {
            command += &format!(" --rounds {}", self.rounds);
        }
        if name != scans::NAME && !self.lock.is_empty() {
            command += &format!(" --lock {}", self.lock.join(","));
        }
        command.split(' ').map(str::to_owned).collect()
    }
}

/// `flashlock compare` without a program.
const MAP: &str = "compare";

pub(crate) fn run(options: &Options) -> Result<()> {
    if !(0.001..=3600.0).contains(&options.seconds) {
        bail!("--seconds wants a number from 0.001 to 3600");
    }
    let benches: Vec<Bench> = benches::all().into_iter().filter(|bench| options.what.includes(bench.name)).collect();
    let studies: Vec<&str> = studies::NAMES.into_iter().filter(|name| options.what.includes(name)).collect();
    let map = options.what.includes(MAP);
    let scans = options.what.includes(scans::NAME);
    if options.render {
        let rest = [(map, MAP), (scans, scans::NAME)].into_iter().filter(|(is_meant, _)| *is_meant);
        let rest = rest.map(|(_, name)| name);
        return benches.iter().map(|bench| bench.name).chain(studies).chain(rest).try_for_each(|name| {
            if options.what == What::All && !file(name).exists() {
                println!("{name}: not measured yet");
                return Ok(());
            }
            render(name)
        });
    }
    let mut failures = 0;
    if !benches.is_empty() {
        failures += measure_benches(options, &benches)?;
    }
    for name in studies {
        failures += measure_study(options, name)?;
    }
    if map {
        failures += measure_map(options)?;
    }
    if scans {
        let results = scans::measure(options.command(scans::NAME))?;
        write(&results)?;
        failures += failed(&results);
    }
    if failures > 0 {
        bail!("{failures} runs failed: they are listed in the files");
    }
    Ok(())
}

/// Measures the programs of `tests/bench`; how many runs failed.
fn measure_benches(options: &Options, benches: &[Bench]) -> Result<usize> {
    let programs = workspace::build_tests("bench", "target/bench")?;
    let extent = Extent { seconds: options.seconds, rounds: options.rounds };
    let mut failures = 0;
    for bench in benches {
        let mut contestants = vec![("glibc".to_owned(), Under::Glibc)];
        for lock in ordered(locks::select_of(bench.kind, &options.lock)?) {
            if lock.kind == bench.kind {
                contestants.push((lock.name.clone(), Under::lock(&lock.name)?));
            }
        }
        let provenance = origin::now(options.command(bench.name))?;
        let results = measure::run(bench, &programs, &contestants, extent, provenance)?;
        failures += failed(&results);
        write(&results)?;
    }
    Ok(failures)
}

/// Compares the programs of a study; how many runs failed.
fn measure_study(options: &Options, name: &str) -> Result<usize> {
    let stage = Stage::new()?;
    let study = studies::prepare(name, &stage, options.seconds)?;
    let locks: Vec<String> = ordered(locks::select(&options.lock)?).into_iter().map(|lock| lock.name).collect();
    let results = programs::measure(&study, &locks, options.rounds, options.command(name))?;
    write(&results)?;
    Ok(failed(&results))
}

/// Compares what `flashlock compare` compares without a program; how many runs failed.
fn measure_map(options: &Options) -> Result<usize> {
    setup::require(crate::regret::packages(), "apt-get install them")?;
    let mut command = Command::new(workspace::command()?);
    command.args(["compare", "--json"]);
    if !options.lock.is_empty() {
        command.args(["--locks", &options.lock.join(",")]);
    }
    let mut results = origin::results_in(&Program::new(command, AGAINST_HANGS).run()?.successful()?)?;
    results.provenance = origin::now(options.command(MAP))?;
    write(&results)?;
    Ok(failed(&results))
}

fn failed(results: &Results) -> usize {
    results.points.iter().map(|point| point.failures.len()).sum()
}

/// The default lock first, the others as in the catalogue.
fn ordered(mut locks: Vec<Lock>) -> Vec<Lock> {
    locks.sort_by_key(|lock| !lock.default);
    locks
}

/// Whether these results have a picture.
fn picture(name: &str) -> bool {
    name == MAP
        || studies::NAMES.contains(&name)
        || benches::all().iter().any(|bench| bench.name == name && bench.charted)
}

/// Where these results are.
fn file(name: &str) -> PathBuf {
    workspace::path("docs/results").join(format!("{name}.json"))
}

/// Makes everything that follows from the runs anew: figures and ratios, page and picture.
fn render(name: &str) -> Result<()> {
    let hint = "measure first: the same command without --render";
    let mut results = Results::read(&workspace::require(file(name), hint)?)?;
    results.derive();
    if !results.verdicts.is_empty() {
        results.judge();
    }
    write(&results)
}

fn write(results: &Results) -> Result<()> {
    let (name, picture) = (&results.name, picture(&results.name));
    write_file(&format!("{name}.json"), &results.json()?)?;
    write_file(&format!("{name}.md"), &page::markdown(results, picture))?;
    if picture {
        write_file(&format!("{name}.svg"), &chart::draw(results)?)?;
    }
    Ok(())
}

fn write_file(name: &str, text: &str) -> Result<()> {
    let directory = workspace::path("docs/results");
    files::make(&directory)?;
    workspace::write(&directory.join(name), text)
}
