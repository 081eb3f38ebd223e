//! This machine's topology in the simulation's terms: nodes of equal size, each with a last-level cache.

use std::collections::BTreeMap;
use std::fs;

use flashlock_native::topology::Topology;
use flashlock_sim::description::{self, MAX_NODES};

/// The CPUs of one core that this process may use.
type Core = Vec<u32>;

/// Cores that share a NUMA node and a last-level cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Its package.
    package: u32,
    /// Its NUMA node.
    numa: u32,
    /// The number of cores, usable or not.
    cores: u32,
    /// The cores with at least one usable CPU.
    pub(super) usable: Vec<Core>,
}

/// The machine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// The topology for the description.
    pub(super) topology: description::Topology,
    /// Its nodes.
    pub(super) nodes: Vec<Node>,
    /// Where the description differs from the machine.
    pub(super) remarks: Vec<String>,
}

impl Shape {
    /// The shape of this machine.
    pub(super) fn of(machine: &Topology) -> Self {
        let mut nodes = nodes(machine, true);
        let mut remarks = Vec::new();
        if nodes.len() > MAX_NODES as usize {
            remarks.push(format!(
                "{} last-level caches are more than can be simulated: each NUMA node gets one",
                nodes.len()
            ));
            nodes = self::nodes(machine, false);
        }
        let threads = machine.cpus.iter().map(|cpu| cpu.siblings.len().max(1)).max().unwrap_or(1) as u32;
        let cores = nodes.iter().map(|node| node.cores).max().unwrap_or(1);
        if nodes.iter().any(|node| node.cores != cores)
            || machine.cpus.iter().any(|cpu| cpu.siblings.len().max(1) as u32 != threads)
        {
            remarks.push("nodes or cores differ in size: all are assumed to be like the largest".to_owned());
        }
        let mut packages: BTreeMap<u32, u32> = BTreeMap::new();
        nodes.iter().for_each(|node| *packages.entry(node.package).or_default() += 1);
        let even = packages.values().all(|count| Some(count) == packages.values().next());
        let (packages, nodes_per_package) =
            if even { (packages.len(), nodes.len() / packages.len()) } else { (1, nodes.len()) };
        let topology = description::Topology {
            packages: packages as u32,
            nodes_per_package: nodes_per_package as u32,
            shown_as_packages: false,
            cores_per_node: cores,
            threads_per_core: threads,
            distances: distances(machine, &nodes),
        };
        Self { topology, nodes, remarks }
    }

    /// The distance of the farthest node.
    pub(super) fn farthest(&self) -> u32 {
        self.topology.distances.iter().flatten().copied().max().unwrap_or(0)
    }

    /// All pairs of usable CPUs of one core: no line travels between them.
    pub(super) fn siblings(&self) -> Vec<[u32; 2]> {
        let cores = self.nodes.iter().flat_map(|node| &node.usable);
        let pairs = |core: &'_ Core| {
            let core = core.clone();
            let pairs = (0..core.len()).flat_map(move |b| (0..b).map(move |a| (a, b)));
            pairs.map(|(a, b)| [core[a], core[b]]).collect::<Vec<_>>()
        };
        cores.flat_map(pairs).collect()
    }

    /// All pairs of usable CPUs of different cores at this distance.
    pub(super) fn all_pairs(&self, distance: u32) -> Vec<[u32; 2]> {
        let cpus: Vec<(usize, &Core, u32)> = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(node, of)| {
                of.usable.iter().flat_map(move |core| core.iter().map(move |&cpu| (node, core, cpu)))
            })
            .collect();
        let far = |a: usize, b: usize| self.topology.distances.get(a).map_or(0, |row| row[b]);
        cpus.iter()
            .flat_map(|a| cpus.iter().map(move |b| (a, b)))
            .filter(|((from, one, a), (to, other, b))| a < b && one != other && far(*from, *to) == distance)
            .map(|((_, _, a), (_, _, b))| [*a, *b])
            .collect()
    }

    /// The same, or a sample of at most `limit`.
    pub(super) fn pairs(&self, distance: u32, limit: usize) -> Vec<[u32; 2]> {
        sample(&self.all_pairs(distance), limit)
    }
}

