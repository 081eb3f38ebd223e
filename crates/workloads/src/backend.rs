//! # The workloads' backend: memory and time
//!
//! A workload needs memory and time. The host simply provides both. A simulated computer must be informed which memory
//! the workload touches and how long it computes, or these would cost nothing. So there are two kinds of each:
//! resources that the backend provides, and resources that the workload has itself and only reports.
//!
//! |        | provided by the backend                  | kept by the workload and reported; no effect on the host |
//! |--------|------------------------------------------|----------------------------------------------|
//! | memory | [`Backend::Lines`]: bytes whose values do not matter | [`Backend::Shadow`]: a tree's nodes |
//! | time   | [`Backend::work`], [`Backend::delay`], [`Backend::nap`] | [`Backend::worked`]: drawing random numbers |

use alloc::vec::Vec;
use core::hint::{black_box, spin_loop};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::random::XorShift;

/// A table of cache lines of 64 bytes, named by index. Clients share it, with or without a lock.
pub trait Lines: Send + Sync {
    /// Loads from a line.
    fn read(&self, line: u32);

    /// Loads from a line whose index depends on the previous load.
    #[inline]
    fn follow(&self, line: u32) {
        self.read(line);
    }

    /// Loads from lines, one after the other. All indices are known beforehand: none depends on a loaded value.
    #[inline]
    fn read_all(&self, lines: impl Iterator<Item = u32>) {
        lines.for_each(|line| self.read(line));
    }

    /// Stores to a line.
    fn write(&self, line: u32);

    /// A hint that a line will be accessed next. It takes no time and fetches nothing; a simulator may use it to look
    /// up the line.
    #[inline(always)]
    fn expect(&self, _line: u32) {}
}

/// Memory whose accesses need not be reported.
impl Lines for () {
    #[inline(always)]
    fn read(&self, _line: u32) {}
    #[inline(always)]
    fn write(&self, _line: u32) {}
}

/// A computer as workloads see it. The functions that take time act for the calling thread. The others may be called
/// before there are threads.
pub trait Backend: 'static {
    /// Memory that a workload only touches.
    type Lines: Lines;
    /// Stands for memory that a workload keeps itself.
    type Shadow: Lines;

    /// Provides `count` lines.
    fn lines(count: u32) -> Self::Lines;

    /// Stands for `count` lines.
    fn shadow(count: u32) -> Self::Shadow;

    /// Computes for about so many ns. It reads no clock, so the loop is cheap and does not disturb others.
    fn work(random: &mut XorShift, ns: u32);

    /// Reports that the workload itself has computed for about so many ns.
    fn worked(ns: u32);

    /// Stays busy for so many ns by the clock.
    fn delay(ns: u64);

    /// Sleeps for at least so many ns.
    fn nap(ns: u64);
}

/// The host.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Backend for Here {
    type Lines = Memory;
    type Shadow = ();

    fn lines(count: u32) -> Memory {
        // Not zeros: pages of zeros that were never written all map to the same page.
        Memory((0..count).map(|line| OwnLine(AtomicU64::new(u64::from(line) + 1))).collect())
    }

    fn shadow(_count: u32) {}

    /// One step of the generator takes a nanosecond or two.
    #[inline]
    fn work(random: &mut XorShift, ns: u32) {
        for _ in 0..ns {
            black_box(random.bits());
        }
    }

    #[inline(always)]
    fn worked(_ns: u32) {}

    fn delay(ns: u64) {
        let (begin, long) = (Instant::now(), Duration::from_nanos(ns));
        while begin.elapsed() < long {
            spin_loop();
        }
    }

    fn nap(ns: u64) {
        thread::sleep(Duration::from_nanos(ns));
    }
}

/// Real lines. Any thread may touch them at any time, so a lock that does not exclude causes no undefined behaviour.
pub struct Memory(Vec<OwnLine<AtomicU64>>);

impl Lines for Memory {
    #[inline]
    fn read(&self, line: u32) {
        // The value is not used, but the load must happen.
        black_box(self.0[line as usize].0.load(Relaxed));
    }

    #[inline]
    fn write(&self, line: u32) {
        self.0[line as usize].0.store(u64::from(line), Relaxed);
    }
}

/// A value at the start of a cache line, which it shares with nothing else.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct OwnLine<T>(pub(crate) T);

const _: () = assert!(size_of::<OwnLine<AtomicU64>>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_lines() {
        let lines = Here::lines(3);
        (0..3).for_each(|line| lines.read(line));
        lines.write(2);
        let address = |line: usize| core::ptr::from_ref(&lines.0[line]).addr();
        assert_eq!((address(0) % 64, address(2) - address(0)), (0, 128));
        assert!(lines.0.iter().all(|line| line.0.load(Relaxed) != 0));
    }

    #[test]
    fn a_delay_is_not_short() {
        for wait in [Here::delay, Here::nap] {
            let begin = Instant::now();
            wait(200_000);
            assert!(begin.elapsed() >= Duration::from_micros(200));
        }
    }

    #[test]
    fn work_is_rounds_of_the_generator() {
        let (mut worker, mut other) = (XorShift::new(1, 0), XorShift::new(1, 0));
        Here::work(&mut worker, 5);
        assert_eq!(worker.bits(), (0..6).map(|_| other.bits()).last().unwrap());
    }
}
