//! The effect of each admission policy, on a simulated machine: which waiter comes next, which sleep, how long they
//! wait.

mod common;

use std::collections::BTreeMap;
use std::rc::Rc;

use common::Log;
use flashlock_locks::catalogue::OptionId;
use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::parts::policy::chosen::NAMES;
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_sim::{
    Description, Options, Outcome, Region, Sim, Simulation, compute, now, set_priority, thread_node, thread_number,
};

/// An acquisition.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    thread: u32,
    /// The number of its last-level cache.
    cache: u32,
    /// How long it waited, in ns.
    waited: u64,
}

/// How threads use one lock.
#[derive(Clone, Copy)]
struct Load {
    threads: u32,
    rounds: u32,
    /// The length of the section and the time outside, in ns.
    section: f64,
    outside: f64,
    priority: fn(u32) -> i32,
}

const LOAD: Load = Load { threads: 16, rounds: 200, section: 300.0, outside: 500.0, priority: |_| 0 };

/// The tunables with this policy, and with groups of `shuffles`.
fn tunables(policy: &str, shuffles: u32) -> &'static Tunables {
    let policy = OptionId::Policy.info().parse(policy).expect("a policy");
    Box::leak(Box::new(Tunables { policy, max_shuffles: shuffles, ..Tunables::DEFAULT }))
}

fn run<L: RawLock<Sim>>(machine: &Description, tunables: &'static Tunables, load: Load) -> (Vec<Turn>, Outcome) {
    let mut simulation = Simulation::new(machine, Options { tunables, ..Options::default() });
    let lock = Rc::new(simulation.place("lock", Raw::<Sim, L>::new()));
    let (data, log) = (Rc::new(Region::new(4)), Log::new());
    for thread in 0..load.threads {
        let (lock, data, log) = (Rc::clone(&lock), Rc::clone(&data), log.clone());
        simulation.spawn(move || {
            set_priority((load.priority)(thread));
            for round in 0..load.rounds {
                let asked = now();
                lock.lock();
                log.write(Turn { thread: thread_number(), cache: thread_node(), waited: now() - asked });
                data.write(round % 4);
                compute(load.section);
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
                compute(load.outside);
            }
        });
    }
    let outcome = simulation.run().expect("it ends");
    let history = log.take();
    assert_eq!(history.len() as u32, load.threads * load.rounds);
    // Without the end, when some threads have done all their rounds.
    (history[..history.len() / 2].to_vec(), outcome)
}

/// The number of distinct threads in each 100 turns, on average (LWSS).
fn circulating(history: &[Turn]) -> f64 {
    let windows = history.chunks_exact(100).map(|window| {
        let threads: BTreeMap<u32, ()> = window.iter().map(|turn| (turn.thread, ())).collect();
        threads.len()
    });
    windows.clone().sum::<usize>() as f64 / windows.count() as f64
}

/// Averages: the share of turns that followed a turn on another cache, and the distance that the lock moved.
fn travelled(machine: &Description, history: &[Turn]) -> (f64, f64) {
    let steps = || history.windows(2).map(|pair| machine.distance(pair[0].cache, pair[1].cache));
    let moved = steps().filter(|distance| *distance > 0).count() as f64;
    (moved / steps().count() as f64, f64::from(steps().sum::<u32>()) / moved.max(1.0))
}

/// How long this thread waited on average, in ns.
fn waits(history: &[Turn], thread: u32) -> f64 {
    let waits: Vec<u64> = history.iter().filter(|turn| turn.thread == thread).map(|turn| turn.waited).collect();
    waits.iter().sum::<u64>() as f64 / waits.len() as f64
}

/// Two packages, shown as NUMA nodes, each with two last-level caches.
fn two_caches_a_node() -> Description {
    let mut machine = Description::find("2x128x2").unwrap();
    let shape = &mut machine.topology;
    (shape.nodes_per_package, shape.cores_per_node, shape.threads_per_core) = (2, 8, 1);
    shape.shown_as_packages = true;
    machine
}

#[test]
fn the_lock_stays_in_a_cache_by_llc_and_in_a_node_by_numa() {
    let machine = two_caches_a_node();
    let load = Load { threads: 32, section: 1_000.0, ..LOAD };
    let history = |policy| run::<ShflSpin>(&machine, tunables(policy, 1024), load).0;
    let moves = |policy| travelled(&machine, &history(policy)).0;
    let (numa, llc) = (moves("numa"), moves("llc"));
    assert!(llc * 3.0 < numa, "{llc} {numa}");
    let packages = |policy| {
        let history = history(policy);
        history.windows(2).filter(|pair| pair[0].cache / 2 != pair[1].cache / 2).count()
    };
    assert!(packages("numa") * 3 < packages("none"));
}

