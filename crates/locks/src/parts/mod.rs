//! # What locks are made of
//!
//! Each part once. Parts use the [machine](crate::machine) and each other, and know no lock.
//!
//! | module | holds |
//! |---|---|
//! | [`raw`] | the interface that all mutexes share |
//! | [`zeroed`](mod@zeroed) | state that is zero when it is made |
//! | [`wait`] | waiting policies: spin, spin-then-park, park; nodes that waiters have left behind |
//! | [`queue`] | queues with direct hand-off, what stands in their links, and which waiter is next |
//! | [`shuffle`] | the queue whose waiters reorder it |
//! | [`policy`] | admission policies for shuffling locks |
//! | [`adoption`] | the waiters of a broadcast, on their way to a mutex |
//! | [`counted`] | what locks count where they wait |
//! | [`list`](mod@list) | the list of the condition variable and of the semaphore |
//! | [`side`] | side blocks: state for which a lock has no room |
//! | [`settle`](mod@settle) | the first use of a lock in a forked child |

pub mod adoption;
pub mod counted;
pub(crate) mod list;
pub(crate) mod naps;
pub mod policy;
pub mod queue;
pub mod raw;
pub mod settle;
pub mod shuffle;
pub mod side;
pub mod wait;
pub mod zeroed;
