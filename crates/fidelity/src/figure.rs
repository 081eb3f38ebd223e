//! A figure of a row: what is made of which points, with its band.

use flashlock_report::statistics::Spread;
use serde::{Deserialize, Serialize};

use crate::point::{Point, Typical};
use crate::runs::Runs;

/// Operations per microsecond of virtual time.
pub(crate) const SPEED: &str = "ops_per_us";

/// One metric of some points, folded into one number.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    metric: &'static str,
    pub(crate) points: Vec<Point>,
    fold: Fold,
}

#[derive(Clone, Copy, Debug)]
enum Fold {
    /// The only point's.
    Value,
    /// The first point's divided by the second's.
    Ratio,
    /// The first divided by the second, divided by the same of the other two.
    Growth,
    /// Of the point with the most: how many threads.
    BestThreads,
    /// The most divided by the first point's.
    BestGain,
    /// The first point's less the second's.
    Difference,
    /// Points are in threes, of less and less contention: a lock that stands for all, the lock that is compared, the
    /// one that it is compared with; the metric is the share of time in sections. The first lock's share in %, at which
    /// a section of the second one takes so many times as long as one of the third.
    Crossing(f64),
    /// Points are in pairs, of more and more cores: with how many threads of the first the second is ahead for the
    /// first time.
    AheadFrom,
}

impl Figure {
    pub(crate) fn value(metric: &'static str, point: Point) -> Self {
        Self { metric, points: vec![point], fold: Fold::Value }
    }

    pub(crate) fn speed(point: Point) -> Self {
        Self::value(SPEED, point)
    }

    pub(crate) fn ratio(metric: &'static str, of: Point, to: Point) -> Self {
        Self { metric, points: vec![of, to], fold: Fold::Ratio }
    }

    pub(crate) fn speed_up(of: Point, to: Point) -> Self {
        Self::ratio(SPEED, of, to)
    }

    /// How much greater one speed-up, `[of, to]`, is than another.
    pub(crate) fn growth(of: [Point; 2], to: [Point; 2]) -> Self {
        Self { metric: SPEED, points: [of, to].concat(), fold: Fold::Growth }
    }

    pub(crate) fn best_threads(points: Vec<Point>) -> Self {
        Self { metric: SPEED, points, fold: Fold::BestThreads }
    }

    pub(crate) fn best_gain(points: Vec<Point>) -> Self {
        Self { metric: SPEED, points, fold: Fold::BestGain }
    }

    pub(crate) fn difference(metric: &'static str, of: Point, to: Point) -> Self {
        Self { metric, points: vec![of, to], fold: Fold::Difference }
    }

    pub(crate) fn crossing(points: &[[Point; 3]], times: f64) -> Self {
        Self { metric: "in_sections", points: points.concat(), fold: Fold::Crossing(times) }
    }

    pub(crate) fn ahead_from(points: &[[Point; 2]]) -> Self {
        Self { metric: SPEED, points: points.concat(), fold: Fold::AheadFrom }
    }

    /// What the simulation says. The error says why it says nothing.
    pub(crate) fn evaluate(&self, runs: &Runs) -> Result<Ours, String> {
        let columns: Vec<Vec<Vec<f64>>> =
            self.points.iter().map(|point| runs.values(point, self.metric)).collect::<Result<_, _>>()?;
        self.of(&columns)
    }

    /// Of the points' values, by point, latency and round.
    fn of(&self, columns: &[Vec<Vec<f64>>]) -> Result<Ours, String> {
        // Rounds: where both sides of a ratio were run equally often, they are of the same seed and placement. Few
        // threads are run more often than many, whose rounds then come again, beside others' seeds and placements.
        let rounds = |latency: usize| {
            let most = columns.iter().map(|column| column[latency].len()).max().unwrap_or(0);
            let value = move |column: &Vec<Vec<f64>>, round: usize| {
                let values = &column[latency];
                values.get(round % values.len().max(1)).copied()
            };
            (0..most).filter_map(move |round| columns.iter().map(|column| value(column, round)).collect())
        };
        let typical = self.points[0].setting.typical;
        // A run that has nothing to divide by has no quotient of its own, but counts in the means.
        let of_its_own = |folded: &Result<f64, String>| typical == Typical::Median || folded.is_ok();
        let folded = |latency| {
            rounds(latency).map(|values: Vec<f64>| self.fold(&values)).filter(of_its_own).collect::<Result<Vec<_>, _>>()
        };
        let by_latency: Vec<Vec<f64>> = (0..columns[0].len()).map(folded).collect::<Result<_, _>>()?;
        let own = by_latency.first().and_then(|own| Spread::of(own));
        let own = own.ok_or_else(|| format!("no run has {}", self.metric))?;
        let value = match typical {
            Typical::Mean => self.fold(&columns.iter().map(|column| mean(&column[0])).collect::<Vec<_>>())?,
            Typical::Median => own.median,
        };
        let all = || by_latency.iter().flatten().copied();
        let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        Ok(Ours { value, typical, low, high })
    }

    /// One round.
    fn fold(&self, values: &[f64]) -> Result<f64, String> {
        let best = || values.iter().zip(&self.points).max_by(|a, b| a.0.total_cmp(b.0)).expect("a figure has points");
        let number = match self.fold {
            Fold::Value => values[0],
            Fold::Ratio => values[0] / values[1],
            Fold::Growth => values[0] / values[1] / (values[2] / values[3]),
            Fold::BestThreads => f64::from(best().1.threads),
            Fold::BestGain => best().0 / values[0],
            Fold::Difference => values[0] - values[1],
            Fold::Crossing(times) => crossing(values, times)?,
            Fold::AheadFrom => {
                let pairs = values.chunks(2).zip(self.points.chunks(2));
                let ahead = pairs.into_iter().find(|(values, _)| values[1] > values[0]);
                ahead.map(|(_, points)| f64::from(points[0].threads)).ok_or("the second lock is never ahead")?
            }
        };
        if number.is_finite() { Ok(number) } else { Err(format!("{} is zero where it divides", self.metric)) }
    }
}

