//! # The parts of cohort locks: shaped like the machine
//!
//! The parts are the local locks of a [cohort lock](super). This module decides which of them a thread acquires, from
//! the innermost up: a part, and the parts [above](crate::parts::side::above) it.
//!
//! ```text
//!   NumaNodes:       global ── NUMA node
//!   Within<P, D>:    global ── … P … ── group of CPUs within it, of depth D
//! ```
//!
//! `limit` of a part is the number of hand-offs for which the part keeps the locks above it. It is written before the
//! part is published, because tunables are constant.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::block::{Block, Name};
use crate::machine::{Division, Machine, Word};
use crate::parts::side::Side;

/// Which parts a lock has.
///
/// # Safety
/// Of a block, [`home`](Parts::home) writes only `limit`, before it publishes the block.
pub unsafe trait Parts: 'static {
    /// The innermost part for the calling thread. If there is none, it is made, with the parts above it.
    fn home<M: Machine>(side: Side<M>) -> Name;
}

/// How many hand-offs a part keeps the locks above it.
#[inline]
pub(super) fn limit<M: Machine>(part: &Block<M>) -> u32 {
    part.limit.load(Relaxed)
}

/// One part for each NUMA node.
pub struct NumaNodes;

// SAFETY: `prepare` is called before the part is published.
unsafe impl Parts for NumaNodes {
    #[inline]
    fn home<M: Machine>(side: Side<M>) -> Name {
        side.part_or_make(M::numa_node(), None, |part| part.limit.store(M::tunables().passes, Relaxed))
    }
}

/// Below each part of `P`, one part for each [group of CPUs](Division::Groups) of this depth.
pub struct Within<P, const DEPTH: u32>(PhantomData<P>);

// SAFETY: `prepare` is called before the part is published.
unsafe impl<P: Parts, const DEPTH: u32> Parts for Within<P, DEPTH> {
    fn home<M: Machine>(side: Side<M>) -> Name {
        let above = P::home(side);
        let prepare = |part: &Block<M>| part.limit.store(M::tunables().near_passes, Relaxed);
        Side::below(above).part_or_make(M::part(Division::Groups { depth: DEPTH }), Some(above), prepare)
    }
}

/// Parts for NUMA nodes, and for groups of CPUs within them.
pub type Groups = Within<NumaNodes, 0>;
/// The same, and groups within these groups.
pub type GroupsOfGroups = Within<Groups, 1>;

/// As many levels as the user asks for (`levels=`).
pub struct ByOption;

// SAFETY: that of the others.
unsafe impl Parts for ByOption {
    #[inline]
    fn home<M: Machine>(side: Side<M>) -> Name {
        match M::tunables().levels {
            ..3 => NumaNodes::home(side),
            3 => Groups::home(side),
            _ => GroupsOfGroups::home(side),
        }
    }
}
