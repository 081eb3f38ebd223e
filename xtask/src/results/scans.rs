//! How a head of the kernel's lock looks for a waiter of its NUMA node: the ways that were proposed, and that of the
//! series in `kernel/`, on the machine that the published series was measured on. All of it is simulated.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flashlock_report::provenance::Provenance;
use flashlock_report::results::Results;

use super::origin;
use crate::child::Program;
use crate::workspace;

pub(crate) const NAME: &str = "scans";

/// The kernel's lock as it is, then what is compared with it, and what that is.
const STOCK: &str = "qspin:wait=spin";
const VARIANTS: [(&str, &str); 6] = [
    (
        "qspin-cna:wait=spin,stay=0",
        "version 10 as published: a head scans the whole queue; the others' turn comes after 2^16 hand-offs",
    ),
    (
        "qspin-cna:wait=spin,stay=1000,flush=31",
        "the same scan; the others' turn comes after 1 ms, as in all that follow",
    ),
    (
        "qspin-cna:wait=spin,stay=1000,flush=31,scan=16",
        "Long's limit: once the lock is free, the scan looks at four waiters for each node at most",
    ),
    (
        "qspin-cna:wait=spin,stay=1000,flush=31,incremental=1",
        "Kogan's incremental culling, version 11: one waiter is moved at most, also at the hand-off",
    ),
    (
        "qspin-cna:wait=spin,stay=1000,flush=31,incremental=2",
        "the series in kernel/: one waiter per step, steps only while the lock is busy, none at the hand-off",
    ),
    (
        "qspin-cna:wait=spin,stay=1000,flush=31,incremental=2,reduction=128",
        "the same with shuffle reduction, as in version 15: while the secondary queue is empty, one head in 128 looks",
    ),
];

/// What is done under the lock, and where the threads begin: as in fidelity.md.
const WORKLOADS: [(&str, &str); 2] = [("locktorture", "anywhere"), ("lock2", "packed")];
const MACHINE: &str = "4x18x2";
const THREADS: &str = "1,2,4,8,16,32,36,72,108,142";
const SEEDS: u32 = 2;
const PLACEMENTS: u32 = 3;
/// Several times as long as 2^16 hand-offs take.
const MILLIS: u32 = 100;

/// What the page has of what a simulation says.
const METRICS: [&str; 4] = ["ops_per_us", "node_moves", "fairness", "alterations_per_1000"];

/// Against a simulation that hangs. All of it takes a quarter of an hour on two quiet CPUs.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

pub(super) fn measure(command: Vec<String>) -> Result<Results> {
    println!("{NAME}: about 12 minutes on two quiet CPUs");
    let mut parts = WORKLOADS.iter().map(|(workload, place)| simulated(workload, place));
    let mut all = parts.next().context("a workload")??;
    for part in parts {
        let part = part?;
        all.groups.extend(part.groups);
        all.points.extend(part.points);
    }
    all.metrics.retain(|metric| METRICS.contains(&metric.name.as_str()));
    for run in all.points.iter_mut().flat_map(|point| &mut point.runs) {
        run.values.retain(|name, _| METRICS.contains(&name.as_str()));
    }
    all.name = NAME.into();
    all.title = "Who is looked for in the kernel's queue, and for how long".into();
    all.about = about();
    // Of a simulation, this computer says nothing.
    all.provenance = Provenance { machine: all.provenance.machine, ..origin::now(command)? };
    if let Some(simulated) = &mut all.method.simulated {
        simulated.place = None; // Each workload has its own.
    }
    all.derive();
    all.judge();
    Ok(all)
}

fn simulated(workload: &str, place: &str) -> Result<Results> {
    let locks: Vec<&str> = std::iter::once(STOCK).chain(VARIANTS.map(|(lock, _)| lock)).collect();
    let line = format!(
        "simulate {workload} --machine {MACHINE} --place {place} --threads {THREADS} --seeds {SEEDS} --placements \
         {PLACEMENTS} --millis {MILLIS} --json --locks"
    );
    let mut command = Command::new(workspace::command()?);
    command.args(line.split(' ')).arg(locks.join(","));
    let done = Program::new(command, LIMIT).run()?;
    // A simulated run that failed is a result; anything else that goes wrong prints none.
    if !done.stdout.starts_with('{') {
        bail!("{}", done.transcript());
    }
    origin::results_in(&done.stdout)
}

fn about() -> String {
    let list: String = VARIANTS.iter().map(|(lock, what)| format!("\n- `{lock}`: {what}.")).collect();
    let places: Vec<String> =
        WORKLOADS.iter().map(|(workload, place)| format!("`{workload}` with `--place {place}`")).collect();
    format!(
        "CNA in the kernel's spinlock lets the head of the queue look for a waiter of its own NUMA node. The \
         discussion of version 10 asked what it costs if the head looks at fewer of them. This compares the answers on \
         the machine of the published series, by the simulator: {}. [How far to trust it](../fidelity.md).\n\n\
         - `{STOCK}`: the kernel's lock without CNA.{list}",
        places.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_is_there_once_and_the_kernels_limit_is_four_per_node() {
        let mut locks = VARIANTS.map(|(lock, _)| lock).to_vec();
        locks.sort_unstable();
        locks.dedup();
        assert_eq!(locks.len(), VARIANTS.len());
        let nodes: u32 = MACHINE.split('x').next().and_then(|nodes| nodes.parse().ok()).expect("SOCKETSxCORESxTHREADS");
        assert!(VARIANTS.iter().any(|(lock, _)| lock.ends_with(&format!(",scan={}", 4 * nodes))));
    }
}
