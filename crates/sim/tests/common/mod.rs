//! Small machines for tests, and a log that their threads write. No test uses all of it.

#![allow(dead_code)]

use std::cell::RefCell;
use std::rc::Rc;

use flashlock_sim::description::{Hypervisor, Umwait};
use flashlock_sim::{Description, Options, Simulation};

/// Whether this run may take hours (`cargo xtask full`).
pub(crate) fn is_full() -> bool {
    std::env::var_os("FLASHLOCK_FULL").is_some_and(|value| value != "0" && !value.is_empty())
}

/// Of so many rounds, one is a lock's turn, and the next one is the next lock's: rounds run the same code with other
/// numbers.
pub(crate) const ROUNDS: usize = 3;

/// Whether a lock has its turn in a round, given the numbers of both. In full, each lock always has.
pub(crate) fn has_its_turn(lock: usize, round: usize) -> bool {
    is_full() || (lock + round).is_multiple_of(ROUNDS)
}

/// One node in which only what a test names takes time: slices of 100 us, 1 us for a switch, 0.5 us to enter the
/// system, 2 us to wake a thread, and 50 us of slack in timed sleeps. CPUs wake up at once.
pub(crate) fn tiny(cores: u32, threads_per_core: u32) -> Description {
    let mut machine = Description::find("2x18x2").unwrap();
    let shape = &mut machine.topology;
    (shape.packages, shape.nodes_per_package) = (1, 1);
    (shape.cores_per_node, shape.threads_per_core) = (cores, threads_per_core);
    let os = &mut machine.scheduler;
    (os.slice_us, os.switch_us, os.syscall_us, os.wake_us, os.timer_slack_us) = (100.0, 1.0, 0.5, 2.0, 50.0);
    os.idle_us.clear();
    machine
}

pub(crate) fn simulation(machine: &Description) -> Simulation {
    Simulation::new(machine, Options::default())
}

/// Entries of all threads, in the order in which they are written.
pub(crate) struct Log<T>(Rc<RefCell<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Rc::default())
    }

    pub(crate) fn write(&self, entry: T) {
        self.0.borrow_mut().push(entry);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        self.0.take()
    }
}

/// Two nodes of four cores with two hardware threads each. A hypervisor takes their CPUs away for a third of the time:
/// in the middle of sections, waits and hand-offs.
pub(crate) fn taken_away() -> Description {
    let mut machine = Description::find("2x18x2").unwrap();
    machine.topology.cores_per_node = 4;
    machine.hypervisor = Some(Hypervisor { run_ms: 0.02, away_ms: 0.01 });
    machine
}

/// The same without a hypervisor. Its waiters use `umwait`, for a short time each.
pub(crate) fn at_rest() -> Description {
    let umwait = Umwait { wake_ns: 250.0, max_us: 5.0, wait_w: 0.5 };
    Description { hypervisor: None, umwait: Some(umwait), ..taken_away() }
}
