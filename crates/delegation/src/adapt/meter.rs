//! # What is measured of a lock
//!
//! The lock holder counts sections, beside the lock's word. Their time is measured in samples. Of each [`EVERY`]
//! sections that a thread asks for, two are taken that follow each other on the same lock. From the end of the first to
//! the end of the second is a *cycle*; the second one, with its wait, is the section. The sum of the samples' sections,
//! divided by the sum of their cycles, is the share of their time that threads spend in sections of this lock (section
//! 2.2 of the paper). A thread's samples are as many as it has cycles, and as long, so each thread counts alike.
//!
//! A section that follows one of the same thread finds its cache lines at hand. If another thread was in between, the
//! lines must travel. The medians of both show what a server saves.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use flashlock_native::{clock, futex};

use crate::here::{self, Thread};

/// Of so many sections of a thread, two are measured. It is a prime number, so that it does not fall into step with a
/// program.
pub(crate) const EVERY: u32 = 251;
/// The second one must come within so many sections of other locks.
const PATIENCE: u32 = 8;
/// The holder publishes its count once in so many sections.
pub(super) const PUBLISHED: u32 = 64;

/// Bit of `wanted`, below the server's number: the lock is pinned there.
const PINNED: u32 = 1;

/// The governor sleeps on it. 1 while it sleeps, because there are no sections.
#[derive(Debug, Default)]
pub(super) struct Bell(AtomicU32);

impl Bell {
    /// There are sections again.
    #[inline]
    fn ring(&self) {
        // Relaxed: a ring may be missed, but the next one is not.
        if self.0.load(Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    pub(super) fn wake(&self) {
        self.0.store(0, Relaxed);
        futex::wake(&raw const self.0, 1);
    }

    pub(super) fn sleep(&self, is_quiet: impl FnOnce() -> bool) {
        self.0.store(1, Relaxed);
        if is_quiet() {
            futex::park(&self.0, 1, None);
        }
        self.0.store(0, Relaxed);
    }
}

/// Quarters of octaves of nanoseconds.
const BUCKETS: usize = 128;

/// How many sections took how long.
#[derive(Debug)]
struct Histogram([AtomicU32; BUCKETS]);

fn bucket(ns: u64) -> usize {
    let ns = ns.clamp(4, (1 << 32) - 1);
    let octave = ns.ilog2();
    (((octave - 2) << 2) as usize) + (ns >> (octave - 2) & 3) as usize
}

/// The middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let octave = (bucket >> 2) as i32;
    (4.5 + (bucket & 3) as f64) * f64::from(octave).exp2()
}

impl Histogram {
    fn add(&self, ns: u64) {
        self.0[bucket(ns)].fetch_add(1, Relaxed);
    }

    /// The median since the last call. `None` if there are too few values; these are kept for the next call.
    fn take_median(&self) -> Option<f64> {
        const FEWEST: u32 = 8;
        if self.0.iter().map(|count| count.load(Relaxed)).sum::<u32>() < FEWEST {
            return None;
        }
        let counts: Vec<u32> = self.0.iter().map(|count| count.swap(0, Relaxed)).collect();
        let all: u32 = counts.iter().sum();
        let mut passed = 0;
        let at = counts.iter().position(|count| {
            passed += count;
            2 * passed >= all
        });
        at.map(middle)
    }
}

/// What samples write.
#[derive(Debug)]
#[repr(align(128))]
struct Sampled {
    sections: AtomicU64,
    in_sections: AtomicU64,
    cycles: AtomicU64,
    moves: AtomicU64,
    /// The server that the lock is on.
    at: AtomicU32,
    warm: Histogram,
    cold: Histogram,
}

/// An adaptive lock's meter. `wanted`, where the lock is to be, is on a cache line that is hardly ever written: each
/// section reads it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Meter {
    wanted: AtomicU32,
    sampled: Sampled,
    pub(super) id: u32,
    pub(super) name: Option<String>,
    bell: Arc<Bell>,
}

/// The samples of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    pub(super) sections: u64,
    pub(super) share: Option<f64>,
    pub(super) warm: Option<f64>,
    pub(super) cold: Option<f64>,
}

