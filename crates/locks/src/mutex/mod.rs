//! # Mutexes
//!
//! One page, one lock. A mutex implements [`RawLock`](crate::parts::raw::RawLock).
//!
//! | module | holds |
//! |---|---|
//! | [`flash`] | the default: any running thread may take it; one waiter contends, the others sleep |
//! | [`spin`] | locks whose waiters poll or sleep on the lock itself |
//! | [`queue`] | queue locks with direct hand-off: first come, first served, except `mcs-tp` |
//! | [`numa`] | locks that keep their hand-offs on one NUMA node |
//! | [`malthusian`] | locks that restrict how many threads circulate through them |
//! | [`shuffle`] | locks whose waiters reorder the queue |

pub mod flash;
pub mod malthusian;
pub mod numa;
pub mod queue;
pub mod shuffle;
pub mod spin;
