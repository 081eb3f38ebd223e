//! # The schema of measurements: `flashlock.results`
//!
//! One schema for all measurements that compare locks: `flashlock compare --json` and the files in `docs/results` use
//! it. `docs/results-schema.md` describes the fields to users; this module defines what is written and read.
//!
//! A *point* is one lock in one *cell* (for example, a number of threads) of a *group* (for example, a program); it
//! holds all its runs. Derived figures and ratios are stored beside them, so that a reader need not know the
//! statistics. Only [`Results::derive`] computes them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::provenance::{self, Provenance};
use crate::statistics::{Ratio, Spread, Verdict};
use crate::units;

mod check;
mod collapse;
mod csv;
mod derive;
mod parameters;
mod unfinished;

pub use collapse::COLLAPSE;
pub use parameters::Parameters;
pub use unfinished::Unfinished;

/// The schema's name.
pub const SCHEMA: &str = "flashlock.results";
/// The schema's version.
pub const VERSION: u32 = 1;

/// Measurements under several locks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The origin.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The name of the measurement: one word.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What the program does, in one or two sentences.
    pub about: String,
    /// The figures that each run may have.
    pub metrics: Vec<Metric>,
    /// The groups, in the order in which they are shown.
    pub groups: Vec<Group>,
    /// The locks in their users' notation. The first is the baseline.
    pub locks: Vec<String>,
    /// The locks among these that a program must be written for: unmodified programs cannot use them. The baseline is
    /// never one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<String>,
    /// How it was measured.
    pub method: Method,
    /// How noisy the machine was; `null` if that was not measured.
    pub noise: Option<Noise>,
    /// Which locks differ from the baseline, over all cells of a group. Groups that were not judged are left out.
    #[serde(default)]
    pub verdicts: BTreeMap<String, Verdict>,
    /// One point for each lock in each cell.
    pub points: Vec<Point>,
}

/// A metric, whose values are figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// The metric's name in runs.
    pub name: String,
    /// Its description, with the unit.
    pub title: String,
    /// Which values are better.
    pub better: Better,
}

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
}

impl Better {
    /// The direction in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::More => "more is better",
            Self::Less => "less is better",
        }
    }
}

/// Cells that are shown in one table or panel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The heading. Points refer to the group by it.
    pub title: String,
    /// The meaning of the cells, such as `threads`. Cells of that name are numbers.
    pub axis: String,
    /// The cells' headings. Points refer to the cells by them.
    pub cells: Vec<String>,
    /// The metric that is compared with the baseline's.
    pub merit: String,
}

impl Group {
    /// A cell, or a list of cells, in words: `1 thread`, `8 and 64 threads`.
    pub fn spoken(&self, cells: &str) -> String {
        let axis = self.axis.strip_suffix('s').filter(|_| cells == "1").unwrap_or(&self.axis);
        format!("{cells} {axis}").trim_end().to_owned()
    }
}

/// How it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// How often everything was repeated; the last round may be incomplete.
    pub rounds: u32,
    /// How long one run measures, in seconds, unless the program decides.
    pub seconds: Option<f64>,
    /// The seed of the random order of the runs.
    pub seed: u64,
    /// Whether the measurement was stopped early.
    pub interrupted: bool,
    /// If the results are simulated, not measured: the conditions. A round is then one seed with one placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
}

/// The conditions of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// The machine's name.
    pub machine: String,
    /// The factor by which all latencies between caches and memory were multiplied.
    pub latencies: f64,
    /// The number of different seeds.
    pub seeds: u32,
    /// The number of placements of the threads with each seed.
    pub placements: u32,
    /// Where threads start, as `--place` calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The workload's parameters, each a field of its own name.
    #[serde(flatten)]
    pub parameters: Parameters,
    /// Virtual time before the measurement, in seconds.
    pub warm_up: f64,
    /// How long runs with more threads than CPUs measure, in seconds, if that is longer than other runs. Their warm-up
    /// is longer in the same proportion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded_seconds: Option<f64>,
}

/// The times of a loop that does the same work every time and runs between the measurements. Their variation is the
/// machine's noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The number of times the loop ran.
    pub loops: u32,
    /// The median of its time, in ns.
    pub median_ns: f64,
    /// The range from the 10 % fastest to the 10 % slowest, as a share of the median.
    pub spread: f64,
}

impl Noise {
    /// If the spread is at least this, a machine counts as noisy.
    pub const LOUD: f64 = 0.10;

