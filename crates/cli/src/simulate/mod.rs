//! `flashlock simulate`: runs the locks on a simulated machine.
//!
//! | module | holds |
//! |---|---|
//! | [`workloads`], [`parameters`] | the workloads by name, and what users can set of them |
//! | [`candidate`] | a lock to be simulated |
//! | [`simulated`](flashlock_measure::simulated) | one run: a workload with a lock and a number of threads |
//! | [`budget`] | memory for several runs at once |
//! | [`sweep`] | all runs, on all CPUs of the host, and the result |
//! | [`text`] | the result as tables |
//! | [`machines`] | the list of known machines, as text and as JSON |
//! | [`trace`] | a run's sections as a timeline |

mod budget;
mod candidate;
mod machines;
mod parameters;
mod place;
mod sweep;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod workloads;

use std::path::{Path, PathBuf};

use flashlock_report::chart;
use flashlock_sim::Description;
use flashlock_workloads::catalogue::{DEFAULT, WorkloadId};

use crate::failure::Failure;
use crate::lock_choice::LockNames;
use crate::suggest::did_you_mean;
use crate::usage::number;
use crate::{output, screen};
use parameters::Parameters;
use place::Where;
use sweep::Sweep;

const EXAMPLES: &str = "\
Examples:
  flashlock simulate                                       the map on 2 sockets
  flashlock simulate kvmap --machine 8x24 --locks mcs,cna,shfl
  flashlock simulate lock2 --machine 4x18x2 --threads 1,8,36,72,142 --seeds 5
  flashlock simulate randarray --machine sparc-t5 --locks mcs,mcscr --explain
  flashlock simulate --machine my.toml --plot picture.svg
  flashlock simulate --threads 8 --locks cna --trace cna.json
  flashlock simulate --machine 2x18x2 --show-machine > my.toml
  flashlock calibrate -o here.toml && flashlock simulate --machine here.toml

The locks are the same code as under `flashlock run`. The machine is a model of
caches, their coherence, and a scheduler, in virtual time. The same options give
the same figures, byte for byte. docs/fidelity.md compares the model with
measurements in papers: read it before you rely on a figure. The order of locks,
and trends, are more reliable than numbers.

Every lock runs with every number of threads, every seed and every placement of
the threads. Ratios are to the first lock.

The time line of --trace opens in https://ui.perfetto.dev and in the Firefox
Profiler. docs/simulate.md describes workloads, figures and machine files. An
installation has docs/ below share/doc/flashlock.

Ctrl-C ends it, and shows what was done until then.

Exit status: 0 simulated, 1 a run hung, lost an operation or did none, or a file
cannot be written, 2 wrong usage, 130 interrupted.";

/// The exit status after an interruption, as shells report SIGINT.
const INTERRUPTED: u8 = 130;

/// Arguments that only affect runs, and would have no effect without a run. So do the workloads' parameters.
const OF_RUNS: [&str; 12] = [
    "workload",
    "locks",
    "threads",
    "seeds",
    "placements",
    "place",
    "seed",
    "millis",
    "servers",
    "plot",
    "trace",
    "explain",
];

/// [`OF_RUNS`] with the parameters, and `others`.
fn of_runs(others: &[&'static str]) -> Vec<&'static str> {
    OF_RUNS.into_iter().chain(parameters::names()).chain(others.iter().copied()).collect()
}

/// What happens at 36, 144 or 512 CPUs? Run the locks on a simulated machine
///
/// Runs a workload under several locks on a simulated machine, which a file describes: sockets, caches, latencies,
/// scheduler. Shows throughput, fairness, and where the time goes.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// What the threads do
    #[arg(value_parser = workloads::parser(), ignore_case = true, default_value = DEFAULT.info().name)]
    workload: WorkloadId,

    /// The machine: a known one (--list-machines), or a file; ./NAME is always a file
    #[arg(long, value_name = "NAME|FILE", default_value = "2x18x2", value_hint = clap::ValueHint::FilePath)]
    machine: String,

    /// The locks, with their options as `flashlock run --lock` takes them. Ratios are to the first. By default
    /// mcs:wait=spin, tas, futex, mcs, cna, mcscr, shfl and flash; for a workload with readers, the readers-writer
    /// locks. Also possible: flat-combining, cc-synch and rcl, which run sections as closures; cas, a bare loop; and
    /// null, which is no lock, with one thread
    #[arg(long, value_name = "NAME[:OPTION=VALUE,…],…", value_parser = LockNames::ANY, hide_possible_values = true)]
    locks: Vec<String>,

    /// Numbers of threads; by default 1, 2, 4, … up to the number of CPUs, and 1.5 times that; some workloads need two
    #[arg(
        long,
        value_name = "N,…",
        allow_negative_numbers = true,
        value_delimiter = ',',
        value_parser = number(1, 4096)
    )]
    threads: Vec<u32>,

    /// How many seeds to run everything with; a seed sets the random numbers of clients and locks
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        default_value_t = 3,
        value_parser = number(1, 1000)
    )]
    seeds: u32,

    /// How many placements of the threads to run with each seed; each draws anew what --place leaves open. A second
    /// hardware thread of a core is used only when all cores have one. A thread stays where it starts, unless the
    /// scheduler moves it
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        default_value_t = 1,
        value_parser = number(1, 1000)
    )]
    placements: u32,

    /// Where threads start
    #[arg(long, value_name = "WHERE", value_enum, default_value_t)]
    place: Where,

    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = seed)]
    seed: u64,

    /// How long a run measures, in ms of virtual time; by default the workload's time (--list); with more threads than
    /// CPUs, ten time slices
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = millis)]
    millis: Option<f64>,

    #[command(flatten)]
    parameters: Parameters,

    /// Servers of rcl, each on a CPU on which no thread starts; locks are assigned to them in turn
    /// [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number(1, 64))]
    servers: Option<u32>,

    /// Multiply all latencies between caches and memory
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true, default_value_t = 1.0, value_parser = factor)]
    latencies: f64,

    /// Print the result as JSON, every run included; with --list or --list-machines, the list
    #[arg(long)]
    json: bool,

    /// Draw the result as SVG, with error bars over seeds and placements
    #[arg(long, value_name = "FILE.svg", value_parser = output::picture, value_hint = clap::ValueHint::FilePath)]
    plot: Option<PathBuf>,

    /// Show where the time of an operation goes
    #[arg(long)]
    explain: bool,

    /// Write the time line of the first run, with waits, sections and hand-offs: one lock, one number of threads
    #[arg(long, value_name = "FILE.json", value_parser = timeline, value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,

    /// List the workloads
    #[arg(long, conflicts_with_all = of_runs(&["show_machine", "machine", "latencies", "list_machines"]))]
    list: bool,

    /// List the known machines
    #[arg(long, conflicts_with_all = of_runs(&["show_machine", "machine", "latencies"]))]
    list_machines: bool,

    /// Print the description of the machine, which you can edit and use as a file
    #[arg(long, conflicts_with_all = of_runs(&["json"]))]
    show_machine: bool,
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