/// All of these, or `limit` of them, evenly spread.
pub(super) fn sample(all: &[[u32; 2]], limit: usize) -> Vec<[u32; 2]> {
    let wanted = limit.min(all.len());
    (0..wanted).map(|index| all[index * all.len() / wanted]).collect()
}

/// The nodes, package by package: one per last-level cache if that is known and wanted, else one per NUMA node. At
/// least one.
fn nodes(machine: &Topology, by_cache: bool) -> Vec<Node> {
    let last = machine.caches.iter().map(|cache| cache.level).max().filter(|level| by_cache && *level >= 3);
    let cache_of = |cpu: u32| {
        let caches = machine.caches.iter().filter(|cache| Some(cache.level) == last);
        caches.enumerate().find(|(_, cache)| cache.cpus.contains(&cpu)).map(|(index, _)| index)
    };
    let mut found: BTreeMap<(u32, u32, Option<usize>), BTreeMap<u32, Core>> = BTreeMap::new();
    for cpu in &machine.cpus {
        let key = (cpu.package.unwrap_or(0), cpu.node.unwrap_or(0), cache_of(cpu.id));
        // A core is identified by its first CPU.
        let core = cpu.siblings.iter().copied().min().unwrap_or(cpu.id);
        let cores = found.entry(key).or_default().entry(core).or_default();
        cores.extend(cpu.usable.then_some(cpu.id));
    }
    let node = |((package, numa, _), cores): (_, BTreeMap<u32, Core>)| Node {
        package,
        numa,
        cores: cores.len() as u32,
        usable: cores.into_values().filter(|core| !core.is_empty()).collect(),
    };
    let nodes: Vec<Node> = found.into_iter().map(node).collect();
    if nodes.is_empty() { vec![Node { package: 0, numa: 0, cores: 1, usable: Vec::new() }] } else { nodes }
}

/// The ranks of the distances that the firmware reports. Two last-level caches of one NUMA node are the nearest.
fn distances(machine: &Topology, nodes: &[Node]) -> Vec<Vec<u32>> {
    let place = |numa: u32| machine.nodes.iter().position(|node| node.id == numa);
    let told = |a: &Node, b: &Node| {
        let distance = place(a.numa).zip(place(b.numa)).and_then(|(a, b)| machine.nodes[a].distances.get(b).copied());
        distance.unwrap_or(if a.package == b.package { 11 } else { 20 })
    };
    // The firmware may report different numbers for the two directions.
    let far = |a: usize, b: usize| told(&nodes[a], &nodes[b]).max(told(&nodes[b], &nodes[a]));
    let pairs = |a| (0..nodes.len()).filter(move |b| *b != a).map(move |b| far(a, b));
    let mut known: Vec<u32> = (0..nodes.len()).flat_map(pairs).collect();
    known.sort_unstable();
    known.dedup();
    let rank = |a: usize, b: usize| known.binary_search(&far(a, b)).map_or(0, |rank| rank as u32 + 1);
    let row = |a| (0..nodes.len()).map(|b| if a == b { 0 } else { rank(a, b) }).collect();
    if nodes.len() == 1 { Vec::new() } else { (0..nodes.len()).map(row).collect() }
}

/// A cache of the first CPU, from the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cache {
    /// The level; 1 is the nearest.
    pub(super) level: u32,
    /// For the description: its size, and a number of ways that makes whole sets.
    pub(super) size: description::Cache,
}

/// The data caches of a CPU, the smallest first.
pub(super) fn caches(cpu: u32) -> Vec<Cache> {
    let read = |index: u32| {
        let text = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}");
            fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        let kib = text("size")?.strip_suffix('K')?.parse().ok().filter(|kib| (1..=1 << 20).contains(kib))?;
        let ways = text("ways_of_associativity").and_then(|ways| ways.parse().ok());
        let data = text("type")? != "Instruction";
        data.then_some(Cache {
            level: text("level")?.parse().ok()?,
            size: description::Cache { kib, ways: whole(kib, ways) },
        })
    };
    let mut caches: Vec<Cache> = (0..8).filter_map(read).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// A number of ways that makes whole sets of so many KiB.
