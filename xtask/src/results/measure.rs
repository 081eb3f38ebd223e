//! The runs themselves: rounds, random order, and what each program printed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use flashlock_native::settings;
use flashlock_report::provenance::Provenance;
use flashlock_report::results::{Failed, Method, Point, Results, Run};
use flashlock_report::statistics::Random;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use super::benches::{Bench, Cell, LOCK_BYTES, lock_bytes};
use crate::child::Program;
use crate::locks::Under;
use crate::workspace;

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// How long each run measures.
    pub(crate) seconds: f64,
    /// How often everything is repeated.
    pub(crate) rounds: u32,
}

/// Runs a bench: in each round, every cell under every contestant, glibc's first in the list.
pub(crate) fn run(
    bench: &Bench,
    programs: &Path,
    contestants: &[(String, Under)],
    extent: Extent,
    provenance: Provenance,
) -> Result<Results> {
    let program = workspace::require(programs.join(bench.program), "see tests/bench/build.sh")?;
    let Extent { seconds, rounds } = extent;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut results = Results {
        provenance,
        name: bench.name.to_owned(),
        title: bench.title.to_owned(),
        about: bench.about.to_owned(),
        metrics: bench.metrics(),
        groups: bench.described(),
        locks: contestants.iter().map(|(name, _)| name.clone()).collect(),
        method: Method { rounds, seconds: Some(seconds), seed, ..Method::default() },
        points: Vec::new(),
        ..Results::default()
    };
    let cells = cells(bench);
    results.points = points(&cells, &results.locks);
    let mut random = Random::new(seed);
    let progress = progress(bench, u64::from(rounds) * results.points.len() as u64)?;
    for round in 0..rounds {
        for (c, (_, cell)) in cells.iter().enumerate() {
            let mut order: Vec<usize> = (0..contestants.len()).collect();
            random.shuffle(&mut order);
            for contestant in order {
                let point = &mut results.points[c * contestants.len() + contestant];
                match run_once(&program, cell, &contestants[contestant], seconds) {
                    Ok(printed) => point.runs.push(Run { round, values: figures(bench, &printed) }),
                    Err(error) => {
                        let how = format!("{error:#}");
                        point.failures.push(Failed { round, how, ..Failed::default() });
                    }
                }
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    results.derive();
    Ok(results)
}

fn progress(bench: &Bench, runs: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} runs, {eta} left")?;
    Ok(ProgressBar::new(runs).with_style(style).with_message(bench.name))
}

/// All cells, with their group's title.
fn cells(bench: &Bench) -> Vec<(&str, &Cell)> {
    bench.groups.iter().flat_map(|group| group.cells.iter().map(move |cell| (group.title.as_str(), cell))).collect()
}

/// A point without runs for every lock in every cell.
fn points(cells: &[(&str, &Cell)], locks: &[String]) -> Vec<Point> {
    let point = |group: &str, cell: &Cell, lock: &String| Point {
        group: group.to_owned(),
        cell: cell.heading.clone(),
        lock: lock.clone(),
        ..Point::default()
    };
    cells.iter().flat_map(|(group, cell)| locks.iter().map(move |lock| point(group, cell, lock))).collect()
}

/// The figures that count, of all that a program printed.
fn figures(bench: &Bench, printed: &Map<String, Value>) -> BTreeMap<String, f64> {
    let figure = |name: String| Some((name.clone(), printed.get(&name)?.as_f64()?));
    bench.metrics().into_iter().filter_map(|metric| figure(metric.name)).collect()
}

fn run_once(program: &Path, cell: &Cell, (lock, under): &(String, Under), seconds: f64) -> Result<Map<String, Value>> {
    let mut command = Command::new(program);
    command.args(&cell.arguments).args(["--seconds", &seconds.to_string()]);
    under.apply(&mut command, &[]);
    if let Some(topology) = cell.topology {
        command.env(settings::ENV_TOPOLOGY, topology);
    }
    // A lock that collapses may need long for the last hand-overs; one that hangs needs for ever.
    let done = Program::new(command, Duration::from_secs_f64(seconds * 2.0 + 30.0)).run()?;
    if !done.ok() {
        bail!("{}; {}", done.ending(), done.stderr.lines().last().unwrap_or("it says nothing"));
    }
    let mut printed: Map<String, Value> =
        serde_json::from_str(done.stdout.trim()).context("the program did not print JSON")?;
    if let Some(beyond) = printed.get("extra_bytes_per_mutex").and_then(Value::as_f64) {
        printed.insert(LOCK_BYTES.to_owned(), lock_bytes(lock, beyond).into());
    }
    match printed.get("format").and_then(Value::as_str) {
        Some("flashlock-bench/1") => Ok(printed),
        other => bail!("the program prints the format {other:?}, not flashlock-bench/1"),
    }
}
