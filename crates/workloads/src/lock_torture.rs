//! # The kernel's torture of its spin lock
//!
//! Threads acquire one lock without end, with short sections and rare delays. Use it to compare with the papers'
//! figures for kernel spin locks.
//!
//! **Source.** The behaviour of locktorture (`torture_type=spin_lock`, Linux 4.20 to 5.6) as used in CNA (EuroSys
//! 2019), section 7.2.1, figures 13 and 14, and in the cover letter of the CNA kernel patch. Writers acquire and
//! release one lock without end. In the section, the writer sets a flag, increments its count, rarely delays for a
//! short time and very rarely for a long time, and clears the flag. Between two sections it almost never sleeps. The
//! more writers, the fewer delays of each, so the lock as a whole is delayed about as often. [`Habits::LOCKSTAT`] is
//! the paper's second figure, in which the kernel's lock statistics add writes to each section. **Departures.** (1)
//! Writers do not all pause together every few seconds (locktorture's "stutter"), nor do they move between CPUs
//! ("shuffle"). (2) The paper does not say how many lines the lock statistics write ("several shared variables"): two
//! are assumed. (3) A kernel's spin lock disables preemption. That is up to the runner: `flashlock simulate` does so;
//! in a native run, the holder and waiters may lose their CPUs.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Workload;
use crate::backend::{Backend, Here, Lines};
use crate::catalogue::Runner;
use crate::lock::{Counted, LOST, Lock};
use crate::random::XorShift;

/// The time of the 64-bit remainder by which the kernel decides on a delay, in ns: some 40 cycles on the papers'
/// processors (the division takes 32 to 96 on Haswell by Fog's *Instruction tables*).
const REMAINDER_NS: u32 = 16;

/// A rare event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seldom {
    /// It happens once in so many times, on average; at least 1.
    pub once_in: u32,
    /// Its length.
    pub ns: u64,
}

impl Seldom {
    /// Draws whether it happens now, if it is `times` times as rare.
    #[inline]
    fn comes(self, times: u32, random: &mut XorShift) -> bool {
        random.below(self.once_in.saturating_mul(times)) == 0
    }
}

/// The writers' behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Delays in the section that make all writers wait. With n writers they are n times as rare.
    pub long: Seldom,
    /// Delays in the section like those of common code. With n writers they are n times as rare.
    pub short: Seldom,
    /// Sleep outside the lock.
    pub nap: Seldom,
    /// Lines of statistics written after each acquisition.
    pub statistics: u32,
}

impl Habits {
    /// The kernel's values. The nap is one tick at the highest of the usual rates of 100 to 1000 Hz.
    pub const PAPER: Self = Self {
        long: Seldom { once_in: 2000 * 100, ns: 100_000_000 },
        short: Seldom { once_in: 2 * 2, ns: 2000 },
        nap: Seldom { once_in: 1 << 20, ns: 1_000_000 },
        statistics: 0,
    };

    /// The same in a kernel that keeps lock statistics.
    pub const LOCKSTAT: Self = Self { statistics: 2, ..Self::PAPER };

    /// For runs of some ms instead of the paper's 30 s. In such a run a delay of 100 ms would never happen, or fill the
    /// whole run. So it is a thousand times as frequent and a thousandth as long.
    #[must_use]
    pub const fn in_little_time(self) -> Self {
        const TIMES: u32 = 1000;
        let long = Seldom { once_in: self.long.once_in / TIMES, ns: self.long.ns / TIMES as u64 };
        Self { long, ..self }
    }
}

/// The workload of the catalogue, for runs of some ms.
pub(crate) fn start<R: Runner>(mut runner: R, habits: Habits) -> R::Outcome {
    let (lock, threads) = (runner.lock("the lock"), runner.setup().threads);
    let torture = LockTorture::<_, R::Backend>::new(lock, habits.in_little_time(), threads);
    runner.run(torture)
}

/// One writer's count and its padding in the kernel: four writers share a cache line.
#[repr(C, align(16))]
struct Acquired(AtomicU64);

const WRITERS_PER_LINE: u32 = 64 / size_of::<Acquired>() as u32;

/// The lock with the data that its holders write.
pub struct LockTorture<L: Lock, G: Backend = Here> {
    /// Its count of sections stands for the kernel's flag: a shared word that every section writes.
    lock: Counted<L>,
    habits: Habits,
    acquired: Vec<Acquired>,
    /// Stands for the flag (line 0) and the writers' counts.
    shadow: G::Shadow,
    statistics: G::Lines,
}

/// One writer.
pub struct Client {
    random: XorShift,
    number: u32,
}

impl<L: Lock, G: Backend> LockTorture<L, G> {
    /// For so many writers, at least one. Clients' numbers are below `writers`.
    pub fn new(lock: L, habits: Habits, writers: u32) -> Self {
        Self {
            lock: Counted::new(lock),
            habits,
            acquired: (0..writers).map(|_| Acquired(AtomicU64::new(0))).collect(),
            shadow: G::shadow(1 + writers.div_ceil(WRITERS_PER_LINE)),
            statistics: G::lines(habits.statistics),
        }
    }

