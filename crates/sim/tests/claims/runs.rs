//! Threads that compete for a lock on a simulated machine, and a record of their acquisitions.

use std::cell::RefCell;
use std::rc::Rc;

use flashlock_erased::sim::{self, MUTEXES};
use flashlock_locks::catalogue::rw::{RW_LOCKS, RwInfo};
use flashlock_locks::catalogue::{Claim, LOCKS, LockInfo};
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Machine, Tunables};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::rw::{RawRwLock, Reader, Writer};
use flashlock_sim::{Description, Options, Sim, Simulation, compute, now, thread_node};

/// One acquisition, with its times in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Had {
    pub(crate) thread: u32,
    pub(crate) node: u32,
    pub(crate) asked: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// What threads do: each starts at its time, and then alternates between inside and outside until the end.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// When each thread starts, in ns.
    pub(crate) come: Vec<u64>,
    pub(crate) inside: u32,
    pub(crate) outside: u32,
    /// No thread asks again after this time.
    pub(crate) until: u64,
    /// The maximum number of acquisitions of each thread.
    pub(crate) rounds: u32,
    pub(crate) tunables: &'static Tunables,
    /// The number of NUMA nodes: 2 or 4.
    pub(crate) nodes: u64,
}

/// So many nodes, with eight cores of two hardware threads in all: up to 16 threads never wait for a CPU.
fn machine(nodes: u64) -> Description {
    let mut machine = Description::find(if nodes == 2 { "2x18x2" } else { "4x18x2" }).unwrap();
    machine.topology.cores_per_node = 8 / nodes as u32;
    machine.cache.llc.kib = machine.cache.llc.ways * 64; // Small caches are made quickly.
    machine
}

/// A random time from half to one and a half times `ns`.
fn about(ns: u32) -> f64 {
    f64::from(ns / 2 + Sim::random() % ns.max(1))
}

/// All acquisitions, in order, of a lock that each thread acquires and releases like this; and how often each event
/// happened.
fn acquisitions<T: Clone + 'static>(
    plan: &Plan,
    new: fn(&mut Simulation) -> T,
    acquire: impl Fn(&T, u32) + Copy + 'static,
    release: impl Fn(&T) + Copy + 'static,
) -> (Vec<Had>, Vec<u64>) {
    let mut simulation =
        Simulation::new(&machine(plan.nodes), Options { tunables: plan.tunables, ..Options::default() });
    let lock = new(&mut simulation);
    let log = Rc::new(RefCell::new(Vec::new()));
    for (thread, &come) in (0..).zip(&plan.come) {
        let (lock, log, plan) = (lock.clone(), Rc::clone(&log), plan.clone());
        simulation.spawn(move || {
            compute(come as f64);
            for _ in 0..plan.rounds {
                if now() > plan.until {
                    break;
                }
                let asked = now();
                acquire(&lock, thread);
                let (begin, node) = (now(), thread_node());
                compute(about(plan.inside));
                let end = now();
                log.borrow_mut().push(Had { thread, node, asked, begin, end });
                release(&lock);
                compute(about(plan.outside));
            }
        });
    }
    let outcome = simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
    (log.take(), outcome.counts)
}

/// All acquisitions of a mutex, in order.
pub(crate) fn run<L: RawLock<Sim>>(plan: &Plan) -> Vec<Had> {
    run_any(plan, sim::mutex::<L>)
}

fn run_any(plan: &Plan, new: fn(&mut Simulation) -> sim::Mutex) -> Vec<Had> {
    // SAFETY: the thread that releases holds it.
    acquisitions(plan, new, |lock, _| lock.lock(), |lock| unsafe { lock.unlock() }).0
}

/// All acquisitions of a readers-writer lock, in the order of their ends, and how many readers have passed a writer
/// that waited. The first `writers` threads write, the others read.
pub(crate) fn run_rw<L: RawRwLock<Sim>>(plan: &Plan, writers: u32) -> (Vec<Had>, u64) {
    run_any_rw(plan, writers, sim::rw_lock::<L>)
}

