//! # Groups of CPUs within a NUMA node
//!
//! For locks of three levels: CPUs that share a last-level cache, where a node has several of these, else the hardware threads of a core. Read
//! once from `/sys`, into a table by CPU, and only if such a lock is chosen ([`prepare`]); until then, and of a CPU beyond
//! [`MOST_CPUS`], all are of group 0.
//!
//! | what | where |
//! |---|---|
//! | a node's CPUs | `/sys/devices/system/node/nodeN/cpulist`; without nodes, `/sys/devices/system/cpu/online` |
//! | who shares a cache | `/sys/devices/system/cpu/cpuN/cache/index3/shared_cpu_list`, or `index2` |
//! | a core's hardware threads | `/sys/devices/system/cpu/cpuN/topology/thread_siblings_list` |
//!
//! A group is named by its first CPU, and numbered in the order of these within its node. An [imagined](crate::numa) machine lays threads round-robin over its
//! nodes, and in each over its cores.

use core::sync::atomic::{
    AtomicU16, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::near::{Path, numbers};
use crate::{numa, sys, thread};

/// CPUs beyond these are of group 0.
const MOST_CPUS: usize = 1024;
/// A CPU that is in no group yet.
const NONE: u16 = u16::MAX;
/// Room for a list of CPUs.
const ROOM: usize = 1024;

static GROUPS: [AtomicU16; MOST_CPUS] = [const { AtomicU16::new(0) }; MOST_CPUS];
static SOURCE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const READ: u32 = 1;
const VIRTUAL: u32 = 2;
/// How many nodes, and cores in each, are imagined.
static IMAGINED: [AtomicU32; 2] = [AtomicU32::new(1), AtomicU32::new(1)];

/// The calling thread's group within its NUMA node.
pub(crate) fn group() -> u32 {
    match SOURCE.load(Acquire) {
        READ => GROUPS.get(numa::cpu() as usize).map_or(0, |group| group.load(Relaxed).into()),
        VIRTUAL => {
            let [nodes, cores] = IMAGINED.each_ref().map(|number| number.load(Relaxed));
            thread::place() / nodes % cores
        }
        _ => 0,
    }
}

/// Fills the table. Called once, outside lock paths, after [`numa::prepare`]. `imagined`: how many nodes, cores in each, and hardware
/// threads in each of these.
pub fn prepare(imagined: Option<[u32; 3]>) {
    if let Some([nodes, cores, _]) = imagined {
        IMAGINED[0].store(nodes.max(1), Relaxed);
        IMAGINED[1].store(cores.max(1), Relaxed);
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

/// Groups the CPUs of a node: by last-level cache, if there are several, else by core.
fn group_node(cpus: &[u8]) {
    const LAST_LEVEL: [&str; 2] = ["/cache/index3/shared_cpu_list", "/cache/index2/shared_cpu_list"];
    let by_cache = LAST_LEVEL.iter().any(|shared| number_groups(cpus, shared).is_some_and(|groups| groups > 1));
    if !by_cache {
        number_groups(cpus, "/topology/thread_siblings_list");
    }
}

/// Numbers the groups of a node's CPUs, of which each CPU's file `shared` lists its own; how many there are. `None` if a CPU does not tell,
/// or shares with one of another node.
fn number_groups(cpus: &[u8], shared: &str) -> Option<u16> {
    each_cpu(cpus, |cpu| set(cpu, NONE));
    let (mut groups, mut all) = (0, true);
    each_cpu(cpus, |cpu| {
        let mut text = [0; ROOM];
        let path = Path::new(&["/sys/devices/system/cpu/cpu"], &[cpu], shared);
        let first = numbers(sys::read(path.as_c_str(), &mut text)).next();
        let known = first.filter(|&first| first < cpu).map(get);
        match (first, known) {
            (Some(first), None) if first == cpu => {
                set(cpu, groups);
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

fn set(cpu: u32, group: u16) {
    if let Some(place) = GROUPS.get(cpu as usize) {
        place.store(group, Relaxed);
    }
}

fn get(cpu: u32) -> u16 {
    GROUPS.get(cpu as usize).map_or(NONE, |group| group.load(Relaxed))
}

/// Does it for each CPU of a list like `0-3,7`.
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

    /// The same groups, as the topology for people tells them: by last-level cache where a node has several, else by core.
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
                assert_eq!(get(a) == get(b), together, "CPUs {a} and {b}: {} and {}", get(a), get(b));
                assert!(get(a) != NONE);
            }
        }
    }
}