    /// The writer's section, while it holds the lock.
    #[inline]
    fn hold(&self, client: &mut Client) {
        let (random, habits) = (&mut client.random, &self.habits);
        (0..habits.statistics).for_each(|line| self.statistics.write(line));
        self.shadow.write(0);
        // Only this writer writes it; it is atomic because the lock under test may not exclude.
        let acquired = &self.acquired[client.number as usize].0;
        acquired.store(acquired.load(Relaxed) + 1, Relaxed);
        self.shadow.write(1 + client.number / WRITERS_PER_LINE);
        G::worked(2 * (XorShift::DRAW_NS + REMAINDER_NS));
        for delay in [habits.long, habits.short] {
            if delay.comes(self.acquired.len() as u32, random) {
                G::delay(delay.ns);
            }
        }
        self.shadow.write(0);
    }
}

impl<L: Lock, G: Backend> Workload for LockTorture<L, G> {
    type Client = Client;

    fn client(&self, seed: u64, number: u32) -> Client {
        Client { random: XorShift::new(seed, number), number }
    }

    #[inline]
    fn operate(&self, client: &mut Client) {
        G::worked(XorShift::DRAW_NS);
        if self.habits.nap.comes(1, &mut client.random) {
            G::nap(self.habits.nap.ns);
        }
        self.lock.section(|| self.hold(client));
    }

    /// Compares the operations with the writers' own counts, which cannot be lost, and with the lock's count.
    fn check(&mut self, operations: u64) -> Result<(), &'static str> {
        let acquired: u64 = self.acquired.iter().map(|writer| writer.0.load(Relaxed)).sum();
        if acquired != operations { Err(LOST) } else { self.lock.check(operations) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NoLock;
    use crate::recorder::{Ledger, Recorder};

    /// What one of so many writers reports in so many operations.
    fn recorded(habits: Habits, writers: u32, operations: u64) -> Ledger {
        let mut shared: LockTorture<NoLock, Recorder> = LockTorture::new(NoLock, habits, writers);
        let mut client = shared.client(9, writers - 1);
        Ledger::take();
        (0..operations).for_each(|_| shared.operate(&mut client));
        assert_eq!(shared.check(operations), Ok(()));
        Ledger::take()
    }

    #[test]
    fn delays_are_as_frequent_as_in_the_kernel() {
        const OPERATIONS: u64 = 1 << 19;
        for writers in [1, 8] {
            let short =
                recorded(Habits { long: Seldom { once_in: 1, ns: 0 }, ..Habits::PAPER }, writers, OPERATIONS).delay;
            let expected = OPERATIONS / 4 / u64::from(writers) * 2000;
            assert!(short.abs_diff(expected) < expected / 50, "{short} is not {expected}");
        }
        // A short run has long delays as well: 500 ns per operation of a lone writer.
        let habits = Habits { short: Seldom { once_in: 1, ns: 0 }, ..Habits::PAPER.in_little_time() };
        let long = recorded(habits, 1, OPERATIONS).delay;
        let expected = OPERATIONS * 500;
        assert!(long.abs_diff(expected) < expected / 10, "{long} is not {expected}");
        let Ledger { delay, nap, .. } =
            recorded(Habits { short: Seldom { once_in: 1, ns: 0 }, ..Habits::PAPER }, 1, 4 * OPERATIONS);
        // The expected numbers are 10 and 2.
        assert!((4..20).contains(&(delay / 100_000_000)) && delay % 100_000_000 == 0, "{delay}");
        assert!((1..8).contains(&(nap / 1_000_000)) && nap % 1_000_000 == 0, "{nap}");
    }

    #[test]
    fn a_section_writes_the_flag_twice_and_a_count_and_statistics() {
        assert_eq!(recorded(Habits::PAPER, 5, 1000).writes, 3000);
        assert_eq!(recorded(Habits::LOCKSTAT, 5, 1000).writes, 5000);
        assert_eq!(recorded(Habits::LOCKSTAT, 5, 1000).reads, 0);
    }

    #[test]
    fn four_writers_share_a_line() {
        let shared: LockTorture<NoLock, Recorder> = LockTorture::new(NoLock, Habits::PAPER, 5);
        for number in 0..5 {
            shared.operate(&mut shared.client(1, number));
        }
        assert_eq!(shared.shadow.counts(), [10, 4, 1]);
    }

    #[test]
    fn a_million_writers_are_not_too_many() {
        let mut shared: LockTorture<NoLock, Recorder> = LockTorture::new(NoLock, Habits::PAPER, 1_000_000);
        shared.operate(&mut shared.client(1, 999_999));
        assert_eq!(shared.check(1), Ok(()));
        assert!(shared.check(2).is_err());
    }
}
