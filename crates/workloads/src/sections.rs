//! # Any sequence of critical sections
//!
//! A loop of steps: work outside, or a section under one of two locks that computes and touches lines of that lock's
//! data. It rebuilds the loops of other programs from published figures.
//!
//! **Source.** The cover letter of the CNA kernel patch (v10, 2020), its tables of open1, lock2 and leveldb, on four
//! sockets. **Method.** Two numbers of each table are used, both in operations per µs and of the kernel without the
//! patch: the throughput of one thread, `t`, and the highest throughput of any number of threads, `p`. Other threads
//! never delay a single thread, so its operations take `1 / t`, everything included. At the peak, the busiest lock is
//! assumed to be busy all the time, so each operation holds it for `1 / p`. The rest of the tables can be compared with
//! a simulation.
//!
//! | loop | `t` | `p` | one operation | the busiest lock in it |
//! |---|---|---|---|---|
//! | [`OPEN1`] | 0.511 | 1.675 (8 threads) | 1956 ns | 597 ns |
//! | [`LOCK2`] | 1.581 | 5.240 (4 threads) | 632 ns | 190 ns |
//! | [`LEVELDB_READRANDOM`] | 0.530 | 0.839 (2 threads) | 1886 ns | 1191 ns |
//!
//! ## Assumptions
//! 1. The lock itself and touching its lines cost one thread little: this is not subtracted from the section's length.
//! 2. will-it-scale ties its threads to cores, one socket after the other (its `main.c`; `flashlock simulate --place
//!    packed`), so those at the peaks were on one socket. `TRAVEL`, the time to hand the lock over and to carry the
//!    lines there, is part of `1 / p`, but the simulator adds it itself, so it is subtracted. Nothing is left of the
//!    sections of open1 and lock2. For leveldb, whose mutex is a futex, waking sleeping waiters is part of `1 / p`,
//!    too, and is not subtracted. Its threads are not tied to CPUs, but Linux wakes a thread near its waker, which
//!    gathers them on one socket as long as there is room.
//! 3. The list of sections follows from the programs and CNA's table 1. The rest is guessed: that the sections of one
//!    lock are equally long, how many lines they touch, and all about a loop's second lock. The guesses are at the
//!    constants.
//! 4. Work outside takes three to five quarters of its nominal length, uniformly distributed. If its length were
//!    constant, threads would fall into step with each other, unlike those of real programs. Then small differences
//!    between locks would decide which thread waits for which.
//! 5. The locks of open1 and lock2 are a kernel's spin locks, which disable preemption. `flashlock simulate` does so,
//!    but a native run does not.

use alloc::vec::Vec;

use crate::Workload;
use crate::backend::{Backend, Here, Lines};
use crate::catalogue::Runner;
use crate::lock::{Counted, Lock};
use crate::random::XorShift;

/// One of the two locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The busier lock, in the loops below.
    A,
    /// The other lock.
    B,
}

/// A part of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Work without a lock.
    Outside {
        /// Its length.
        ns: u32,
        /// The length varies uniformly by up to so many ns.
        varies: u32,
    },
    /// A critical section.
    Inside {
        /// The lock.
        lock: Which,
        /// How long it computes.
        ns: u32,
        /// How many lines of the lock's data it writes: always the same ones.
        writes: u32,
        /// How many other lines it reads.
        reads: u32,
    },
}

/// The time for the lock and its data to go from core to core of one socket, in ns. It is not computing, and machines
/// add it. It is an assumption: a section that computes nothing takes 327 ns (open1) and 326 ns (lock2) on the
/// simulated machine with four sockets when eight threads of one socket compete for it.
const TRAVEL: u32 = 320;

/// The time of one operation at `per_ms` operations per ms.
const fn ns_each(per_ms: u32) -> u32 {
    1_000_000 / per_ms
}

const fn outside(ns: u32) -> Step {
    Step::Outside { ns, varies: ns / 4 }
}

const fn inside(lock: Which, ns: u32, writes: u32, reads: u32) -> Step {
    Step::Inside { lock, ns, writes, reads }
}

