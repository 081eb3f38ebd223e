//! # A machine's shape, ready for use
//!
//! The topology of a [`Description`] as tables: the core and the node of each CPU, and the distances of nodes. Also
//! sets of cores, as bits.

use flashlock_locks::machine::reader_part_of;

use crate::description::{Description, MAX_CORES};

/// The shape of a machine.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) cpus: u32,
    pub(crate) cores: u32,
    pub(crate) nodes: u32,
    threads_per_core: u32,
    cores_per_node: u32,
    nodes_per_package: u32,
    /// How many nodes the operating system shows as one.
    nodes_per_shown: u32,
    distances: Vec<u8>,
    /// The results of divisions, by CPU and by core.
    cores_by_cpu: Vec<u16>,
    nodes_by_core: Vec<u8>,
    cores_of: Vec<Cores>,
}

impl Shape {
    pub(crate) fn new(machine: &Description) -> Self {
        let (nodes, per_node) = (machine.nodes(), machine.topology.cores_per_node);
        let pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b)));
        Self {
            cpus: machine.cpus(),
            cores: machine.cores(),
            nodes,
            threads_per_core: machine.topology.threads_per_core,
            cores_per_node: per_node,
            nodes_per_package: machine.topology.nodes_per_package,
            nodes_per_shown: if machine.topology.shown_as_packages { machine.topology.nodes_per_package } else { 1 },
            cores_by_cpu: (0..machine.cpus()).map(|cpu| (cpu / machine.topology.threads_per_core) as u16).collect(),
            nodes_by_core: (0..machine.cores()).map(|core| (core / per_node) as u8).collect(),
            distances: pairs.map(|(a, b)| machine.distance(a, b) as u8).collect(),
            cores_of: (0..nodes).map(|node| (node * per_node..(node + 1) * per_node).collect()).collect(),
        }
    }

    #[inline]
    pub(crate) fn core(&self, cpu: u32) -> u32 {
        u32::from(self.cores_by_cpu[cpu as usize])
    }

    /// The hardware threads of a core.
    pub(crate) fn cpus_of(&self, core: u32) -> std::ops::Range<u32> {
        core * self.threads_per_core..(core + 1) * self.threads_per_core
    }

    #[inline]
    pub(crate) fn node(&self, core: u32) -> u32 {
        u32::from(self.nodes_by_core[core as usize])
    }

    /// The core's index within its node.
    pub(crate) fn core_in_node(&self, core: u32) -> u32 {
        core % self.cores_per_node
    }

    pub(crate) fn package(&self, core: u32) -> u32 {
        self.node(core) / self.nodes_per_package
    }

    /// The core's NUMA node as the operating system shows it.
    pub(crate) fn shown_node(&self, core: u32) -> u32 {
        self.node(core) / self.nodes_per_shown
    }

    /// The part of the machine's readers in which a reader on this core counts itself.
    pub(crate) fn reader_part(&self, core: u32) -> u32 {
        let cores = self.cores_per_node * self.nodes_per_shown;
        reader_part_of((self.shown_node(core), self.nodes / self.nodes_per_shown), (core % cores, cores))
    }

    /// The distance between two nodes that the operating system shows.
    pub(crate) fn shown_distance(&self, a: u32, b: u32) -> usize {
        self.distance(a * self.nodes_per_shown, b * self.nodes_per_shown)
    }

    #[inline]
    pub(crate) fn cores_of(&self, node: u32) -> &Cores {
        &self.cores_of[node as usize]
    }

    pub(crate) fn cpus_of_node(&self, node: u32) -> std::ops::Range<u32> {
        let per_node = self.cores_per_node * self.threads_per_core;
        node * per_node..(node + 1) * per_node
    }

    #[inline]
    pub(crate) fn distance(&self, a: u32, b: u32) -> usize {
        usize::from(self.distances[(a * self.nodes + b) as usize])
    }
}

const WORDS: usize = MAX_CORES as usize / 64;

/// A set of cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cores([u64; WORDS]);

impl Cores {
    pub(crate) const NONE: Self = Self([0; WORDS]);

    #[inline]
    pub(crate) fn only(core: u32) -> Self {
        let mut this = Self::NONE;
        this.insert(core);
        this
    }

    #[inline]
    pub(crate) fn contains(&self, core: u32) -> bool {
        self.0[core as usize / 64] >> (core % 64) & 1 != 0
    }

    #[inline]
    pub(crate) fn insert(&mut self, core: u32) {
        self.0[core as usize / 64] |= 1 << (core % 64);
    }

    #[inline]
    pub(crate) fn remove(&mut self, core: u32) {
        self.0[core as usize / 64] &= !(1 << (core % 64));
    }

    #[inline]
    pub(crate) fn remove_all(&mut self, others: &Self) {
        self.0.iter_mut().zip(others.0).for_each(|(mine, other)| *mine &= !other);
    }

    #[inline]
    pub(crate) fn intersects(&self, others: &Self) -> bool {
        self.0.iter().zip(others.0).any(|(mine, other)| mine & other != 0)
    }

    /// `Some(None)` if the set is empty, `Some(Some(core))` if it has one core, `None` if it has more.
    pub(crate) fn at_most_one(&self) -> Option<Option<u32>> {
        let mut found = None;
        for (word, bits) in (0..).zip(self.0).filter(|(_, bits)| *bits != 0) {
            if found.is_some() || bits & (bits - 1) != 0 {
                return None;
            }
            found = Some(word * 64 + bits.trailing_zeros());
        }
        Some(found)
    }
}

impl FromIterator<u32> for Cores {
    fn from_iter<I: IntoIterator<Item = u32>>(cores: I) -> Self {
        let mut this = Self::NONE;
        cores.into_iter().for_each(|core| this.insert(core));
        this
    }
}
