//! # The kernel's torture of its spin lock
//!
//! **Source.** The behaviour of locktorture (`torture_type=spin_lock`, Linux 4.20 to 5.6) as CNA (EuroSys 2019),
//! section 7.2.1, figures 13 and 14, and the cover letter of the CNA kernel patch use it: writers acquire and release
//! one lock without end. In the section a flag is set, the writer's count grows, seldom there is a short delay and very
//! seldom a long one, and the flag is cleared; between two sections a writer almost never sleeps. The more writers, the
//! fewer delays for each: the lock as a whole is delayed about as often. [`Habits::LOCKSTAT`] is the paper's second
//! figure, where the kernel's lock statistics add writes to each section. **Departures.** (1) All writers do not pause
//! together every few seconds (locktorture's "stutter"), nor are they moved between CPUs ("shuffle"). (2) How many
//! lines the lock statistics write the paper does not say ("several shared variables"): two are assumed. (3) That a
//! kernel's spin lock disables preemption is up to who runs this: `flashlock simulate` does so; where this runs as a
//! program, holder and waiters may lose their CPUs.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Workload;
use crate::ground::{Backend, Here, Lines};
use crate::lock::{Counted, LOST, Lock};
use crate::random::XorShift;

/// What the remainder of 64 bits takes by which the kernel decides on a delay, in ns: some 40 cycles on the papers'
/// processors (the division takes 32 to 96 on Haswell by Fog's *Instruction tables*).
const REMAINDER_NS: u32 = 16;

/// What happens now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seldom {
    /// Once in so many times, on average; at least 1.
    pub once_in: u32,
    /// For so long.
    pub ns: u64,
}

impl Seldom {
    /// Whether it happens now, if it is so many times as seldom.
    #[inline]
    fn comes(self, times: u32, random: &mut XorShift) -> bool {
        random.below(self.once_in.saturating_mul(times)) == 0
    }
}

/// How writers behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Delays in the section that make everybody wait; with n writers n times as seldom.
    pub long: Seldom,
    /// Delays in the section like those of common code; with n writers n times as seldom.
    pub short: Seldom,
    /// Sleep outside.
    pub nap: Seldom,
    /// Lines of statistics that are written after each acquisition.
    pub statistics: u32,
}

impl Habits {
    /// The kernel's. The nap is one tick; of the usual rates of 100 to 1000 Hz it is the highest.
    pub const PAPER: Self = Self {
        long: Seldom { once_in: 2000 * 100, ns: 100_000_000 },
        short: Seldom { once_in: 2 * 2, ns: 2000 },
        nap: Seldom { once_in: 1 << 20, ns: 1_000_000 },
        statistics: 0,
    };

    /// The same in a kernel that keeps lock statistics.
    pub const LOCKSTAT: Self = Self { statistics: 2, ..Self::PAPER };

    /// For runs of some ms instead of the paper's 30 s, in which a delay of 100 ms never comes, or is all of the run:
    /// it comes a thousand times as often, and is a thousandth as long.
    #[must_use]
    pub const fn in_little_time(self) -> Self {
        const TIMES: u32 = 1000;
        let long = Seldom { once_in: self.long.once_in / TIMES, ns: self.long.ns / TIMES as u64 };
        Self { long, ..self }
    }
}

/// One writer's count, and what the kernel has beside it: four writers share a cache line.
#[repr(C, align(16))]
struct Acquired(AtomicU64);

const WRITERS_PER_LINE: u32 = 64 / size_of::<Acquired>() as u32;

/// The lock with what its holders write.
pub struct LockTorture<L: Lock, G: Backend = Here> {
    /// Its count of sections is the kernel's flag: a shared word that every section writes.
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
    /// For so many writers, at least one. Clients' numbers are below that.
    pub fn new(lock: L, habits: Habits, writers: u32) -> Self {
        Self {
            lock: Counted::new(lock),
            habits,
            acquired: (0..writers).map(|_| Acquired(AtomicU64::new(0))).collect(),
            shadow: G::shadow(1 + writers.div_ceil(WRITERS_PER_LINE)),
            statistics: G::lines(habits.statistics),
        }
    }

    /// What a writer does while it holds the lock.
    #[inline]
    fn hold(&self, client: &mut Client) {
        let (random, habits) = (&mut client.random, &self.habits);
        (0..habits.statistics).for_each(|line| self.statistics.write(line));
        self.shadow.write(0);
        // Atomic, for a lock may not exclude, but only this writer writes it.
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

    /// The writers' own counts, which cannot be lost, say how many operations there were.
    fn check(&mut self, operations: u64) -> Result<(), &'static str> {
        let acquired: u64 = self.acquired.iter().map(|writer| writer.0.load(Relaxed)).sum();
        if acquired != operations { Err(LOST) } else { self.lock.check(operations) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NoLock;
    use crate::told::{Ledger, Told};

    /// What one of so many writers asks for in so many operations.
    fn told(habits: Habits, writers: u32, operations: u64) -> Ledger {
        let mut shared: LockTorture<NoLock, Told> = LockTorture::new(NoLock, habits, writers);
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
            let short = told(Habits { long: Seldom { once_in: 1, ns: 0 }, ..Habits::PAPER }, writers, OPERATIONS).delay;
            let expected = OPERATIONS / 4 / u64::from(writers) * 2000;
            assert!(short.abs_diff(expected) < expected / 50, "{short} is not {expected}");
        }
        // In a short run the long ones, 500 ns for each operation of a lone writer, are there as well.
        let habits = Habits { short: Seldom { once_in: 1, ns: 0 }, ..Habits::PAPER.in_little_time() };
        let long = told(habits, 1, OPERATIONS).delay;
        let expected = OPERATIONS * 500;
        assert!(long.abs_diff(expected) < expected / 10, "{long} is not {expected}");
        let Ledger { delay, nap, .. } =
            told(Habits { short: Seldom { once_in: 1, ns: 0 }, ..Habits::PAPER }, 1, 4 * OPERATIONS);
        // 10 and 2 are expected.
        assert!((4..20).contains(&(delay / 100_000_000)) && delay % 100_000_000 == 0, "{delay}");
        assert!((1..8).contains(&(nap / 1_000_000)) && nap % 1_000_000 == 0, "{nap}");
    }

    #[test]
    fn a_section_writes_the_flag_twice_and_a_count_and_statistics() {
        assert_eq!(told(Habits::PAPER, 5, 1000).writes, 3000);
        assert_eq!(told(Habits::LOCKSTAT, 5, 1000).writes, 5000);
        assert_eq!(told(Habits::LOCKSTAT, 5, 1000).reads, 0);
    }

    #[test]
    fn four_writers_share_a_line() {
        let shared: LockTorture<NoLock, Told> = LockTorture::new(NoLock, Habits::PAPER, 5);
        for number in 0..5 {
            shared.operate(&mut shared.client(1, number));
        }
        assert_eq!(shared.shadow.counts(), [10, 4, 1]);
    }

    #[test]
    fn a_million_writers_are_not_too_many() {
        let mut shared: LockTorture<NoLock, Told> = LockTorture::new(NoLock, Habits::PAPER, 1_000_000);
        shared.operate(&mut shared.client(1, 999_999));
        assert_eq!(shared.check(1), Ok(()));
        assert!(shared.check(2).is_err());
    }
}
