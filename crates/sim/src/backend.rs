//! # The simulated computer as a backend of workloads
//!
//! A workload of `flashlock-workloads` runs here as it runs on the host. [`Simulation::perform`] starts its clients.

use std::cell::Cell;
use std::rc::Rc;

use flashlock_workloads::random::XorShift;
use flashlock_workloads::{Backend, Lines, Workload};

use crate::{Outcome, Region, Sim, Simulation, compute, delay, nap, step};

/// The seed of the clients that [`Simulation::perform`] makes.
const SEED: u64 = 1;

/// Lines that are only touched.
#[derive(Debug)]
pub struct Touched(Region);

impl Lines for Touched {
    #[inline]
    fn read(&self, line: u32) {
        self.0.read_ahead([line]);
    }
    #[inline]
    fn follow(&self, line: u32) {
        self.0.read(line);
    }
    #[inline]
    fn read_all(&self, lines: impl Iterator<Item = u32>) {
        self.0.read_ahead(lines);
    }
    #[inline]
    fn write(&self, line: u32) {
        self.0.write(line);
    }
    #[inline]
    fn expect(&self, line: u32) {
        self.0.expect(line);
    }
}

/// A linked structure that the workload keeps itself: each visit is a load and a step.
#[derive(Debug)]
pub struct Visited(Region);

impl Lines for Visited {
    #[inline]
    fn read(&self, line: u32) {
        self.0.read(line);
        step();
    }
    #[inline]
    fn follow(&self, line: u32) {
        self.0.read(line);
    }
    #[inline]
    fn write(&self, line: u32) {
        self.0.write(line);
    }
}

/// A workload that uses it must be made while its [`Simulation`] exists.
impl Backend for Sim {
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
            compute(f64::from(ns));
        }
    }

    fn delay(ns: u64) {
        delay(ns as f64);
    }

    fn nap(ns: u64) {
        nap(ns as f64);
    }
}

impl Simulation {
    /// Runs a workload with `threads` clients, each of which performs `each` operations, and then the workload's check.
    ///
    /// # Errors
    ///
    /// Which threads can never return, or what the check says.
    pub fn perform<W: Workload + 'static>(mut self, workload: W, threads: u32, each: u64) -> Result<Outcome, String> {
        let mut shared = Rc::new(self.place("the workload", workload));
        let done = Rc::new(Cell::new(0));
        for number in 0..threads {
            let (shared, done) = (Rc::clone(&shared), Rc::clone(&done));
            self.spawn(move || {
                let mut client = shared.client(SEED, number);
                (0..each).for_each(|_| shared.operate(&mut client));
                shared.retire(client);
                done.set(done.get() + each);
            });
        }
        let outcome = self.run().map_err(|stuck| stuck.to_string())?;
        let placed = Rc::get_mut(&mut shared).expect("all threads have returned, and dropped their references");
        placed.get_mut().check(done.get())?;
        Ok(outcome)
    }
}
