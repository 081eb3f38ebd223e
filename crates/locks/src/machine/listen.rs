//! What locks report to the machine, for statistics.

use core::sync::atomic::Ordering;

use crate::machine::event::Event;
use crate::machine::memory::Memory;
use crate::machine::node::Node;
use crate::machine::word::Word as _;

/// Listens to what happens in locks. Everything compiles to nothing if no one listens.
pub trait Listen: Memory {
    /// The NUMA node of a waiter, only for [`trace`](Listen::trace); `None` if no one listens. The look costs a cache
    /// line that the waiter polls, and only statistics need it.
    #[inline(always)]
    fn counted_on(waiter: &Node<Self>) -> Option<u32> {
        Some(waiter.numa.load(Ordering::Relaxed))
    }

    /// Reports what happened, for statistics. Compiles to nothing if no one listens.
    #[inline(always)]
    fn trace(_event: Event) {}

    /// A time stamp for measuring a wait in nanoseconds; 0 if no one listens.
    #[inline(always)]
    fn stamp() -> u64 {
        0
    }

    /// Reports that a mutex was acquired after waiting since `stamp`.
    #[inline(always)]
    fn waited(_stamp: u64) {}
}
