//! Where a thread runs.

/// How many parts [`Topology::reader_part`] divides a machine's CPUs into, unless there are more NUMA nodes. A writer
/// looks at each of them.
pub const READER_PARTS: u32 = 8;

/// The part for the CPUs of group `group` (of `groups`) of the NUMA node `node` (of `nodes`).
pub const fn reader_part_of((node, nodes): (u32, u32), (group, groups): (u32, u32)) -> u32 {
    let each = if nodes < READER_PARTS { READER_PARTS / nodes } else { 1 };
    node * each + if groups > each { group * each / groups } else { group }
}

/// The parts of a machine, and in which of them the calling thread runs.
pub trait Topology {
    /// The NUMA node that the thread runs on.
    fn numa_node() -> u32 {
        0
    }

    /// The last-level cache that the thread's CPU uses, by a number that no other cache has. For policies that need to
    /// know it. As a rule there is one for each NUMA node.
    fn llc() -> u32 {
        Self::numa_node()
    }

    /// How far one NUMA node is from another. A larger value is farther; the value from a node to itself is the
    /// smallest.
    fn distance(a: u32, b: u32) -> u32 {
        u32::from(a != b)
    }

    /// The group of CPUs in which the thread runs. At depth 0 a NUMA node is divided into groups of CPUs that share a
    /// last-level cache, if it has several, else into cores. At depth 1 such a group is divided into cores, if its
    /// groups are not cores already. Numbers begin at 0; 0 if the machine knows of no groups.
    fn near_group(_depth: u32) -> u32 {
        0
    }

    /// The part of the machine in which the thread runs, for locks with distributed readers: a number below
    /// [`READER_PARTS`], or the NUMA node's number if there are more nodes than that. The CPUs of a part are on one
    /// NUMA node, and near each other. Cheap: each acquisition for reading and each release asks.
    fn reader_part() -> u32 {
        Self::numa_node()
    }
}
