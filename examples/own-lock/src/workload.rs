//! # A histogram behind one lock
//!
//! Each operation draws a random number outside the lock, and counts it in its bucket, and in the total, under the
//! lock.
//!
//! The counts are real: the check finds out whether two threads were inside at once. They are atomic only because the
//! lock under test may be broken. The backend cannot see them, so each access is also reported to it, as a line: a
//! simulated computer makes it take time, and a model checker looks whether the lock orders it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flashlock_workloads::{Backend, Here, Lines, Lock, Workload, random::XorShift};

/// How many buckets there are.
const BUCKETS: u32 = 8;

/// The histogram, under lock `L`, on backend `G`: this computer, unless another one is named.
pub struct Histogram<L: Lock, G: Backend = Here> {
    lock: L,
    counts: [AtomicU64; 1 + BUCKETS as usize],
    lines: G::Lines,
}

impl<L: Lock, G: Backend> Histogram<L, G> {
    /// An empty histogram.
    pub fn new(lock: L) -> Self {
        Self { lock, counts: Default::default(), lines: G::lines(1 + BUCKETS) }
    }

    /// Counts one more. Only the holder may call this.
    fn count(&self, place: u32) {
        let count = &self.counts[place as usize];
        let seen = count.load(Relaxed);
        self.lines.write(place);
        count.store(seen + 1, Relaxed);
    }
}

impl<L: Lock, G: Backend> Workload for Histogram<L, G> {
    /// What each thread has for itself.
    type Client = XorShift;

    fn client(&self, seed: u64, number: u32) -> XorShift {
        XorShift::new(seed, number)
    }

    fn operate(&self, random: &mut XorShift) {
        G::work(random, 200); // ns
        let bucket = random.below(BUCKETS);
        self.lock.section(|| {
            self.count(bucket);
            self.count(BUCKETS); // The total comes after the buckets.
        });
    }

    fn check(&mut self, operations: u64) -> Result<(), &'static str> {
        let [buckets @ .., total] = self.counts.each_mut().map(|count| *count.get_mut());
        let complete = total == operations && buckets.iter().sum::<u64>() == operations;
        if complete { Ok(()) } else { Err("counts were lost: two threads were inside at once") }
    }
}
