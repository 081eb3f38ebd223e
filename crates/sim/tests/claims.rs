//! What the catalogue claims of its locks, on simulated machines: each lock, waiting in each way, keeps what its row promises; and a lock that
//! does not promise it breaks it, so that the check is one.

use std::cell::RefCell;
use std::rc::Rc;

use flashlock_locks::catalogue::{Claim, LOCKS, LockInfo, OptionId, Tunables};
use flashlock_locks::for_each_lock;
use flashlock_locks::machine::{Machine, Word as _};
use flashlock_locks::raw::RawLock;
use flashlock_sim::{Description, Options, Sim, Simulation, Word, compute, now, thread_node};
use proptest::prelude::*;

/// One acquisition, with its times in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Had {
    thread: u32,
    node: u32,
    asked: u64,
    begin: u64,
    end: u64,
}

/// What threads do: come at their times, and then take turns inside and outside, until it is over.
#[derive(Clone, Debug)]
struct Plan {
    /// When each thread comes, in ns.
    come: Vec<u64>,
    inside: u32,
    outside: u32,
    /// Nobody asks again after this time.
    until: u64,
    /// At most so often each.
    rounds: u32,
    tunables: &'static Tunables,
}

/// Two nodes of four cores with two hardware threads each: nobody of up to 16 waits for a CPU.
fn machine() -> Description {
    let mut machine = Description::find("2x18x2").unwrap();
    machine.topology.cores_per_node = 4;
    machine.cache.llc.kib = machine.cache.llc.ways * 64; // Small ones are made quickly.
    machine
}

struct Lock<L: RawLock<Sim>> {
    word: Word,
    queue: L::Queue,
}

/// Half of a time, up to one and a half of it.
fn about(ns: u32) -> f64 {
    f64::from(ns / 2 + Sim::random() % ns.max(1))
}

/// All acquisitions, in their order.
fn run<L: RawLock<Sim>>(plan: &Plan) -> Vec<Had> {
    let mut simulation = Simulation::new(&machine(), Options { tunables: plan.tunables, ..Options::default() });
    let lock = Rc::new(simulation.place("lock", Lock::<L> { word: Word::new(0), queue: L::new_queue() }));
    let log = Rc::new(RefCell::new(Vec::new()));
    for (thread, &come) in (0..).zip(&plan.come) {
        let (lock, log, plan) = (Rc::clone(&lock), Rc::clone(&log), plan.clone());
        simulation.spawn(move || {
            compute(come as f64);
            for _ in 0..plan.rounds {
                if now() > plan.until {
                    break;
                }
                let asked = now();
                L::lock(&lock.word, &lock.queue);
                let (begin, node) = (now(), thread_node());
                compute(about(plan.inside));
                let end = now();
                log.borrow_mut().push(Had { thread, node, asked, begin, end });
                L::unlock(&lock.word, &lock.queue);
                compute(about(plan.outside));
            }
        });
    }
    simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
    log.take()
}

type Run = fn(&Plan) -> Vec<Had>;

macro_rules! define_runs {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        const RUNS: &[(&str, &str, Run)] = &[$($(($name, concat!($name, ":wait=", stringify!($wait)), run::<$type>)),+),*];
    };
}
for_each_lock!(define_runs);

/// Every lock with every way of waiting: what is known of it, its name with that, and how to run it.
fn all() -> Vec<(&'static LockInfo, &'static str, Run)> {
    let info = |name| LOCKS.iter().find(|lock| lock.name == name).expect("a row");
    RUNS.iter().map(|&(name, with, run)| (info(name), with, run)).collect()
}

/// Those that claim it, and those that do not.
fn split(claim: Claim) -> [Vec<(&'static LockInfo, &'static str, Run)>; 2] {
    let (claims, others): (Vec<_>, Vec<_>) = all().into_iter().partition(|(lock, ..)| lock.claims.contains(&claim));
    assert!(!claims.is_empty() && !others.is_empty(), "{claim:?}");
    [claims, others]
}

fn of(name: &str) -> Run {
    all().into_iter().find(|(_, with, _)| *with == name).expect("a lock").2
}

const MS: u64 = 1_000_000;

