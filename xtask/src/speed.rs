//! `cargo xtask speed`: how fast the simulator is.
//!
//! Steps of the simulation for each second of user CPU time, whatever else the computer does meanwhile: of each
//! workload on each machine, with threads on an eighth of its CPUs, on half of them and on all, under one lock after
//! the other. What a command does besides, from its start to its last byte, counts as well. How fast this computer is,
//! the table does not say; so `--floor` is for what is far slower than it was, and for a computer that is known.
//! `--ceiling` counts instructions instead, which are the same everywhere.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_report::results::Results;
use flashlock_report::table;
use flashlock_workloads::catalogue::WORKLOADS;

use crate::child::{Program, cpu_of_children};
use crate::steps::watched;
use crate::workspace;

#[derive(Args)]
pub(crate) struct Options {
    /// Simulate only these machines (names or files; may be repeated, or a list with commas)
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',')]
    machine: Vec<String>,
    /// Run only these workloads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    workload: Vec<String>,
    /// The number of threads for each CPU of a machine; at least two threads in all
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_values_t = [0.125, 0.5, 1.0])]
    share: Vec<f64>,
    /// The locks
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["mcs:wait=spin", "cna", "shfl", "tas"])]
    lock: Vec<String>,
    /// Run more seeds until each figure has so many seconds of CPU time
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    at_least: f64,
    /// Fail if a figure is below so many million steps
    #[arg(long, value_name = "MILLIONS")]
    floor: Option<f64>,
    /// Count instructions for each step with callgrind instead, with one seed; fail if there are more than this
    #[arg(long, value_name = "INSTRUCTIONS", conflicts_with_all = ["floor", "at_least"])]
    ceiling: Option<f64>,
    /// Another simulator than the one built last, to compare the two
    #[arg(long, value_name = "FILE")]
    simulator: Option<PathBuf>,
}

const LIMIT: Duration = Duration::from_secs(1800);
/// More than this are not tried: what takes no time at all has no figure.
const MOST_SEEDS: u32 = 1 << 12;

pub(crate) fn run(options: &Options) -> Result<()> {
    let simulator = options.simulator.clone().map_or_else(workspace::command, Ok)?;
    if let Some(name) = options.workload.iter().find(|name| WORKLOADS.iter().all(|known| known.name != **name)) {
        let known: Vec<&str> = WORKLOADS.iter().map(|known| known.name).collect();
        bail!("--workload: there is no {name}; there are: {}", known.join(" "));
    }
    let machines = match options.machine.as_slice() {
        [] => shipped(&simulated(&simulator, &["--list-machines"])?)?,
        wanted => wanted.to_vec(),
    };
    let cpus: Vec<u64> = machines.iter().map(|machine| cpus_of(&simulator, machine)).collect::<Result<_>>()?;
    let mut worst: Option<(f64, String)> = None;
    let mut table =
        table::of_numbers(["workload", "threads per CPU"].into_iter().chain(machines.iter().map(String::as_str)));
    let wanted = |name: &str| options.workload.is_empty() || options.workload.iter().any(|only| only == name);
    for work in WORKLOADS.iter().filter(|work| wanted(work.name)) {
        // Enough for its arrays to be in the caches, and threads to wait for each other.
        let (workload, millis) = (work.name, &work.brief_millis.to_string());
        for share in &options.share {
            let mut row = vec![workload.to_owned(), share.to_string()];
            for (machine, cpus) in machines.iter().zip(&cpus) {
                let threads = ((*cpus as f64 * share).round() as u64).max(2).to_string();
                let locks = options.lock.join(",");
                let words =
                    [workload, "--machine", machine, "--threads", &threads, "--locks", &locks, "--millis", millis];
                let what = format!("{workload} on {machine}, {threads} threads");
                let figure = watched(&what, || match options.ceiling {
                    Some(_) => instructions(&simulator, &words),
                    None => Ok(measure(&simulator, &words, options.at_least)? / 1e6),
                })?;
                row.push(if options.ceiling.is_some() { format!("{figure:.0}") } else { format!("{figure:.1}") });
                let is_worse = |worst: f64| if options.ceiling.is_some() { figure > worst } else { figure < worst };
                if worst.as_ref().is_none_or(|(worst, _)| is_worse(*worst)) {
                    worst = Some((figure, what));
                }
            }
            table.add_row(row);
        }
    }
    let unit = if options.ceiling.is_some() {
        "instructions for each step"
    } else {
        "million steps for each second of user CPU time"
    };
    println!("{unit} of the simulation\n{table}");
    let Some((figure, what)) = worst else { return Ok(()) };
    println!("slowest: {what}: {figure:.1}");
    if let Some(floor) = options.floor.filter(|floor| figure < *floor) {
        bail!("{what}: {figure:.2} million steps a second are below the floor of {floor}");
    }
    if let Some(ceiling) = options.ceiling.filter(|ceiling| figure > *ceiling) {
        bail!("{what}: {figure:.0} instructions a step are above the ceiling of {ceiling}");
    }
    Ok(())
}