impl Meter {
    pub(super) fn new(id: u32, name: Option<String>, bell: Arc<Bell>) -> Self {
        let histogram = || Histogram([const { AtomicU32::new(0) }; BUCKETS]);
        let zero = || AtomicU64::new(0);
        let sampled = Sampled {
            sections: zero(),
            in_sections: zero(),
            cycles: zero(),
            moves: zero(),
            at: AtomicU32::new(0),
            warm: histogram(),
            cold: histogram(),
        };
        Self { wanted: AtomicU32::new(0), sampled, id, name, bell }
    }

    /// The number of the server where the lock is to be.
    #[inline(always)]
    pub(crate) fn wanted(&self) -> u32 {
        // Acquire pairs with the Release in `pin`, `unpin` and `want`: there is such a server.
        self.wanted.load(Acquire) >> 1
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.wanted.load(Relaxed) & PINNED != 0
    }

    /// The lock is to be on that server, whatever is measured.
    pub(crate) fn pin(&self, server: u32) {
        self.wanted.store(server << 1 | PINNED, Release);
    }

    /// The lock may move again, if it was pinned. It is to be ordinary first: it may be on a server of the program's
    /// own, of which the governor knows nothing, and only an ordinary lock is measured.
    pub(crate) fn unpin(&self) {
        let _ = self.wanted.fetch_update(Release, Relaxed, |wanted| (wanted & PINNED != 0).then_some(0));
    }

    /// The lock is to be on that server, unless it is pinned. Returns whether it was not pinned.
    pub(super) fn want(&self, server: u32) -> bool {
        let change = |wanted| (wanted & PINNED == 0).then_some(server << 1);
        self.wanted.fetch_update(Release, Relaxed, change).is_ok()
    }

    /// The holder has run [`PUBLISHED`] more sections of the lock, and calls this once in so many.
    #[cold]
    pub(super) fn publish(&self) {
        // A load and a store: only the holder writes it.
        self.sampled.sections.store(self.sampled.sections.load(Relaxed) + u64::from(PUBLISHED), Relaxed);
        self.bell.ring();
    }

    /// The holder has moved the lock to that server.
    pub(crate) fn moved(&self, server: u32) {
        self.sampled.at.store(server, Relaxed);
        self.sampled.moves.fetch_add(1, Relaxed);
    }

    pub(super) fn moves(&self) -> u64 {
        self.sampled.moves.load(Relaxed)
    }

    pub(super) fn sections(&self) -> u64 {
        self.sampled.sections.load(Relaxed)
    }

    /// What was sampled since the last call; and the sections since the program began.
    pub(super) fn take(&self) -> Reading {
        let [inside, cycles] = [&self.sampled.in_sections, &self.sampled.cycles].map(|sum| sum.swap(0, Relaxed));
        Reading {
            sections: self.sections(),
            share: (cycles > 0).then(|| (inside as f64 / cycles as f64).min(1.0)),
            warm: self.sampled.warm.take_median(),
            cold: self.sampled.cold.take_median(),
        }
    }

    fn add(&self, section: u64, cycle: u64, inside: u64, is_cold: bool) {
        self.sampled.in_sections.fetch_add(section, Relaxed);
        self.sampled.cycles.fetch_add(cycle, Relaxed);
        let times = if is_cold { &self.sampled.cold } else { &self.sampled.warm };
        times.add(inside);
        self.bell.ring();
    }
}

/// A thread's sampling.
pub(crate) struct Sampler {
    /// Sections until a sample. 1: the next one begins it. 0: it has begun.
    left: Cell<u32>,
    /// Sections of other locks that may still come before the sample's second section.
    patience: Cell<u32>,
    /// The lock of the sample that has begun.
    lock: Cell<*const ()>,
    /// When the sample's first section ended.
    ended: Cell<u64>,
    /// The lock whose section must be timed inside.
    timed: Cell<*const ()>,
    inside: Cell<u64>,
    /// The lock's count in the section that was timed last.
    count: Cell<u32>,
}

const NONE: *const () = std::ptr::null();

/// What is to be known of a section that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    /// No wait is timed. (The sampler may time the section itself.)
    No,
    /// How long it waits for its server.
    Wait,
}

/// Whether the next section of the calling thread is not to be sampled. If it is, [`around`] is called.
#[inline]
pub(crate) fn is_usual() -> bool {
    here::thread(|Thread { sampler, .. }| {
        let left = sampler.left.get();
        let is_usual = left > 1;
        if is_usual {
            sampler.left.set(left - 1);
        }
        is_usual
    })
}

