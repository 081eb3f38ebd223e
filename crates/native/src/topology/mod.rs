//! # The machine's topology
//!
//! For output to users and for result files, not for locks. Reading takes milliseconds and allocates, so a lock path
//! must not call it (a lock uses [`crate::numa`]). Containers and virtual machines hide parts of `/sys` and `/proc`.
//! Whatever is missing or unreadable is `None` or empty, never an error and never a guess.

mod files;

use std::path::Path;

use crate::settings;

/// A machine: this one, or an imagined one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// `Some([nodes, cores per node, threads per core])` for an imagined machine.
    pub imagined: Option<[u32; 3]>,
    /// The CPU's name.
    pub model: Option<String>,
    /// Whether the CPU reports a hypervisor. If so, packages, caches and nodes are what the hypervisor chose to show.
    pub virtualised: Option<bool>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The online CPUs, by number.
    pub cpus: Vec<Cpu>,
    /// The numbers of the CPUs that exist but are offline.
    pub offline: Vec<u32>,
    /// Each cache once, by level, lowest first.
    pub caches: Vec<Cache>,
    /// The NUMA nodes, by number.
    pub nodes: Vec<Node>,
}

/// A CPU in the kernel's sense: one hardware thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// The package (socket) that it is in.
    pub package: Option<u32>,
    /// Its die within the package.
    pub die: Option<u32>,
    /// Its core within the package.
    pub core: Option<u32>,
    /// The CPUs of the same core, including itself.
    pub siblings: Vec<u32>,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Whether this process may run on it.
    pub usable: bool,
}

/// A cache and the CPUs that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its level; 1 is nearest to the CPU.
    pub level: u32,
    /// What it holds: `Data`, `Instruction` or `Unified`, in the kernel's words.
    pub kind: Option<String>,
    /// Its size in bytes.
    pub bytes: Option<u64>,
    /// The CPUs that share it.
    pub cpus: Vec<u32>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its online CPUs; a node may have none.
    pub cpus: Vec<u32>,
    /// Its memory in KiB.
    pub memory_kib: Option<u64>,
    /// Its distances to the online nodes, in the order of [`Topology::nodes`]; 10 is local.
    pub distances: Vec<u32>,
}

impl Topology {
    /// The largest number of CPUs that a machine can be imagined with.
    pub const MOST_IMAGINED: u64 = 1 << 16;

    /// This machine.
    pub fn read() -> Self {
        Self::read_under(Path::new("/"))
    }

    /// The machine that `FLASHLOCK_TOPOLOGY` describes, or this one if the variable is not set or not valid.
    pub fn from_environment() -> Self {
        let text = std::env::var(settings::ENV_TOPOLOGY).unwrap_or_default();
        settings::parse_topology(&text).and_then(Self::imagined).unwrap_or_else(Self::read)
    }

    /// The machine whose `/sys` and `/proc` are under `root`.
    pub fn read_under(root: &Path) -> Self {
        files::read(root)
    }

    /// An imagined machine with these numbers of NUMA nodes, cores per node and hardware threads per core. CPUs are
    /// numbered as in Linux: first one thread of each core, then the others. `None` if a number is zero, or with more
    /// than [`Self::MOST_IMAGINED`] CPUs.
    pub fn imagined([nodes, cores, smt]: [u32; 3]) -> Option<Self> {
        let total = u64::from(nodes).checked_mul(u64::from(cores))?.checked_mul(u64::from(smt))?;
        if total == 0 || total > Self::MOST_IMAGINED {
            return None;
        }
        let all_cores = nodes * cores;
        let cpu = |id: u32| {
            let core = id % all_cores;
            let siblings = (0..smt).map(|thread| core + thread * all_cores).collect();
            let node = Some(core / cores);
            Cpu { id, package: node, die: Some(0), core: Some(core % cores), siblings, node, usable: true }
        };
        let cpus: Vec<Cpu> = (0..all_cores * smt).map(cpu).collect();
        let node = |id: u32| Node {
            id,
            cpus: cpus.iter().filter(|cpu| cpu.node == Some(id)).map(|cpu| cpu.id).collect(),
            memory_kib: None,
            distances: (0..nodes).map(|other| if other == id { 10 } else { 20 }).collect(),
        };
        let nodes_made = (0..nodes).map(node).collect();
        Some(Self { imagined: Some([nodes, cores, smt]), nodes: nodes_made, cpus, ..Self::default() })
    }

    /// The number of packages; `None` unless it is known for every CPU.
    pub fn packages(&self) -> Option<usize> {
        distinct(self.cpus.iter().map(|cpu| cpu.package))
    }

    /// The number of cores; `None` unless it is known for every CPU.
    pub fn cores(&self) -> Option<usize> {
        distinct(self.cpus.iter().map(|cpu| Some((cpu.package?, cpu.die.unwrap_or(0), cpu.core?))))
    }

    /// How many CPUs this process may use.
    pub fn usable(&self) -> usize {
        self.cpus.iter().filter(|cpu| cpu.usable).count()
    }
}

fn distinct<T: Ord>(values: impl Iterator<Item = Option<T>>) -> Option<usize> {
    let mut values: Vec<T> = values.collect::<Option<_>>()?;
    values.sort();
    values.dedup();
    (!values.is_empty()).then_some(values.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imagined_machines() {
        let machine = Topology::imagined([2, 18, 2]).unwrap();
        assert_eq!((machine.cpus.len(), machine.cores(), machine.packages()), (72, Some(36), Some(2)));
        assert_eq!((machine.cpus[37].siblings.as_slice(), machine.cpus[35].node), ([1, 37].as_slice(), Some(1)));
        assert_eq!(machine.nodes[1].distances, [20, 10]);
        assert_eq!(Topology::imagined([4096, 4096, 4096]), None);
        assert_eq!(Topology::imagined([0, 1, 1]), None);
    }

    #[test]
    fn this_machine_has_a_cpu() {
        let machine = Topology::read();
        assert!(machine.usable() >= 1);
        assert_eq!(machine.usable(), crate::sys::usable_cpus() as usize);
    }
}
