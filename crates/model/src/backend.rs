//! # A model checker as a backend of workloads
//!
//! A workload of `flashlock-workloads` runs here as it runs on the host, with few clients and operations. Its lines are
//! data that the checker watches: two accesses to a line, of which one is a write, must be ordered by the lock. Time
//! does not matter.

use flashlock_workloads::random::XorShift;
use flashlock_workloads::{Backend, Lines};

use crate::Model;
use crate::checker::{Checker, Data};

/// Lines, each of which is watched.
pub struct Watched<C: Checker>(Vec<C::Data>);

// SAFETY: only one thread of a model runs at a time, and all run on one OS thread (`checker`).
unsafe impl<C: Checker> Send for Watched<C> {}
// SAFETY: as above.
unsafe impl<C: Checker> Sync for Watched<C> {}

impl<C: Checker> Watched<C> {
    fn new(count: u32) -> Self {
        Self((0..count).map(|_| C::Data::new()).collect())
    }
}

impl<C: Checker> Lines for Watched<C> {
    fn read(&self, line: u32) {
        self.0[line as usize].look();
    }

    fn write(&self, line: u32) {
        self.0[line as usize].visit();
    }
}

impl<C: Checker> Backend for Model<C> {
    type Lines = Watched<C>;
    type Shadow = Watched<C>;

    fn lines(count: u32) -> Watched<C> {
        Watched::new(count)
    }

    fn shadow(count: u32) -> Watched<C> {
        Watched::new(count)
    }

    fn work(_random: &mut XorShift, _ns: u32) {}

    fn worked(_ns: u32) {}

    fn delay(_ns: u64) {}

    fn nap(_ns: u64) {
        C::yield_now();
    }
}
