//! A logarithmic axis whose ticks are chosen by us: linear in the logarithms, labelled with the numbers.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::units;

pub(super) struct Axis {
    base: f64,
    range: Range<f64>,
    /// Ticks with a label, and ticks without.
    labelled: Vec<f64>,
    unlabelled: Vec<f64>,
    /// Digits after the point of all labels; by default as many as a power of ten needs.
    decimals: Option<usize>,
}

impl Axis {
    /// An axis with a tick at each of these logarithms and nowhere else.
    pub(super) fn with_ticks(base: f64, ticks: &[f64], margin: f64) -> Option<Self> {
        let range = ticks.first()? - margin..ticks.last()? + margin;
        Some(Self { base, range, labelled: ticks.to_vec(), unlabelled: Vec::new(), decimals: None })
    }

    /// A decimal axis over these logarithms, with some room at its ends.
    pub(super) fn decimal(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let low = values.clone().reduce(f64::min)?;
        let high = values.reduce(f64::max)?;
        let margin = (high - low).max(0.5) * 0.06;
        let range = low - margin..high + margin;
        let decades = || range.start.floor() as i32..=range.end.ceil() as i32;
        let ticks = |parts: &[u32]| -> Vec<f64> {
            let decade = |decade: i32| parts.iter().map(move |part| f64::from(decade) + f64::from(*part).log10());
            decades().flat_map(decade).filter(|tick| range.contains(tick)).collect()
        };
        // Two powers of ten alone would leave a reader to guess what is between them.
        let (labelled, unlabelled) = match ticks(&[1]) {
            few if few.len() < 3 => (ticks(&[1, 2, 5]), ticks(&[3, 4, 6, 7, 8, 9])),
            powers => (powers, ticks(&[2, 3, 4, 5, 6, 7, 8, 9])),
        };
        Some(Self { base: 10.0, range, labelled, unlabelled, decimals: None })
    }

    /// An axis for these ratios: decimal, or with round numbers between neighbouring powers where the ratios lie close.
    pub(super) fn ratio(values: &[f64]) -> Option<Self> {
        /// The ratios that lie closer than this, greatest to least, are close.
        const CLOSE: f64 = 4.0;
        /// How many ticks there are to be, at most.
        const TICKS: f64 = 7.0;
        let mut axis = Self::decimal(values.iter().map(|value| value.log10()))?;
        let (low, high) = (10_f64.powf(axis.range.start), 10_f64.powf(axis.range.end));
        if high / low < CLOSE {
            let steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
            let step = steps.into_iter().find(|step| (high - low) / step <= TICKS).unwrap_or(1.0);
            let ticks = (low / step).ceil() as i64..=(high / step).floor() as i64;
            axis.labelled = ticks.map(|tick| (tick as f64 * step).log10()).collect();
            axis.unlabelled.clear();
            axis.decimals = Some(-(step.log10().floor()) as usize);
        }
        Some(axis)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { self.unlabelled.clone() } else { self.labelled.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, logarithm: &f64) -> String {
        let number = self.base.powf(*logarithm);
        if let Some(decimals) = self.decimals {
            return format!("{number:.decimals$}");
        }
        if number > 0.9 {
            units::count(number.round() as u64)
        } else {
            format!("{number:.*}", -logarithm.floor() as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_the_numbers_themselves() {
        let decimal = Axis::decimal([-2.0, 4.0].into_iter()).expect("two values");
        assert_eq!(
            [-2.0, -1.0, 0.0, 1.0, 4.0].map(|tick| decimal.format_ext(&tick)),
            ["0.01", "0.1", "1", "10", "10,000"]
        );
        let binary = Axis::with_ticks(2.0, &[0.0, 6.0], 0.1).expect("two ticks");
        assert_eq!([0.0, 3.0, 6.0].map(|tick| binary.format_ext(&tick)), ["1", "8", "64"]);
    }

    #[test]
    fn ratios_that_lie_close_have_round_numbers_between() {
        let labels = |values: &[f64]| {
            let axis = Axis::ratio(values).expect("values");
            axis.labelled.iter().map(|tick| axis.format_ext(tick)).collect::<Vec<_>>()
        };
        assert_eq!(labels(&[0.96, 1.0, 1.04]), ["0.90", "0.95", "1.00", "1.05", "1.10"]);
        assert_eq!(labels(&[0.1, 1.0, 30.0]), ["0.1", "1", "10"]);
    }

    #[test]
    fn ticks_lie_inside() {
        let axis = Axis::decimal([0.9, 3.1].into_iter()).expect("two values");
        assert_eq!(axis.labelled, [1.0, 2.0, 3.0]);
        let narrow = Axis::decimal([2.9, 3.1].into_iter()).expect("two values");
        assert_eq!(narrow.labelled, [3.0]);
        let wider = Axis::decimal([2.9, 3.9].into_iter()).expect("two values");
        assert_eq!(
            wider.labelled.iter().map(|tick| wider.format_ext(tick)).collect::<Vec<_>>(),
            ["1,000", "2,000", "5,000"]
        );
        assert!(axis.unlabelled.iter().all(|tick| axis.range.contains(tick)));
        assert!(Axis::decimal(std::iter::empty()).is_none());
    }
}
