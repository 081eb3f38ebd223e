//! Builds the schema's values from the counters in shared memory.

use flashlock_locks::machine::event::Event;
use flashlock_native::settings::{self, Choice};
use flashlock_native::stats::{BUCKETS, Totals, Use, bucket_floor};

use super::{Bucket, Derived, Lock, MOST_OBJECTS, Object, OtherWaits, Outcome, Resources, RunStats, Waits};
use crate::counts::Counts;
use crate::provenance::Provenance;

/// The events that count operations left to glibc, one for each reason. [`Event::objects`] counts the objects.
pub(super) const LEFT_TO_GLIBC: &[Event] =
    &[Event::GlibcRobust, Event::GlibcPi, Event::GlibcPp, Event::GlibcShared, Event::GlibcUnknown];

impl RunStats {
    /// The counters of a run. `objects`: the object that threads waited for longest comes first.
    pub fn new(
        provenance: Provenance,
        lock: Lock,
        outcome: Outcome,
        resources: Resources,
        totals: &Totals,
        mut objects: Vec<Object>,
    ) -> Self {
        let events = Event::ALL.iter().map(|&event| (event.name().to_owned(), totals.of(event))).collect();
        objects.truncate(MOST_OBJECTS);
        let waits = |what| Waits::from_buckets(totals.waits_of(what));
        Self {
            provenance,
            lock,
            outcome,
            derived: Derived::new(totals, resources.elapsed_ns),
            resources,
            processes: totals.processes,
            events: Counts(events),
            waits: waits(Use::Mutex),
            waits_of: OtherWaits {
                rw_read: waits(Use::Read),
                rw_write: waits(Use::Write),
                semaphore: waits(Use::Semaphore),
                spinlock: waits(Use::Spinlock),
            },
            objects,
        }
    }
}

impl From<&Choice> for Lock {
    fn from(choice: &Choice) -> Self {
        let info = choice.lock.info();
        Self {
            name: info.name.to_owned(),
            wait: info.waits[choice.wait].to_owned(),
            bound_us: choice.tunables.bound_us,
            max_shuffles: choice.tunables.max_shuffles,
            wake_ahead: choice.tunables.wake_ahead,
            ..Self::default()
        }
    }
}

impl Lock {
    /// glibc's own mutexes.
    pub fn glibc() -> Self {
        Self { name: settings::GLIBC.to_owned(), ..Self::default() }
    }

    /// Whether these are glibc's mutexes.
    pub fn is_glibc(&self) -> bool {
        self.name == settings::GLIBC
    }
}

impl Waits {
    /// Computed from the counts of the buckets of [`flashlock_native::stats`].
    pub fn from_buckets(counts: &[u64; BUCKETS]) -> Self {
        let bucket = |(index, &count): (usize, &u64)| Bucket {
            from_ns: bucket_floor(index),
            below_ns: (index + 1 < BUCKETS).then(|| bucket_floor(index + 1)),
            count,
        };
        let buckets: Vec<Bucket> = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(bucket).collect();
        let count = counts.iter().sum();
        let of = |per_mille| quantile(&buckets, count, per_mille);
        Self { count, p50_ns: of(500), p90_ns: of(900), p99_ns: of(990), p999_ns: of(999), max_ns: of(1000), buckets }
    }
}

/// The upper edge of the bucket that contains the wait with this rank; the lower edge of the open bucket.
fn quantile(buckets: &[Bucket], total: u64, per_mille: u64) -> Option<u64> {
    let rank = (u128::from(total) * u128::from(per_mille)).div_ceil(1000) as u64;
    let mut seen = 0;
    let found = buckets.iter().find(|bucket| {
        seen += bucket.count;
        seen >= rank
    });
    found.map(|bucket| bucket.below_ns.unwrap_or(bucket.from_ns))
}

impl Derived {
    fn new(totals: &Totals, elapsed_ns: u64) -> Self {
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let (same, other) = (totals.of(Event::HandoffSame), totals.of(Event::HandoffOther));
        let of_locks = [Use::Mutex, Use::Read, Use::Write, Use::Spinlock];
        let waited: u64 = of_locks.iter().map(|&what| totals.waited_ns(what)).sum();
        let waiting = |uses: &[Use]| uses.iter().map(|&what| totals.waiting(what)).sum::<u64>();
        let attempts =
            |ended: &[Event], uses: &[Use]| ended.iter().map(|&event| totals.of(event)).sum::<u64>() + waiting(uses);
        let mutex = attempts(&[Event::Acquire, Event::TimedOut], &[Use::Mutex]);
        let rw = attempts(&[Event::RwRead, Event::RwWrite, Event::RwTimedOut], &[Use::Read, Use::Write]);
        Self {
            contention: share(totals.of(Event::Contended), mutex),
            rw_contention: share(totals.of(Event::RwContended), rw),
            waiting_threads: share(waited, elapsed_ns).unwrap_or_default(),
            unfinished_waits: waiting(&of_locks),
            handoff_locality: share(same, same + other),
            left_to_glibc: LEFT_TO_GLIBC.iter().map(|&event| totals.of(event)).sum(),
            objects_left_to_glibc: LEFT_TO_GLIBC.iter().filter_map(|event| Some(totals.of(event.objects()?))).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashlock_native::stats::bucket;

    #[test]
    fn percentiles_are_the_upper_edges_of_their_buckets() {
        let mut counts = [0; BUCKETS];
        counts[bucket(1000)] = 98;
        counts[bucket(100_000)] = 2;
        let waits = Waits::from_buckets(&counts);
        assert_eq!((waits.count, waits.buckets.len()), (100, 2));
        assert_eq!((waits.p50_ns, waits.p90_ns), (Some(1024), Some(1024)));
        assert_eq!((waits.p99_ns, waits.p999_ns, waits.max_ns), (Some(114_688), Some(114_688), Some(114_688)));
    }

    #[test]
    fn no_waits_have_no_percentiles() {
        assert_eq!(Waits::from_buckets(&[0; BUCKETS]), Waits::default());
    }

    #[test]
    fn the_last_bucket_is_open() {
        let mut counts = [0; BUCKETS];
        counts[BUCKETS - 1] = 1;
        let waits = Waits::from_buckets(&counts);
        assert_eq!((waits.buckets[0].below_ns, waits.max_ns), (None, Some(bucket_floor(BUCKETS - 1))));
    }
}