/// [`Fold::Crossing`]. Threads spend the rest of their time outside, for equally long under all locks: how long a
/// section takes in relation to that follows from the share.
fn crossing(values: &[f64], times: f64) -> Result<f64, String> {
    let relative = |share: f64| share / (1.0 - share);
    let steps = values.chunks(3).map(|shares| (relative(shares[1]) / relative(shares[2]), 100.0 * shares[0]));
    let mut before: Option<(f64, f64)> = None;
    // From little contention to much.
    for (ratio, share) in steps.collect::<Vec<_>>().into_iter().rev() {
        if ratio >= times {
            let (low, at) = before.ok_or("it takes as long with the least contention already")?;
            return Ok(at + (share - at) * (times - low) / (ratio - low));
        }
        before = Some((ratio, share));
    }
    Err("it never takes as long".to_owned())
}

/// What the simulation says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ours {
    /// Over seeds and placements, with the machine's own latencies.
    pub(crate) value: f64,
    /// What `value` is of them.
    pub(crate) typical: Typical,
    /// The least and the greatest of all runs, those with other latencies included.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Setting;

    fn points(threads: &[u32]) -> Vec<Point> {
        threads.iter().map(|threads| Setting::new("m", "kvmap").under("mcs", *threads)).collect()
    }

    fn ratio(typical: Typical) -> Figure {
        let mut points = points(&[1, 2]);
        points.iter_mut().for_each(|point| point.setting.typical = typical);
        Figure::ratio("x", points[0], points[1])
    }

    #[test]
    fn what_is_told_is_of_the_own_latencies_and_the_band_of_all() {
        let runs = vec![vec![3.0, 1.0, 2.0, 6.0], vec![0.5], vec![2.0, 9.0]];
        let value = |typical| {
            let Figure { points, .. } = ratio(typical);
            Figure::value("x", points[0]).of(std::slice::from_ref(&runs))
        };
        let ours = |value, typical| Ok(Ours { value, typical, low: 0.5, high: 9.0 });
        assert_eq!(value(Typical::Median), ours(2.5, Typical::Median));
        assert_eq!(value(Typical::Mean), ours(3.0, Typical::Mean));
        assert!(ratio(Typical::Mean).of(&[vec![vec![]], vec![vec![1.0]]]).is_err());
        assert!(ratio(Typical::Median).of(&[vec![vec![]], vec![vec![]]]).is_err());
    }

    #[test]
    fn means_are_divided_and_not_quotients_averaged() {
        // Two threads, half of whose runs are on one socket.
        let columns = [vec![vec![2.0, 2.0]], vec![vec![1.0, 3.0]]];
        let ours = |typical| ratio(typical).of(&columns).map(|ours| (ours.value, ours.low, ours.high));
        assert_eq!(ours(Typical::Mean), Ok((1.0, 2.0 / 3.0, 2.0)));
        assert_eq!(ours(Typical::Median), Ok((4.0 / 3.0, 2.0 / 3.0, 2.0)));
    }

    #[test]
    fn a_run_that_divides_by_nothing_counts_in_the_means_only() {
        let columns = [vec![vec![1.0, 0.0, 3.0]], vec![vec![4.0, 0.0, 4.0]]];
        let ours = ratio(Typical::Mean).of(&columns).expect("the means divide");
        assert_eq!((ours.value, ours.low, ours.high), (0.5, 0.25, 0.75));
        assert!(ratio(Typical::Median).of(&columns).is_err());
        assert!(ratio(Typical::Mean).of(&[vec![vec![1.0]], vec![vec![0.0]]]).is_err());
    }

    #[test]
    fn rounds_of_the_point_with_fewer_come_again() {
        let ours = ratio(Typical::Mean).of(&[vec![vec![2.0]], vec![vec![1.0, 4.0]]]).expect("all divide");
        assert_eq!((ours.low, ours.high, ours.value), (0.5, 2.0, 0.8));
    }

    #[test]
    fn folds() {
        let two = points(&[1, 2]);
        assert_eq!(Figure::ratio("x", two[0], two[1]).fold(&[3.0, 2.0]), Ok(1.5));
        assert!(Figure::ratio("x", two[0], two[1]).fold(&[3.0, 0.0]).is_err());
        let peak = points(&[1, 5, 8]);
        assert_eq!(Figure::best_threads(peak.clone()).fold(&[1.0, 3.0, 2.0]), Ok(5.0));
        assert_eq!(Figure::best_gain(peak).fold(&[2.0, 3.0, 2.0]), Ok(1.5));
        assert_eq!(Figure::difference("x", two[0], two[1]).fold(&[3.0, 0.0]), Ok(3.0));
        let pairs = Figure::ahead_from(&[[points(&[2])[0], points(&[1])[0]], [points(&[3])[0], points(&[2])[0]]]);
        assert_eq!(pairs.fold(&[2.0, 1.0, 2.5, 3.0]), Ok(3.0));
        assert!(pairs.fold(&[2.0, 1.0, 2.0, 2.0]).is_err());
    }

    #[test]
    fn crossings() {
        // With the most contention a section takes three times as long (0.75 is three times 0.5), with the least as
        // long.
        let shares = [0.9, 0.75, 0.5, 0.3, 0.2, 0.2];
        assert_eq!(crossing(&shares, 2.0), Ok(60.0));
        assert!(crossing(&shares, 4.0).is_err() && crossing(&shares, 0.5).is_err());
    }
}
