//! Dates in result files: UTC, in the format of RFC 3339.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, such as `2026-03-01T12:30:00Z`.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    rfc3339(seconds)
}

/// The time so many seconds after the start of 1970.
pub fn rfc3339(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

/// Year, month and day of the day so many days after the start of 1970. The computation starts years in March, so that
/// the leap day is the last day of a year, and the lengths of the months before it repeat as 31, 30, 31, 30, 31.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970_FROM_MARCH_0: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_1970_FROM_MARCH_0;
    let (era, day) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400 - 1), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(rfc3339(1_000_000_000), "2001-09-09T01:46:40Z");
        assert_eq!(rfc3339(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(rfc3339(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