fn run_any_rw(plan: &Plan, writers: u32, new: fn(&mut Simulation) -> sim::RwLock) -> (Vec<Had>, u64) {
    let acquire = move |lock: &sim::RwLock, thread| {
        let writes = thread < writers;
        let got = if writes { lock.write(Writer::Fair, None) } else { lock.read(Reader::Newcomer, None) };
        got.expect("no deadline, and few readers");
    };
    // SAFETY: the thread that releases holds it.
    let (history, events) = acquisitions(plan, new, acquire, |lock| unsafe { lock.unlock() });
    (history, events[Event::RwPassed as usize])
}

/// Runs a lock.
pub(crate) type Run = Box<dyn Fn(&Plan) -> Vec<Had>>;
/// Runs a readers-writer lock, with so many writers.
pub(crate) type RunRw = Box<dyn Fn(&Plan, u32) -> (Vec<Had>, u64)>;

/// The readers-writer locks whose row says that they are bounded, with every way of waiting, and the others.
pub(crate) fn bounded_rw() -> [Vec<(&'static RwInfo, &'static str, RunRw)>; 2] {
    let info = |name| RW_LOCKS.iter().find(|lock| lock.name == name).expect("a row");
    let (bounded, others): (Vec<_>, Vec<_>) = sim::RW_LOCKS
        .iter()
        .map(|entry| -> (_, _, RunRw) {
            (info(entry.lock), entry.name, Box::new(|plan, writers| run_any_rw(plan, writers, entry.new)))
        })
        .partition(|(lock, ..)| lock.fair.starts_with("bounded"));
    assert!(!bounded.is_empty() && !others.is_empty());
    [bounded, others]
}

/// Every lock with every way of waiting: its row, its name with the way of waiting, and the function that runs it.
pub(crate) fn all() -> Vec<(&'static LockInfo, &'static str, Run)> {
    let info = |name| LOCKS.iter().find(|lock| lock.name == name).expect("a row");
    MUTEXES
        .iter()
        .map(|entry| -> (_, _, Run) { (info(entry.lock), entry.name, Box::new(|plan| run_any(plan, entry.new))) })
        .collect()
}

/// The locks with the claim, and those without.
pub(crate) fn split(claim: Claim) -> [Vec<(&'static LockInfo, &'static str, Run)>; 2] {
    let (claims, others): (Vec<_>, Vec<_>) = all().into_iter().partition(|(lock, ..)| lock.claims.contains(&claim));
    assert!(!claims.is_empty() && !others.is_empty(), "{claim:?}");
    [claims, others]
}

pub(crate) fn of(name: &str) -> Run {
    all().into_iter().find(|(_, with, _)| *with == name).expect("a lock").2
}

pub(crate) const MS: u64 = 1_000_000;

/// Short bounds, the same for all locks.
pub(crate) const SHORT: Tunables =
    Tunables { bound_us: 100, max_shuffles: 16, eldest: 50, passes: 16, threshold: 16, flush: 4, ..Tunables::DEFAULT };

/// So many threads always compete for the lock.
pub(crate) fn busy(threads: u64, ms: u64, tunables: &'static Tunables) -> Plan {
    let come = (0..threads).map(|thread| thread * 1_000).collect();
    Plan { come, inside: 1_000, outside: 500, until: ms * MS, rounds: u32::MAX, tunables, nodes: 2 }
}

/// Threads arrive while the first one holds the lock for a long time, at least 4 µs apart.
pub(crate) fn arrivals(breaks: &[u64], long: u32) -> Plan {
    let times = breaks.iter().scan(20_000, |at, more| {
        *at += 4_000 + more;
        Some(*at)
    });
    let come = std::iter::once(0).chain(times).collect();
    Plan { come, inside: long, outside: 0, until: u64::MAX, rounds: 1, tunables: &Tunables::DEFAULT, nodes: 2 }
}
