//! Where a thread runs.

/// How many parts [`Division::Readers`] has, unless there are more NUMA nodes. A writer looks at each of them.
pub const READER_PARTS: u32 = 8;

/// The part for the CPUs of group `group` (of `groups`) of the NUMA node `node` (of `nodes`).
pub const fn reader_part_of((node, nodes): (u32, u32), (group, groups): (u32, u32)) -> u32 {
    let each = if nodes < READER_PARTS { READER_PARTS / nodes } else { 1 };
    node * each + if groups > each { group * each / groups } else { group }
}

/// A division of the machine's CPUs into parts, besides NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// The CPUs that share a last-level cache. Each cache has a number that no other has. As a rule there is one for
    /// each NUMA node.
    Llc,
    /// Groups of CPUs. At depth 0 a NUMA node is divided into groups of CPUs that share a last-level cache, if it has
    /// several, else into cores. At depth 1 such a group is divided into cores, if its groups are not cores already.
    /// Numbers begin at 0; 0 if the machine knows of no groups.
    Groups {
        /// The depth.
        depth: u32,
    },
    /// For locks with distributed readers. Parts have numbers below [`READER_PARTS`], or the NUMA node's number if
    /// there are more nodes than that. The CPUs of a part are on one NUMA node, and near each other. Cheap: each
    /// acquisition for reading and each release asks.
    Readers,
}

/// In which parts of a machine the calling thread runs.
pub trait Topology {
    /// The NUMA node that the thread runs on.
    fn numa_node() -> u32 {
        0
    }

    /// The part of this division that the thread runs on.
    fn part(of: Division) -> u32 {
        match of {
            Division::Llc | Division::Readers => Self::numa_node(),
            Division::Groups { .. } => 0,
        }
    }
}
