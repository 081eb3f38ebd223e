//! What follows from the runs: of each cell and each lock its share of the best, and of each lock the whole.
//!
//! *Share of the best*: within a round, a lock's rate divided by that of the best other lock; of that the median over the rounds, and at
//! most 1. The best other lock is the one with the highest median rate. So a machine that slows down between two rounds
//! changes nothing. The interval is that of the rounds' quotients (95 %, Student's t on logarithms), without the limit of 1.
//!
//! *Physical bound* of a cell: the rate of one thread without work outside, or as many times the rate of one thread with it as there are
//! threads and CPUs for them, whichever is less; each the best that any lock reaches.

use std::collections::BTreeMap;

use flashlock_report::statistics::{Ratio, Spread};
use serde::Serialize;

use super::cells::{self, Cell};
use super::runs::{Figures, Mode, Outcome, Run};

/// A lock is near the best in a cell from this share on.
pub(crate) const NEAR: f64 = 0.95;

/// The median figures of one lock in one cell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) lock: String,
    pub(crate) ops_per_ms: f64,
    /// Share of the best, at most 1.
    pub(crate) share: f64,
    /// The interval of the ratio to the best other lock.
    pub(crate) interval: Option<(f64, f64)>,
    /// The best other lock.
    pub(crate) best_other: String,
    pub(crate) of_bound: Option<f64>,
    pub(crate) cpu_ns_per_op: f64,
    /// CPU time of an operation, divided by that of the most frugal lock near the best.
    pub(crate) cpu_ratio: f64,
    /// The longest of all rounds.
    pub(crate) longest_wait_ms: f64,
    pub(crate) switches_per_s: f64,
    /// Operations of the least successful thread, divided by those of the most successful one.
    pub(crate) least_to_most: f64,
}

/// One cell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judged {
    #[serde(serialize_with = "name")]
    pub(crate) cell: Cell,
    pub(crate) bound_ops_per_ms: Option<f64>,
    pub(crate) allowed_wait_ms: f64,
    pub(crate) figures: Vec<Figure>,
}

fn name<S: serde::Serializer>(cell: &Cell, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&cell.name())
}

/// One lock over all cells.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Standing {
    pub(crate) lock: String,
    pub(crate) cells: usize,
    /// The geometric mean of its shares of the best, and the interval from its spread over the rounds.
    pub(crate) share: f64,
    pub(crate) interval: Option<(f64, f64)>,
    /// How many cells in which it is near the best.
    pub(crate) near: usize,
    pub(crate) worst: f64,
    pub(crate) of_bound: Option<f64>,
    pub(crate) cpu_ratio: f64,
    pub(crate) longest_wait_ms: f64,
    /// The greatest quotient of the longest wait and the one that is allowed, and in how many cells it is beyond 1.
    pub(crate) wait_to_allowed: f64,
    pub(crate) too_long: usize,
    pub(crate) failed: usize,
}

/// All that is said of one mode.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) mode: Mode,
    pub(crate) standings: Vec<Standing>,
    pub(crate) cells: Vec<Judged>,
    pub(crate) failures: Vec<String>,
}

/// The runs of one mode, by cell and lock.
struct Table<'a>(BTreeMap<(Cell, &'a str), BTreeMap<u32, Figures>>);