/// will-it-scale's open1, with threads: each opens and closes a file of its own, all in one directory. A is the table
/// of open files, locked to take a descriptor and to give it back (three lines are written: next free, two bit maps;
/// one is read). B is the directory's reference count, taken and dropped (one line); half as long as A.
pub const OPEN1: [Step; 8] = {
    const A: u32 = (ns_each(1675) / 2).saturating_sub(TRAVEL);
    const B: u32 = A / 2;
    const REST: u32 = (ns_each(511) - 2 * A - 2 * B) / 4;
    [
        outside(REST),
        inside(Which::B, B, 1, 0),
        outside(REST),
        inside(Which::A, A, 3, 1),
        outside(REST),
        inside(Which::A, A, 3, 1),
        outside(REST),
        inside(Which::B, B, 1, 0),
    ]
};

/// will-it-scale's lock2, with threads: each locks and unlocks the same file through `fcntl`; one such call is an
/// operation. A is the file's list of locks (two lines are written: the list, a lock; one is read).
pub const LOCK2: [Step; 2] = {
    const A: u32 = ns_each(5240).saturating_sub(TRAVEL);
    [outside(ns_each(1581) - A), inside(Which::A, A, 2, 1)]
};

/// leveldb's readrandom: A is the database's mutex, locked before and after a search (two lines with reference counts
/// are written; two are read). A quarter of the work outside is between two operations. The many locks of the cache are
/// left out.
pub const LEVELDB_READRANDOM: [Step; 4] = {
    const A: u32 = (ns_each(839) / 2).saturating_sub(TRAVEL);
    const REST: u32 = ns_each(530) - 2 * A;
    [inside(Which::A, A, 2, 2), outside(REST - REST / 4), inside(Which::A, A, 2, 2), outside(REST / 4)]
};

/// The example of Malthusian Locks (EuroSys 2017), section 1: 1 µs inside, 5 µs outside, nothing shared. Six threads
/// keep the lock busy.
pub const ONE_IN_SIX: [Step; 2] = [Step::Outside { ns: 5000, varies: 0 }, inside(Which::A, 1000, 0, 0)];

/// The workload of the catalogue with these steps.
pub(crate) fn start<R: Runner>(mut runner: R, steps: &[Step]) -> R::Outcome {
    let (a, b) = (runner.lock("lock A"), runner.lock("lock B"));
    let sections = Sections::<_, R::Backend>::new(a, b, steps);
    runner.run(sections)
}

/// A lock and its data.
struct Guarded<L, G: Backend> {
    lock: Counted<L>,
    lines: G::Lines,
    /// The number of its sections in an operation.
    sections: u64,
}

impl<L: Lock, G: Backend> Guarded<L, G> {
    fn new(lock: L, which: Which, steps: &[Step]) -> Self {
        let lines_of = |step: &Step| match step {
            Step::Inside { lock, writes, reads, .. } if *lock == which => Some(writes + reads),
            _ => None,
        };
        let lines = steps.iter().filter_map(lines_of);
        let (sections, most) = (lines.clone().count() as u64, lines.max().unwrap_or(0));
        Self { lock: Counted::new(lock), lines: G::lines(most), sections }
    }

    #[inline]
    fn section(&self, ns: u32, writes: u32, reads: u32, random: &mut XorShift) {
        self.lock.section(|| {
            self.lines.read_all(writes..writes + reads);
            (0..writes).for_each(|line| self.lines.write(line));
            G::work(random, ns);
        });
    }
}

/// Two locks, and the steps of an operation.
pub struct Sections<L: Lock, G: Backend = Here> {
    a: Guarded<L, G>,
    b: Guarded<L, G>,
    steps: Vec<Step>,
}

/// The state of one thread. Not shared.
pub struct Client {
    random: XorShift,
}

impl<L: Lock, G: Backend> Sections<L, G> {
    /// An operation consists of all these steps, in this order.
    pub fn new(a: L, b: L, steps: &[Step]) -> Self {
        Self { a: Guarded::new(a, Which::A, steps), b: Guarded::new(b, Which::B, steps), steps: steps.to_vec() }
    }
}

impl<L: Lock, G: Backend> Workload for Sections<L, G> {
    type Client = Client;

    fn client(&self, seed: u64, number: u32) -> Client {
        Client { random: XorShift::new(seed, number) }
    }

