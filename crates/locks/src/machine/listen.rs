//! What locks report to the machine, for statistics.

use core::sync::atomic::Ordering;

use crate::machine::event::Event;
use crate::machine::node::{Memory, Node};
use crate::machine::word::Word as _;

/// Listens to what happens in locks. Everything compiles to nothing if no one listens.
///
/// Each event is about the lock that the reporting thread has named last ([`about`](Listen::about)): the one whose
/// function it is in. So a listener can count for each lock.
pub trait Listen: Memory {
    /// The NUMA node of a waiter, only for [`trace`](Listen::trace); `None` if no one listens. The look costs a cache
    /// line that the waiter polls, and only statistics need it.
    #[inline(always)]
    fn counted_on(waiter: &Node<Self>) -> Option<u32> {
        Some(waiter.numa.load(Ordering::Relaxed))
    }

    /// Says which lock the calling thread's events are about from now on, by the address of its state: that of the word
    /// of a mutex or semaphore, that of the state or queue of others. 0: about none. Returns what they were about
    /// before. A thread that is unwound leaves the name of a lock behind until it names the next one.
    ///
    /// The functions that a lock's users call do this ([`counted::about`](crate::parts::counted::about)); locks do not.
    #[inline(always)]
    fn about(_lock: usize) -> usize {
        0
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
