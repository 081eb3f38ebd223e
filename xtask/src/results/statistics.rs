//! Medians with their spread, and chance.

use serde::Serialize;

/// The middle of some numbers, and the ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` for no numbers at all.
    pub(crate) fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median: lower.midpoint(upper), min, max })
    }
}

/// A small generator of random numbers (xorshift64*), for the order of runs.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Brings a list into random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.next() as usize % (last + 1);
            list.swap(last, other);
        }
    }
}

/// Three significant digits, without an exponent.
pub(crate) fn three_digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    let magnitude = number.abs().log10().floor();
    let decimals = (2.0 - magnitude).clamp(0.0, 6.0) as usize;
    let text = format!("{number:.decimals$}");
    if magnitude < 3.0 { text } else { grouped(&text) }
}

/// A whole number with commas between thousands.
pub(crate) fn whole(number: f64) -> String {
    grouped(&format!("{number:.0}"))
}

/// Commas between thousands.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digit.is_ascii_digit() && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
    fn a_shuffled_list_is_the_same_in_another_order() {
        let mut list: Vec<u32> = (0..50).collect();
        Random::new(7).shuffle(&mut list);
        assert_ne!(list, (0..50).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0123, 1.0, 12.34, 999.6, 22680.0, 1234567.0, -0.5, -4321.0].map(three_digits);
        assert_eq!(shown, ["0.0123", "1.00", "12.3", "1000", "22,680", "1,234,567", "-0.500", "-4,321"]);
    }
}