    /// Computed from the times of the loop, in ns. `None` if there are none.
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
    /// For each metric: the median over the runs, and the extremes.
    pub figures: BTreeMap<String, Spread>,
    /// The group's merit divided by the baseline's of the same round; `null` for the baseline, and if there is nothing
    /// to divide.
    pub ratio: Option<Ratio>,
    /// The runs that succeeded.
    pub runs: Vec<Run>,
    /// The runs that failed or timed out.
    pub failures: Vec<Failed>,
    /// The runs that had not ended when the time was up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<Unfinished>,
}

/// A run that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The round's number, from 0.
    pub round: u32,
    /// The figures, by the metrics' names. Unknown figures are left out.
    #[serde(flatten)]
    pub values: BTreeMap<String, f64>,
}

/// A run that failed or timed out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The round's number, from 0.
    pub round: u32,
    /// The failure in words: `exit status 1`, `killed by SIGSEGV`, `timed out after 10 s, killed`.
    pub how: String,
    /// Whether it only took too long: then the program was only slow, not wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// The end of its output.
    pub output: String,
}

impl Results {
    /// Reads a file. The error says what is wrong with it.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let results: Self = provenance::read(file, SCHEMA, VERSION)?;
        results.check().map_err(|what| Error::new(file, format!("does not follow '{SCHEMA}': {what}")))?;
        Ok(results)
    }

    /// The file's text, with one line for each point, so that two files can be compared line by line.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let head = Self { points: Vec::new(), ..self.clone() };
        let head = serde_json::to_string_pretty(&head)?;
        let points = self.points.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        // `points` is the last field, and empty.
        let head = head.trim_end_matches(['}', '\n', ']']);
        Ok(format!("{head}\n    {}\n  ]\n}}\n", points.join(",\n    ")))
    }

    /// The lock with which the others are compared.
    pub fn baseline(&self) -> &str {
        self.locks.first().map_or("", String::as_str)
    }

    /// The metric with this name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// The point of one lock in one cell.
    pub fn point(&self, group: &str, cell: &str, lock: &str) -> Option<&Point> {
        self.points.iter().find(|point| point.lock == lock && point.cell == cell && point.group == group)
    }

    /// One metric of one lock in one cell.
    pub fn figure(&self, group: &str, cell: &str, lock: &str, metric: &str) -> Option<Spread> {
        self.point(group, cell, lock)?.figures.get(metric).copied()
    }

    /// One metric of one lock over all cells of a group: the median of the cells' medians, and the extremes. `None` if
    /// the lock has no figures in some cell: it could not be compared with a lock that has.
    pub fn figure_over_cells(&self, group: &Group, lock: &str, metric: &str) -> Option<Spread> {
        let point = |cell| self.point(&group.title, cell, lock).filter(|point| !point.figures.is_empty());
        let points: Vec<&Point> = group.cells.iter().map(|cell| point(cell)).collect::<Option<_>>()?;
        Spread::of(&points.iter().filter_map(|point| Some(point.figures.get(metric)?.median)).collect::<Vec<_>>())
    }

    /// How often the points were run that were run at all: `98 to 101`. After an interruption, some lack runs.
    pub fn runs_done(&self) -> String {
        let done = || self.points.iter().map(|point| point.runs.len() as u64).filter(|runs| *runs > 0);
        let (least, most) = (done().min().unwrap_or_default(), done().max().unwrap_or_default());
        let most = units::count(most);
        if units::count(least) == most { most } else { format!("{} to {most}", units::count(least)) }
    }

    /// The numbers of runs of a lock in which the group's merit was 0, and of all runs with a figure. A ratio to or of
    /// 0 says nothing, so such runs are in no ratio.
    pub fn zeros(&self, group: &Group, lock: &str) -> (usize, usize) {
        let here = self.points.iter().filter(|point| point.lock == lock && point.group == group.title);
        let merits = here.flat_map(|point| &point.runs).filter_map(|run| run.values.get(&group.merit));
        merits.fold((0, 0), |(zeros, all), merit| (zeros + usize::from(*merit == 0.0), all + 1))
    }

    /// The numbers of failed runs and of all runs of a lock.
    pub fn failures(&self, group: &str, lock: &str) -> (usize, usize) {
        let here = self.points.iter().filter(|point| point.lock == lock && point.group == group);
        here.fold((0, 0), |(failed, all), point| {
            (failed + point.failures.len(), all + point.failures.len() + point.runs.len())
        })
    }
}
