//! The ratio of two figures that were measured side by side, with its interval.
//!
//! What is compared is what ran next to each other: each round gives one quotient. Quotients are combined by their logarithms,
//! so that "twice" and "half" weigh the same; their mean is the geometric mean of the quotients, and the interval around it is
//! Student's, from the spread of the rounds themselves. It is right for noise that hits the two sides alike or independently,
//! also for noise that grows with the figure. A single round has no interval.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::student;

/// How sure intervals and verdicts are meant to be.
pub const CONFIDENCE: f64 = 0.95;

/// A ratio to the baseline's figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The geometric mean of the rounds' quotients.
    pub mean: f64,
    /// The lower end of its 95 % interval; `null` with less than two rounds.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// How many rounds.
    pub rounds: u32,
    /// How probable so great a distance from 1 is without any difference (two-sided); `null` with less than two rounds.
    pub p: Option<f64>,
}

impl Ratio {
    /// Of the natural logarithms of the rounds' quotients. `None` for none.
    pub fn of_logarithms(logarithms: &[f64]) -> Option<Self> {
        let rounds = u32::try_from(logarithms.len()).ok().filter(|rounds| *rounds > 0)?;
        let count = f64::from(rounds);
        let mean = logarithms.iter().sum::<f64>() / count;
        let point = Self { mean: mean.exp(), low: None, high: None, rounds, p: None };
        if rounds < 2 {
            return Some(point);
        }
        let squares: f64 = logarithms.iter().map(|value| (value - mean) * (value - mean)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let reach = error * critical(rounds - 1);
        let p = match error > 0.0 {
            true => student::two_sided(mean / error, count - 1.0),
            // Every round said the same: a figure that is no measurement (a count), or a coarse one.
            false if mean == 0.0 => 1.0,
            false => 0.0,
        };
        Some(Self { low: Some((mean - reach).exp()), high: Some((mean + reach).exp()), p: Some(p), ..point })
    }

    /// Of pairs of figures, all positive: (the lock's, the baseline's) of one round. Others are left out.
    pub fn of_pairs(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        Self::of_logarithms(&pairs.into_iter().filter_map(|(value, base)| logarithm(value, base)).collect::<Vec<_>>())
    }

    /// By which factor the interval reaches beyond the mean on either side (1.02: 2 %). Infinite where there is none.
    pub fn reach(&self) -> f64 {
        self.high.map_or(f64::INFINITY, |high| high / self.mean)
    }

    /// The same ratio seen from the other side.
    pub fn inverse(&self) -> Self {
        let (low, high) = (self.high.map(f64::recip), self.low.map(f64::recip));
        Self { mean: self.mean.recip(), low, high, ..*self }
    }
}

/// How many standard errors the interval reaches. The first are kept: they are asked for after every round.
fn critical(freedom: u32) -> f64 {
    static FIRST: OnceLock<Vec<f64>> = OnceLock::new();
    let compute = |freedom: u32| student::critical(1.0 - CONFIDENCE, f64::from(freedom));
    let first = FIRST.get_or_init(|| (1..=64).map(compute).collect());
    first.get(freedom as usize - 1).copied().unwrap_or_else(|| compute(freedom))
}

/// The logarithm of a quotient; `None` where one of the two is not a positive number.
pub fn logarithm(value: f64, base: f64) -> Option<f64> {
    let usable = |number: f64| number.is_finite() && number > 0.0;
    (usable(value) && usable(base)).then(|| (value / base).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_slows_down_for_all_changes_nothing() {
        let ratio = Ratio::of_pairs([(150.0, 100.0), (75.0, 50.0), (30.0, 20.0)]).unwrap();
        assert!((ratio.mean - 1.5).abs() < 1e-12 && ratio.reach() < 1.0 + 1e-9 && ratio.p < Some(1e-12));
    }

    #[test]
    fn the_interval_is_students() {
        // Logarithms 0.1, 0.2, 0.3: mean 0.2, standard error 0.1/sqrt(3), t(2) = 4.3027.
        let ratio = Ratio::of_logarithms(&[0.1, 0.2, 0.3]).unwrap();
        let reach = 4.3027 * 0.1 / 3.0_f64.sqrt();
        assert!((ratio.low.unwrap() - (0.2 - reach).exp()).abs() < 1e-4, "{ratio:?}");
        assert!((ratio.high.unwrap() - (0.2 + reach).exp()).abs() < 1e-4, "{ratio:?}");
        assert!((ratio.inverse().high.unwrap() - (reach - 0.2).exp()).abs() < 1e-4);
    }

    #[test]
    fn one_round_has_no_interval_and_none_no_ratio() {
        let ratio = Ratio::of_pairs([(2.0, 1.0), (0.0, 1.0)]).unwrap();
        assert_eq!((ratio.mean, ratio.low, ratio.p, ratio.rounds), (2.0, None, None, 1));
        assert_eq!(ratio.reach(), f64::INFINITY);
        assert_eq!(Ratio::of_pairs([(f64::NAN, 1.0), (1.0, -1.0)]), None);
    }

    #[test]
    fn figures_without_noise() {
        assert_eq!(Ratio::of_pairs([(3.0, 3.0), (4.0, 4.0)]).unwrap().p, Some(1.0));
        assert_eq!(Ratio::of_logarithms(&[0.5, 0.5]).unwrap().p, Some(0.0));
    }
}
