//! The ratio of two figures that were measured side by side, with its interval.
//!
//! Each round compares two runs that ran next to each other, and gives one quotient. Quotients are combined by their
//! logarithms, so that "twice" and "half" weigh the same. Their mean is the geometric mean of the quotients. Student's
//! interval around it follows from the spread of the rounds. It is correct if noise affects both sides equally or
//! independently, and if noise grows with the figure. A single round has no interval.
//!
//! A coarse figure, such as a time in whole seconds, may be the same in all of a few rounds by chance, and then seems
//! to have no noise. So each quotient is assumed to be uncertain by the figure's [`grain`], too, which widens the
//! interval. If all rounds agree exactly and no grain is known, only their sign is judged.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::student;
use crate::units;

/// The confidence level of intervals and verdicts.
pub const CONFIDENCE: f64 = 0.95;

/// An interval with ends further apart than this factor says nothing. Two or three rounds that differ have such ones.
const TELLING: f64 = 1000.0;

/// A ratio to the baseline's figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The geometric mean of the rounds' quotients.
    pub mean: f64,
    /// The lower end of its 95 % interval; `null` with fewer than two rounds, and if all rounds agree exactly.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The number of rounds.
    pub rounds: u32,
    /// The probability of a distance from 1 at least this great if there is no difference (two-sided); `null` with
    /// fewer than two rounds.
    pub p: Option<f64>,
}

impl Ratio {
    /// Computed from the natural logarithms of the rounds' quotients. `None` if there are none.
    pub fn of_logarithms(logarithms: &[f64]) -> Option<Self> {
        Self::of_coarse(logarithms, 0.0)
    }

    /// The same for coarse figures. `grain` is the standard deviation of a logarithm that is due to rounding alone,
    /// from [`grain`].
    pub fn of_coarse(logarithms: &[f64], grain: f64) -> Option<Self> {
        let rounds = u32::try_from(logarithms.len()).ok().filter(|rounds| *rounds > 0)?;
        let count = f64::from(rounds);
        let mean = logarithms.iter().sum::<f64>() / count;
        let point = Self { mean: mean.exp(), low: None, high: None, rounds, p: None };
        if rounds < 2 {
            return Some(point);
        }
        let squares: f64 = logarithms.iter().map(|value| (value - mean) * (value - mean)).sum();
        let error = ((squares / (count - 1.0) + grain * grain) / count).sqrt();
        if error < NO_SPREAD {
            // The noise is unknown. This is the probability that all rounds are on one side if both sides are equally
            // likely.
            let p = if mean.abs() < NO_SPREAD { 1.0 } else { 2.0_f64.powf(1.0 - count) };
            return Some(Self { p: Some(p), ..point });
        }
        let reach = error * critical(rounds - 1);
        let p = student::two_sided(mean / error, count - 1.0);
        // A few rounds that differ wildly may exceed the range of numbers, and JSON has no infinity.
        let ends = ((mean - reach).exp(), (mean + reach).exp().min(f64::MAX));
        Some(Self { low: Some(ends.0), high: Some(ends.1), p: Some(p), ..point })
    }

    /// Computed from pairs of positive figures of one round: (the lock's, the baseline's). Other pairs are left out.
    pub fn of_pairs(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = pairs.into_iter().collect();
        let logarithms: Vec<f64> = pairs.iter().filter_map(|&(value, base)| logarithm(value, base)).collect();
        Self::of_coarse(&logarithms, grain(pairs.iter().flat_map(|&(value, base)| [value, base])))
    }

    /// Its 95 % interval in words: `0.98–1.10`; `not known` if it says nothing.
    pub fn interval(&self) -> Option<String> {
        self.low.zip(self.high).map(|_| match self.ends() {
            Some((low, high)) => format!("{}–{}", units::three_digits(low), units::three_digits(high)),
            None => "not known".to_owned(),
        })
    }

    /// The ends of its 95 % interval; `None` if there is none, or if it says nothing.
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high).filter(|(low, high)| high / low <= TELLING)
    }

    /// The interval for `comparisons` simultaneous comparisons: wide enough that with 95 % confidence all of them
    /// contain the truth (Bonferroni). `None` if there is no interval.
    pub fn interval_of(&self, comparisons: usize) -> Option<(f64, f64)> {
        let freedom = self.rounds.checked_sub(1).filter(|freedom| *freedom > 0)?;
        let wider = student::critical((1.0 - CONFIDENCE) / comparisons.max(1) as f64, f64::from(freedom));
        let reach = (self.high? / self.mean).ln() * wider / critical(freedom);
        Some((self.mean * (-reach).exp(), self.mean * reach.exp()))
    }

    /// The factor by which the interval reaches beyond the mean on either side (1.02: 2 %). Infinite if there is no
    /// interval.
    pub fn reach(&self) -> f64 {
        self.high.map_or(f64::INFINITY, |high| high / self.mean)
    }

    /// The inverse ratio.
    pub fn inverse(&self) -> Self {
        let (low, high) = (self.high.map(f64::recip), self.low.map(|low| low.recip().min(f64::MAX)));
        Self { mean: self.mean.recip(), low, high, ..*self }
    }
}

