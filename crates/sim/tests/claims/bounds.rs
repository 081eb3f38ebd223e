//! Locks whose row says *bounded* keep the bound that their page states, for sections of any length, and the kernel
//! patch keeps its own. Locks without a bound break it.

use flashlock_locks::catalogue::{Claim, LockInfo, OptionId};
use flashlock_locks::machine::{Machine, Tunables};
use flashlock_locks::parts::policy::{Admission, GroupByRole, Place, Waiter};
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_locks::rw::ShflRw;
use proptest::array::uniform3;
use proptest::prelude::*;

use crate::runs::{Had, MS, Plan, SHORT, bounded_rw, busy, of, run_rw, split};
use crate::{JOINING, NONE, drawn, drawn_in_groups, longest_wait, plan_of};

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
    #![proptest_config(drawn_in_groups(6))]

    /// Sections of 0.01 to 100 bounds. The limit with n other threads: (n + 2) sections, bounds and wake-ups.
    #[test]
    fn the_bound_holds_for_sections_of_any_length(plans in uniform3((1_u64..=8, 0.0_f64..=4.0, 0_u32..100_000))) {
        for (number, (lock, name, run)) in split(Claim::Bounded)[0].iter().enumerate() {
            let &(others, length, outside) = plan_of(&plans, number);
            let plan = at_length(others, in_bounds(length), outside, &IN_TURN);
            let history = run(&plan);
            let (longest, most) = (longest_wait(&history), mutex_limit(lock, others, plan.nodes, &history));
            prop_assert!(longest <= most, "{name}: {longest} of {most} us, {others} others, {plan:?}");
        }
    }
}

proptest! {
    #![proptest_config(drawn_in_groups(3))]

    /// The same for waiters that sleep, with so many others that a turn comes later than any of them sleeps at a time.
    #[test]
    fn the_bound_holds_for_many_sleepers(plans in uniform3((60_u64..=100, 2.0_f64..=3.0, 0_u32..100_000))) {
        let bounded = split(Claim::Bounded);
        let sleep = bounded[0].iter().filter(|(_, name, _)| !name.ends_with(":wait=spin"));
        for (number, (lock, name, run)) in sleep.enumerate() {
            let &(others, length, outside) = plan_of(&plans, number);
            let mut plan = at_length(others, in_bounds(length), outside, &IN_TURN);
            plan.until /= 2;
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
    fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        GroupByRole::place(shuffler, waiter)
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
    #![proptest_config(drawn_in_groups(48))]

    /// The same for readers-writer locks, with any number of writers among the threads.
    #[test]
    fn the_bound_of_readers_and_writers_holds_for_sections_of_any_length(
        plans in uniform3((1_u64..=8, 0_u32..=9, 0.0_f64..=4.0, 0_u32..100_000, any::<bool>())),
    ) {
        for (number, (_, name, run)) in bounded_rw()[0].iter().enumerate() {
            let &(others, writers, length, outside, restless) = plan_of(&plans, number);
            let plan = at_length(others, in_bounds(length), outside, if restless { &RESTLESS } else { &AS_USUAL });
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

/// The head of the queue looks at waiters that come while the lock is busy, too: it culls the one on the other
/// node as soon as another one is behind it.
#[test]
fn a_head_goes_on_looking_while_the_lock_is_busy() {
    let come = vec![0, 1_000, 2_000, 5_000, 8_000];
    let plan = Plan { come, inside: 40_000, rounds: 1, ..busy(5, 1, kernel_rule(1_000)) };
    let history = of("qspin-cna:wait=spin")(&plan);
    let served: Vec<_> = history.iter().map(|had| (had.thread, had.node == history[2].node)).collect();
    // The first holds the lock, the second is PENDING, the third is the head.
    assert_eq!(served, [(0, true), (1, false), (2, true), (4, true), (3, false)]);
}

#[test]
fn without_a_threshold_the_kernels_bound_breaks() {
    let plan = Plan { nodes: 4, inside: 2_000, outside: 0, ..busy(16, 20, kernel_rule(0)) };
    let (wait, most) = kernel_bound(&plan, 100);
    assert!(wait > most, "{wait} of {most} ns");
}

/// Sleepers of the default lock get up by themselves before their turn if sections are long, and lose their place. They
/// have their turn all the same.
#[test]
fn who_gets_up_before_its_turn_does_not_wait_for_two() {
    for (others, length) in [(40, 2.2), (40, 2.6)] {
        let history = of("flash:wait=stp")(&at_length(others, in_bounds(length), 0, &IN_TURN));
        let mut waits: Vec<_> = history.iter().map(|had| (had.begin - had.asked) / 1_000).collect();
        waits.sort_unstable();
        // Most waits are those of the few that have the lock again and again.
        let (turn, longest) = (waits[waits.len() * 9 / 10], waits[waits.len() - 1]);
        assert!(2 * longest <= 3 * turn, "{longest} us, a turn comes after {turn}; {others} others, {length}");
    }
}
