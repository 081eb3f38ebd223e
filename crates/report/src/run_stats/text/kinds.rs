//! The kinds of objects that a program used, and how long its threads waited for them.

use flashlock_locks::machine::event::Event;

use crate::run_stats::{RunStats, Waits};
use crate::units;

/// A kind of object, and its counters.
pub(super) struct Kind<'a> {
    /// Its name, at the beginning of a sentence.
    pub(super) name: &'static str,
    pub(super) operations: u64,
    /// The text after its name.
    pub(super) text: String,
    /// What its threads waited for, and how long.
    pub(super) waits: Vec<(&'static str, &'a Waits)>,
}

/// The kinds that were used, the one with the most operations first.
pub(super) fn kinds(stats: &RunStats) -> Vec<Kind<'_>> {
    let of = |event: Event| stats.events.of(event.name());
    let share = |part: u64, all: u64| units::percent(if all == 0 { 0.0 } else { part as f64 / all as f64 });
    let rw = of(Event::RwRead) + of(Event::RwWrite);
    let [timed_out, rw_timed_out] = [Event::TimedOut, Event::RwTimedOut].map(of);
    let acquisitions = |number, timed_out| {
        let acquired = units::counted(number, "acquisition");
        match timed_out {
            0 => acquired,
            _ => format!("{acquired}, {} timed out", units::counted(timed_out, "attempt")),
        }
    };
    let spun = of(Event::SpinAcquire);
    let taken = of(Event::SemAcquire);
    let left = if stats.lock.is_glibc() { 0 } else { stats.derived.left_to_glibc };
    let mut kinds = vec![
        Kind {
            name: "Mutexes",
            operations: of(Event::Acquire) + timed_out,
            text: format!(
                "{}, {} contended",
                acquisitions(of(Event::Acquire), timed_out),
                units::percent(stats.derived.contention.unwrap_or_default())
            ),
            waits: vec![("a mutex", &stats.waits)],
        },
        Kind {
            name: "Readers-writer locks",
            operations: rw + rw_timed_out,
            text: format!(
                "{}: {} for reading; {} had to wait",
                acquisitions(rw, rw_timed_out),
                share(of(Event::RwRead), rw),
                units::percent(stats.derived.rw_contention.unwrap_or_default())
            ),
            waits: vec![
                ("a readers-writer lock, to read", &stats.waits_of.rw_read),
                ("a readers-writer lock, to write", &stats.waits_of.rw_write),
            ],
        },
        Kind {
            name: "Semaphores",
            operations: taken,
            text: format!(
                "{} taken, {} after a wait",
                units::counted(taken, "permit"),
                share(of(Event::SemQueued), taken)
            ),
            waits: vec![("a permit of a semaphore", &stats.waits_of.semaphore)],
        },
        Kind {
            name: "Spinlocks",
            operations: spun,
            text: format!("{}, {} contended", acquisitions(spun, 0), share(of(Event::SpinContended), spun)),
            waits: vec![("a spinlock", &stats.waits_of.spinlock)],
        },
        Kind {
            name: "Condition variables",
            operations: of(Event::CondWait),
            text: units::counted(of(Event::CondWait), "wait"),
            waits: Vec::new(),
        },
        Kind {
            name: "Objects left to glibc",
            operations: left,
            text: units::counted(left, "operation"),
            waits: Vec::new(),
        },
    ];
    kinds.retain(|kind| kind.operations > 0);
    kinds.sort_by_key(|kind| u64::MAX - kind.operations);
    kinds
}

/// `9 waits: 50% under 2 µs, …`
pub(super) fn percentiles(waits: &Waits) -> String {
    let open = waits.buckets.last().is_some_and(|bucket| bucket.below_ns.is_none());
    let points = [
        ("50% under", waits.p50_ns),
        ("90% under", waits.p90_ns),
        ("99% under", waits.p99_ns),
        ("99.9% under", waits.p999_ns),
        (if open { "the longest over" } else { "all under" }, waits.max_ns),
    ];
    let points = points.iter().filter_map(|(share, ns)| Some(format!("{share} {}", units::nanoseconds((*ns)?))));
    format!("{}, {}", units::count(waits.count), points.collect::<Vec<_>>().join(", "))
}