fn whole(kib: u32, ways: Option<u32>) -> u32 {
    let lines = kib * 16;
    ways.into_iter().chain([16]).find(|ways| *ways > 0 && lines.is_multiple_of(*ways)).unwrap_or(1)
}

/// Whether the last-level cache includes the levels before it, according to the processor.
#[cfg(target_arch = "x86_64")]
pub(super) fn inclusive() -> Option<bool> {
    use core::arch::x86_64::__cpuid_count;
    const KINDS: u32 = 31;
    // Intel's leaf, then AMD's, which has the same format.
    let leaf = [4, 0x8000_001d].into_iter().find(|&leaf| {
        let highest = __cpuid_count(leaf & 0x8000_0000, 0).eax;
        leaf <= highest && __cpuid_count(leaf, 0).eax & KINDS != 0
    })?;
    let caches = (0..8).map(|index| __cpuid_count(leaf, index)).take_while(|cache| cache.eax & KINDS != 0);
    let last = caches.max_by_key(|cache| cache.eax >> 5 & 7)?;
    Some(last.edx & 2 != 0)
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn inclusive() -> Option<bool> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashlock_native::topology;

    #[test]
    fn an_imagined_machine_keeps_its_shape() {
        let shape = Shape::of(&Topology::imagined([2, 18, 2]).unwrap());
        let topology = &shape.topology;
        assert_eq!((topology.packages, topology.nodes_per_package, topology.cores_per_node), (2, 1, 18));
        assert_eq!((topology.threads_per_core, shape.farthest()), (2, 1));
        assert_eq!(topology.distances, [[0, 1], [1, 0]]);
        assert!(shape.remarks.is_empty(), "{:?}", shape.remarks);
        assert_eq!((shape.all_pairs(0).len(), shape.all_pairs(1).len()), (2 * 36 * 34 / 2, 36 * 36));
        assert_eq!(shape.pairs(0, usize::MAX), shape.all_pairs(0));
        let siblings = shape.siblings();
        assert_eq!(siblings.len(), 36, "one pair a core");
        assert!(siblings.iter().all(|pair| (0..2).all(|distance| !shape.all_pairs(distance).contains(pair))));
        // Each pair of CPUs is measured somewhere.
        assert_eq!(siblings.len() + shape.all_pairs(0).len() + shape.all_pairs(1).len(), 72 * 71 / 2);
        assert_eq!(
            (shape.pairs(0, 3).len(), shape.pairs(1, 2), shape.pairs(2, 5)),
            (3, vec![[0, 18], [12, 18]], vec![])
        );
    }

    #[test]
    fn last_level_caches_make_nodes() {
        let mut machine = Topology::imagined([2, 8, 1]).unwrap();
        machine.caches = (0..4)
            .map(|index| topology::Cache {
                level: 3,
                kind: None,
                bytes: None,
                cpus: (4 * index..4 * index + 4).collect(),
            })
            .collect();
        let shape = Shape::of(&machine);
        assert_eq!(
            (shape.topology.packages, shape.topology.nodes_per_package, shape.topology.cores_per_node),
            (2, 2, 4)
        );
        assert_eq!(shape.topology.distances[0], [0, 1, 2, 2]);
    }

    #[test]
    fn a_machine_that_shows_nothing_is_one_core() {
        let shape = Shape::of(&Topology::default());
        assert_eq!((shape.topology.packages, shape.topology.cores_per_node, shape.farthest()), (1, 1, 0));
        assert!(shape.pairs(0, 5).is_empty() && shape.siblings().is_empty());
    }

    #[test]
    fn uneven_machines_are_rounded_up() {
        let mut machine = Topology::imagined([2, 4, 1]).unwrap();
        machine.cpus.pop();
        let shape = Shape::of(&machine);
        assert_eq!((shape.topology.cores_per_node, shape.remarks.len()), (4, 1));
    }

    #[test]
    fn ways_make_whole_sets() {
        assert_eq!(
            (whole(48, Some(12)), whole(512, Some(0)), whole(36608, Some(11)), whole(3, Some(7))),
            (12, 16, 11, 16)
        );
    }
}
