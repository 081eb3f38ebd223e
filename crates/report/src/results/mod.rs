//! # The schema of measurements: `flashlock.results`
//!
//! One file for everything that is measured under several locks and compared: `flashlock compare --json` and the files
//! in `docs/results` are of it. `docs/results-schema.md` describes the fields to users; this file is what is written
//! and read.
//!
//! A *point* is one lock in one *cell* (a number of threads, say) of a *group* (a program, say); it holds all its runs.
//! What is derived from them, figures and ratios, stands beside them, so that a reader need not know the statistics;
//! [`Results::derive`] makes it, and nothing else does.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::provenance::{self, Provenance};
use crate::statistics::{Ratio, Spread, Verdict};

mod check;
mod collapse;
mod csv;
mod derive;

pub use collapse::COLLAPSE;

/// The schema's name.
pub const SCHEMA: &str = "flashlock.results";
/// The schema's version.
pub const VERSION: u32 = 1;

/// Measurements under several locks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Where they come from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// What was measured, as a word.
    pub name: String,
    /// The same as a heading.
    pub title: String,
    /// What the program does, in a sentence or two.
    pub about: String,
    /// The figures that each run may have.
    pub metrics: Vec<Metric>,
    /// What was measured, in the order in which it is to be shown.
    pub groups: Vec<Group>,
    /// Under what: locks as their users write them. The first is the baseline.
    pub locks: Vec<String>,
    /// Of these locks, those that a program must be written for: no program can be put under one. The baseline is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<String>,
    /// How it was measured.
    pub method: Method,
    /// How quiet the machine was; `null` if nobody looked.
    pub noise: Option<Noise>,
    /// Which locks differ from the baseline, over all cells of a group; groups that nobody judged are left out.
    #[serde(default)]
    pub verdicts: BTreeMap<String, Verdict>,
    /// One lock in one cell each.
    pub points: Vec<Point>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// The name by which runs have it.
    pub name: String,
    /// What it is, with its unit.
    pub title: String,
    /// What is good.
    pub better: Better,
}

/// What is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
}

impl Better {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::More => "more is better",
            Self::Less => "less is better",
        }
    }
}

/// Cells that stand in one table or panel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its heading, by which points name it.
    pub title: String,
    /// What the cells are: `threads`. Cells of that name are numbers.
    pub axis: String,
    /// The cells' headings, by which points name them.
    pub cells: Vec<String>,
    /// The metric that is compared with the baseline's.
    pub merit: String,
}

/// How it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// How often everything was repeated; the last round may be incomplete.
    pub rounds: u32,
    /// How long one run measures, in seconds, where that is not up to the program.
    pub seconds: Option<f64>,
    /// What the random order of the runs was made from.
    pub seed: u64,
    /// Whether it was stopped before it was done.
    pub interrupted: bool,
    /// If nothing was measured, but simulated: what. Then a round is one seed with one placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// The machine, by its name.
    pub machine: String,
    /// How many times as long as its description says all latencies between caches and memory were.
    pub latencies: f64,
    /// How many different seeds there were.
    pub seeds: u32,
    /// With each of them, so many placements of the threads.
    pub placements: u32,
    /// Where threads begin, as `--place` calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Reads among 100 operations, where a workload has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookups: Option<u32>,
    /// Work between two operations that users set, in ns, where they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<u32>,
    /// Virtual time before the measurement, in seconds.
    pub warm_up: f64,
    /// Of runs with more threads than the machine has CPUs: for how long they measure, in seconds, if that is longer
    /// than the others; their warm-up is longer in the same proportion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded_seconds: Option<f64>,
}

/// A loop that does the same work every time, run between the measurements: what its time does, the machine does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// How often it was run.
    pub loops: u32,
    /// The median of its time, in ns.
    pub median_ns: f64,
    /// From the 10 % fastest to the 10 % slowest, as a share of the median.
    pub spread: f64,
}

impl Noise {
    /// From this spread on a machine counts as noisy.
    pub const LOUD: f64 = 0.10;

    /// From the times of the loop, in ns. `None` for none.
    pub fn of(times: &[f64]) -> Option<Self> {
        use crate::statistics::spread::quantile;
        let at = |share| quantile(times, share);
        let median_ns = at(0.5).filter(|median| *median > 0.0)?;
        Some(Self { loops: times.len() as u32, median_ns, spread: (at(0.9)? - at(0.1)?) / median_ns })
    }
}

/// One lock in one cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The group's title.
    pub group: String,
    /// The cell's heading.
    pub cell: String,
    /// The lock.
    pub lock: String,
    /// Of each metric the median over the runs, and the ends.
    pub figures: BTreeMap<String, Spread>,
    /// The group's merit divided by the baseline's of the same round; `null` for the baseline, and where nothing can be
    /// divided.
    pub ratio: Option<Ratio>,
    /// The runs that succeeded.
    pub runs: Vec<Run>,
    /// The runs that failed, or that were not done in time.
    pub failures: Vec<Failed>,
}

/// A run that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// In which round, from 0.
    pub round: u32,
    /// Its figures, by the metrics' names. What is not known is left out.
    #[serde(flatten)]
    pub values: BTreeMap<String, f64>,
}

/// A run that failed, or that was not done in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// In which round, from 0.
    pub round: u32,
    /// How, in words: `exit status 1`, `killed by SIGSEGV`, `timed out after 10 s, killed`.
    pub how: String,
    /// Whether it only took too long: then nothing is wrong but its speed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// The end of what it printed.
    pub output: String,
}

impl Results {
    /// Reads a file. The error says what is wrong with it.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let results: Self = provenance::read(file, SCHEMA, VERSION)?;
        results.check().map_err(|what| Error::new(file, format!("does not follow '{SCHEMA}': {what}")))?;
        Ok(results)
    }

    /// The file's text: one line for each point, so that two files can be compared line by line.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let head = Self { points: Vec::new(), ..self.clone() };
        let head = serde_json::to_string_pretty(&head)?;
        let points = self.points.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        // `points` is the last field, and empty.
        let head = head.trim_end_matches(['}', '\n', ']']);
        Ok(format!("{head}\n    {}\n  ]\n}}\n", points.join(",\n    ")))
    }

    /// What the others are compared with.
    pub fn baseline(&self) -> &str {
        self.locks.first().map_or("", String::as_str)
    }

    /// The metric of that name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// One lock in one cell.
    pub fn point(&self, group: &str, cell: &str, lock: &str) -> Option<&Point> {
        self.points.iter().find(|point| point.lock == lock && point.cell == cell && point.group == group)
    }

    /// One metric of one lock in one cell.
    pub fn figure(&self, group: &str, cell: &str, lock: &str, metric: &str) -> Option<Spread> {
        self.point(group, cell, lock)?.figures.get(metric).copied()
    }

    /// One metric of one lock over all cells of a group: the median of the cells' medians, and the ends.
    pub fn figure_over_cells(&self, group: &str, lock: &str, metric: &str) -> Option<Spread> {
        let here = self.points.iter().filter(|point| point.lock == lock && point.group == group);
        Spread::of(&here.filter_map(|point| Some(point.figures.get(metric)?.median)).collect::<Vec<_>>())
    }

    /// How many runs of a lock failed, and how many there were.
    pub fn failures(&self, group: &str, lock: &str) -> (usize, usize) {
        let here = self.points.iter().filter(|point| point.lock == lock && point.group == group);
        here.fold((0, 0), |(failed, all), point| {
            (failed + point.failures.len(), all + point.failures.len() + point.runs.len())
        })
    }
}
