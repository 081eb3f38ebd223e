//! The demonstration's result, for people.

use flashlock_report::{table, units};

use super::{Demo, PAIRS, Verdict, median};
use crate::screen::{HEADING, paragraph, styled};

/// A small table, and what it says and does not say.
pub(super) fn render(demo: &Demo, width: u16) -> String {
    let mut table = table::new(["lock", "ops/ms", "vs glibc", "longest wait", "context switches", "CPU time"], width);
    table::numbers(&mut table, 1..6);
    let ratio = median(demo.ratios.clone());
    for (side, ratio) in demo.sides.iter().zip([1.0, ratio]) {
        table.add_row([
            side.lock.clone(),
            units::significant(side.ops_per_ms),
            proportion(ratio),
            units::nanoseconds(side.longest_wait_ns),
            units::count(side.context_switches),
            units::nanoseconds(side.cpu_ns),
        ]);
    }
    let machine = &demo.provenance.machine;
    let heading = format!(
        "One hot mutex, {} on {}",
        units::counted(u64::from(demo.threads), "thread"),
        units::counted(machine.usable_cpus as u64, "CPU")
    );
    format!(
        "{}\n{}\n{}\n{}",
        styled(HEADING, &heading),
        table::text(&table),
        paragraph(&verdict(demo), width),
        paragraph(&caveat(demo), width),
    )
}

fn verdict(demo: &Demo) -> String {
    let name = &demo.sides[1].lock;
    let spread = |pick: fn(f64, f64) -> f64| demo.ratios.iter().copied().reduce(pick).unwrap_or(1.0);
    let (low, high) = (spread(f64::min), spread(f64::max));
    let range = format!("{} to {} times glibc's in {PAIRS} pairs", proportion(low), proportion(high));
    let work = match demo.verdict {
        Verdict::More => format!("Under {name} the threads got more done: {range}."),
        Verdict::Less => format!("Under {name} the threads got less done: {range}."),
        Verdict::NoDifference => format!("How much got done shows no difference beyond the noise: {range}."),
    };
    let [glibc, ours] = &demo.sides;
    let cost = ours.cpu_ns as f64 / ours.ops_per_ms.max(1e-9) / (glibc.cpu_ns as f64 / glibc.ops_per_ms.max(1e-9));
    format!("{work} An operation took {} times the CPU time.", proportion(cost))
}

/// A ratio that stays readable when it is far from one.
fn proportion(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.4}") } else { units::significant(ratio) }
}

fn caveat(demo: &Demo) -> String {
    let nodes = match demo.provenance.machine.numa_nodes {
        Some(1) => " This machine has one NUMA node, so nothing is seen of what a lock does for several.",
        _ => "",
    };
    let build = if cfg!(debug_assertions) {
        " This flashlock was built without optimisation: build it with --release."
    } else {
        ""
    };
    format!(
        "This is the worst case for a mutex and nobody's program: one mutex, hardly any work outside it. A program whose \
         mutexes are rarely contended will see no difference.{nodes}{build} Look at yours: flashlock run --stats -- PROGRAM"
    )
}