    #[inline]
    fn operate(&self, client: &mut Client) {
        for step in &self.steps {
            match *step {
                Step::Outside { ns, varies } => {
                    let ns = ns - varies + client.random.below(2 * varies + 1);
                    G::work(&mut client.random, ns);
                }
                Step::Inside { lock, ns, writes, reads } => {
                    let guarded = if lock == Which::A { &self.a } else { &self.b };
                    guarded.section(ns, writes, reads, &mut client.random);
                }
            }
        }
    }

    fn check(&mut self, operations: u64) -> Result<(), &'static str> {
        [&self.a, &self.b].into_iter().try_for_each(|guarded| guarded.lock.check(guarded.sections * operations))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::lock::NoLock;
    use crate::recorder::{Ledger, Recorder};

    fn recorded(steps: &[Step], operations: u64) -> (Ledger, Sections<NoLock, Recorder>) {
        let mut shared: Sections<NoLock, Recorder> = Sections::new(NoLock, NoLock, steps);
        let mut client = shared.client(1, 0);
        Ledger::take();
        (0..operations).for_each(|_| shared.operate(&mut client));
        assert_eq!(shared.check(operations), Ok(()));
        (Ledger::take(), shared)
    }

    /// How long an operation holds a lock at the peak, in ns.
    fn held(steps: &[Step], which: Which) -> u32 {
        let ns = |step: &Step| match step {
            Step::Inside { lock, ns, .. } if *lock == which => *ns + TRAVEL,
            _ => 0,
        };
        steps.iter().map(ns).sum()
    }

    #[test]
    fn lengths_follow_from_the_papers_figures() {
        for (steps, one_thread, peak) in
            [(&OPEN1[..], 0.511, 1.675), (&LOCK2[..], 1.581, 5.240), (&LEVELDB_READRANDOM[..], 0.530, 0.839)]
        {
            let ops_per_us = |ns: f64| 1e3 / ns;
            let in_the_mean = recorded(steps, 10_000).0.work as f64 / 1e4;
            let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.01;
            assert!(near(ops_per_us(in_the_mean), one_thread), "{steps:?}");
            let held_at_peak = ops_per_us(f64::from(held(steps, Which::A)));
            let computes = steps.iter().any(|step| matches!(step, Step::Inside { lock: Which::A, ns: 1.., .. }));
            assert!(near(held_at_peak, peak) || !computes && held_at_peak < peak, "{steps:?}");
            assert!(held(steps, Which::B) <= held(steps, Which::A), "{steps:?}");
        }
    }

    #[test]
    fn each_lock_has_its_own_lines() {
        let steps = [inside(Which::A, 5, 2, 1), inside(Which::B, 1, 0, 4), inside(Which::A, 0, 1, 0)];
        let (ledger, shared) = recorded(&steps, 10);
        assert_eq!(ledger, Ledger { reads: 50, writes: 30, work: 60, ..Ledger::default() });
        assert_eq!((shared.a.lines.counts(), shared.b.lines.counts()), (vec![20, 10, 10], vec![10; 4]));
    }

    #[test]
    fn work_outside_takes_about_as_long_as_it_should() {
        let shared: Sections<NoLock, Recorder> = Sections::new(NoLock, NoLock, &[outside(400)]);
        let lengths: Vec<_> = (0..1000)
            .map(|seed| {
                Ledger::take();
                shared.operate(&mut shared.client(seed, 0));
                Ledger::take().work
            })
            .collect();
        let (shortest, longest) = (lengths.iter().min(), lengths.iter().max());
        assert!(shortest.is_some_and(|ns| (300..310).contains(ns)), "{shortest:?}");
        assert!(longest.is_some_and(|ns| (490..=500).contains(ns)), "{longest:?}");
    }

    #[test]
    fn both_locks_are_checked() {
        for steps in [[inside(Which::A, 0, 0, 0)], [inside(Which::B, 0, 0, 0)]] {
            assert!(recorded(&steps, 3).1.check(4).is_err());
        }
        let mut idle: Sections<NoLock> = Sections::new(NoLock, NoLock, &[]);
        idle.operate(&mut idle.client(1, 0));
        assert_eq!(idle.check(1), Ok(()));
    }
}
