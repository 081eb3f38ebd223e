//! Checks the catalogue's claims about its locks, on simulated machines. Each lock, with each way of waiting, keeps
//! what its row promises. A lock that does not promise it breaks it, which shows that the check can fail.

mod broken;
mod runs;

use broken::Naps;
use flashlock_locks::catalogue::{Claim, LockInfo, OptionId};
use flashlock_locks::machine::node::Node;
use flashlock_locks::machine::{Machine, Tunables};
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::policy::{Admission, Place, RolesApart};
use flashlock_locks::parts::wait::{Spin, SpinThenPark};
use flashlock_locks::rw::ShflRw;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use runs::{Had, MS, Plan, Run, SHORT, all, arrivals, bounded_rw, busy, of, run, run_rw, split};

/// The number of random plans. They are the same in each run: what fails on one host fails on all.
fn drawn(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(6), failure_persistence: None, ..ProptestConfig::default() }
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
    #![proptest_config(drawn(3))]

    #[test]
    fn everybody_is_served(threads in 4_u64..=16, inside in 300_u32..1_500, outside in 0_u32..1_500) {
        let plan = Plan { inside, outside, ..busy(threads, 24, &SHORT) };
        for (_, name, run) in &split(Claim::Serves)[0] {
            let counts = counts(&run(&plan), threads);
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

/// A bound of 100 µs, and later threads are never put before others.
const IN_TURN: Tunables = Tunables { bound_us: 100, max_shuffles: 0, stay_us: 100, flush: 31, ..SHORT };
/// [`NONE`], with the bound by which limits are computed.
const WITHOUT: Tunables = Tunables { max_shuffles: 0, ..NONE };
/// The maximum time until a woken thread runs, in µs.
const WAKING: u64 = 150;
/// `shfl` stretches its bound to this many times the time that the lock stands still at hand-offs.
const STRETCHED: u64 = 8;

/// The length in ns of sections of a hundredth of a bound (0.0) to a hundred bounds (4.0).
fn in_bounds(length: f64) -> u32 {
    (1_000.0 * 10_f64.powf(length)) as u32
}

/// `others` and one more thread want the lock for sections of about `inside` ns, for a few times as long as a wait may
/// take.
fn at_length(others: u64, inside: u32, outside: u32, tunables: &'static Tunables) -> Plan {
    let until = 4_000 * limit(others, u64::from(inside) * 3 / 2_000, 2, STRETCHED * WAKING);
    Plan { inside, outside, until, ..busy(others + 1, 1, tunables) }
}

/// The limit (µs) of a wait among `others`: (n + 2) times a bound, `sections` sections, and what it may be late.
fn limit(others: u64, section: u64, sections: u64, late: u64) -> u64 {
    (others + 2) * (sections * section + u64::from(IN_TURN.bound_us) + late)
}

/// The longest section, in µs.
fn longest_section(history: &[Had]) -> u64 {
    history.iter().map(|had| had.end - had.begin).max().unwrap_or(0) / 1_000
}

/// The limit that a mutex's page states for these acquisitions, in µs.
fn mutex_limit(lock: &LockInfo, others: u64, nodes: u64, history: &[Had]) -> u64 {
    if lock.options.contains(&OptionId::Stay) {
        let turn = longest_section(history) + WAKING;
        return (nodes - 1) * (u64::from(IN_TURN.stay_us) + 2 * turn) + (others + 1) * turn;
    }
    let sections = if lock.claims.contains(&Claim::Twice) { 2 } else { 1 };
    let late = if lock.options.contains(&OptionId::Ahead) { STRETCHED * WAKING } else { WAKING };
    limit(others, longest_section(history), sections, late)
}

proptest! {
    #![proptest_config(drawn(6))]

    /// Sections of 0.01 to 100 bounds. The limit with n other threads: (n + 2) sections, bounds and wake-ups.
    #[test]
    fn the_bound_holds_for_sections_of_any_length(
        others in 1_u64..=8,
        length in 0.0_f64..=4.0,
        outside in 0_u32..100_000,
    ) {
        let plan = at_length(others, in_bounds(length), outside, &IN_TURN);
        for (lock, name, run) in &split(Claim::Bounded)[0] {
            let history = run(&plan);
            let (longest, most) = (longest_wait(&history), mutex_limit(lock, others, plan.nodes, &history));
            prop_assert!(longest <= most, "{name}: {longest} of {most} us, {others} others, {plan:?}");
        }
    }
}

#[test]
fn a_stack_keeps_no_bound_for_sections_of_any_length() {
    for length in [0.0, 2.0, 4.0] {
        let plan = at_length(8, in_bounds(length), 0, &WITHOUT);
        let history = of("lifo-cr:wait=spin")(&plan);
        let (longest, most) = (longest_wait(&history), limit(8, longest_section(&history), 2, STRETCHED * WAKING));
        assert!(longest > most, "{longest} of {most} us, {plan:?}");
    }
}

/// The limit that the page of a readers-writer lock states, in µs, if so many readers have passed a waiting writer.
fn rw_limit(name: &str, others: u64, history: &[Had], passed: u64) -> u64 {
    let section = longest_section(history);
    // A head that polls looks at the clock only now and then.
    let waking = if name.ends_with(":wait=spin") { 5_000 } else { WAKING };
    // A writer first waits until the readers have left the counters, and a reader may first make these.
    let (sections, waking, late) = if name.starts_with("cst-rw") { (4, 2 * waking, 1_100) } else { (2, waking, 0) };
    limit(others, section, sections, waking) + passed * section + 2 * u64::from(IN_TURN.bound_us) + late
}

/// The same, but as many waiters may be put before others as users have it.
const AS_USUAL: Tunables = Tunables { max_shuffles: Tunables::DEFAULT.max_shuffles, ..IN_TURN };
/// The same, but readers use distributed counters as soon as two have met, and for a few writers only.
const RESTLESS: Tunables = Tunables { meetings: 1, writers: 20, ..AS_USUAL };

/// The policy of readers-writer locks, but a waiter never insists on its place.
struct Meek;

impl Admission for Meek {
    fn place<M: Machine>(shuffler: &Node<M>, waiter: &Node<M>) -> Place {
        RolesApart::place(shuffler, waiter)
    }
}

/// Behind eight writers, a reader that does not insist waits for far longer than the limit.
#[test]
fn a_reader_that_does_not_insist_waits_for_all_writers() {
    let plan = Plan { until: 400 * MS, ..at_length(8, 200_000, 0, &AS_USUAL) };
    let longest = |(history, passed): (Vec<Had>, u64)| {
        (longest_wait(&history), rw_limit("shfl-rw:wait=stp", 8, &history, passed))
    };
    let (meek, most) = longest(run_rw::<ShflRw<SpinThenPark, Meek>>(&plan, 8));
    assert!(meek > most, "a control: {meek} of {most} us");
    let (insists, most) = longest(run_rw::<ShflRw<SpinThenPark>>(&plan, 8));
    assert!(insists <= most, "{insists} of {most} us");
}

proptest! {
    #![proptest_config(drawn(48))]

    /// The same for readers-writer locks, with any number of writers among the threads.
    #[test]
    fn the_bound_of_readers_and_writers_holds_for_sections_of_any_length(
        others in 1_u64..=8,
        writers in 0_u32..=9,
        length in 0.0_f64..=4.0,
        outside in 0_u32..100_000,
        restless in any::<bool>(),
    ) {
        let plan = at_length(others, in_bounds(length), outside, if restless { &RESTLESS } else { &AS_USUAL });
        for (_, name, run) in &bounded_rw()[0] {
            let (history, passed) = run(&plan, writers.min(others as u32 + 1));
            let (longest, most) = (longest_wait(&history), rw_limit(name, others, &history, passed));
            prop_assert!(longest <= most, "{name}: {longest} of {most} us, {others} others, {passed} passed, {plan:?}");
        }
    }
}

/// Readers that come back again and again, in sections so long that a thousand bounds are not much: the limit of the
/// page holds only with the sections of all readers that have passed.
#[test]
fn readers_of_long_sections_keep_a_writer_out() {
    let (others, inside) = (15, 200 * 100_000);
    let plan = Plan { until: 8_000 * MS, ..at_length(others, inside, 0, &IN_TURN) };
    for (_, name, run) in bounded_rw()[0].iter().filter(|(_, name, _)| *name == "shfl-rw:wait=stp") {
        let (history, passed) = run(&plan, 1);
        let (longest, most) = (longest_wait(&history), rw_limit(name, others, &history, 0));
        assert!(passed > 0 && longest > most, "{name}: {longest} of {most} us, {passed} passed");
    }
}

/// A writer among readers of sections longer than the time after which a head counts as idle. An evicted head that was
/// about to sleep on the counter once slept there when all others had finished: the next head had cleared its flag.
#[test]
fn no_writer_is_forgotten_behind_readers_of_long_sections() {
    let plan = Plan { until: 100 * MS, ..at_length(12, 110 * 100_000, 0, &IN_TURN) };
    for (_, _, run) in &bounded_rw()[0] {
        run(&plan, 1);
    }
}

/// A lock whose readers pass writers without bound: the one writer waits until the readers stop.
#[test]
fn readers_that_pass_writers_keep_no_bound() {
    for length in [0.0, 2.0, 4.0] {
        let plan = at_length(8, in_bounds(length), 0, &IN_TURN);
        for (_, name, run) in &bounded_rw()[1] {
            let (history, passed) = run(&plan, 1);
            let (longest, most) = (longest_wait(&history), rw_limit("shfl-rw:wait=park", 8, &history, passed));
            assert!(longest > most, "{name}: {longest} of {most} us, {plan:?}");
        }
    }
}

/// The longest wait under the kernel patch's rule with this threshold, and the limit by the proof in the patch, in ns.
/// With a longest turn s, N nodes and at most w predecessors, the limit is (N - 1)(T + 2s) + (w + 1)s.
fn kernel_bound(plan: &Plan, threshold_us: u32) -> (u64, u64) {
    let history = of("qspin-cna:wait=spin")(plan);
    let turn = history.windows(2).map(|pair| pair[1].begin - pair[0].begin).max().unwrap_or(0);
    let wait = history.iter().map(|had| had.begin - had.asked).max().unwrap_or(0);
    // The clock counts microseconds, and a thread that asks has not joined yet.
    let threshold = 1_000 * (u64::from(threshold_us) + 1);
    (wait, (plan.nodes - 1) * (threshold + 2 * turn) + plan.come.len() as u64 * turn + JOINING)
}

/// The kernel patch's rule with a threshold.
fn kernel_rule(stay_us: u32) -> &'static Tunables {
    Box::leak(Box::new(Tunables { incremental: 2, stay_us, flush: 31, ..Tunables::DEFAULT }))
}

proptest! {
    #![proptest_config(drawn(24))]

    /// Thresholds of 1 µs to 3 ms, and sections from a thousandth of that to a thousand times as much.
    #[test]
    fn the_kernels_bound_holds(
        threads in 2_u64..=16,
        nodes in prop::sample::select(vec![2_u64, 4]),
        stay in 0.0_f64..=3.5,
        length in -3.0_f64..=3.0,
        outside in 0_u32..20_000,
    ) {
        let threshold = 10_f64.powf(stay) as u32;
        let inside = (10_f64.powf(stay + length) * 1_000.0).clamp(50.0, 2e7) as u32;
        let until = (u64::from(inside) * 60).max(u64::from(threshold) * 20_000).min(400 * MS);
        let plan = Plan { inside, outside, until, nodes, rounds: 1_000, ..busy(threads, 1, kernel_rule(threshold)) };
        let (wait, most) = kernel_bound(&plan, threshold);
        prop_assert!(wait <= most, "{wait} of {most} ns, threshold {threshold} us, sections of {inside} ns");
    }
}

#[test]
fn without_a_threshold_the_kernels_bound_breaks() {
    let plan = Plan { nodes: 4, inside: 2_000, outside: 0, ..busy(16, 20, kernel_rule(0)) };
    let (wait, most) = kernel_bound(&plan, 100);
    assert!(wait > most, "{wait} of {most} ns");
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
    #![proptest_config(drawn(3))]

    #[test]
    fn hand_overs_stay_on_a_node_until_the_bound(
        threads in 14_u64..=16,
        inside in 800_u32..1_500,
        outside in 0_u32..500,
    ) {
        let plan = Plan { inside, outside, ..busy(threads, 4, &SHORT) };
        for (lock, name, run) in split(Claim::Local)[0].iter().filter(|(_, name, _)| *name != ASLEEP) {
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
fn beside_mcs(run: Run, wait: &str) -> (f64, Vec<Had>) {
    let plan = one_in_three(2, &Tunables::DEFAULT);
    let (history, mcs) = (run(&plan), of(&format!("mcs:{wait}"))(&plan));
    (history.len() as f64 / mcs.len() as f64, history)
}

#[test]
fn where_nobody_is_too_many_it_is_as_with_mcs() {
    for (_, name, run) in &split(Claim::Restricts)[0] {
        let wait = name.split_once(':').expect("a wait").1;
        let (ratio, history) = beside_mcs(*run, wait);
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
    #![proptest_config(drawn(6))]

    #[test]
    fn no_lock_is_free_while_somebody_waits(threads in 2_u64..=16, inside in 200_u32..4_000, outside in 0_u32..50_000) {
        let plan = Plan { inside, outside, ..busy(threads, 3, &Tunables::DEFAULT) };
        for (lock, name, run) in all() {
            let idle = longest_idle(&run(&plan));
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