/// Bounds that are short, and the same for all.
const SHORT: Tunables =
    Tunables { bound_us: 100, eldest: 50, passes: 16, threshold: 16, flush: 4, ..Tunables::DEFAULT };

/// So many threads want the lock all the time.
fn busy(threads: u64, ms: u64, tunables: &'static Tunables) -> Plan {
    let come = (0..threads).map(|thread| thread * 1_000).collect();
    Plan { come, inside: 1_000, outside: 500, until: ms * MS, rounds: u32::MAX, tunables }
}

/// Joining a queue takes so long, in ns, at most: who asks within it of another may come before or after him.
const JOINING: u64 = 2_000;

/// Whether everybody comes in the order in which he has asked.
fn in_order(history: &[Had]) -> bool {
    let mut last = 0;
    history.iter().all(|had| {
        last = last.max(had.asked);
        had.asked + JOINING > last
    })
}

/// How often a thread was passed by the same other one while it waited, at most.
fn most_bypasses(history: &[Had]) -> usize {
    let passed = |(at, had): (usize, &Had)| {
        let meanwhile = history[..at].iter().rev().take_while(|other| other.end > had.asked);
        let mut threads: Vec<u32> =
            meanwhile.filter(|other| other.begin > had.asked).map(|other| other.thread).collect();
        threads.sort_unstable();
        threads.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(0)
    };
    history.iter().enumerate().map(passed).max().unwrap_or(0)
}

/// So many threads come while the first one has the lock for a long time, with breaks of at least 4 µs between them.
fn arrivals(breaks: &[u64], long: u32) -> Plan {
    let times = breaks.iter().scan(20_000, |at, more| {
        *at += 4_000 + more;
        Some(*at)
    });
    let come = std::iter::once(0).chain(times).collect();
    Plan { come, inside: long, outside: 0, until: u64::MAX, rounds: 1, tunables: &Tunables::DEFAULT }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_comes_first_is_served_first(breaks in prop::collection::vec(0_u64..20_000, 2..15)) {
        for (_, name, run) in &split(Claim::InOrder)[0] {
            let history = run(&arrivals(&breaks, 600_000));
            prop_assert!(in_order(&history), "{name}: {history:?}");
        }
    }
}

#[test]
fn a_stack_does_not_serve_in_order() {
    assert!(!in_order(&of("lifo-cr:wait=spin")(&arrivals(&[0; 10], 600_000))));
}

#[test]
fn nobody_is_passed_over_by_the_same_thread_again() {
    for threads in [2, 5, 16] {
        let plan = busy(threads, 2, &Tunables::DEFAULT);
        for (_, name, run) in &split(Claim::InOrder)[0] {
            // Once by who asked a moment later, and joined a moment sooner.
            let most = most_bypasses(&run(&plan));
            assert!(most <= 2, "{name}, {threads} threads: {most}");
        }
        assert!(threads < 5 || most_bypasses(&of("mcscr:wait=spin")(&plan)) > 2, "a lock that passes over");
    }
}

/// How often each of so many threads had the lock.
fn counts(history: &[Had], threads: u64) -> Vec<usize> {
    (0..threads as u32).map(|thread| history.iter().filter(|had| had.thread == thread).count()).collect()
}

#[test]
fn everybody_is_served() {
    let plan = busy(16, 8, &SHORT);
    for (_, name, run) in &split(Claim::Serves)[0] {
        let counts = counts(&run(&plan), 16);
        assert!(counts.iter().all(|&count| count >= 3), "{name}: {counts:?}");
    }
    let never = Tunables { eldest: 1_000_000_000, ..Tunables::DEFAULT };
    let starving = Plan { tunables: Box::leak(Box::new(never)), ..plan };
    let counts = counts(&of("lifo-cr:wait=spin")(&starving), 16);
    assert!(counts.iter().any(|&count| count < 3), "a lock that would serve nobody but a few: {counts:?}");
}

/// How many hand-overs within a NUMA node follow each other, each time.
fn stays(history: &[Had]) -> Vec<usize> {
    history.chunk_by(|a, b| a.node == b.node).map(<[Had]>::len).collect()
}

fn mean_stay(history: &[Had]) -> f64 {
    history.len() as f64 / stays(history).len() as f64
}

