//! `flashlock topology`: shows this machine as the locks see it.

use std::collections::BTreeMap;

use flashlock_native::numa;
use flashlock_native::topology::{Cache, Cpu, Node, Topology};
use flashlock_report::machine::Machine;
use flashlock_report::{table, units};
use serde::Serialize;

use crate::failure::Failure;
use crate::json;
use crate::lock_choice::imagined_topology;
use crate::screen::{self, HEADING, styled};

const EXAMPLES: &str = "\
Examples:
  flashlock topology
  flashlock topology --json
  FLASHLOCK_TOPOLOGY=2x18x2 flashlock topology
      imagine 2 NUMA nodes of 18 cores with 2 hardware threads each

What cannot be read, as in many containers, is shown as unknown. In a virtual
machine, all of this is what the hypervisor shows.";

/// Show this machine, as the locks see it
///
/// Shows CPUs, cores, caches and NUMA nodes, and how a thread finds out on which node it runs. NUMA-aware locks decide
/// by these facts.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    machine: Machine,
    /// How a thread finds out its node.
    node_source: &'static str,
    /// The number of nodes that the locks see.
    lock_nodes: u32,
    offline: &'a [u32],
    cpu_list: Vec<CpuRow<'a>>,
    caches: Vec<CacheRow<'a>>,
    nodes: Vec<NodeRow<'a>>,
}

#[derive(Serialize)]
struct CpuRow<'a> {
    id: u32,
    package: Option<u32>,
    die: Option<u32>,
    core: Option<u32>,
    siblings: &'a [u32],
    node: Option<u32>,
    usable: bool,
}

#[derive(Serialize)]
struct CacheRow<'a> {
    level: u32,
    kind: Option<&'a str>,
    bytes: Option<u64>,
    cpus: &'a [u32],
}

#[derive(Serialize)]
struct NodeRow<'a> {
    id: u32,
    cpus: &'a [u32],
    memory_kib: Option<u64>,
    distances: &'a [u32],
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let imagined = imagined_topology()?;
    let topology = match imagined {
        Some(numbers) => Topology::imagined(numbers).ok_or_else(|| {
            let most = units::count(Topology::MOST_IMAGINED);
            Failure::usage(format_args!("FLASHLOCK_TOPOLOGY has more than {most} CPUs; describe a smaller machine"))
        })?,
        None => Topology::read(),
    };
    numa::prepare(imagined.map(|[nodes, _, _]| nodes));
    let text = if args.json { json(&topology)? } else { text(&topology, screen::width(libc::STDOUT_FILENO)) };
    screen::emit(&text)?;
    Ok(0)
}

fn json<'a>(topology: &'a Topology) -> Result<String, Failure> {
    let cpu_row = |cpu: &'a Cpu| CpuRow {
        id: cpu.id,
        package: cpu.package,
        die: cpu.die,
        core: cpu.core,
        siblings: &cpu.siblings,
        node: cpu.node,
        usable: cpu.usable,
    };
    let cache_row = |cache: &'a Cache| CacheRow {
        level: cache.level,
        kind: cache.kind.as_deref(),
        bytes: cache.bytes,
        cpus: &cache.cpus,
    };
    let node_row = |node: &'a Node| NodeRow {
        id: node.id,
        cpus: &node.cpus,
        memory_kib: node.memory_kib,
        distances: &node.distances,
    };
    let output = Output {
        machine: Machine::from(topology),
        node_source: numa::source(),
        lock_nodes: numa::nodes(),
        offline: &topology.offline,
        cpu_list: topology.cpus.iter().map(cpu_row).collect(),
        caches: topology.caches.iter().map(cache_row).collect(),
        nodes: topology.nodes.iter().map(node_row).collect(),
    };
    json::text(&output)
}

