//! The experimental variant of the series (`numa_spinlock=shuffle`), held to the gates that CNA is held to.

use anyhow::{Context, Result};

use super::build::Bench;
use super::gates::{self, NESTED, SPIN, URGENT, check, image, levels, shares, sound, tortured, within_bound};
use super::guest::{Boot, CPUS, Layout};
use super::judge::Console;
use super::mutants::complaint;
use crate::edit::Edit;
use crate::steps::Tally;

const SHFL: &str = "kernel/locking/qspinlock_shfl.h";
const SHUFFLES: &str = "numa_spinlock=shuffle";

/// What the kernel prints when the variant is in use.
const IN_USE: &str = "numa_spinlock: waiters of the same NUMA node first, for up to 1000 us, by shuffling";

/// In the machine of two CPUs on a node, one of them is the tail when the other one hands over, and the tail is never
/// moved: no more than half of all hand-offs can stay.
const LEAST_SHARE: f64 = 45.0;

/// In µs.
const THRESHOLDS: [u64; 2] = [300, 1000];

/// How long a waiter may wait, in ns (`qspinlock_shfl.h`): each of the others may be before it, and in the queue.
fn longest_wait(threshold: u64, turn: u64) -> u64 {
    let others = CPUS as u64 - 1;
    threshold.saturating_add(turn.saturating_mul(others + 2)).saturating_mul(others)
}

pub(crate) fn run(bench: &Bench) -> Result<Tally> {
    let image = image(bench)?;
    let mut tally = Tally::default();

    let plan = format!("{SPIN}{URGENT}nest nest 5\n");
    let console = Boot::new("shuffle", SHUFFLES, &plan).run(bench, &image)?;
    tally += sound(&console, &[]);
    tally += check("shuffle: it is in use", console.says(IN_USE), IN_USE);
    for name in ["spin", "irq", "fifo"] {
        tally += tortured(&format!("shuffle {name}"), &console.run(name));
    }
    tally += shares("shuffle: hand-offs stay on a node", &console.run("spin"), |share| share >= LEAST_SHARE);
    let moved = console.run("spin").event("shfl_move");
    tally += check("shuffle: waiters are moved", moved > 1000, format!("{moved} moved"));
    for name in ["irq", "fifo"] {
        let moved = console.run(name).event("shfl_move");
        // Others than the writers wait, too, but seldom.
        tally += check(format!("shuffle {name}: nobody passes urgent waiters"), moved <= 10, format!("{moved} moved"));
    }
    tally += levels("shuffle", &console.run("nest"), &NESTED);

    for threshold in THRESHOLDS {
        for (layout, suffix) in [(Layout::Interleaved, ""), (Layout::Crowded, "-crowded")] {
            let console = bound_boot(&format!("shuffle-{threshold}{suffix}"), threshold, layout, bench, &image)?;
            tally += sound(&console, &[]);
            tally += within_bound(&console, threshold, longest_wait);
        }
    }
    tally += gates::unplugged("shuffle-hotplug", (SHUFFLES, IN_USE, "shfl_move"), bench, &image)?;
    tally += mutants(bench)?;
    Ok(tally)
}

fn bound_boot(
    name: &str,
    threshold: u64,
    layout: Layout,
    bench: &Bench,
    image: &super::build::Image,
) -> Result<Console> {
    let mut boot = gates::bound_boot(name, threshold, layout);
    boot.append = format!("{SHUFFLES} {}", boot.append);
    boot.run(bench, image)
}

/// How a fault is detected.
enum Finds {
    /// The kernel or the torture complains, or the guest does not come to its end.
    Torture,
    /// A thread waits for longer than the bound.
    Bound,
    /// Urgent waiters are passed.
    Urgent,
    /// Hand-offs do not stay on a node.
    Share,
}

const MUTANTS: &[(&str, Edit, Finds)] = &[
    (
        "the tail is moved, too",
        Edit {
            file: SHFL,
            from: "&& (next = READ_ONCE(waiter->next))) {",
            to: "&& ((next = READ_ONCE(waiter->next)), true)) {",
        },
        Finds::Torture,
    ),
    (
        "those behind a moved waiter are lost",
        Edit { file: SHFL, from: "WRITE_ONCE(prev->next, next);", to: "WRITE_ONCE(prev->next, last->next);" },
        Finds::Torture,
    ),
    (
        "a batch never ends",
        Edit { file: SHFL, from: "if ((s64)(local_clock() - deadline) >= 0) {", to: "if (!deadline) {" },
        Finds::Bound,
    ),
    (
        "urgent waiters are like others",
        Edit {
            file: "kernel/locking/qspinlock_cna.h",
            from: "urgent ? CNA_URGENT : numa_node_id()",
            to: "urgent ? numa_node_id() : numa_node_id()",
        },
        Finds::Urgent,
    ),
    (
        "waiters on other nodes are preferred",
        Edit { file: SHFL, from: "if (nid != home && nid", to: "if (nid == home && nid" },
        Finds::Share,
    ),
];

fn mutants(bench: &Bench) -> Result<Tally> {
    let mut tally = Tally::default();
    for (name, edit, finds) in MUTANTS {
        let image = match bench.image("", &[*edit]) {
            Ok(image) => image.context("no image")?,
            // The others are tried all the same.
            Err(error) => {
                tally += check(format!("built: {name}"), false, format!("{error:#}"));
                continue;
            }
        };
        let boot = |plan: &str| Boot::new("shuffle-mutant", SHUFFLES, plan).run(bench, &image);
        let found = match finds {
            Finds::Torture => complaint(&boot(SPIN)?),
            Finds::Bound => {
                let threshold = THRESHOLDS[0];
                let console = bound_boot("shuffle-mutant", threshold, Layout::Crowded, bench, &image)?;
                complaint(&console).or_else(|| {
                    let failed = within_bound(&console, threshold, longest_wait).failed;
                    (failed > 0).then(|| format!("{failed} waits beyond the bound"))
                })
            }
            Finds::Urgent => {
                let console = boot("torture irq 5 torture_type=spin_lock_irq\n")?;
                let moved = console.run("irq").event("shfl_move");
                complaint(&console).or_else(|| (moved > 10).then(|| format!("{moved} moved")))
            }
            Finds::Share => {
                let console = boot(SPIN)?;
                let share = console.run("spin").share();
                complaint(&console).or_else(|| (share < LEAST_SHARE).then(|| format!("{share:.2} % on a node")))
            }
        };
        let found_out = found.is_some();
        tally += check(format!("caught: {name}"), found_out, found.unwrap_or_else(|| "nothing was noticed".to_owned()));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_counts_those_before() {
        assert_eq!(longest_wait(1000, 0), 7000);
        assert_eq!(longest_wait(0, 10), 7 * 90);
    }
}
