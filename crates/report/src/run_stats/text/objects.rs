//! The busiest objects, as tables.

use crate::run_stats::{Object, RunStats};
use crate::{table, units};

/// How many locks and semaphores are shown, if threads waited for them.
const SHOWN: [usize; 2] = [10, 5];
/// How many are shown if threads waited for none: the most used.
const SHOWN_IDLE: usize = 3;

/// The locks that threads waited for longest, and separately the semaphores: a thread that waits for a permit may just
/// have nothing to do.
pub(super) fn objects(stats: &RunStats, width: u16) -> String {
    let (semaphores, locks): (Vec<&Object>, Vec<&Object>) =
        stats.objects.iter().partition(|object| object.is_semaphore());
    let tables = [(locks, "lock", SHOWN[0]), (semaphores, "semaphore", SHOWN[1])].map(|(objects, what, most)| {
        let waited = objects.iter().filter(|object| object.waited_ns > 0).count();
        let (title, most) = match waited {
            0 => (format!("{what} (by acquisitions)"), SHOWN_IDLE),
            _ => (format!("{what} (by total wait)"), waited.min(most)),
        };
        let mut table = table::new([title.as_str(), "acquired", "waited", "total wait", "longest"], width);
        table::numbers(&mut table, 1..=4);
        for object in objects.iter().take(most) {
            let share = object.contended as f64 / object.acquisitions.max(1) as f64;
            table.add_row([
                object.title(),
                units::count(object.acquisitions),
                units::percent(share.min(1.0)),
                units::nanoseconds(object.waited_ns),
                units::nanoseconds(object.longest_ns),
            ]);
        }
        let more = objects.len().saturating_sub(most);
        let more = match more {
            0 => String::new(),
            more => {
                table::field("", &format!("and {} more (--stats=json shows them)", units::count(more as u64)), 0, width)
            }
        };
        if table.is_empty() { String::new() } else { table::text(&table) + &more }
    });
    tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n")
}