impl Options {
    /// Everything, with such a floor.
    pub(crate) fn with_floor(floor: f64) -> Self {
        let locks = ["mcs:wait=spin", "cna", "shfl", "tas"].map(str::to_owned).to_vec();
        let (machine, workload, share) = (Vec::new(), Vec::new(), vec![0.125, 0.5, 1.0]);
        Self {
            machine,
            workload,
            share,
            lock: locks,
            at_least: 0.5,
            floor: Some(floor),
            ceiling: None,
            simulator: None,
        }
    }
}

/// Instructions for each step of a simulation, its start and its output included.
fn instructions(simulator: &Path, words: &[&str]) -> Result<f64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(simulator).arg("simulate");
    command.args(words).args(["--json", "--seeds", "1"]);
    let done = Program::new(command, LIMIT).run().context("valgrind is missing: cargo xtask setup")?;
    if !done.ok() {
        bail!("{}", done.transcript());
    }
    let count =
        collected(&done.stderr).with_context(|| format!("callgrind counted nothing:\n{}", done.transcript()))?;
    Ok(count / steps(&done.stdout)?)
}

/// What callgrind says that it has counted.
fn collected(text: &str) -> Option<f64> {
    let (_, count) = text.lines().find_map(|line| line.split_once("Collected : "))?;
    count.trim().parse().ok()
}

/// What the simulator prints.
fn simulated(simulator: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new(simulator);
    command.arg("simulate").args(words);
    Program::new(command, LIMIT).run()?.successful()
}

/// The machines of a list: a name each, and after it what is known of them, on more lines if need be.
fn shipped(list: &str) -> Result<Vec<String>> {
    let rows = list.lines().skip_while(|line| !line.starts_with('─')).skip(1);
    let first = rows.filter_map(|row| row.strip_prefix("  ").filter(|row| !row.starts_with(' ')));
    let names: Vec<String> = first.filter_map(|row| row.split(' ').next()).map(str::to_owned).collect();
    if names.is_empty() {
        bail!("the simulator lists no machines: {list}");
    }
    Ok(names)
}

/// How many CPUs a machine has.
fn cpus_of(simulator: &Path, machine: &str) -> Result<u64> {
    let text = simulated(simulator, &["--machine", machine, "--show-machine"])?;
    let described: toml::Table = text.parse().with_context(|| format!("the description of {machine}"))?;
    let count = |field: &str| described.get("topology")?.get(field)?.as_integer()?.try_into().ok();
    let fields = ["packages", "nodes_per_package", "cores_per_node", "threads_per_core"];
    let counts: Option<Vec<u64>> = fields.into_iter().map(count).collect();
    Ok(counts.with_context(|| format!("{machine} has no topology"))?.into_iter().product())
}

/// Steps a second, of a command that takes long enough to say.
fn measure(simulator: &Path, words: &[&str], at_least: f64) -> Result<f64> {
    let mut seeds = 1;
    loop {
        let (before, number) = (cpu_of_children()?.user, seeds.to_string());
        let steps = steps(&simulated(simulator, &[words, &["--json", "--seeds", &number]].concat())?)?;
        let seconds = cpu_of_children()?.user - before;
        if seconds >= at_least || seeds >= MOST_SEEDS {
            return Ok(steps / seconds);
        }
        // As many as would do, but not all at once, for the first ones may have been slow.
        seeds = (f64::from(seeds) * 1.2 * at_least / seconds.max(at_least / 8.0)).ceil() as u32;
    }
}

/// Of all runs of a result.
fn steps(json: &str) -> Result<f64> {
    let results: Results = serde_json::from_str(json).context("what the simulator printed is no result")?;
    let runs = results.points.iter().flat_map(|point| &point.runs);
    runs.map(|run| run.values.get("steps").copied().context("a run does not say how many steps it took")).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_found_in_the_list() {
        let list = "  machine   CPUs   what it is\n\
                    ──────────\n  2x2          4   2 x Something:\n                   4 cores\n  t5         128   T5\n";
        assert_eq!(shipped(list).expect("some"), ["2x2", "t5"]);
        assert!(shipped("nothing").is_err());
    }

    #[test]
    fn what_callgrind_counted_is_found() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 67981904\n==7== \n"), Some(67_981_904.0));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}
