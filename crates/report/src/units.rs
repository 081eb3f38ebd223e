//! Numbers as people read them.

/// A whole number with thousands separated: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and its noun: `1 waiter`, `2,000 waiters`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A time with three significant digits and its unit: `999 ns`, `1.02 µs`, `12.3 ms`, `1.50 s`.
pub fn nanoseconds(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns} ns");
    }
    let ns = ns as f64;
    // 999.95 would be written as 1000 of the smaller unit.
    let (value, unit) = [(1e3, "µs"), (1e6, "ms")]
        .into_iter()
        .map(|(scale, unit)| (ns / scale, unit))
        .find(|(value, _)| *value < 999.5)
        .unwrap_or((ns / 1e9, "s"));
    format!("{} {unit}", significant(value))
}

/// Three significant digits, without losing digits before the point.
pub fn significant(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => count(value.round() as u64),
    }
}

/// Three significant digits, also of numbers far below one, without an exponent and without losing digits before the
/// point.
pub fn three_digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    // Use the rounded number: 0.09996 has one digit less after the point than its own logarithm suggests.
    let rounded: f64 = format!("{number:.2e}").parse().unwrap_or(number);
    let decimals = (2.0 - rounded.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{:.decimals$}", number.abs());
    let sign = if number < 0.0 { "-" } else { "" };
    match text.len() {
        4.. if decimals == 0 && number.abs() < 1e15 => format!("{sign}{}", count(number.abs().round() as u64)),
        _ => format!("{sign}{text}"),
    }
}

/// A share of one as a percentage. It distinguishes 0 from little, and all from almost all.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        share if share <= 0.0 => "0%".into(),
        share if share < 0.01 => "under 0.01%".into(),
        share if share < 1.0 => format!("{share:.2}%"),
        share if (99.95..100.0).contains(&share) => "almost 100%".into(),
        share if share >= 100.0 => "100%".into(),
        share => format!("{share:.1}%"),
    }
}

/// A size in bytes: `48 KiB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 { format!("{value:.0} {}", units[unit]) } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((counted(1, "wait"), counted(2000, "wait")), ("1 wait".into(), "2,000 waits".into()));
    }

    #[test]
    fn times() {
        let shown = [0, 999, 1000, 1024, 12_345, 999_499, 999_500, 1_500_000_000, 100_000_000_000].map(nanoseconds);
        assert_eq!(shown, ["0 ns", "999 ns", "1.00 µs", "1.02 µs", "12.3 µs", "999 µs", "1.00 ms", "1.50 s", "100 s"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0123, 0.09996, 1.0, 12.34, 999.6, 22680.0, 1234567.0, -0.5, -4321.0].map(three_digits);
        assert_eq!(shown, ["0.0123", "0.100", "1.00", "12.3", "1,000", "22,680", "1,234,567", "-0.500", "-4,321"]);
    }

    #[test]
    fn shares() {
        let shown = [0.0, 0.000_01, 0.001, 0.25, 0.9999, 1.0].map(percent);
        assert_eq!(shown, ["0%", "under 0.01%", "0.10%", "25.0%", "almost 100%", "100%"]);
    }

    #[test]
    fn sizes() {
        assert_eq!([64, 49152, 1 << 21, 3 << 29].map(bytes), ["64 bytes", "48 KiB", "2 MiB", "1.5 GiB"]);
    }
}
