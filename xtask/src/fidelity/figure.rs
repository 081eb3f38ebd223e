//! A figure of a row: what is made of which points, with its band.

use serde::{Deserialize, Serialize};

use super::point::Point;
use super::runs::Runs;

/// Operations per microsecond of virtual time.
pub(super) const SPEED: &str = "ops_per_us";

/// One metric of some points, folded into one number.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    metric: &'static str,
    pub(super) points: Vec<Point>,
    fold: Fold,
}

#[derive(Clone, Copy, Debug)]
enum Fold {
    /// The only point's.
    Value,
    /// The first point's divided by the second's.
    Ratio,
    /// Of the point with the most: how many threads.
    BestThreads,
    /// The most divided by the first point's.
    BestGain,
}

impl Figure {
    pub(super) fn value(metric: &'static str, point: Point) -> Self {
        Self { metric, points: vec![point], fold: Fold::Value }
    }

    pub(super) fn speed(point: Point) -> Self {
        Self::value(SPEED, point)
    }

    pub(super) fn ratio(metric: &'static str, of: Point, to: Point) -> Self {
        Self { metric, points: vec![of, to], fold: Fold::Ratio }
    }

    pub(super) fn speed_up(of: Point, to: Point) -> Self {
        Self::ratio(SPEED, of, to)
    }

    pub(super) fn best_threads(points: Vec<Point>) -> Self {
        Self { metric: SPEED, points, fold: Fold::BestThreads }
    }

    pub(super) fn best_gain(points: Vec<Point>) -> Self {
        Self { metric: SPEED, points, fold: Fold::BestGain }
    }

    /// What the simulation says. The error says why it says nothing.
    pub(super) fn evaluate(&self, runs: &Runs) -> Result<Ours, String> {
        let columns: Vec<Vec<Vec<f64>>> =
            self.points.iter().map(|point| runs.values(point, self.metric)).collect::<Result<_, _>>()?;
        // By latency and by round: the same seed and placement stand on both sides of a ratio.
        let mut by_latency: Vec<Vec<f64>> = Vec::new();
        for latency in 0..columns[0].len() {
            let rounds = columns.iter().map(|column| column[latency].len()).min().unwrap_or(0);
            let folded = (0..rounds)
                .map(|round| self.fold(&columns.iter().map(|column| column[latency][round]).collect::<Vec<_>>()));
            by_latency.push(folded.collect::<Result<_, _>>()?);
        }
        Ours::of(&by_latency).ok_or_else(|| format!("no run has {}", self.metric))
    }

    /// One round.
    fn fold(&self, values: &[f64]) -> Result<f64, String> {
        let best = || values.iter().zip(&self.points).max_by(|a, b| a.0.total_cmp(b.0)).expect("a figure has points");
        let number = match self.fold {
            Fold::Value => values[0],
            Fold::Ratio => values[0] / values[1],
            Fold::BestThreads => f64::from(best().1.threads),
            Fold::BestGain => best().0 / values[0],
        };
        if number.is_finite() { Ok(number) } else { Err(format!("{} is zero where it divides", self.metric)) }
    }
}

/// What the simulation says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Ours {
    /// The median over seeds and placements, with the machine's own latencies.
    pub(super) median: f64,
    /// The least and the greatest of all runs, those with other latencies included.
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ours {
    /// Of the rounds with each latency, the machine's own first.
    fn of(by_latency: &[Vec<f64>]) -> Option<Self> {
        let mut own = by_latency.first()?.clone();
        own.sort_by(f64::total_cmp);
        let (lower, upper) = (own.get(own.len().checked_sub(1)? / 2)?, own.get(own.len() / 2)?);
        let all = || by_latency.iter().flatten().copied();
        Some(Self {
            median: lower.midpoint(*upper),
            low: all().fold(f64::INFINITY, f64::min),
            high: all().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::point::Setting;

    fn points(threads: &[u32]) -> Vec<Point> {
        threads.iter().map(|threads| Setting::new("m", "w").under("mcs", *threads)).collect()
    }

    #[test]
    fn the_median_is_of_the_own_latencies_and_the_band_of_all() {
        let ours = Ours::of(&[vec![3.0, 1.0, 2.0, 2.5], vec![0.5], vec![2.0, 9.0]]);
        assert_eq!(ours, Some(Ours { median: 2.25, low: 0.5, high: 9.0 }));
        assert_eq!(Ours::of(&[vec![], vec![1.0]]), None);
    }

    #[test]
    fn folds() {
        let two = points(&[1, 2]);
        assert_eq!(Figure::ratio("x", two[0], two[1]).fold(&[3.0, 2.0]), Ok(1.5));
        assert!(Figure::ratio("x", two[0], two[1]).fold(&[3.0, 0.0]).is_err());
        let peak = points(&[1, 5, 8]);
        assert_eq!(Figure::best_threads(peak.clone()).fold(&[1.0, 3.0, 2.0]), Ok(5.0));
        assert_eq!(Figure::best_gain(peak).fold(&[2.0, 3.0, 2.0]), Ok(1.5));
    }
}
