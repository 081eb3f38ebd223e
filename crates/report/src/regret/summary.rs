//! What follows from the runs: of each cell and each lock its share of the best, and of each lock the whole.
//!
//! *Share of the best*: within a round, a lock's rate divided by that of the best other lock; of that the median over
//! the rounds, and at most 1. The best other lock is the one with the highest median rate. So a machine that slows down
//! between two rounds changes nothing. The interval in a cell is that of the rounds' quotients (95 %, Student's t on
//! logarithms), without the limit of 1. Over all cells: [`interval`].
//!
//! A lock that has no run that ended well in a cell is not among those that are compared there; its failures are
//! listed.
//!
//! *Physical bound* of a cell: the rate of one thread without work outside, or as many times the rate of one thread
//! with it as there are threads and CPUs for them, whichever is less; each the best that any lock reaches.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{self, Cell, Grid};
use super::interval::{self, Ratios, geometric_mean};
use super::{Figures, Mode, Outcome, Run};
use crate::statistics::{Ratio, Spread};

/// A lock is near the best in a cell from this share on.
const NEAR: f64 = 0.95;

/// The median figures of one lock in one cell.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Figure {
    pub(super) lock: String,
    pub(super) ops_per_ms: f64,
    /// Share of the best, at most 1.
    pub(super) share: f64,
    /// The interval of the ratio to the best other lock.
    pub(super) interval: Option<(f64, f64)>,
    /// The best other lock.
    pub(super) best_other: String,
    pub(super) of_bound: Option<f64>,
    pub(super) cpu_ns_per_op: f64,
    /// CPU time of an operation, divided by that of the most frugal lock near the best.
    pub(super) cpu_ratio: f64,
    /// The longest of all rounds.
    pub(super) longest_wait_ms: f64,
    pub(super) switches_per_s: f64,
    /// Operations of the least successful thread, divided by those of the most successful one.
    pub(super) least_to_most: f64,
}

/// One cell with what is known of each lock in it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    #[serde(serialize_with = "name")]
    pub(super) cell: Cell,
    pub(super) bound_ops_per_ms: Option<f64>,
    pub(super) allowed_wait_ms: f64,
    pub(super) figures: Vec<Figure>,
}

fn name<S: serde::Serializer>(cell: &Cell, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&cell.name())
}

/// One lock over all cells.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Standing {
    pub(super) lock: String,
    pub(super) cells: usize,
    /// The geometric mean of its shares of the best, and the interval of that mean.
    pub(super) share: f64,
    pub(super) interval: Option<(f64, f64)>,
    /// How many cells in which it is near the best.
    pub(super) near: usize,
    pub(super) worst: f64,
    pub(super) of_bound: Option<f64>,
    pub(super) cpu_ratio: f64,
    pub(super) longest_wait_ms: f64,
    /// The greatest quotient of the longest wait and the one that is allowed, and in how many cells it is beyond 1.
    pub(super) wait_to_allowed: f64,
    pub(super) too_long: usize,
    pub(super) failed: usize,
}

/// All that is said of one grid in one mode.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What its cells are about.
    pub grid: Grid,
    /// What else went on.
    pub mode: Mode,
    pub(super) standings: Vec<Standing>,
    #[serde(rename = "cells")]
    /// The cells that could be judged.
    pub judged: Vec<Judged>,
    /// The runs that failed, and how.
    pub failures: Vec<String>,
    /// How many runs there are, …
    pub runs: usize,
    /// … and how many of them other programs disturbed.
    pub(super) disturbed: usize,
}

