//! # Groups of CPUs within a NUMA node
//!
//! Locks with more than two levels ask this module which group of its NUMA node a thread runs in. For three levels, a
//! group is the CPUs that share a last-level cache if the node has several such caches; otherwise it is the hardware
//! threads of a core. For four levels, each such cache is divided further into cores. The groups are read once from
//! `/sys` into a table by CPU, and only if such a lock is chosen ([`prepare`]). Before that, and for a CPU beyond
//! [`MOST_CPUS`], the group is 0.
//!
//! | what | where |
//! |---|---|
//! | a node's CPUs | `/sys/devices/system/node/nodeN/cpulist`; without nodes, `/sys/devices/system/cpu/online` |
//! | the CPUs that share a cache | `/sys/devices/system/cpu/cpuN/cache/index3/shared_cpu_list`, or `index2` |
//! | a core's hardware threads | `/sys/devices/system/cpu/cpuN/topology/thread_siblings_list` |
//!
//! A group is named by its first CPU. Groups are numbered in that order within their node, or within the group around
//! them. An [imagined](crate::numa) machine assigns threads round-robin to its nodes, then to the cores of each node,
//! then to the hardware threads of each core. Cores and hardware threads are its groups at the two depths.

use core::sync::atomic::{
    AtomicU16, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::near::{Path, numbers};
use crate::{numa, sys, thread};

/// CPUs from this number on are in group 0.
const MOST_CPUS: usize = 1024;
/// A CPU that is in no group yet.
const NONE: u16 = u16::MAX;
/// Room for a list of CPUs.
const ROOM: usize = 1024;

/// The group of each CPU.
type Table = [AtomicU16; MOST_CPUS];
/// By depth: the groups of a NUMA node, then the groups within such a group.
static GROUPS: [Table; 2] = [const { [const { AtomicU16::new(0) }; MOST_CPUS] }; 2];
static SOURCE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const READ: u32 = 1;
const VIRTUAL: u32 = 2;
/// The imagined machine: how many nodes, cores in each node, and hardware threads in each core.
static IMAGINED: [AtomicU32; 3] = [const { AtomicU32::new(1) }; 3];

/// The calling thread's group at that depth: within its NUMA node, or within its group there.
pub(crate) fn group(depth: u32) -> u32 {
    match SOURCE.load(Acquire) {
        READ => {
            let group = GROUPS.get(depth as usize).and_then(|table| table.get(numa::cpu() as usize));
            group.map_or(0, |group| group.load(Relaxed).into())
        }
        VIRTUAL => {
            let [nodes, cores, threads] = IMAGINED.each_ref().map(|number| number.load(Relaxed));
            let within = thread::place() / nodes;
            if depth == 0 { within % cores } else { within / cores % threads }
        }
        _ => 0,
    }
}

/// Fills the tables. Call it once, outside lock paths, after [`numa::prepare`]. `imagined`: how many nodes, cores in
/// each node, and hardware threads in each core.
pub fn prepare(imagined: Option<[u32; 3]>) {
    if let Some(imagined) = imagined {
        IMAGINED.iter().zip(imagined).for_each(|(place, number)| place.store(number.max(1), Relaxed));
        SOURCE.store(VIRTUAL, Release);
        return;
    }
    numa::prepare_cpu();
    let mut text = [0; ROOM];
    for node in 0..numa::nodes() {
        let path = Path::new(&["/sys/devices/system/node/node"], &[node], "/cpulist");
        let mut cpus = sys::read(path.as_c_str(), &mut text);
        if cpus.is_empty() && node == 0 {
            cpus = sys::read(c"/sys/devices/system/cpu/online", &mut text);
        }
        group_node(cpus);
    }
    SOURCE.store(READ, Release);
}

/// Groups the CPUs of a node. If the node has several last-level caches: by cache, and within these by core. Otherwise
/// by core only.
fn group_node(cpus: &[u8]) {
    const LAST_LEVEL: [&str; 2] = ["/cache/index3/shared_cpu_list", "/cache/index2/shared_cpu_list"];
    const CORE: &str = "/topology/thread_siblings_list";
    let [outer, inner] = &GROUPS;
    let by_cache =
        LAST_LEVEL.iter().find_map(|shared| number_groups(outer, cpus, shared, |_| 0)).is_some_and(|groups| groups > 1);
    if by_cache {
        number_groups(inner, cpus, CORE, |cpu| get(outer, cpu));
    } else {
        number_groups(outer, cpus, CORE, |_| 0);
    }
}

/// Numbers the groups of a node's CPUs, starting at 0 in each outer group (`around`). The file `shared` of each CPU
/// lists the CPUs of its group. Returns the number of groups in all; `None` if a CPU has no list, or shares with a CPU
/// of another node.
fn number_groups(table: &Table, cpus: &[u8], shared: &str, around: impl Fn(u32) -> u16) -> Option<u16> {
    let set = |cpu: u32, group| {
        if let Some(place) = table.get(cpu as usize) {
            place.store(group, Relaxed);
        }
    };
    each_cpu(cpus, |cpu| set(cpu, NONE));
    let (mut numbers_in, mut groups, mut all) = ([0; MOST_CPUS], 0, true);
    each_cpu(cpus, |cpu| {
        let mut text = [0; ROOM];
        let path = Path::new(&["/sys/devices/system/cpu/cpu"], &[cpu], shared);
        let first = numbers(sys::read(path.as_c_str(), &mut text)).next();
        let known = first.filter(|&first| first < cpu).map(|first| get(table, first));
        match (first, known) {
            (Some(first), None) if first == cpu => {
                let number = numbers_in
                    .get_mut(usize::from(around(cpu)))
                    .map_or(0, |number| core::mem::replace(number, *number + 1));
                set(cpu, number);
                groups += 1;
            }
            (_, Some(group)) if group != NONE => set(cpu, group),
            _ => {
                set(cpu, 0);
                all = false;
            }
        }
    });
    all.then_some(groups)
}

fn get(table: &Table, cpu: u32) -> u16 {
    table.get(cpu as usize).map_or(NONE, |group| group.load(Relaxed))
}

/// Calls `act` with each CPU of a list like `0-3,7`.
pub(crate) fn each_cpu(list: &[u8], mut act: impl FnMut(u32)) {
    for part in list.split(|byte| *byte == b',') {
        let mut ends = numbers(part);
        if let Some(first) = ends.next() {
            (first..=ends.next().unwrap_or(first).min(MOST_CPUS as u32)).for_each(&mut act);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        for (list, cpus) in [("0-3,7,10-11\n", vec![0, 1, 2, 3, 7, 10, 11]), ("5\n", vec![5]), ("\n", vec![])] {
            let mut seen = Vec::new();
            each_cpu(list.as_bytes(), |cpu| seen.push(cpu));
            assert_eq!(seen, cpus, "{list}");
        }
    }

    /// The groups match the topology that is shown to users: by last-level cache where a node has several, and below
    /// that by core; otherwise by core.
    #[test]
    fn groups_are_those_of_the_topology() {
        prepare(None);
        let machine = crate::topology::Topology::read();
        let cache =
            |cpu| machine.caches.iter().filter(|cache| cache.level > 1).rfind(|cache| cache.cpus.contains(&cpu));
        let core = |cpu| machine.cpus.iter().find(|other| other.id == cpu).map(|cpu| &cpu.siblings);
        for node in &machine.nodes {
            let by_cache = node.cpus.iter().any(|&cpu| cache(cpu) != cache(node.cpus[0]));
            for (&a, &b) in node.cpus.iter().flat_map(|a| node.cpus.iter().map(move |b| (a, b))) {
                let together = if by_cache { cache(a) == cache(b) } else { core(a) == core(b) };
                let [(outer_a, inner_a), (outer_b, inner_b)] =
                    [a, b].map(|cpu| (get(&GROUPS[0], cpu), get(&GROUPS[1], cpu)));
                assert_eq!(outer_a == outer_b, together, "CPUs {a} and {b}: {outer_a} and {outer_b}");
                if together {
                    assert_eq!(
                        inner_a == inner_b,
                        !by_cache || core(a) == core(b),
                        "CPUs {a} and {b}: {inner_a} and {inner_b}"
                    );
                }
                assert!(outer_a != NONE && inner_a != NONE);
            }
        }
    }
}
