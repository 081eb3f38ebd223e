//! A backend for tests that records what each thread reports, and does nothing else.

use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::backend::{Backend, Lines};
use crate::random::XorShift;

/// The totals of what a thread has reported. Times are in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) work: u64,
    pub(crate) worked: u64,
    pub(crate) delay: u64,
    pub(crate) nap: u64,
}

std::thread_local! {
    static LEDGER: Cell<Ledger> =
        const { Cell::new(Ledger { reads: 0, writes: 0, work: 0, worked: 0, delay: 0, nap: 0 }) };
}

impl Ledger {
    /// What the thread has reported since the last call.
    pub(crate) fn take() -> Self {
        LEDGER.take()
    }

    fn note(change: impl FnOnce(&mut Self)) {
        let mut ledger = LEDGER.get();
        change(&mut ledger);
        LEDGER.set(ledger);
    }
}

/// The recording backend. It takes no time and has no memory.
pub(crate) struct Recorder;

/// How often each line was touched.
pub(crate) struct Table(Vec<AtomicU64>);

impl Table {
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Relaxed)).collect()
    }
}

impl Lines for Table {
    fn read(&self, line: u32) {
        self.0[line as usize].fetch_add(1, Relaxed);
        Ledger::note(|ledger| ledger.reads += 1);
    }

    fn write(&self, line: u32) {
        self.0[line as usize].fetch_add(1, Relaxed);
        Ledger::note(|ledger| ledger.writes += 1);
    }
}

impl Backend for Recorder {
    type Lines = Table;
    type Shadow = Table;

    fn lines(count: u32) -> Table {
        Table((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    fn shadow(count: u32) -> Table {
        Self::lines(count)
    }

    fn work(_random: &mut XorShift, ns: u32) {
        Ledger::note(|ledger| ledger.work += u64::from(ns));
    }

    fn worked(ns: u32) {
        Ledger::note(|ledger| ledger.worked += u64::from(ns));
    }

    fn delay(ns: u64) {
        Ledger::note(|ledger| ledger.delay += ns);
    }

    fn nap(ns: u64) {
        Ledger::note(|ledger| ledger.nap += ns);
    }
}