/// The runs of one mode, by cell and lock.
struct Table<'a> {
    rounds: BTreeMap<(Cell, &'a str), BTreeMap<u32, Figures>>,
    /// The longest wait of all, those of the long runs among them, in ms.
    waits: BTreeMap<(Cell, &'a str), f64>,
}

impl<'a> Table<'a> {
    fn of(runs: &[&'a Run]) -> Self {
        let (mut rounds, mut waits) = (BTreeMap::<_, BTreeMap<u32, Figures>>::new(), BTreeMap::new());
        for run in runs {
            if let (Some(cell), Outcome::Measured(figures)) = (cells::named(&run.cell), &run.outcome) {
                let key = (cell, run.lock.as_str());
                if !run.long {
                    rounds.entry(key).or_default().insert(run.round, *figures);
                }
                let longest: &mut f64 = waits.entry(key).or_default();
                *longest = longest.max(figures.longest_wait_us / 1e3);
            }
        }
        Self { rounds, waits }
    }

    fn rounds(&self, cell: Cell, lock: &'a str) -> Option<&BTreeMap<u32, Figures>> {
        self.rounds.get(&(cell, lock)).filter(|rounds| !rounds.is_empty())
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
    operations(figures) / figures.wall_ms
}

/// CPU time per operation, in ns.
fn cpu(figures: &Figures) -> f64 {
    figures.cpu_ms * 1e6 / operations(figures)
}

/// None at all counts as half of one: all that follows are quotients and logarithms.
fn operations(figures: &Figures) -> f64 {
    (figures.ops as f64).max(0.5)
}

impl Judged {
    /// What is known of a lock in this cell.
    pub(super) fn figure(&self, lock: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.lock == lock)
    }
}

impl Summary {
    /// What is known of a lock over all cells.
    pub(super) fn standing(&self, lock: &str) -> Option<&Standing> {
        self.standings.iter().find(|standing| standing.lock == lock)
    }

    /// Of the runs of these locks in these cells, and with them in those of one thread.
    pub fn of(grid: Grid, mode: Mode, runs: &[Run], cells: &[Cell], locks: &[&str], cpus: u32) -> Self {
        let is_meant = |run: &&Run| {
            let is_of_grid = cells::named(&run.cell).is_some_and(|cell| cell.grid() == grid);
            run.mode == mode && is_of_grid && locks.contains(&run.lock.as_str())
        };
        let runs: Vec<&Run> = runs.iter().filter(is_meant).collect();
        let table = Table::of(&runs);
        let judged: Vec<Judged> = cells.iter().filter_map(|cell| table.judge(mode, *cell, locks, cpus)).collect();
        // A failed run that was repeated with success is none.
        let is_same = |a: &Run, b: &Run| (&a.cell, &a.lock, a.round, a.long) == (&b.cell, &b.lock, b.round, b.long);
        let is_repeated = |run: &Run| runs.iter().any(|other| is_same(run, other) && other.failure().is_empty());
        let failures: Vec<&&Run> = runs.iter().filter(|run| !run.failure().is_empty() && !is_repeated(run)).collect();
        let standings = locks
            .iter()
            .filter_map(|lock| {
                let failed = failures.iter().filter(|run| run.lock == *lock).count();
                table.standing(lock, &judged, failed)
            })
            .collect();
        let failures = failures
            .iter()
            .map(|run| format!("{}, {}, round {}: {}", run.lock, run.cell, run.round + 1, run.failure()));
        let measured = |run: &&Run| matches!(&run.outcome, Outcome::Measured(figures) if figures.is_disturbed(cpus));
        let disturbed = runs.iter().copied().filter(measured).count();
        Self { grid, mode, standings, failures: failures.collect(), judged, runs: runs.len(), disturbed }
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
        let [with, without] = cell.alone()?.map(|alone| self.best(alone, locks));
        Some(without?.min(with? * f64::from(cpus.min(cell.threads))))
    }

    fn figure(&self, cell: Cell, lock: &'a str, own: f64, other: &'a str, bound: Option<f64>) -> Option<Figure> {
        let (mine, others) = (self.rounds(cell, lock)?, self.rounds(cell, other)?);
        let pairs: Vec<(f64, f64)> =
            mine.iter().filter_map(|(round, figures)| Some((rate(figures), rate(others.get(round)?)))).collect();
        let ratios: Vec<f64> = self.ratios(cell, lock, other)?.into_values().collect();
        let interval = Ratio::of_pairs(pairs).and_then(|ratio| ratio.low.zip(ratio.high));
        let median = |of| self.median(cell, lock, of);
        Some(Figure {
            lock: lock.to_owned(),
            ops_per_ms: own,
            share: interval::share(&ratios)?,
            interval,
            best_other: other.to_owned(),
            of_bound: bound.map(|bound| own / bound),
            cpu_ns_per_op: median(cpu)?,
            cpu_ratio: f64::NAN,
            longest_wait_ms: self.waits.get(&(cell, lock)).copied()?,
            switches_per_s: median(|figures| figures.switches as f64 * 1e3 / figures.wall_ms)?,
            least_to_most: median(|figures| figures.min_ops as f64 / figures.max_ops.max(1) as f64)?,
        })
    }

    /// A lock's rate divided by another's, by round.
    fn ratios(&self, cell: Cell, lock: &'a str, other: &'a str) -> Option<Ratios> {
        let (mine, others) = (self.rounds(cell, lock)?, self.rounds(cell, other)?);
        let ratio = |(round, figures): (&u32, &Figures)| Some((*round, rate(figures) / rate(others.get(round)?)));
        Some(mine.iter().filter_map(ratio).collect())
    }

    fn standing(&self, lock: &'a str, judged: &[Judged], failed: usize) -> Option<Standing> {
        let own: Vec<(&Judged, &Figure)> = judged.iter().filter_map(|cell| Some((cell, cell.figure(lock)?))).collect();
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

    /// The interval of a lock's mean share.
    fn interval(&self, lock: &'a str, own: &[(&Judged, &Figure)]) -> Option<(f64, f64)> {
        let ratios = |(judged, figure): &(&Judged, &Figure)| {
            let (cell, other) = (judged.cell, figure.best_other.as_str());
            let &(_, other) = self.rounds.keys().find(|(of, name)| *of == cell && *name == other)?;
            self.ratios(cell, lock, other)
        };
        interval::of_mean(&own.iter().map(ratios).collect::<Option<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Random;

    /// Rounds of two locks in one cell, in operations per 100 ms.
    fn runs(cell: &str, lock: &str, ops: &[u64], cpu_ms: f64) -> Vec<Run> {
        let figures = |ops: &u64| Figures {
            ops: *ops,
            wall_ms: 100.0,
            cpu_ms,
            longest_wait_us: 2000.0,
            switches: 10,
            min_ops: 1,
            max_ops: 2,
            others_ms: 0.0,
        };
        let run = |(round, ops)| Run {
            mode: Mode::Plain,
            cell: cell.into(),
            lock: lock.into(),
            build: String::new(),
            round,
            long: false,
            beside: false,
            ms: 100,
            at: 0,
            outcome: Outcome::Measured(figures(ops)),
        };
        (0..).zip(ops).map(run).collect()
    }

    const CELLS: [&str; 2] = ["1 µs, 2 µs outside, 8 threads", "3 µs, 0 µs outside, 4 threads"];

    fn summary(runs: &[Run]) -> Summary {
        let cells: Vec<Cell> = CELLS.iter().filter_map(|name| cells::named(name)).collect();
        Summary::of(Grid::Mutexes, Mode::Plain, runs, &cells, &["a", "b", "c"], 2)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn shares_are_medians_of_paired_ratios() {
        // In the second round the machine is half as fast, for both.
        let mut all = runs(CELLS[0], "a", &[1000, 500, 1010], 100.0);
        all.extend(runs(CELLS[0], "b", &[900, 450, 606], 50.0));
        all.extend(runs(CELLS[0], "c", &[500, 250, 505], 10.0));
        all.extend(runs(CELLS[1], "a", &[400, 400, 400], 100.0));
        all.extend(runs(CELLS[1], "b", &[500, 500, 500], 100.0));
        let summary = summary(&all);
        let of = |cell: usize, lock: &str| {
            summary.judged[cell].figures.iter().find(|figure| figure.lock == lock).expect("measured").clone()
        };
        assert_eq!((of(0, "a").share, of(0, "a").best_other.as_str(), of(0, "b").best_other.as_str()), (1.0, "b", "a"));
        assert!(near(of(0, "b").share, 0.9) && near(of(0, "c").share, 0.5) && near(of(1, "a").share, 0.8));
        // The most frugal lock near the best is `a` itself: the others save CPU time by doing less.
        assert!(near(of(0, "a").cpu_ratio, 1.0) && of(0, "c").cpu_ratio < 0.3);
        let a = summary.standings.iter().find(|standing| standing.lock == "a").expect("there");
        assert!(near(a.share, 0.8_f64.sqrt()) && near(a.worst, 0.8) && (a.near, a.cells) == (1, 2));
        let c = summary.standings.iter().find(|standing| standing.lock == "c").expect("there");
        assert_eq!((c.cells, c.of_bound), (1, None));
    }

    #[test]
    fn no_operation_at_all_is_next_to_nothing() {
        let mut all = runs(CELLS[0], "a", &[1000, 1000], 100.0);
        all.extend(runs(CELLS[0], "b", &[0, 0], 100.0));
        let b = summary(&all).judged[0].figures[1].clone();
        assert!(near(b.share, 0.0005) && b.lock == "b", "{b:?}");
        let none = runs(CELLS[0], "a", &[0], 1.0).into_iter().chain(runs(CELLS[0], "b", &[0], 1.0)).collect::<Vec<_>>();
        assert!(summary(&none).standings.iter().all(|standing| near(standing.share, 1.0)));
    }

    #[test]
    fn the_physical_bound_is_the_lesser_of_two() {
        let mut all = runs(CELLS[0], "a", &[150], 1.0);
        all.extend(runs(CELLS[0], "b", &[100], 1.0));
        all.extend(runs("1 µs, 2 µs outside, 1 thread", "a", &[90], 1.0));
        all.extend(runs("1 µs, 2 µs outside, 1 thread", "b", &[100], 1.0));
        all.extend(runs("1 µs, 0 µs outside, 1 thread", "a", &[300], 1.0));
        let judged = |runs: &[Run]| summary(runs).judged[0].clone();
        assert!(near(judged(&all).bound_ops_per_ms.expect("a bound"), 2.0));
        assert!(near(judged(&all).figures[0].of_bound.expect("a bound"), 0.75));
        all.extend(runs("1 µs, 0 µs outside, 1 thread", "b", &[160, 160], 1.0));
        all.retain(|run| !(run.cell.starts_with("1 µs, 0") && run.lock == "a"));
        assert!(near(judged(&all).bound_ops_per_ms.expect("a bound"), 1.6));
    }

    #[test]
    fn long_runs_count_for_waits_only_and_failures_are_told() {
        let mut all = runs(CELLS[0], "a", &[100], 1.0);
        all.extend(runs(CELLS[0], "b", &[100], 1.0));
        let mut long = runs(CELLS[0], "a", &[9_000_000], 1.0).remove(0);
        long.long = true;
        if let Outcome::Measured(figures) = &mut long.outcome {
            figures.longest_wait_us = 1e6;
        }
        all.push(long);
        let failed = |round| Run {
            round,
            outcome: Outcome::Failed { failed: "exit status 1".into() },
            ..runs(CELLS[0], "b", &[1], 1.0).remove(0)
        };
        all.extend([failed(0), failed(1)]);
        let summary = summary(&all);
        let a = summary.standings.iter().find(|standing| standing.lock == "a").expect("there");
        let elsewhere = Summary::of(Grid::Conditions, Mode::Plain, &all, &[], &["a", "b"], 2);
        assert_eq!((elsewhere.runs, elsewhere.failures.len()), (0, 0));
        assert!(near(summary.judged[0].figures[0].ops_per_ms, 1.0));
        assert_eq!((a.too_long, a.longest_wait_ms), (1, 1000.0));
        let failures = &summary.failures;
        assert!(failures.len() == 1 && failures[0].ends_with("round 2: exit status 1"), "{failures:?}");
    }

    #[test]
    fn equal_locks_with_noise_have_their_shares_within_their_intervals() {
        let cells = Grid::Mutexes.all(false);
        let mut random = Random::new(5);
        for rounds in [3, 5] {
            let mut all = Vec::new();
            for cell in cells.iter().take(40) {
                for lock in ["a", "b", "c"] {
                    let ops: Vec<u64> = (0..rounds).map(|_| 100_000 + random.bits() % 10_000).collect();
                    all.extend(runs(&cell.name(), lock, &ops, 100.0));
                }
            }
            let summary = Summary::of(Grid::Mutexes, Mode::Plain, &all, &cells, &["a", "b", "c"], 2);
            for Standing { lock, share, interval, cells, .. } in &summary.standings {
                let (low, high) = interval.expect("there are rounds");
                assert!(*cells == 40 && low <= *share && *share <= high, "{lock}, {rounds}: {low} {share} {high}");
            }
        }
    }
}
