//! # Sections that access shared lines
//!
//! Sections read and write a chain of shared cache lines. Use it to compare locks that run sections on a server with
//! ordinary locks.
//!
//! **Source.** Lozi, David, Thomas, Lawall & Muller, *Remote Core Locking*, USENIX ATC 2012, section 4.1. Threads
//! repeatedly execute sections with a delay in between, which determines the lock's contention. A section reads and
//! writes some shared lines, which determines the cost of moving them between cores. Each line names the next one, so
//! accesses do not overlap. Section 4.2, figure 13: eleven such locks, two of which are used far more than the others.
//!
//! | job | locks | lines of a section | delay |
//! |---|---|---|---|
//! | [`Job::LINES`] | 1 | 1 (1 to 30) | 100 cycles to 2,000,000 |
//! | [`Job::ELEVEN`] | 11, two of them hot | 1 | 27.5 times the computing in a section, on average |
//!
//! ## Assumptions
//! 1. The delay varies uniformly by up to an eighth. If it were constant, threads would fall into step with each other.
//! 2. The paper does not describe what Berkeley DB does between sections, nor how long the sections are. In figure 13,
//!    one server has 38.9 sections a scan (a use rate of 81 % of 48 cores). [`Job::ELEVEN`]'s delay was chosen so that
//!    the simulated server has as many. It is uniformly distributed between zero and twice the mean. One section in 128
//!    is of one of the other nine locks: a guess.

use alloc::vec::Vec;
use core::array;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Workload;
use crate::backend::{Backend, Here, Lines, OwnLine};
use crate::catalogue::Runner;
use crate::lock::{LOST, Lock};
use crate::random::XorShift;

/// What threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// All sections use one of so many locks, except one in [`RARE`]: at least one, and at most as many as there are.
    pub hot: u32,
    /// How many lines a section reads and writes, one after the other: at least one.
    pub lines: u32,
    /// How long a section computes in addition, in ns.
    pub inside: u32,
    /// The delay between two sections, in ns,
    pub delay: u32,
    /// which varies by up to so many ns.
    pub varies: u32,
}

/// Figure 13's locks.
pub const ELEVEN: usize = 11;

/// The delay that section 4.1 calls high contention, in cycles.
pub const HIGH_CONTENTION: u32 = 100;

/// One section in so many is of a lock that is not hot, if there is one.
pub const RARE: u32 = 128;

impl Job {
    /// Section 4.1, with no delay.
    pub const LINES: Self = Self { hot: 1, lines: 1, inside: 0, delay: 0, varies: 0 };

    /// Figure 13.
    pub const ELEVEN: Self = Self { hot: 2, lines: 1, inside: 1_000, delay: 27_500, varies: 27_500 };

    /// The same with so many lines.
    pub const fn with_lines(self, lines: u32) -> Self {
        Self { lines, ..self }
    }

    /// The same with a delay of so many ns, which varies by an eighth.
    pub const fn with_delay(self, delay: u32) -> Self {
        Self { delay, varies: delay / 8, ..self }
    }
}

/// The workload of the catalogue, with one lock.
pub(crate) fn start_lines<R: Runner>(runner: R) -> R::Outcome {
    let setup = runner.setup();
    let delay = setup.ns(setup.values.get("delay"));
    let job = Job::LINES.with_delay(delay).with_lines(setup.values.get("lines"));
    start::<R, 1>(runner, job)
}

/// The workload of the catalogue, with figure 13's locks.
pub(crate) fn start_locks<R: Runner>(runner: R) -> R::Outcome {
    let job = Job::ELEVEN.with_lines(runner.setup().values.get("lines"));
    start::<R, ELEVEN>(runner, job)
}

fn start<R: Runner, const LOCKS: usize>(mut runner: R, job: Job) -> R::Outcome {
    let lines = SharedLines::<_, R::Backend, LOCKS>::new(|| runner.lock("the lock"), job);
    runner.run(lines)
}

/// A lock and its lines. The lock is the first field, because its address determines its set in the simulated caches.
#[repr(C)]
struct Guarded<L, G: Backend> {
    lock: OwnLine<L>,
    /// Each line counts the sections, and so names the line after it as the next one.
    lines: Vec<OwnLine<AtomicU64>>,
    shadow: G::Shadow,
}

impl<L: Lock, G: Backend> Guarded<L, G> {
    fn new(lock: L, lines: u32) -> Self {
        let own = (0..lines).map(|_| OwnLine::default()).collect();
        Self { lock: OwnLine(lock), lines: own, shadow: G::shadow(lines) }
    }