/// A standard error of a logarithm below this is rounding of floating-point numbers, and counts as none.
const NO_SPREAD: f64 = 1e-12;

/// The uncertainty of the logarithm of a quotient of two of these figures because they are coarse: half the least step
/// between two of them, to either side, for each of the two figures. It is 0 if no two figures are equal, as with fine
/// figures, or if all are equal.
pub fn grain(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut logarithms: Vec<f64> = figures.into_iter().filter_map(|figure| logarithm(figure, 1.0)).collect();
    logarithms.sort_by(f64::total_cmp);
    let (steps, ties): (Vec<f64>, Vec<f64>) =
        logarithms.windows(2).map(|pair| pair[1] - pair[0]).partition(|step| *step > NO_SPREAD);
    let least = steps.into_iter().reduce(f64::min).filter(|_| !ties.is_empty());
    least.map_or(0.0, |step| step / 2.0 * std::f64::consts::SQRT_2)
}

/// How many standard errors the interval reaches. The first values are cached because they are needed after every
/// round.
fn critical(freedom: u32) -> f64 {
    static FIRST: OnceLock<Vec<f64>> = OnceLock::new();
    let compute = |freedom: u32| student::critical(1.0 - CONFIDENCE, f64::from(freedom));
    let first = FIRST.get_or_init(|| (1..=64).map(compute).collect());
    first.get(freedom as usize - 1).copied().unwrap_or_else(|| compute(freedom))
}

/// The logarithm of a quotient; `None` if one of the two is not a positive number.
pub fn logarithm(value: f64, base: f64) -> Option<f64> {
    let usable = |number: f64| number.is_finite() && number > 0.0;
    (usable(value) && usable(base)).then(|| (value / base).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_slows_down_for_all_changes_nothing() {
        let ratio = Ratio::of_pairs([(150.3, 100.0), (75.0, 50.1), (30.03, 20.0)]).unwrap();
        assert!((ratio.mean - 1.5).abs() < 0.002 && ratio.reach() < 1.01 && ratio.p < Some(1e-4), "{ratio:?}");
    }

    #[test]
    fn the_interval_is_students() {
        // Logarithms 0.1, 0.2, 0.3: mean 0.2, standard error 0.1/sqrt(3), t(2) = 4.3027.
        let ratio = Ratio::of_logarithms(&[0.1, 0.2, 0.3]).unwrap();
        assert_eq!(ratio.interval().as_deref(), Some("0.953–1.57"));
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
        // Two rounds that differ much have an interval, but one from nothing to everything.
        assert_eq!(Ratio::of_logarithms(&[0.0, 1.0]).unwrap().interval().as_deref(), Some("not known"));
    }

    #[test]
    fn figures_without_noise() {
        assert_eq!(Ratio::of_pairs([(3.0, 3.0), (4.0, 4.0)]).unwrap().p, Some(1.0));
        // Three equal rounds count as three signs, whatever digits the mean loses.
        let same = Ratio::of_logarithms(&[0.1, 0.1, 0.1]).unwrap();
        assert_eq!((same.p, same.low, same.high), (Some(0.25), None, None));
    }

    #[test]
    fn coarse_figures_are_uncertain_by_their_step() {
        assert_eq!((grain([5.0, 5.0]), grain([5.0, 6.0, 7.1])), (0.0, 0.0));
        assert!((grain([10.0, 11.0, 10.0, 20.0]) - 1.1_f64.ln() / 2.0_f64.sqrt()).abs() < 1e-12);
        let coarse = Ratio::of_pairs([(11.0, 10.0); 3]).unwrap();
        assert!(coarse.p > Some(0.1) && coarse.low < Some(1.0), "{coarse:?}");
        // A difference of many steps is significant.
        assert!(Ratio::of_pairs([(21.0, 10.0), (20.0, 10.0), (20.0, 10.0)]).unwrap().p < Some(0.05));
    }

    #[test]
    fn intervals_of_several_comparisons_are_wider() {
        let ratio = Ratio::of_logarithms(&[0.1, 0.2, 0.3]).unwrap();
        let (low, high) = ratio.interval_of(1).unwrap();
        assert!((low / ratio.low.unwrap() - 1.0).abs() < 1e-9 && (high / ratio.high.unwrap() - 1.0).abs() < 1e-9);
        // t(2) at 0.01 is 9.925.
        let (low, _) = ratio.interval_of(5).unwrap();
        assert!((low.ln() - (0.2 - 9.925 * 0.1 / 3.0_f64.sqrt())).abs() < 1e-3, "{low}");
    }
}
