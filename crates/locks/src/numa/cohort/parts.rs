//! # The parts of cohort locks: like the machine
//!
//! Which local locks a thread acquires, from the innermost up: a part, and those [above](crate::side::above) it.
//!
//! ```text
//!   NumaNodes:       global ── NUMA node
//!   Within<P, D>:    global ── … P … ── group of CPUs within it, of depth D
//! ```
//!
//! `limit` of a part is how many hand-overs it keeps what is above it: written before the part is published, for
//! tunables are constant.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Machine, Word};
use crate::side::{Block, Name, Side};

/// Which parts there are.
pub trait Parts: 'static {
    /// The innermost part for the calling thread; made, with those above it, if there is none.
    fn home<M: Machine>(side: Side<M>) -> Name;
}

/// How many hand-overs a part keeps what is above it.
#[inline]
pub(super) fn limit<M: Machine>(part: &Block<M>) -> u32 {
    part.limit.load(Relaxed)
}

/// One for each NUMA node.
pub struct NumaNodes;

impl Parts for NumaNodes {
    #[inline]
    fn home<M: Machine>(side: Side<M>) -> Name {
        side.part_or_make(M::numa_node(), None, |part| part.limit.store(M::tunables().passes, Relaxed))
    }
}

/// Below each of `P`, one for each [group of CPUs](Machine::near_group) of this depth.
pub struct Within<P, const DEPTH: u32>(PhantomData<P>);

impl<P: Parts, const DEPTH: u32> Parts for Within<P, DEPTH> {
    fn home<M: Machine>(side: Side<M>) -> Name {
        let above = P::home(side);
        let prepare = |part: &Block<M>| part.limit.store(M::tunables().near_passes, Relaxed);
        Side::below(above).part_or_make(M::near_group(DEPTH), Some(above), prepare)
    }
}

/// NUMA nodes, and groups of CPUs within them.
pub type Groups = Within<NumaNodes, 0>;
/// The same, and groups within these.
pub type GroupsOfGroups = Within<Groups, 1>;

/// As many levels as the user wants.
pub struct ByOption;

impl Parts for ByOption {
    #[inline]
    fn home<M: Machine>(side: Side<M>) -> Name {
        match M::tunables().levels {
            ..3 => NumaNodes::home(side),
            3 => Groups::home(side),
            _ => GroupsOfGroups::home(side),
        }
    }
}
