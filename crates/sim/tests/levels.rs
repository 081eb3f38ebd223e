//! A lock of three levels goes to the nearest waiter: first of the core, then of the NUMA node, then of another node.
//! It stays with each only for a limited time. A lock with a secondary queue for sleeping waiters hardly waits for
//! them.

mod common;

use std::rc::Rc;

use common::Log;
use flashlock_locks::machine::{Division, Topology as _, Tunables};
use flashlock_locks::mutex::numa::{Cst, Hmcs};
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::parts::wait::{Spin, SpinThenPark};
use flashlock_sim::{Description, Options, Sim, Simulation, compute};

/// Limits of hand-offs within a core and within a NUMA node.
const NEAR: u32 = 5;
const PASSES: u32 = 3;
const TWO: Tunables = Tunables { passes: PASSES, near_passes: NEAR, ..Tunables::DEFAULT };
const THREE: Tunables = Tunables { levels: 3, ..TWO };
const ROUNDS: u32 = 100;

/// (NUMA node, core within it)
type Place = (u32, u32);

/// The places to which the lock went, in order, with so many threads on two NUMA nodes of four cores with two hardware
/// threads each. Also how long the run took, in ns.
fn hold<L: RawLock<Sim>>(threads: u32, tunables: &'static Tunables) -> (Vec<Place>, f64) {
    let mut machine = Description::find("2x18x2").unwrap();
    machine.topology.cores_per_node = 4;
    machine.cache.llc.kib = machine.cache.llc.ways * 64; // Small caches are made quickly.
    let mut simulation = Simulation::new(&machine, Options { tunables, ..Options::default() });
    let lock = Rc::new(simulation.place("lock", Raw::<Sim, L>::new()));
    let log = Log::new();
    for _ in 0..threads {
        let (lock, log) = (Rc::clone(&lock), log.clone());
        simulation.spawn(move || {
            for _ in 0..ROUNDS {
                lock.lock();
                log.write((Sim::numa_node(), Sim::part(Division::Groups { depth: 0 })));
                compute(300.0);
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
            }
        });
    }
    let outcome = simulation.run().unwrap();
    (log.take(), outcome.ns)
}

/// The places to which `hmcs` went.
fn hands(tunables: &'static Tunables) -> Vec<Place> {
    let (hands, _) = hold::<Hmcs<Spin>>(16, tunables);
    // Only while all threads compete: at the end some have finished, and their neighbours wait alone.
    hands.into_iter().take(16 * ROUNDS as usize / 2).skip(100).collect()
}

/// The lengths of the runs of equal values.
fn runs<T: PartialEq>(values: &[T]) -> Vec<u32> {
    values.chunk_by(|a, b| a == b).map(|run| run.len() as u32).collect()
}

/// All runs except the first and the last, which are incomplete.
fn whole(mut runs: Vec<u32>) -> Vec<u32> {
    runs.pop();
    runs.split_off(1)
}

#[test]
fn three_levels_stay_in_the_core_then_in_the_node() {
    let hands = hands(&THREE);
    let cores = whole(runs(&hands));
    assert!(cores.len() > 20 && cores.iter().all(|&run| run == NEAR + 1), "{cores:?}");
    let nodes: Vec<u32> = hands.iter().map(|&(node, _)| node).collect();
    let nodes = whole(runs(&nodes));
    // Each of the cores that the lock goes to has it for the same number of hand-offs.
    assert!(nodes.len() > 5 && nodes.iter().all(|&run| run == (PASSES + 1) * (NEAR + 1)), "{nodes:?}");
}

#[test]
fn two_levels_know_no_cores() {
    let hands = hands(&TWO);
    let nodes: Vec<u32> = hands.iter().map(|&(node, _)| node).collect();
    let nodes = whole(runs(&nodes));
    assert!(nodes.len() > 20 && nodes.iter().all(|&run| run == PASSES + 1), "{nodes:?}");
    assert!(runs(&hands).iter().all(|&run| run <= PASSES), "a core's threads came one after the other");
}

#[test]
fn sleepers_aside_are_not_waited_for() {
    // Four times as many threads as CPUs: most of them sleep.
    let [(order, cst), (_, hmcs)] = [hold::<Cst<SpinThenPark>>(64, &TWO), hold::<Hmcs<SpinThenPark>>(64, &TWO)];
    assert_eq!(order.len() as u32, 64 * ROUNDS);
    println!("cst {cst} ns, hmcs {hmcs} ns");
    assert!(2.0 * cst < hmcs, "cst {cst} ns, hmcs {hmcs} ns");
}