#[test]
fn hand_overs_stay_on_a_node_until_the_bound() {
    let plan = busy(16, 4, &SHORT);
    for (lock, name, run) in &split(Claim::Local)[0] {
        let history = run(&plan);
        let (mean, longest) = (mean_stay(&history), stays(&history).into_iter().max().unwrap_or(0));
        assert!(mean > 5.0, "{name}: {mean} on one node at a time");
        // With the rest of a stay that was under way as the other node's first thread came, and one that begins anew.
        if lock.options.contains(&OptionId::Passes) && lock.claims.contains(&Claim::Serves) {
            assert!(longest <= 2 * 16 + 2, "{name}: {longest} on one node");
        }
        if lock.claims.contains(&Claim::Serves) {
            assert!(stays(&history).len() >= 4, "{name}: the other node's turn never comes");
        }
    }
    let fair = mean_stay(&of("mcs:wait=spin")(&plan));
    assert!(fair < 5.0, "a lock that does not look at nodes: {fair}");
}

/// A third of the time inside: three threads keep the lock busy.
fn one_in_three(threads: u64, tunables: &'static Tunables) -> Plan {
    Plan { inside: 1_000, outside: 2_000, ..busy(threads, 4, tunables) }
}

/// Threads among so many acquisitions, on average.
fn working_set(history: &[Had], window: usize) -> f64 {
    let sizes = history.chunks_exact(window).map(|window| {
        let mut threads: Vec<u32> = window.iter().map(|had| had.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        threads.len() as f64
    });
    let sizes: Vec<f64> = sizes.collect();
    sizes.iter().sum::<f64>() / sizes.len() as f64
}

#[test]
fn few_take_turns_where_few_are_enough() {
    let plan = one_in_three(16, &Tunables::DEFAULT);
    for (_, name, run) in &split(Claim::Restricts)[0] {
        let threads = working_set(&run(&plan), 100);

        assert!((3.0..8.0).contains(&threads), "{name}: {threads} threads");
    }
    assert!(working_set(&of("mcs:wait=spin")(&plan), 100) > 15.0, "a lock that restricts nobody");
}

#[test]
fn where_nobody_is_too_many_it_is_as_with_mcs() {
    let plan = one_in_three(2, &Tunables::DEFAULT);
    for (_, name, run) in &split(Claim::Restricts)[0] {
        let wait = name.split_once(':').expect("a wait").1;
        let (history, mcs) = (run(&plan), of(&format!("mcs:{wait}"))(&plan));
        let ratio = history.len() as f64 / mcs.len() as f64;
        // Who pops a stack in which somebody sleeps wakes him.
        let least = if *name == "lifo-cr:wait=park" { 0.96 } else { 0.99 };
        assert!((least..1.01).contains(&ratio), "{name}: {ratio}");
        assert_eq!(working_set(&history, 50), 2.0, "{name}");
        let counts = counts(&history, 2);
        assert!(counts.iter().max().unwrap() * 10 <= counts.iter().min().unwrap() * 11, "{name}: {counts:?}");
    }
}

/// For how long the lock was free, at most, while somebody waited who had come before, in ns.
fn longest_idle(history: &[Had]) -> u64 {
    let gap = |at: usize| {
        let free = history[at].end;
        let waited = history[at + 1..].iter().any(|had| had.asked < free);
        if waited { history[at + 1].begin - free } else { 0 }
    };
    (0..history.len().saturating_sub(1)).map(gap).max().unwrap_or(0)
}

/// Locks whose waiters go away, and look again by themselves: nobody tells them that the lock is free.
const BACK_OFF: [&str; 3] = ["tas", "hbo", "c-bo-mcs"];

#[test]
fn no_lock_is_free_while_somebody_waits() {
    for (threads, outside) in [(2, 500), (3, 20_000), (8, 40_000), (16, 0)] {
        let plan = Plan { outside, ..busy(threads, 4, &Tunables::DEFAULT) };
        for (lock, name, run) in all() {
            let idle = longest_idle(&run(&plan));
            // Whoever was asleep is awake by then, after 17 us; whoever took a break, of 1 ms at most, has ended it.
            let bound = if BACK_OFF.contains(&lock.name) { 1_100_000 } else { 50_000 };
            assert!(idle < bound, "{name}, {threads} threads: free for {idle} ns");
        }
    }
}
