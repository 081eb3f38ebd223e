//! # The native machine
//!
//! [`Native`] runs the locks of `flashlock-locks` on this computer: `AtomicU32`, futexes, a pool of queue nodes, clocks
//! and the NUMA topology. Functions that lock paths call allocate nothing, take no lock, run no destructor and make
//! only raw system calls. Functions that read files ([`topology`]) are called outside lock paths.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | [`Native`], the `Machine` implementation |
//! | [`alone`] | locks without the `lock` prefix in a process with one thread |
//! | [`registry`] | what all copies of this code in a process share |
//! | [`pool`], [`thread`] | queue nodes, and each thread's own |
//! | `local` | thread-local storage that never allocates |
//! | [`holder`] | the thread's id, for a mutex's owner field |
//! | [`held`] | the read locks that a thread holds |
//! | [`futex`], [`clock`], [`sys`] | the kernel and the time |
//! | [`spin`], [`umwait`] | polling: budget, yielding, signs of a crowd; resting until a line changes |
//! | [`membarrier`] | a full barrier with one free side |
//! | [`epoch`] | telling a forked child from its parent |
//! | [`place`], [`numa`], [`near`], [`groups`], [`parts`], [`topology`] | where a thread runs, and what is near it |
//! | [`stats`] | counters in shared memory |
//! | [`settings`] | the user's settings |

pub mod alone;
pub mod clock;
pub mod epoch;
pub mod evidence;
pub mod futex;
pub mod groups;
pub mod held;
pub mod holder;
pub mod left;
mod local;
pub mod machine;
pub mod membarrier;
pub mod near;
pub mod numa;
pub mod parts;
pub mod place;
pub mod pool;
pub mod registry;
pub mod settings;
pub mod spin;
pub mod stats;
pub mod sys;
pub mod thread;
pub mod topology;
pub mod umwait;

pub use machine::{Counting, Native, NoStats, Word32};