    fn section(&self, inside: u32, random: &mut XorShift) {
        self.lock.0.section(|| {
            let mut at = 0;
            while let Some(line) = self.lines.get(at) {
                // The lock makes the last holder's writes visible, as all its writes.
                self.shadow.follow(at as u32);
                let count = line.0.load(Relaxed);
                self.shadow.write(at as u32);
                line.0.store(count + 1, Relaxed);
                // Always 1 more, but only a thread that has loaded the count knows that.
                at += 1 + (black_box(count) >> 63) as usize;
            }
            G::work(random, inside);
        });
    }

    /// How many sections each line has counted, if all agree.
    fn counted(&self) -> Option<u64> {
        let count = self.lines.first()?.0.load(Relaxed);
        self.lines.iter().all(|line| line.0.load(Relaxed) == count).then_some(count)
    }
}

/// So many locks with lines. The lines are part of it, because the whole workload is placed in simulated memory.
pub struct SharedLines<L: Lock, G: Backend = Here, const LOCKS: usize = 1> {
    locks: [Guarded<L, G>; LOCKS],
    job: Job,
}

/// The state of one thread. Not shared.
pub struct Client {
    random: XorShift,
}

impl<L: Lock, G: Backend, const LOCKS: usize> SharedLines<L, G, LOCKS> {
    /// `lock` makes each lock.
    pub fn new(mut lock: impl FnMut() -> L, job: Job) -> Self {
        Self { locks: array::from_fn(|_| Guarded::new(lock(), job.lines.max(1))), job }
    }

    /// The first lock.
    pub fn lock(&self) -> &L {
        &self.locks[0].lock.0
    }
}

impl<L: Lock, G: Backend, const LOCKS: usize> Workload for SharedLines<L, G, LOCKS> {
    type Client = Client;

    fn client(&self, seed: u64, number: u32) -> Client {
        Client { random: XorShift::new(seed, number) }
    }

    fn operate(&self, Client { random }: &mut Client) {
        let Job { hot, inside, delay, varies, .. } = self.job;
        let locks = LOCKS as u32;
        let is_rare = locks > hot && random.below(RARE) == 0;
        let lock = if is_rare { hot + random.below(locks - hot) } else { random.below(hot) };
        self.locks[lock as usize].section(inside, random);
        let delay = delay - varies + random.below(2 * varies + 1);
        if delay > 0 {
            G::delay(u64::from(delay));
        }
    }

    fn check(&mut self, operations: u64) -> Result<(), &'static str> {
        let counted: Option<u64> = self.locks.iter().map(Guarded::counted).sum();
        if counted == Some(operations) { Ok(()) } else { Err(LOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NoLock;
    use crate::recorder::{Ledger, Recorder};

    fn recorded<const LOCKS: usize>(job: Job, operations: u64) -> (Ledger, SharedLines<NoLock, Recorder, LOCKS>) {
        let mut shared: SharedLines<NoLock, Recorder, LOCKS> = SharedLines::new(|| NoLock, job);
        let mut client = shared.client(1, 0);
        Ledger::take();
        (0..operations).for_each(|_| shared.operate(&mut client));
        assert_eq!(shared.check(operations), Ok(()));
        (Ledger::take(), shared)
    }

    #[test]
    fn each_line_is_read_and_written_and_the_delay_is_about_what_it_should_be() {
        let (ledger, shared) = recorded::<1>(Job::LINES.with_lines(5).with_delay(8_000), 1000);
        assert_eq!((ledger.reads, ledger.writes), (5_000, 5_000));
        assert!((7_900_000..8_100_000).contains(&ledger.delay), "{}", ledger.delay);
        assert_eq!(shared.locks[0].shadow.counts(), [2_000; 5]);
        assert_eq!(recorded::<1>(Job::LINES, 10).0.delay, 0);
    }

    #[test]
    fn two_locks_are_hot() {
        let (ledger, shared) = recorded::<ELEVEN>(Job::ELEVEN, 100_000);
        let counts: Vec<u64> = shared.locks.iter().filter_map(Guarded::counted).collect();
        assert_eq!(counts.len(), 11);
        assert!(counts[..2].iter().all(|count| (48_500..50_500).contains(count)), "{counts:?}");
        assert!(counts[2..].iter().all(|count| (40..150).contains(count)), "{counts:?}");
        assert_eq!(ledger.work, 100_000 * u64::from(Job::ELEVEN.inside));
    }

    #[test]
    fn lost_sections_are_noticed() {
        let (_, mut shared) = recorded::<1>(Job::LINES.with_lines(3), 7);
        assert_eq!(shared.check(8), Err(LOST));
        shared.locks[0].lines[1].0.store(6, Relaxed);
        assert_eq!(shared.check(7), Err(LOST), "one line has lost one");
    }
}
