//! # Random reads from large arrays
//!
//! Threads read large arrays at random, inside and outside the lock. Use it to measure how concurrency restriction
//! keeps data in a shared cache.
//!
//! **Source.** Malthusian locks (EuroSys 2017), section 6.1, figures 3 and 4, called RandArray there. Under a central
//! lock, each thread reads random elements of a shared array. Outside, it reads more elements of an array of its own.
//! The arrays compete for the last-level cache: the fewer threads circulate, the more of the shared array stays in it.
//! **Departure.** The paper's arrays are on large pages, so that the TLB plays no part. Here they are in ordinary
//! memory.

use crate::Workload;
use crate::backend::{Backend, Here, Lines};
use crate::catalogue::Runner;
use crate::lock::{Counted, Lock};
use crate::random::XorShift;

/// The sizes, and the number of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// 32-bit integers in each array; at least one.
    pub integers: u32,
    /// Reads from the shared array, under the lock.
    pub inside: u32,
    /// Reads from the thread's own array, outside the lock.
    pub outside: u32,
    /// The cost of choosing an element, in ns, on backends where only reported computing takes time.
    pub draw_ns: u32,
}

impl Reads {
    /// The paper's values: arrays of 1 MiB; at best, five threads complete five times as much as one.
    pub const PAPER: Self = Self { integers: 256 << 10, inside: 100, outside: 400, draw_ns: XorShift::DRAW_NS };

    const INTEGERS_PER_LINE: u32 = 16;

    /// Cache lines of each array.
    pub const fn lines(&self) -> u32 {
        self.integers.div_ceil(Self::INTEGERS_PER_LINE)
    }

    fn array<G: Backend>(&self) -> G::Lines {
        G::lines(self.lines())
    }

    /// Reads `times` random elements.
    fn read<G: Backend>(&self, array: &G::Lines, times: u32, random: &mut XorShift) {
        G::worked(times * self.draw_ns);
        array.read_all((0..times).map(|_| random.below(self.integers) / Self::INTEGERS_PER_LINE));
    }
}

/// The workload of the catalogue.
pub(crate) fn start<R: Runner>(mut runner: R) -> R::Outcome {
    let array = RandArray::<_, R::Backend>::new(runner.lock("the lock"), Reads::PAPER);
    runner.run(array)
}

/// The shared array with its lock.
pub struct RandArray<L: Lock, G: Backend = Here> {
    lock: Counted<L>,
    reads: Reads,
    shared: G::Lines,
}

/// The state of one thread: its array.
pub struct Client<G: Backend = Here> {
    random: XorShift,
    own: G::Lines,
}

impl<L: Lock, G: Backend> RandArray<L, G> {
    /// An array behind a lock.
    pub fn new(lock: L, reads: Reads) -> Self {
        Self { lock: Counted::new(lock), reads, shared: reads.array::<G>() }
    }
}

impl<L: Lock, G: Backend> Workload for RandArray<L, G> {
    type Client = Client<G>;

    fn client(&self, seed: u64, number: u32) -> Client<G> {
        Client { random: XorShift::new(seed, number), own: self.reads.array::<G>() }
    }

    #[inline]
    fn operate(&self, client: &mut Client<G>) {
        let Client { random, own } = client;
        self.lock.section(|| self.reads.read::<G>(&self.shared, self.reads.inside, random));
        self.reads.read::<G>(own, self.reads.outside, random);
    }

    fn check(&mut self, operations: u64) -> Result<(), &'static str> {
        self.lock.check(operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NoLock;
    use crate::recorder::{Ledger, Recorder};

    #[test]
    fn an_operation_is_so_many_reads() {
        let mut shared: RandArray<NoLock, Recorder> = RandArray::new(NoLock, Reads::PAPER);
        let mut client = shared.client(1, 0);
        Ledger::take();
        (0..10).for_each(|_| shared.operate(&mut client));
        assert_eq!(Ledger::take(), Ledger { reads: 5000, worked: 10_000, ..Ledger::default() });
        assert_eq!(shared.check(10), Ok(()));
        assert!(shared.check(11).is_err());
    }

    #[test]
    fn the_arrays_are_as_large_as_in_the_paper_and_read_everywhere() {
        let shared: RandArray<NoLock, Recorder> = RandArray::new(NoLock, Reads::PAPER);
        let mut client = shared.client(1, 0);
        (0..1000).for_each(|_| shared.operate(&mut client));
        let (lines, quarter) = ((1 << 20) / 64, 400_000 / 4);
        let near = |count: u64| count.abs_diff(quarter) < quarter / 50;
        let counts = client.own.counts();
        assert_eq!(counts.len(), lines);
        assert!(counts.chunks(lines / 4).all(|part| near(part.iter().sum())));
    }

    #[test]
    fn on_this_computer_and_with_odd_sizes() {
        for integers in [1, 17] {
            let mut shared: RandArray<NoLock> = RandArray::new(NoLock, Reads { integers, ..Reads::PAPER });
            let mut client = shared.client(1, 0);
            (0..100).for_each(|_| shared.operate(&mut client));
            assert_eq!(shared.check(100), Ok(()));
        }
    }
}
