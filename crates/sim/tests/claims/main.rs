//! Checks the catalogue's claims about its locks, on simulated machines. Each lock, with each way of waiting, keeps
//! what its row promises. A lock that does not promise it breaks it, which shows that the check can fail.

mod bounds;
mod broken;
#[path = "../common/mod.rs"]
mod common;
mod runs;

use broken::Naps;
use common::{ROUNDS, is_full};
use flashlock_locks::catalogue::{Claim, LockInfo, OptionId};
use flashlock_locks::machine::Tunables;
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::wait::Spin;
use proptest::array::uniform3;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use runs::{Had, Plan, SHORT, all, arrivals, busy, of, run, split};

/// The number of random plans. They are the same in each run: what fails on one host fails on all.
fn drawn(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(6), failure_persistence: None, ..ProptestConfig::default() }
}

/// The same in groups: of each, a lock has one plan, and the next lock the next one. In full, each lock has as many
/// plans as there would be otherwise.
fn drawn_in_groups(cases: u32) -> ProptestConfig {
    drawn(if is_full() { cases } else { cases.div_ceil(ROUNDS as u32) })
}

/// The plan of the lock with this number.
fn plan_of<T>(group: &[T; ROUNDS], lock: usize) -> &T {
    &group[lock % ROUNDS]
}

/// The maximum time to join a queue, in ns. Threads that ask within this time of each other may be served in either
/// order.
const JOINING: u64 = 2_000;

/// Whether threads are served in the order in which they asked.
fn in_order(history: &[Had]) -> bool {
    let mut last = 0;
    history.iter().all(|had| {
        last = last.max(had.asked);
        had.asked + JOINING > last
    })
}

/// How often at most a waiting thread was passed by the same other thread.
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

proptest! {
    #![proptest_config(drawn(12))]

    #[test]
    fn who_comes_first_is_served_first(
        breaks in prop::collection::vec(0_u64..20_000, 2..15),
        long in 300_000_u32..900_000,
    ) {
        for (_, name, run) in &split(Claim::InOrder)[0] {
            let history = run(&arrivals(&breaks, long));
            prop_assert!(in_order(&history), "{name}: {history:?}");
        }
    }

    #[test]
    fn nobody_is_passed_over_by_the_same_thread_again(
        threads in 2_u64..=16,
        inside in 200_u32..3_000,
        outside in 0_u32..3_000,
    ) {
        let plan = Plan { inside, outside, ..busy(threads, 1, &Tunables::DEFAULT) };
        for (_, name, run) in &split(Claim::InOrder)[0] {
            // Once by a thread that asked a moment later, and joined a moment sooner.
            let most = most_bypasses(&run(&plan));
            prop_assert!(most <= 2, "{name}: {most}");
        }
    }
}

#[test]
fn a_stack_does_not_serve_in_order() {
    assert!(!in_order(&of("lifo-cr:wait=spin")(&arrivals(&[0; 10], 600_000))));
}

#[test]
fn a_lock_that_prefers_some_passes_others_over() {
    for threads in [5, 16] {
        let most = most_bypasses(&of("mcscr:wait=spin")(&busy(threads, 2, &Tunables::DEFAULT)));
        assert!(most > 2, "{threads} threads: {most}");
    }
}

/// How often each thread had the lock.
fn counts(history: &[Had], threads: u64) -> Vec<usize> {
    (0..threads as u32).map(|thread| history.iter().filter(|had| had.thread == thread).count()).collect()
}

/// Bounds so large that they do not matter in a run of some ms.
const NONE: Tunables = Tunables {
    bound_us: 10_000_000,
    eldest: 1_000_000_000,
    passes: 1_000_000_000,
    threshold: 1_000_000_000,
    flush: 31,
    stay_us: 0,
    ..Tunables::DEFAULT
};

proptest! {
    #![proptest_config(drawn_in_groups(3))]

    #[test]
    fn everybody_is_served(plans in uniform3((4_u64..=16, 300_u32..1_500, 0_u32..1_500))) {
        for (number, (_, name, run)) in split(Claim::Serves)[0].iter().enumerate() {
            let &(threads, inside, outside) = plan_of(&plans, number);
            let counts = counts(&run(&Plan { inside, outside, ..busy(threads, 24, &SHORT) }), threads);
            prop_assert!(counts.iter().all(|&count| count >= 3), "{name}: {counts:?}");
        }
    }
}

#[test]
fn a_stack_without_the_eldests_turn_serves_a_few() {
    let counts = counts(&of("lifo-cr:wait=spin")(&busy(16, 24, &NONE)), 16);
    assert!(counts.iter().any(|&count| count < 3), "{counts:?}");
}

/// The longest wait, in us.
fn longest_wait(history: &[Had]) -> u64 {
    history.iter().map(|had| had.begin - had.asked).max().unwrap_or(0) / 1_000
}

