//! Waiting times as a histogram with bars.

use super::Kind;
use crate::run_stats::Bucket;
use crate::{table, units};

/// The length of the histogram's longest bar.
const BAR: usize = 30;

/// The histogram of the kind of wait that happened most often.
pub(super) fn histogram(kinds: &[Kind<'_>], width: u16) -> String {
    let all = kinds.iter().flat_map(|kind| &kind.waits);
    let Some((what, waits)) = all.max_by_key(|(_, waits)| waits.count).filter(|(_, waits)| waits.count > 0) else {
        return String::new();
    };
    let mut table = table::new([format!("waited for {what}").as_str(), "times", ""], width);
    table::numbers(&mut table, [0, 1]);
    let rows = coarse(&waits.buckets);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(1);
    for row in rows {
        let below = row.below_ns.map_or_else(|| "longer".to_owned(), units::nanoseconds);
        table.add_row([
            format!("{} - {below}", units::nanoseconds(row.from_ns)),
            units::count(row.count),
            "█".repeat((u128::from(row.count) * BAR as u128).div_ceil(u128::from(most)) as usize),
        ]);
    }
    table::text(&table)
}

/// Merges the buckets into buckets of two powers of two without gaps, so that the histogram fits on a screen.
pub(super) fn coarse(buckets: &[Bucket]) -> Vec<Bucket> {
    let floor = |ns: u64| if ns < 4 { 0 } else { 1u64 << (ns.ilog2() & !1) };
    let mut rows: Vec<Bucket> = Vec::new();
    for bucket in buckets {
        let from_ns = floor(bucket.from_ns);
        while let Some(last) = rows.last().filter(|last| last.from_ns < from_ns) {
            let next = floor(last.from_ns).max(1) * 4;
            rows.push(Bucket { from_ns: next, below_ns: Some(next * 4), count: 0 });
        }
        if rows.is_empty() {
            rows.push(Bucket { from_ns, below_ns: Some(from_ns.max(1) * 4), count: 0 });
        }
        if let Some(last) = rows.last_mut() {
            last.count += bucket.count;
            if bucket.below_ns.is_none() {
                last.below_ns = None;
            }
        }
    }
    rows
}
