//! A lock's mean share of the best, and its interval.
//!
//! *The estimate.* In each cell the median of the rounds' ratios to the best other lock, and at most 1; of these the
//! geometric mean over the cells.
//!
//! *The interval* (95 %) is of that very estimate, by a bootstrap: rounds are drawn with replacement, each draw the
//! same for all cells, because what disturbs a round may disturb all its cells. Each draw gives an estimate. The
//! standard deviation of their logarithms is the standard error. The interval reaches as many standard errors to either
//! side of the estimate as Student's t says for the number of rounds, and up to 1 at most.
//!
//! *Why not the draws' percentiles.* The limit of 1 makes the estimate a concave function of the ratios: if locks are
//! equal, nearly all draws are below the estimate, and so is the interval of their percentiles. Their spread is sound
//! even so. With three rounds, which is usual, the standard error of a median comes out a tenth too large, if anything.
//! And few rounds say little about their spread, which percentiles ignore and Student's t respects.
//!
//! *What it leaves out.* The best other lock of a cell is chosen once, and not again for each draw. Only rounds in
//! which all cells were measured are drawn.

use std::collections::BTreeMap;

use crate::statistics::{CONFIDENCE, Random, Spread, student};

/// The ratios of a cell, by round.
pub(super) type Ratios = BTreeMap<u32, f64>;

const DRAWS: usize = 1000;
const SEED: u64 = 1;

/// The share of the best: the median of a cell's ratios, at most 1.
pub(super) fn share(ratios: &[f64]) -> Option<f64> {
    Some(Spread::of(ratios)?.median.min(1.0))
}

/// `None` for no numbers. A number that is not positive makes it 0.
pub(super) fn geometric_mean(numbers: &[f64]) -> Option<f64> {
    logarithm(numbers.iter().copied()).map(f64::exp)
}

/// The logarithm of the geometric mean.
fn logarithm(numbers: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = numbers.len() as f64;
    (count > 0.0).then(|| numbers.map(f64::ln).sum::<f64>() / count)
}

/// The interval of the mean share over these cells. `None` if fewer than two rounds have all cells.
pub(super) fn of_mean(cells: &[Ratios]) -> Option<(f64, f64)> {
    let shares = cells.iter().map(|cell| share(&cell.values().copied().collect::<Vec<_>>()));
    let estimate = logarithm(shares.collect::<Option<Vec<f64>>>()?.into_iter())?;
    let (first, others) = cells.split_first()?;
    let whole: Vec<u32> =
        first.keys().copied().filter(|round| others.iter().all(|cell| cell.contains_key(round))).collect();
    let freedom = whole.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    // By cell, in the order of the rounds.
    let table: Vec<Vec<f64>> = cells.iter().map(|cell| whole.iter().map(|round| cell[round]).collect()).collect();
    let mut random = Random::new(SEED);
    let mut draw = || {
        let rounds: Vec<usize> = whole.iter().map(|_| random.bits() as usize % whole.len()).collect();
        let of = |cell: &Vec<f64>| share(&rounds.iter().map(|round| cell[*round]).collect::<Vec<_>>()).unwrap_or(1.0);
        logarithm(table.iter().map(of)).unwrap_or(0.0)
    };
    let draws: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    let reach = deviation(&draws) * student::critical(1.0 - CONFIDENCE, freedom as f64);
    Some(((estimate - reach).exp(), (estimate + reach).exp().min(1.0)))
}

/// The standard deviation.
fn deviation(numbers: &[f64]) -> f64 {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    (numbers.iter().map(|number| (number - mean) * (number - mean)).sum::<f64>() / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of cells whose ratios are `ratio` with noise of some percent.
    fn noisy(random: &mut Random, cells: usize, rounds: u32, ratio: f64) -> Vec<Ratios> {
        // The sum of six is nearly normal.
        let mut noise = || (0..6).map(|_| random.bits() as f64 / (1_u64 << 48) as f64 - 0.5).sum::<f64>() * 0.06;
        (0..cells).map(|_| (0..rounds).map(|round| (round, ratio * noise().exp())).collect()).collect()
    }

    fn estimate(cells: &[Ratios]) -> f64 {
        let shares = cells.iter().filter_map(|cell| share(&cell.values().copied().collect::<Vec<_>>()));
        geometric_mean(&shares.collect::<Vec<_>>()).expect("there are cells")
    }

    #[test]
    fn the_interval_contains_its_estimate_also_at_the_limit() {
        let mut random = Random::new(7);
        for (rounds, ratio) in [(2, 1.0), (3, 1.0), (3, 0.98), (5, 1.0), (12, 1.0), (3, 1.5)] {
            for _ in 0..3 {
                let cells = noisy(&mut random, 70, rounds, ratio);
                let ((low, high), share) = (of_mean(&cells).expect("rounds"), estimate(&cells));
                assert!(low <= share && share <= high && high <= 1.0, "{rounds} rounds: {low} {share} {high}");
                assert!(high - low < 0.1 || rounds == 2, "{rounds} rounds: {low} {share} {high}");
            }
        }
    }

    #[test]
    fn the_interval_contains_the_truth_nearly_always() {
        let mut random = Random::new(11);
        for rounds in [3, 5] {
            let hits = (0..100).filter(|_| {
                let (low, high) = of_mean(&noisy(&mut random, 6, rounds, 0.8)).expect("rounds");
                (low..=high).contains(&0.8)
            });
            let hits = hits.count();
            assert!(hits >= 90, "{hits} of 100 with {rounds} rounds");
        }
    }

    #[test]
    fn it_is_the_same_each_time_and_needs_two_whole_rounds() {
        let cells = noisy(&mut Random::new(3), 4, 3, 0.9);
        assert_eq!(of_mean(&cells), of_mean(&cells));
        assert_eq!(of_mean(&noisy(&mut Random::new(3), 4, 1, 0.9)), None);
        assert_eq!(of_mean(&[[(0, 0.9), (1, 0.8)].into(), [(1, 0.9), (2, 0.8)].into()]), None);
        assert_eq!(of_mean(&[]), None);
    }
}
