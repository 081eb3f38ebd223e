//! # The parts of cohort locks: like the machine
//!
//! Which local locks a thread acquires, from the innermost up: a part, and those [above](crate::side::above) it.
//!
//! ```text
//!   NumaNodes:       global ── NUMA node
//!   Within<P>:       global ── … P … ── group of CPUs within it
//! ```
//!
//! `check_at` of a part is how many hand-overs it keeps what is above it: written before the part is published, for tunables are constant.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Handle, Machine, Word};
use crate::node::Node;
use crate::side::Side;

/// Which parts there are.
pub trait Parts: 'static {
    /// The innermost part for the calling thread; made, with those above it, if there is none.
    fn home<M: Machine>(side: Side<M>) -> Handle;
}

/// How many hand-overs a part keeps what is above it.
#[inline]
pub(super) fn limit<M: Machine>(part: &Node<M>) -> u32 {
    part.check_at.load(Relaxed)
}

/// One for each NUMA node.
pub struct NumaNodes;

impl Parts for NumaNodes {
    #[inline]
    fn home<M: Machine>(side: Side<M>) -> Handle {
        side.part_or_make(M::numa_node(), None, |part| part.check_at.store(M::tunables().passes, Relaxed))
    }
}

/// Below each of `P`, one for each [group of CPUs](Machine::near_group).
pub struct Within<P>(PhantomData<P>);

impl<P: Parts> Parts for Within<P> {
    fn home<M: Machine>(side: Side<M>) -> Handle {
        let above = P::home(side);
        let prepare = |part: &Node<M>| part.check_at.store(M::tunables().near_passes, Relaxed);
        Side::below(above).part_or_make(M::near_group(), Some(above), prepare)
    }
}

/// NUMA nodes, and groups within them if the user wants three levels.
pub struct ByOption;

impl Parts for ByOption {
    #[inline]
    fn home<M: Machine>(side: Side<M>) -> Handle {
        if M::tunables().levels < 3 { NumaNodes::home(side) } else { Within::<NumaNodes>::home(side) }
    }
}
