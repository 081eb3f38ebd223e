//! An axis with our own ticks. It is linear from 0 if factors of two or three matter, and logarithmic if orders of
//! magnitude do.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::units;

/// The maximum number of steps from 0 to the end.
const STEPS: f64 = 6.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
}

impl Scale {
    /// The position of a figure, in the scale's own measure.
    fn place(self, figure: f64) -> f64 {
        match self {
            Self::Linear => figure,
            Self::Logarithmic => figure.max(f64::MIN_POSITIVE).log10(),
        }
    }
}

pub(super) struct Axis {
    scale: Scale,
    /// The ends, as figures.
    range: Range<f64>,
    /// Ticks with a label, and ticks without.
    labelled: Vec<f64>,
    unlabelled: Vec<f64>,
    /// The digits after the point of all labels. The default is as many as a power of ten needs.
    decimals: Option<usize>,
}

impl Axis {
    /// A logarithmic axis with ticks only at these figures, and a margin at each end.
    pub(super) fn with_ticks(ticks: &[f64]) -> Option<Self> {
        /// The margin's share of the axis.
        const MARGIN: f64 = 0.05;
        let (first, last) = (ticks.first()?.log10(), ticks.last()?.log10());
        let margin = (last - first).max(0.1) * MARGIN;
        Some(Self {
            scale: Scale::Logarithmic,
            range: 10_f64.powf(first - margin)..10_f64.powf(last + margin),
            labelled: ticks.to_vec(),
            unlabelled: Vec::new(),
            decimals: None,
        })
    }

    /// A linear axis from 0 to this figure.
    pub(super) fn linear(most: f64) -> Option<Self> {
        let most = Some(most).filter(|most| most.is_finite() && *most > 0.0)?;
        let (step, decimals) = round_step(most);
        let ticks = (0..=(most / step).floor() as u32).map(|tick| f64::from(tick) * step);
        Some(Self {
            scale: Scale::Linear,
            range: 0.0..most * 1.04,
            labelled: ticks.collect(),
            unlabelled: Vec::new(),
            decimals: Some(decimals),
        })
    }

    /// A logarithmic axis over these figures, with a margin at each end.
    pub(super) fn decimal(values: impl Iterator<Item = f64>) -> Option<Self> {
        let places: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::log10).collect();
        let low = places.iter().copied().reduce(f64::min)?;
        let high = places.iter().copied().reduce(f64::max)?;
        let margin = (high - low).max(0.5) * 0.06;
        let range = low - margin..high + margin;
        let decades = || range.start.floor() as i32..=range.end.ceil() as i32;
        let ticks = |parts: &[u32]| -> Vec<f64> {
            let decade = |decade: i32| parts.iter().map(move |part| f64::from(decade) + f64::from(*part).log10());
            decades().flat_map(decade).filter(|tick| range.contains(tick)).map(|tick| 10_f64.powf(tick)).collect()
        };
        // Two powers of ten alone would leave the values between them unclear.
        let (labelled, unlabelled) = match ticks(&[1]) {
            few if few.len() < 3 => (ticks(&[1, 2, 5]), ticks(&[3, 4, 6, 7, 8, 9])),
            powers => (powers, ticks(&[2, 3, 4, 5, 6, 7, 8, 9])),
        };
        let range = 10_f64.powf(range.start)..10_f64.powf(range.end);
        Some(Self { scale: Scale::Logarithmic, range, labelled, unlabelled, decimals: None })
    }

    /// An axis for these ratios: linear with round numbers if they are close together, else logarithmic.
    pub(super) fn ratio(values: &[f64]) -> Option<Self> {
        /// Ratios are close together if the greatest divided by the least is less than this.
        const CLOSE: f64 = 6.0;
        let axis = Self::decimal(values.iter().copied())?;
        let Range { start, end } = axis.range;
        if end / start >= CLOSE {
            return Some(axis);
        }
        let (step, decimals) = round_step(end - start);
        let ticks = (start / step).ceil() as i64..=(end / step).floor() as i64;
        let labelled = ticks.map(|tick| tick as f64 * step).collect();
        Some(Self { scale: Scale::Linear, labelled, unlabelled: Vec::new(), decimals: Some(decimals), ..axis })
    }
}

/// A round step that divides the length into at most [`STEPS`] parts, and the digits after the point of its multiples.
fn round_step(length: f64) -> (f64, usize) {
    let power = 10_f64.powf((length / STEPS).log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|part| part * power).find(|step| length / step <= STEPS);
    let step = step.unwrap_or(10.0 * power);
    (step, (-step.log10() - 1e-9).ceil().max(0.0) as usize)
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let [start, end, place] = [self.range.start, self.range.end, *value].map(|figure| self.scale.place(figure));
        limit.0 + (f64::from(limit.1 - limit.0) * (place - start) / (end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { self.unlabelled.clone() } else { self.labelled.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, number: &f64) -> String {
        match self.decimals {
            Some(0) => units::count(number.round() as u64),
            Some(decimals) => format!("{number:.decimals$}"),
            None if *number > 0.9 => units::count(number.round() as u64),
            None => format!("{number:.*}", -(number.log10() + 1e-9).floor() as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.labelled.iter().map(|tick| axis.format_ext(tick)).collect()
    }

    #[test]
    fn labels_are_the_numbers_themselves() {
        let decimal = Axis::decimal([0.01, 10_000.0].into_iter()).expect("two values");
        assert_eq!(labels(&decimal), ["0.01", "0.1", "1", "10", "100", "1,000", "10,000"]);
        let threads = Axis::with_ticks(&[1.0, 2.0, 64.0]).expect("three ticks");
        assert_eq!(labels(&threads), ["1", "2", "64"]);
    }

    #[test]
    fn a_linear_axis_begins_at_nothing_and_has_round_steps() {
        let axis = |most| Axis::linear(most).expect("a length");
        assert_eq!(labels(&axis(18.6)), ["0", "5", "10", "15"]);
        assert_eq!(labels(&axis(25_300.0)), ["0", "5,000", "10,000", "15,000", "20,000", "25,000"]);
        assert_eq!(labels(&axis(0.055)), ["0.00", "0.01", "0.02", "0.03", "0.04", "0.05"]);
        assert_eq!((axis(10.0).map(&0.0, (100, 0)), axis(10.0).map(&10.4, (100, 0))), (100, 0));
        assert!(Axis::linear(0.0).is_none() && Axis::linear(f64::NAN).is_none());
    }

    #[test]
    fn ratios_that_lie_close_have_a_linear_axis() {
        let axis = |values: &[f64]| Axis::ratio(values).expect("values");
        assert_eq!(labels(&axis(&[0.96, 1.0, 1.04])), ["0.90", "0.95", "1.00", "1.05", "1.10"]);
        assert_eq!(axis(&[0.5, 1.0, 2.0]).scale, Scale::Linear);
        assert_eq!(labels(&axis(&[0.1, 1.0, 30.0])), ["0.1", "1", "10"]);
    }

    #[test]
    fn ticks_lie_inside() {
        let axis = |low: f64, high: f64| Axis::decimal([low, high].into_iter()).expect("two values");
        assert_eq!(labels(&axis(8.0, 1260.0)), ["10", "100", "1,000"]);
        assert_eq!(labels(&axis(800.0, 1260.0)), ["1,000"]);
        let wider = axis(800.0, 8000.0);
        assert_eq!(labels(&wider), ["1,000", "2,000", "5,000"]);
        assert!(wider.unlabelled.iter().all(|tick| wider.range.contains(tick)));
        assert!(Axis::decimal(std::iter::empty()).is_none());
    }
}