#[test]
fn nobody_waits_for_longer_than_the_bounds_of_all() {
    const THREADS: u64 = 16;
    const FEW: Tunables = Tunables { max_shuffles: 4, ..SHORT };
    let plan = busy(THREADS, 12, &FEW);
    // A bound, and the section that ends it, for each waiter; and again for each waiter that a shuffler may put before
    // one of them.
    let most = |shuffles: u32| THREADS * (1 + u64::from(shuffles)) * (u64::from(FEW.bound_us) + 2);
    for (lock, name, run) in &split(Claim::Bounded)[0] {
        let longest = longest_wait(&run(&plan));
        let most = most(if lock.options.contains(&OptionId::Shuffles) { FEW.max_shuffles } else { 0 });
        // A thread that contends for a word polls before it sleeps, and takes time to wake up: say half a bound for
        // each.
        let most = if lock.claims.contains(&Claim::Twice) { 2 * most } else { most };
        assert!(longest < most, "{name}: {longest} us");
    }
    let longest = longest_wait(&of("lifo-cr:wait=spin")(&Plan { tunables: &NONE, ..plan }));
    assert!(longest > most(FEW.max_shuffles), "a lock that lets some wait for ever: {longest} us");
}

/// The numbers of consecutive turns on one NUMA node.
fn stays(history: &[Had]) -> Vec<usize> {
    history.chunk_by(|a, b| a.node == b.node).map(<[Had]>::len).collect()
}

fn mean_stay(history: &[Had]) -> f64 {
    history.len() as f64 / stays(history).len() as f64
}

fn longest_stay(history: &[Had]) -> usize {
    stays(history).into_iter().max().unwrap_or(0)
}

/// How many consecutive turns on one NUMA node a lock allows, if one of its options limits them.
fn most_in_a_stay(lock: &LockInfo, tunables: &Tunables) -> Option<usize> {
    let takes = |option| lock.options.contains(&option);
    // The rest of a stay that was under way when the other node's first thread came, and a new stay.
    let counted = |bound: u32| 2 * bound as usize + 2;
    // A draw at each hand-off: the probability of so long a stay by chance is e^-16.
    let drawn = |bound: u32| 16 * bound as usize;
    match () {
        // Any node may get the global lock: perhaps the same one again.
        () if !lock.claims.contains(&Claim::Serves) => None,
        () if takes(OptionId::Passes) => Some(counted(tunables.passes)),
        () if takes(OptionId::Flush) => Some(counted(1 << tunables.flush)),
        () if takes(OptionId::Threshold) => Some(drawn(tunables.threshold)),
        () if takes(OptionId::Eldest) => Some(drawn(tunables.eldest)),
        () => None,
    }
}

/// A lock with a secondary queue for sleeping waiters, with all waiters asleep: none is left for a hand-off within the
/// node.
const ASLEEP: &str = "cst:wait=park";

proptest! {
    #![proptest_config(drawn_in_groups(3))]

    #[test]
    fn hand_overs_stay_on_a_node_until_the_bound(plans in uniform3((14_u64..=16, 800_u32..1_500, 0_u32..500))) {
        let some = &split(Claim::Local)[0];
        for (number, (lock, name, run)) in some.iter().filter(|(_, name, _)| *name != ASLEEP).enumerate() {
            let &(threads, inside, outside) = plan_of(&plans, number);
            let plan = Plan { inside, outside, ..busy(threads, 4, &SHORT) };
            let history = run(&plan);
            let (mean, longest) = (mean_stay(&history), longest_stay(&history));
            prop_assert!(mean > 3.0, "{name}: {mean} on one node at a time");
            if let Some(most) = most_in_a_stay(lock, &SHORT) {
                prop_assert!(longest <= most, "{name}: {longest} on one node");
                let without = longest_stay(&run(&Plan { tunables: &NONE, ..plan.clone() }));
                prop_assert!(without > most, "{name}, which has no bound now: {without} on one node");
            }
            if lock.claims.contains(&Claim::Serves) {
                prop_assert!(stays(&history).len() >= 4, "{name}: the other node's turn never comes");
            }
        }
    }
}

#[test]
fn a_lock_that_does_not_look_at_nodes_goes_from_one_to_the_other() {
    let plan = busy(16, 4, &SHORT);
    for name in ["mcs:wait=spin", ASLEEP] {
        let fair = mean_stay(&of(name)(&plan));
        assert!(fair < 3.0, "{name}: {fair}");
    }
}

/// A third of the time inside: three threads keep the lock busy.
fn one_in_three(threads: u64, tunables: &'static Tunables) -> Plan {
    Plan { inside: 1_000, outside: 2_000, ..busy(threads, 4, tunables) }
}

/// The number of distinct threads in so many acquisitions, on average.
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