#[test]
fn by_levels_the_lock_goes_to_the_nearest() {
    // Eight nodes, each with three nearer and four farther nodes.
    let mut machine = Description::find("8x24").unwrap();
    machine.topology.cores_per_node = 4;
    let load = Load { threads: 32, section: 1_000.0, ..LOAD };
    let travelled = |policy| travelled(&machine, &run::<ShflSpin>(&machine, tunables(policy, 1024), load).0);
    let ((moves, _), (by_levels, nearest), (any, far)) = (travelled("none"), travelled("levels"), travelled("numa"));
    assert!(by_levels < any && any * 2.0 < moves, "{moves} {any} {by_levels}");
    assert!(nearest < far - 0.1, "{nearest} {far}");
}

#[test]
fn ahead_wakes_and_moves_nobody() {
    let machine = Description::find("2x18x2").unwrap();
    let counts = |policy| {
        let (_, outcome) = run::<Shfl<SpinThenPark>>(&machine, tunables(policy, 1024), LONG);
        [Event::WakeAhead, Event::Shuffle].map(|event| outcome.counts[event as usize])
    };
    let ([woken, moved], none) = (counts("ahead"), counts("none"));
    assert!(woken > 20 && moved == 0, "{woken} {moved}");
    assert_eq!(none, [0, 0]);
}

/// Six threads suffice to keep the lock busy.
const LONG: Load = Load { section: 1_000.0, outside: 5_000.0, ..LOAD };

#[test]
fn under_restriction_few_threads_circulate_and_everybody_is_served() {
    let machine = Description::find("2x18x2").unwrap();
    let of = |policy, shuffles| run::<Shfl<SpinThenPark>>(&machine, tunables(policy, shuffles), LONG);
    let ((few, restricted), (all, free)) = (of("cr", 64), of("none", 64));
    assert!(circulating(&few) < 10.0 && circulating(&all) > 14.0, "{} {}", circulating(&few), circulating(&all));
    assert!(restricted.voluntary_switches * 3 < free.voluntary_switches);
    // It is no slower.
    assert!(restricted.ns < 1.1 * free.ns, "{} {}", restricted.ns, free.ns);
    // A closed group lets the eldest waiter in: the smaller the group, the fairer.
    let least = |shuffles| {
        let history = of("cr", shuffles).0;
        (0..LONG.threads).map(|thread| history.iter().filter(|turn| turn.thread == thread).count()).min()
    };
    assert!(least(4) > least(1_000_000), "{:?} {:?}", least(4), least(1_000_000));
}

#[test]
fn who_has_a_higher_priority_waits_less() {
    let machine = Description::find("2x18x2").unwrap();
    let preferred = Load { priority: |thread| if thread == 3 { 10 } else { 0 }, ..LOAD };
    for run in [run::<ShflSpin>, run::<Shfl<SpinThenPark>>] {
        let waited = |policy| waits(&run(&machine, tunables(policy, 1024), preferred).0, 3);
        assert!(waited("priority") * 1.5 < waited("none"), "{} {}", waited("priority"), waited("none"));
    }
}

#[test]
fn who_has_the_lowest_priority_is_served_once_the_group_is_closed() {
    let machine = Description::find("2x18x2").unwrap();
    let low = Load { priority: |thread| if thread == 3 { -10 } else { 5 }, ..LOAD };
    let longest = |shuffles| {
        let history = run::<ShflSpin>(&machine, tunables("priority", shuffles), low).0;
        history.iter().filter(|turn| turn.thread == 3).map(|turn| turn.waited).max()
    };
    let [short, long] = [longest(8), longest(1_000_000)].map(|wait| wait.unwrap_or(u64::MAX));
    assert!(short < 600_000 && long / 2 > short, "{short} {long}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let machine = two_caches_a_node();
    for policy in NAMES {
        let again = || run::<Shfl<SpinThenPark>>(&machine, tunables(policy, 16), Load { rounds: 20, ..LOAD });
        assert_eq!(again(), again(), "{policy}");
    }
}