/// Has a section of the lock at this address run, and samples it if the lock is ordinary.
pub(crate) fn around(lock: *const (), meter: &Meter, is_ordinary: bool, run: impl FnOnce(Sample)) {
    here::thread(|Thread { sampler, .. }| sampler.sample(lock, meter, is_ordinary, run));
}

/// Runs the section itself, in the thread with that sampler. `count` is the lock's count, including this section.
#[inline]
pub(crate) fn inside<R>(sampler: &Sampler, lock: *const (), meter: &Meter, count: u32, work: impl FnOnce() -> R) -> R {
    if count.is_multiple_of(PUBLISHED) {
        meter.publish();
    }
    if sampler.timed.get() == lock { sampler.time(count, work) } else { work() }
}

impl Sampler {
    pub(crate) const fn new() -> Self {
        Self {
            left: Cell::new(1),
            patience: Cell::new(0),
            lock: Cell::new(NONE),
            ended: Cell::new(0),
            timed: Cell::new(NONE),
            inside: Cell::new(0),
            count: Cell::new(0),
        }
    }

    #[cold]
    fn time<R>(&self, count: u32, work: impl FnOnce() -> R) -> R {
        self.timed.set(NONE);
        let begun = clock::now();
        let result = work();
        self.inside.set(clock::now().saturating_sub(begun));
        self.count.set(count);
        result
    }

    fn sample(&self, lock: *const (), meter: &Meter, is_ordinary: bool, run: impl FnOnce(Sample)) {
        let begins = self.left.get() == 1;
        if !begins && self.lock.get() != lock {
            let patience = self.patience.get();
            self.patience.set(patience.saturating_sub(1));
            if patience == 0 {
                self.left.set(EVERY);
            }
            return run(Sample::No);
        }
        if !is_ordinary {
            self.left.set(EVERY);
            return run(Sample::Wait);
        }
        let (before, begun) = (self.count.get(), clock::now());
        self.timed.set(lock);
        run(Sample::No);
        let ended = clock::now();
        // If the section was not timed here, it ran in another thread, because the lock has moved. Or nested sections
        // were sampled.
        let was_here = self.timed.replace(NONE).is_null();
        if begins && was_here {
            self.left.set(0);
            self.patience.set(PATIENCE);
            self.lock.set(lock);
            self.ended.set(ended);
            return;
        }
        self.left.set(EVERY);
        self.lock.set(NONE);
        if was_here {
            let (section, cycle) = (ended.saturating_sub(begun), ended.saturating_sub(self.ended.get()));
            meter.add(section.min(cycle), cycle, self.inside.get(), self.count.get() != before.wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_an_eighth() {
        for ns in [4, 5, 7, 8, 100, 1_000, 12_345, 1_000_000, 4_000_000_000] {
            let shown = middle(bucket(ns));
            assert!((shown / ns as f64 - 1.0).abs() <= 0.125, "{ns} is shown as {shown}");
        }
        assert!(bucket(u64::MAX) < BUCKETS && bucket(0) == 0);
    }

    #[test]
    fn a_median_is_that_of_a_window() {
        let meter = Meter::new(1, None, Arc::default());
        for (inside, is_cold) in [(100, false), (1_000, true)] {
            (0..9).for_each(|_| meter.add(2_000, 4_000, inside, is_cold));
            meter.add(2_000, 4_000, 1 << 30, is_cold);
        }
        let reading = meter.take();
        assert_eq!(reading.share, Some(0.5));
        assert!(reading.warm.is_some_and(|ns| (90.0..110.0).contains(&ns)), "{reading:?}");
        assert!(reading.cold.is_some_and(|ns| (900.0..1_100.0).contains(&ns)), "{reading:?}");
        let empty = meter.take();
        assert!(empty.share.is_none() && empty.warm.is_none() && empty.cold.is_none());
    }

    #[test]
    fn a_pinned_lock_is_wanted_nowhere_else() {
        let meter = Meter::new(1, None, Arc::default());
        assert!(meter.want(7) && meter.wanted() == 7);
        meter.pin(3);
        assert!(!meter.want(7) && meter.wanted() == 3 && meter.is_pinned());
        meter.unpin();
        assert!(meter.wanted() == 0 && !meter.is_pinned(), "ordinary at first");
        assert!(meter.want(7));
        meter.unpin();
        assert_eq!(meter.wanted(), 7, "it was not pinned");
    }
}