fn timeline(text: &str) -> Result<PathBuf, String> {
    output::ends_in("json", text, "a timeline is JSON: name a file that ends in .json")
}

fn millis(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(millis) if (0.01..=1e6).contains(&millis) => Ok(millis),
        _ => Err("must be a number of milliseconds from 0.01 to 1000000".into()),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.01..=100.0).contains(&factor) => Ok(factor),
        _ => Err("must be a number from 0.01 to 100".into()),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &'static Args) -> Result<u8, Failure> {
    if args.list {
        let list = match args.json {
            true => workloads::json()?,
            false => workloads::text(screen::width(libc::STDOUT_FILENO)),
        };
        return screen::emit(&list).map(|()| 0);
    }
    if args.list_machines {
        let list = match args.json {
            true => machines::json()?,
            false => machines::text(screen::width(libc::STDOUT_FILENO)),
        };
        return screen::emit(&list).map(|()| 0);
    }
    let machine = find(&args.machine)?;
    let machine = if args.latencies == 1.0 { machine } else { machine.with_latencies(args.latencies) };
    if args.show_machine {
        // The original text, if nothing has changed.
        let written = Description::shipped(&args.machine).filter(|_| args.latencies == 1.0).map(str::to_owned);
        return screen::emit(&written.unwrap_or_else(|| machine.text())).map(|()| 0);
    }
    // Kept until the process ends, because an interruption leaves threads at work.
    let machine: &'static Description = Box::leak(Box::new(machine));
    let sweep: &'static Sweep<'static> = Box::leak(Box::new(Sweep::new(args, machine)?));
    // A wrong path must not cost a long run.
    let plot = args.plot.as_deref().map(output::Writable::new).transpose()?;
    let trace = args.trace.as_deref().map(output::Writable::new).transpose()?;
    let (results, timeline) = sweep.run()?;
    let interrupted = results.method.interrupted;
    if interrupted && results.points.iter().all(|point| point.runs.is_empty() && point.failures.is_empty()) {
        return Err(
            Failure::new("interrupted before the first run was done: there is nothing to show").with_code(INTERRUPTED)
        );
    }
    let rendered = match args.json {
        true => results.json().map_err(Failure::new)?,
        false => text::render(&results, args.explain, screen::width(libc::STDOUT_FILENO)),
    };
    // If one output cannot be written, the others still are.
    let shown = screen::emit(&rendered);
    let drawn = plot.map(|file| match chart::draw(&results) {
        // After an interruption, there may not be enough for a picture.
        Err(_) if interrupted => Ok(()),
        drawn => file.write(&drawn.map_err(Failure::new)?),
    });
    let traced = trace.map(|file| match timeline.sections.as_slice() {
        [] if interrupted => Ok(()),
        [] => {
            Err(Failure::new("--trace: the lock was never acquired in the time that counts: no timeline was written"))
        }
        _ => file.write(&trace::render(&timeline, machine)),
    });
    shown.and(drawn.unwrap_or(Ok(()))).and(traced.unwrap_or(Ok(())))?;
    let failed = results.points.iter().any(|point| !point.failures.is_empty());
    Ok(if interrupted { INTERRUPTED } else { u8::from(failed) })
}

/// The machine that `--machine` names.
fn find(name: &str) -> Result<Description, Failure> {
    Description::find(name).map_err(|error| {
        let path = Path::new(name);
        let what = match did_you_mean(name, Description::names()) {
            _ if path.is_file() => {
                format!("{error}\nA complete description to begin with: flashlock simulate --show-machine")
            }
            // A near name says more than the names of all.
            Some(meant) if !path.exists() => {
                format!("there is no machine and no file '{name}'; {meant} (see 'flashlock simulate --list-machines')")
            }
            _ => error,
        };
        Failure::usage(format_args!("--machine: {what}"))
    })
}
