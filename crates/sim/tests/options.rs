//! Locks of one kind with options of their own, in one program.

mod common;

use std::rc::Rc;

use flashlock_locks::machine::{Options, Topology as _, Tunables, Tuned};
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::parts::policy::PolicyId;
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_sim::{Description, Sim, Simulation, compute};

use common::Log;

/// Waiters of the head's NUMA node are moved to the front, and the first of the others must wait for long.
struct Local;

// SAFETY: it is a constant.
unsafe impl Options for Local {
    fn tunables() -> &'static Tunables {
        &Tunables { bound_us: 100_000, ..Tunables::DEFAULT }
    }
}

/// Waiters keep the order in which they came.
struct InOrder;

// SAFETY: it is a constant.
unsafe impl Options for InOrder {
    fn tunables() -> &'static Tunables {
        &Tunables { policy: PolicyId::Untouched as u32, ..Tunables::DEFAULT }
    }
}

/// How often the lock went to a thread of another NUMA node.
fn moves(log: &Log<u32>) -> usize {
    log.take().windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[test]
fn two_locks_of_one_kind_follow_their_own_options() {
    const EACH: usize = 200;
    fn spawn<O: Options>(simulation: &mut Simulation) -> Log<u32>
    where
        Shfl: RawLock<Tuned<Sim, O>>,
    {
        let lock = Rc::new(simulation.place("lock", Raw::<Tuned<Sim, O>, Shfl>::new()));
        let log = Log::new();
        for _ in 0..12 {
            let (lock, log) = (Rc::clone(&lock), log.clone());
            simulation.spawn(move || {
                for _ in 0..EACH {
                    lock.lock();
                    log.write(Sim::numa_node());
                    compute(300.0);
                    // SAFETY: this thread holds it.
                    unsafe { lock.unlock() };
                }
            });
        }
        log
    }
    let machine = Description::find("2x18x2").expect("a machine of ours");
    let mut simulation = Simulation::new(&machine, flashlock_sim::Options::default());
    let (local, in_order) = (spawn::<Local>(&mut simulation), spawn::<InOrder>(&mut simulation));
    simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
    let (local, in_order) = (moves(&local), moves(&in_order));
    assert!(local * 3 < in_order, "{local} and {in_order} moves to another NUMA node");
}