proptest! {
    #![proptest_config(drawn(3))]

    #[test]
    fn few_take_turns_where_few_are_enough(threads in 10_u64..=16, inside in 700_u32..2_000) {
        let plan = Plan { inside, outside: 2 * inside, ..busy(threads, 4, &Tunables::DEFAULT) };
        for (_, name, run) in &split(Claim::Restricts)[0] {
            let set = working_set(&run(&plan), 100);
            prop_assert!((3.0..8.0).contains(&set), "{name}: {set} threads of {threads}");
        }
    }
}

#[test]
fn a_queue_restricts_nobody() {
    assert!(working_set(&of("mcs:wait=spin")(&one_in_three(16, &Tunables::DEFAULT)), 100) > 15.0);
}

/// A lock compared with MCS that waits in the same way, where two threads are not too many: the ratio of their
/// sections.
fn beside_mcs(run: impl Fn(&Plan) -> Vec<Had>, wait: &str) -> (f64, Vec<Had>) {
    let plan = one_in_three(2, &Tunables::DEFAULT);
    let (history, mcs) = (run(&plan), of(&format!("mcs:{wait}"))(&plan));
    (history.len() as f64 / mcs.len() as f64, history)
}

#[test]
fn where_nobody_is_too_many_it_is_as_with_mcs() {
    for (_, name, run) in &split(Claim::Restricts)[0] {
        let wait = name.split_once(':').expect("a wait").1;
        let (ratio, history) = beside_mcs(run, wait);
        // Popping a stack with a sleeping waiter costs a wake-up, and fetches the waiter's line from another node.
        let least = if *name == "lifo-cr:wait=park" { 0.85 } else { 0.98 };
        // Barging gains a little, and much where MCS puts threads to sleep.
        let most = if name.starts_with("loiter") { f64::INFINITY } else { 1.01 };
        assert!((least..most).contains(&ratio), "{name}: {ratio}");
        assert_eq!(working_set(&history, 50), 2.0, "{name}");
        let counts = counts(&history, 2);
        assert!(counts.iter().max().unwrap() * 10 <= counts.iter().min().unwrap() * 11, "{name}: {counts:?}");
    }
    let (ratio, _) = beside_mcs(run::<Naps<Mcs<Spin>, 2_000>>, "wait=spin");
    assert!(ratio < 0.96, "a lock whose waiters come late: {ratio}");
}

/// The longest time that the lock was free while a thread waited that had come before, in ns.
fn longest_idle(history: &[Had]) -> u64 {
    let gap = |at: usize| {
        let free = history[at].end;
        let waited = history[at + 1..].iter().any(|had| had.asked < free);
        if waited { history[at + 1].begin - free } else { 0 }
    };
    (0..history.len().saturating_sub(1)).map(gap).max().unwrap_or(0)
}

/// Locks whose waiters back off and look again by themselves: no thread notifies them that the lock is free.
const BACK_OFF: [&str; 3] = ["tas", "hbo", "c-bo-mcs"];
/// The waiter at the head of the queue naps for up to 400 us while the lock is hot, and is not notified when it cools
/// down.
const NAPS: [&str; 1] = ["flash"];
/// The release may take a polling thread for its successor just as that thread leaves.
const MISSES: [&str; 2] = ["loiter", "loiter-cna"];

/// The longest that a lock may be free. A sleeping waiter is awake by then, after 17 us, and a break, of at most 1 ms,
/// has ended.
fn longest_break(lock: &LockInfo) -> u64 {
    let late = BACK_OFF.iter().chain(&NAPS).chain(&MISSES);
    if late.into_iter().any(|name| *name == lock.name) { 1_100_000 } else { 50_000 }
}

proptest! {
    #![proptest_config(drawn_in_groups(6))]

    #[test]
    fn no_lock_is_free_while_somebody_waits(plans in uniform3((2_u64..=16, 200_u32..4_000, 0_u32..50_000))) {
        for (number, (lock, name, run)) in all().into_iter().enumerate() {
            let &(threads, inside, outside) = plan_of(&plans, number);
            let idle = longest_idle(&run(&Plan { inside, outside, ..busy(threads, 3, &Tunables::DEFAULT) }));
            prop_assert!(idle < longest_break(lock), "{name}: free for {idle} ns");
        }
    }
}

#[test]
fn a_lock_whose_waiters_nap_is_free_while_somebody_waits() {
    let plan = Plan { outside: 40_000, ..busy(8, 4, &Tunables::DEFAULT) };
    let idle = longest_idle(&run::<Naps<Mcs<Spin>, 200_000>>(&plan));
    assert!(idle > 50_000, "free for {idle} ns");
    let idle = longest_idle(&run::<Naps<Mcs<Spin>, 5_000_000>>(&plan));
    assert!(idle > 1_100_000, "free for {idle} ns");
}
