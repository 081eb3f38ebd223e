//! Medians with their spread.

use serde::{Deserialize, Serialize};

/// The median of some numbers, and the extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the numbers are at most this.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// `None` if there are no numbers.
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median: lower.midpoint(upper), min, max })
    }
}

/// The number below which this share (0 to 1) of the numbers lies. `None` if there are no numbers.
pub fn quantile(numbers: &[f64], share: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (*sorted.get(place.floor() as usize)?, *sorted.get(place.ceil() as usize)?);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of(&[7.0]), Some(Spread { median: 7.0, min: 7.0, max: 7.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn quantiles() {
        let numbers = [4.0, 0.0, 1.0, 3.0, 2.0];
        assert_eq!(
            [0.0, 0.25, 0.5, 0.6, 1.0].map(|share| quantile(&numbers, share).unwrap()),
            [0.0, 1.0, 2.0, 2.4, 4.0]
        );
        assert_eq!(quantile(&[], 0.5), None);
    }
}
