//! The lock, the policy and the workload on three machines: this computer, a simulated one, and the model checker loom.

use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::{shuffle::ShflSpin, spin::Null};
use flashlock_locks::parts::policy::Untouched;
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_model::loom::{Depth::*, explore, find, last_frees, operations, sections};
use flashlock_model::{Loom, Setup};
use flashlock_native::Native;
use flashlock_sim::{Description, Options, Sim, Simulation};
use flashlock_workloads::run;

use crate::{lock::ParkingTicket, policy::SameGroup, workload::Histogram};

/// Four threads count.
#[test]
fn on_this_computer() {
    let lock = Raw::<Native, ParkingTicket>::new();
    // SAFETY: the lock is free: nothing happens, as with glibc.
    unsafe { lock.unlock() };
    assert_eq!(run(Histogram::<_>::new(lock), 4, 20_000), Ok(()));
    assert_eq!(run(Histogram::<_>::new(Raw::<Native, ShflSpin<SameGroup>>::new()), 4, 20_000), Ok(()));
}

/// A thread on each of 72 CPUs counts: two NUMA nodes of 18 cores with two hardware threads each. Returns how many
/// cache lines were carried from core to core; the same in each run, on any host.
fn simulated<L: RawLock<Sim, Queue: Sync>>() -> Result<u64, String> {
    // The simulated memory must exist before anything that lies in it.
    let simulation = Simulation::new(&Description::find("2x18x2").unwrap(), Options::default());
    let traffic = simulation.perform(Histogram::<_, Sim>::new(Raw::<Sim, L>::new()), 72, 50)?.traffic;
    Ok(traffic.local + traffic.remote)
}

#[test]
fn on_a_simulated_computer() {
    assert!(simulated::<ParkingTicket>().is_ok());
    assert!(simulated::<Null>().is_err(), "the workload notices a lock that excludes nobody");
    let [ours, none] = [simulated::<ShflSpin<SameGroup>>(), simulated::<ShflSpin<Untouched>>()].map(Result::unwrap);
    assert!(ours < none, "the policy keeps lines in a core: {ours} were carried, and {none} without a policy");
}

/// Four queue nodes, and one poll before a thread sleeps.
const SETUP: Setup = Setup { polls: 1, ..Setup::new(4) };

fn histogram<const SOUND: bool>() -> Histogram<Raw<Loom, ParkingTicket<SOUND>>, Loom> {
    Histogram::new(Raw::new())
}

#[test]
fn in_every_schedule() {
    explore("two threads", Exhaustive, SETUP, sections::<ParkingTicket>(&[1, 1])).shows(&[Event::Contended]);
    explore("three threads", Preemptions(2), SETUP, sections::<ParkingTicket>(&[1, 1, 1]));
    explore("two threads that come back", Preemptions(3), SETUP, sections::<ParkingTicket>(&[2, 2]));
    explore("the last frees it", Exhaustive, SETUP, last_frees::<ParkingTicket>(2));
    explore("histogram", Preemptions(3), SETUP, operations(histogram::<true>, 2, 1));
    explore("policy", Preemptions(2), SETUP, sections::<ShflSpin<SameGroup>>(&[1, 1, 1]));
}

#[test]
fn the_missing_acquire_is_found() {
    find("the lock", Exhaustive, SETUP, sections::<ParkingTicket<false>>(&[1, 1]));
    find("the workload", Exhaustive, SETUP, operations(histogram::<false>, 2, 1));
}
