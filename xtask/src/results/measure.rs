//! The runs themselves: rounds, random order, and what each program printed.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use super::benches::{Bench, Cell, Metric};
use super::statistics::{Random, Spread};
use crate::child::Program;
use crate::locks::Under;
use crate::workspace;

/// What one run printed.
pub(crate) struct Sample {
    pub(crate) lock: String,
    pub(crate) round: u32,
    /// Which group and which cell of it.
    pub(crate) place: (usize, usize),
    pub(crate) printed: Map<String, Value>,
}

/// All runs of one bench.
pub(crate) struct Measured {
    /// glibc first.
    pub(crate) locks: Vec<String>,
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    pub(crate) samples: Vec<Sample>,
    /// The runs that failed, in words.
    pub(crate) failures: Vec<String>,
}

/// Runs a bench: in each round, every cell under every contestant.
pub(crate) fn run(
    bench: &Bench,
    programs: &Path,
    contestants: &[(String, Under)],
    seconds: f64,
    rounds: u32,
) -> Result<Measured> {
    let program = workspace::require(programs.join(bench.program), "see tests/bench/build.sh")?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let locks = contestants.iter().map(|(name, _)| name.clone()).collect();
    let mut measured = Measured { locks, rounds, seconds, seed, samples: Vec::new(), failures: Vec::new() };
    let mut random = Random::new(seed);
    let cells: usize = bench.groups.iter().map(|group| group.cells.len()).sum();
    let progress = progress(bench, u64::from(rounds) * (cells * contestants.len()) as u64)?;
    for round in 0..rounds {
        for (group, cell, place) in places(bench) {
            let mut order: Vec<&(String, Under)> = contestants.iter().collect();
            random.shuffle(&mut order);
            for (lock, under) in order {
                match run_once(&program, cell, under, seconds) {
                    Ok(printed) => measured.samples.push(Sample { lock: lock.clone(), round, place, printed }),
                    Err(error) => {
                        let heading = &cell.heading;
                        measured.failures.push(format!("{lock}, {group}, {heading}, round {}: {error:#}", round + 1));
                    }
                }
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(measured)
}

fn progress(bench: &Bench, runs: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} runs, {eta} left")?;
    Ok(ProgressBar::new(runs).with_style(style).with_message(bench.name))
}

/// All cells, with their group's title and their place.
fn places(bench: &Bench) -> impl Iterator<Item = (&str, &Cell, (usize, usize))> {
    bench.groups.iter().enumerate().flat_map(|(g, group)| {
        group.cells.iter().enumerate().map(move |(c, cell)| (group.title.as_str(), cell, (g, c)))
    })
}

fn run_once(program: &Path, cell: &Cell, under: &Under, seconds: f64) -> Result<Map<String, Value>> {
    let mut command = Command::new(program);
    command.args(&cell.arguments).args(["--seconds", &seconds.to_string()]);
    under.apply(&mut command, &[]);
    // A lock that collapses may need long for the last hand-overs; one that hangs needs for ever.
    let done = Program::new(command, Duration::from_secs_f64(seconds * 2.0 + 30.0)).run()?;
    if !done.ok() {
        bail!("{}; {}", done.ending(), done.stderr.lines().last().unwrap_or("it says nothing"));
    }
    let printed: Map<String, Value> =
        serde_json::from_str(done.stdout.trim()).context("the program did not print JSON")?;
    match printed.get("format").and_then(Value::as_str) {
        Some("flashlock-bench/1") => Ok(printed),
        other => bail!("the program prints the format {other:?}, not flashlock-bench/1"),
    }
}

impl Measured {
    /// One figure of one lock in one cell, by round.
    fn by_round(&self, lock: &str, place: (usize, usize), metric: &Metric) -> Vec<(u32, f64)> {
        let here = self.samples.iter().filter(|sample| sample.lock == lock && sample.place == place);
        here.filter_map(|sample| Some((sample.round, sample.printed.get(metric.field)?.as_f64()?))).collect()
    }

    /// One figure of one lock in one cell, of every run that succeeded.
    pub(crate) fn runs(&self, lock: &str, place: (usize, usize), metric: &Metric) -> Vec<f64> {
        self.by_round(lock, place, metric).into_iter().map(|(_, value)| value).collect()
    }

    /// A figure over all rounds. `None` if no run succeeded.
    pub(crate) fn figure(&self, lock: &str, place: (usize, usize), metric: &Metric) -> Option<Spread> {
        Spread::of(&self.runs(lock, place, metric))
    }

    /// The figure divided by glibc's of the same round, over all rounds in which both succeeded.
    pub(crate) fn ratio(&self, lock: &str, place: (usize, usize), metric: &Metric) -> Option<Spread> {
        let glibc = self.by_round("glibc", place, metric);
        let ratio = |(round, value): (u32, f64)| {
            let (_, base) = glibc.iter().find(|(other, base)| *other == round && *base > 0.0)?;
            Some(value / base)
        };
        Spread::of(&self.by_round(lock, place, metric).into_iter().filter_map(ratio).collect::<Vec<_>>())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const SPEED: Metric = Metric { field: "speed", title: "Speed, m/s", better: "more is better" };

    /// Two rounds of two locks in one cell; in the second the machine is half as fast.
    pub(crate) fn measured() -> Measured {
        let sample = |lock: &str, round, speed: f64| Sample {
            lock: lock.to_owned(),
            round,
            place: (0, 0),
            printed: Map::from_iter([("speed".to_owned(), speed.into())]),
        };
        Measured {
            locks: vec!["glibc".into(), "mcs".into(), "broken".into()],
            rounds: 2,
            seconds: 0.1,
            seed: 1,
            samples: vec![
                sample("glibc", 0, 100.0),
                sample("mcs", 0, 150.0),
                sample("mcs", 1, 75.0),
                sample("glibc", 1, 50.0),
            ],
            failures: vec!["broken, round 1: killed by signal 11".into()],
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let ratio = measured().ratio("mcs", (0, 0), &SPEED);
        assert_eq!(ratio, Some(Spread { median: 1.5, min: 1.5, max: 1.5 }));
        let figure = measured().figure("mcs", (0, 0), &SPEED);
        assert_eq!(figure, Some(Spread { median: 112.5, min: 75.0, max: 150.0 }));
    }

    #[test]
    fn a_lock_that_never_succeeded_has_no_figures() {
        assert_eq!(measured().ratio("broken", (0, 0), &SPEED), None);
        assert_eq!(measured().figure("broken", (0, 0), &SPEED), None);
    }
}