fn text(topology: &Topology, width: u16) -> String {
    let machine = Machine::from(topology);
    let unknown = || "unknown".to_owned();
    let shown = |number: Option<usize>| number.map_or_else(unknown, |number| number.to_string());
    let threads = machine.cores.map_or_else(unknown, |cores| (machine.cpus as f64 / cores as f64).to_string());
    let virtual_cpu =
        if machine.virtualised == Some(true) { " (a virtual machine; this is what the hypervisor shows)" } else { "" };
    let mut cpus = format!("{} online, {} usable by this process", machine.cpus, machine.usable_cpus);
    if !topology.offline.is_empty() {
        cpus.push_str(&format!(", offline: {}", list(&topology.offline)));
    }
    let shape = format!("{} in {}; threads per core: {threads}", shown(machine.cores), packages(machine.packages));
    let mut fields = vec![
        ("CPU", machine.cpu.clone().unwrap_or_else(unknown) + virtual_cpu),
        ("CPUs", cpus),
        ("cores", shape),
        ("caches", caches(&topology.caches)),
        ("kernel", machine.kernel.clone().map_or_else(unknown, |release| format!("Linux {release}"))),
        ("glibc", machine.glibc.clone().unwrap_or_else(unknown)),
        ("locks see", seen_nodes()),
    ];
    let mut title = "This machine".to_owned();
    if let Some(imagined) = machine.imagined {
        title = format!("An imagined machine (FLASHLOCK_TOPOLOGY={imagined})");
        fields.retain(|(name, _)| matches!(*name, "CPUs" | "cores" | "locks see"));
    }
    let lines: String = fields.iter().map(|(name, text)| table::field(name, text, 9, width)).collect();
    format!("{}\n{lines}\n{}", styled(HEADING, &title), nodes(topology, width))
}

/// The number of nodes that the locks see, and how threads find out theirs. `numa::prepare` has been called.
pub(crate) fn seen_nodes() -> String {
    let nodes = units::counted(u64::from(numa::nodes()), "NUMA node");
    if numa::nodes() == 1 { nodes } else { format!("{nodes}; a thread finds out its own by: {}", numa::source()) }
}

fn packages(number: Option<usize>) -> String {
    number.map_or_else(|| "an unknown number of packages".into(), |number| units::counted(number as u64, "package"))
}

/// `48 KiB L1 Data × 2, …`.
fn caches(caches: &[Cache]) -> String {
    let mut alike: BTreeMap<(u32, &str, Option<u64>), (usize, usize)> = BTreeMap::new();
    for cache in caches {
        let entry = alike.entry((cache.level, cache.kind.as_deref().unwrap_or("unknown"), cache.bytes)).or_default();
        entry.0 += 1;
        entry.1 = cache.cpus.len();
    }
    let text = alike.iter().map(|((level, kind, bytes), (count, sharers))| {
        let size = bytes.map_or_else(|| "size unknown".into(), units::bytes);
        let shared = if *sharers > 1 { format!(", each for {sharers} CPUs") } else { String::new() };
        format!("{count} × L{level} {} {size}{shared}", kind.to_lowercase())
    });
    let text = text.collect::<Vec<_>>().join("; ");
    if text.is_empty() { "unknown".to_owned() } else { text }
}

fn nodes(topology: &Topology, width: u16) -> String {
    if topology.nodes.is_empty() {
        return "NUMA nodes: unknown, because /sys/devices/system/node cannot be read\n".into();
    }
    let mut table = table::new(["NUMA node", "CPUs", "memory", "distances"], width);
    table::numbers(&mut table, [0, 2]);
    for node in &topology.nodes {
        let memory = node.memory_kib.map_or_else(|| "unknown".into(), |kib| units::bytes(kib << 10));
        let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        table.add_row([node.id.to_string(), list(&node.cpus), memory, distances.join(" ")]);
    }
    table::text(&table)
}

/// `0-3,7`.
fn list(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!((list(&[0, 1, 2, 7]), list(&[]), list(&[5])), ("0-2,7".into(), String::new(), "5".into()));
    }

    #[test]
    fn any_machine_can_be_shown() {
        let machines = [Topology::default(), Topology::imagined([4, 36, 2]).unwrap(), Topology::read()];
        for machine in machines {
            let text = text(&machine, 80);
            assert!(text.contains("cores"), "{text}");
            assert!(json(&machine).is_ok());
        }
    }
}
