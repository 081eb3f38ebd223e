//! The simulated computer, as workloads and their lock see it.

use std::cell::RefCell;

use flashlock_locks::raw::RawLock;
use flashlock_sim::{self as sim, Region, Sim};
use flashlock_workloads::random::XorShift;
use flashlock_workloads::{Ground, Lines, Lock, Raw};

/// The simulated computer.
pub(super) struct Simulated;

/// Lines that are touched.
pub(super) struct Touched(Region);

impl Lines for Touched {
    fn read(&self, line: u32) {
        self.0.read_ahead(line);
    }
    fn write(&self, line: u32) {
        self.0.write(line);
    }
}

/// A linked structure that the workload has itself: each visit is a load and a step.
pub(super) struct Visited(Region);

impl Lines for Visited {
    fn read(&self, line: u32) {
        self.0.read(line);
        sim::step();
    }
    fn write(&self, line: u32) {
        self.0.write(line);
    }
}

impl Ground for Simulated {
    type Lines = Touched;
    type Shadow = Visited;

    fn lines(count: u32) -> Touched {
        Touched(Region::new(count))
    }

    fn shadow(count: u32) -> Visited {
        Visited(Region::new(count))
    }

    fn work(_random: &mut XorShift, ns: u32) {
        Self::worked(ns);
    }

    fn worked(ns: u32) {
        if ns > 0 {
            sim::compute(f64::from(ns));
        }
    }

    fn delay(ns: u64) {
        sim::delay(ns as f64);
    }

    fn nap(ns: u64) {
        sim::nap(ns as f64);
    }
}

/// A section: who, where, and when, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) thread: u32,
    pub(super) cpu: u32,
    pub(super) node: u32,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// What is noted of a run's acquisitions.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Acquisitions before this time are not noted.
    pub(super) from: u64,
    /// The threads, in the order in which they acquired.
    pub(super) history: Vec<u32>,
    /// How many acquisitions followed one on another NUMA node.
    pub(super) moves: u64,
    last_node: Option<u32>,
    /// All sections, if wanted.
    pub(super) sections: Option<Vec<Section>>,
}

impl Log {
    /// An empty one.
    pub(super) fn new(from: u64, sections: bool) -> Self {
        Self { from, sections: sections.then(Vec::new), ..Self::default() }
    }

    fn acquired(&mut self) {
        let (begin, node) = (sim::now(), sim::thread_node());
        if begin < self.from {
            return;
        }
        let thread = sim::thread_number();
        self.history.push(thread);
        self.moves += u64::from(self.last_node.replace(node).is_some_and(|last| last != node));
        if let Some(sections) = &mut self.sections {
            sections.push(Section { thread, cpu: sim::thread_cpu(), node, begin, end: begin });
        }
    }

    fn released(&mut self) {
        let thread = sim::thread_number();
        let own = self.sections.iter_mut().flatten().rev().find(|section| section.thread == thread);
        if let Some(section) = own {
            section.end = sim::now();
        }
    }
}

thread_local! {
    /// Of the run on this host thread.
    pub(super) static LOG: RefCell<Log> = RefCell::default();
}

/// A lock whose acquisitions are noted.
pub(super) struct Noted<L: RawLock<Sim>>(Raw<Sim, L>);

impl<L: RawLock<Sim>> Noted<L> {
    /// Free.
    pub(super) fn new() -> Self {
        Self(Raw::new())
    }
}

// SAFETY: it is the lock that it notes.
unsafe impl<L: RawLock<Sim, Queue: Sync>> Lock for Noted<L> {
    fn acquire(&self) {
        self.0.acquire();
        LOG.with_borrow_mut(Log::acquired);
    }

    fn release(&self) {
        LOG.with_borrow_mut(Log::released);
        self.0.release();
    }
}
