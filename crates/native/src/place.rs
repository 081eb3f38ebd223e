//! # Where threads run
//!
//! What locks ask about the place of a thread: its NUMA node ([`numa`]), the cache that it shares ([`near`]), its group
//! of CPUs ([`groups`]), and its part of the machine ([`parts`]). All of these read files, once.

use flashlock_locks::machine::Tunables;
use flashlock_locks::parts::policy::Chosen;

use crate::{groups, near, numa, parts};

/// Learns the machine's topology, as locks with these options want to know it. Call it once, before the first lock is
/// used that looks at places. Until then, every thread is on NUMA node 0, and all CPUs share one cache. `imagined`: a
/// machine to pretend instead, with so many nodes, cores in each node, and hardware threads in each core.
pub fn prepare(tunables: &Tunables, imagined: Option<[u32; 3]>) {
    numa::prepare(imagined.map(|[nodes, _, _]| nodes));
    if Chosen::asks_where(tunables.policy) {
        near::prepare();
    }
    if tunables.levels > 2 {
        groups::prepare(imagined);
    }
    parts::prepare();
}