impl<'a> Table<'a> {
    fn of(runs: &[&'a Run]) -> Self {
        let mut table: BTreeMap<_, BTreeMap<u32, Figures>> = BTreeMap::new();
        for run in runs {
            if let (Some(cell), Outcome::Measured(figures)) = (cells::named(&run.cell), &run.outcome) {
                table.entry((cell, run.lock.as_str())).or_default().insert(run.round, *figures);
            }
        }
        Self(table)
    }

    fn rounds(&self, cell: Cell, lock: &'a str) -> Option<&BTreeMap<u32, Figures>> {
        self.0.get(&(cell, lock)).filter(|rounds| !rounds.is_empty())
    }

    fn median(&self, cell: Cell, lock: &'a str, of: fn(&Figures) -> f64) -> Option<f64> {
        let values: Vec<f64> = self.rounds(cell, lock)?.values().map(of).collect();
        Spread::of(&values).map(|spread| spread.median)
    }

    /// The best rate in a cell, of any lock.
    fn best(&self, cell: Cell, locks: &[&'a str]) -> Option<f64> {
        locks.iter().filter_map(|lock| self.median(cell, lock, rate)).reduce(f64::max)
    }
}

/// Operations per ms.
fn rate(figures: &Figures) -> f64 {
    figures.ops as f64 / figures.wall_ms
}

/// CPU time per operation, in ns. A lock that does no operation costs as much as one.
fn cpu(figures: &Figures) -> f64 {
    figures.cpu_ms * 1e6 / figures.ops.max(1) as f64
}

impl Summary {
    /// Of the runs of these locks in these cells, and with them in those of one thread.
    pub(crate) fn of(mode: Mode, runs: &[Run], cells: &[Cell], locks: &[&str], cpus: u32) -> Self {
        let runs: Vec<&Run> =
            runs.iter().filter(|run| run.mode == mode && locks.contains(&run.lock.as_str())).collect();
        let table = Table::of(&runs);
        let judged: Vec<Judged> = cells.iter().filter_map(|cell| table.judge(mode, *cell, locks, cpus)).collect();
        let failed = |run: &&&Run| matches!(run.outcome, Outcome::Failed { .. });
        let failures: Vec<&&Run> = runs.iter().filter(failed).collect();
        let standings = locks
            .iter()
            .filter_map(|lock| {
                let failed = failures.iter().filter(|run| run.lock == *lock).count();
                table.standing(lock, &judged, failed)
            })
            .collect();
        let failures = failures.iter().map(|run| {
            let how = if let Outcome::Failed { failed } = &run.outcome { failed.as_str() } else { "" };
            format!("{}, {}, round {}: {how}", run.lock, run.cell, run.round + 1)
        });
        Self { mode, standings, failures: failures.collect(), cells: judged }
    }
}

impl<'a> Table<'a> {
    fn judge(&self, mode: Mode, cell: Cell, locks: &[&'a str], cpus: u32) -> Option<Judged> {
        let mut rates: Vec<(f64, &'a str)> =
            locks.iter().filter_map(|lock| Some((self.median(cell, lock, rate)?, *lock))).collect();
        rates.sort_by(|a, b| b.0.total_cmp(&a.0));
        let bound = (mode != Mode::Hog).then(|| self.bound(cell, locks, cpus)).flatten();
        let mut figures = Vec::new();
        for (rate, lock) in &rates {
            let (_, other) = rates.iter().find(|(_, other)| other != lock)?;
            figures.push(self.figure(cell, lock, *rate, other, bound)?);
        }
        let near = figures.iter().filter(|figure| figure.share >= NEAR).map(|figure| figure.cpu_ns_per_op);
        let frugal = near.reduce(f64::min)?;
        for figure in &mut figures {
            figure.cpu_ratio = figure.cpu_ns_per_op / frugal;
        }
        Some(Judged { cell, bound_ops_per_ms: bound, allowed_wait_ms: cell.allowed_wait_ms(), figures })
    }

    fn bound(&self, cell: Cell, locks: &[&'a str], cpus: u32) -> Option<f64> {
        let [with, without] = cell.alone().map(|alone| self.best(alone, locks));
        Some(without?.min(with? * f64::from(cpus.min(cell.threads))))
    }

    fn figure(&self, cell: Cell, lock: &'a str, own: f64, other: &'a str, bound: Option<f64>) -> Option<Figure> {
        let (mine, others) = (self.rounds(cell, lock)?, self.rounds(cell, other)?);
        let pairs: Vec<(f64, f64)> =
            mine.iter().filter_map(|(round, figures)| Some((rate(figures), rate(others.get(round)?)))).collect();
        let ratios: Vec<f64> = pairs.iter().map(|(mine, other)| mine / other).collect();
        let interval = Ratio::of_pairs(pairs).and_then(|ratio| ratio.low.zip(ratio.high));
        let median = |of| self.median(cell, lock, of);
        Some(Figure {
            lock: lock.to_owned(),
            ops_per_ms: own,
            share: Spread::of(&ratios)?.median.min(1.0),
            interval,
            best_other: other.to_owned(),
            of_bound: bound.map(|bound| own / bound),
            cpu_ns_per_op: median(cpu)?,
            cpu_ratio: f64::NAN,
            longest_wait_ms: mine.values().map(|figures| figures.longest_wait_us / 1e3).fold(0.0, f64::max),
            switches_per_s: median(|figures| figures.switches as f64 * 1e3 / figures.wall_ms)?,
            least_to_most: median(|figures| figures.min_ops as f64 / figures.max_ops.max(1) as f64)?,
        })
    }

    fn standing(&self, lock: &'a str, judged: &[Judged], failed: usize) -> Option<Standing> {
        let own: Vec<(&Judged, &Figure)> = judged
            .iter()
            .filter_map(|cell| Some((cell, cell.figures.iter().find(|figure| figure.lock == lock)?)))
            .collect();
        let over = |of: &dyn Fn(&Figure) -> f64| own.iter().map(|(_, figure)| of(figure)).collect::<Vec<f64>>();
        let shares = over(&|figure| figure.share);
        let waits: Vec<f64> = own.iter().map(|(cell, figure)| figure.longest_wait_ms / cell.allowed_wait_ms).collect();
        let bounds: Option<Vec<f64>> = own.iter().map(|(_, figure)| figure.of_bound).collect();
        Some(Standing {
            lock: lock.to_owned(),
            cells: own.len(),
            share: geometric_mean(&shares)?,
            interval: self.interval(lock, &own),
            near: shares.iter().filter(|share| **share >= NEAR).count(),
            worst: shares.iter().copied().reduce(f64::min)?,
            of_bound: bounds.and_then(|bounds| geometric_mean(&bounds)),
            cpu_ratio: geometric_mean(&over(&|figure| figure.cpu_ratio))?,
            longest_wait_ms: over(&|figure| figure.longest_wait_ms).into_iter().fold(0.0, f64::max),
            wait_to_allowed: waits.iter().copied().fold(0.0, f64::max),
            too_long: waits.iter().filter(|wait| **wait > 1.0).count(),
            failed,
        })
    }

    /// The interval of a lock's mean share: the geometric mean over the cells, of each round, and its spread.
    fn interval(&self, lock: &'a str, own: &[(&Judged, &Figure)]) -> Option<(f64, f64)> {
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (judged, figure) in own {
            let mine = self.rounds(judged.cell, lock)?;
            let other = self.0.iter().find(|((cell, name), _)| *cell == judged.cell && *name == figure.best_other)?.1;
            for (round, figures) in mine {
                if let Some(other) = other.get(round) {
                    rounds.entry(*round).or_default().push((rate(figures) / rate(other)).min(1.0));
                }
            }
        }
        let whole = rounds.values().filter(|shares| shares.len() == own.len());
        let logarithms: Vec<f64> = whole.filter_map(|shares| geometric_mean(shares).map(f64::ln)).collect();
        let ratio = Ratio::of_logarithms(&logarithms)?;
        ratio.low.zip(ratio.high)
    }
}

/// `None` for no numbers. A number that is not positive makes it 0.
fn geometric_mean(numbers: &[f64]) -> Option<f64> {
    if numbers.is_empty() {
        return None;
    }
    Some((numbers.iter().map(|number| number.ln()).sum::<f64>() / numbers.len() as f64).exp())
}
