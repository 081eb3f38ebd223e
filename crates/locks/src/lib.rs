//! # flashlock's lock algorithms
//!
//! Each lock is one file. It is written once against [`machine::Machine`], and runs natively, under model checkers and
//! on a simulated computer. The crate is `no_std`, has no dependencies, allocates nothing and knows nothing of
//! operating systems. `docs/glossary.md` explains the terms, and cites the papers that they come from.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`], [`node`] | what a lock asks of a computer; the queue node |
//! | [`raw`] | the interface that all locks share |
//! | [`settle`] | the first use of a lock in a forked child |
//! | [`side`] | side blocks: state for which a lock has no room |
//! | [`wait`] | waiting policies: spin, spin-then-park, park |
//! | [`policy`] | admission policies for shuffling locks |
//! | [`flash`], [`spin`], [`queue`], [`shuffle`], [`numa`], [`malthusian`] | the locks |
//! | [`closure`] | closure locks, which run a function under the lock, and the interface that they share |
//! | [`rw`] | the readers-writer locks, and the interface that they share |
//! | [`cond`], [`sem`] | the condition variable, the semaphore |
//! | [`order`] | the order in which these wake their waiters |
//! | [`catalogue`] | the list of locks that everything else is generated from |
//! | [`event`] | the list of events that statistics are generated from |
//!
//! A lock's state has two pieces, a word and a queue of up to four words. So it fits around the fields of a foreign
//! object: the `__kind` of a `pthread_mutex_t` must stay where glibc expects it.
#![no_std]
#![warn(missing_docs)]

pub mod catalogue;
pub mod closure;
pub mod cond;
pub mod event;
pub mod flash;
mod list;
pub mod machine;
pub mod malthusian;
pub mod node;
pub mod numa;
pub mod order;
pub mod policy;
pub mod queue;
pub mod raw;
pub mod rw;
pub mod sem;
pub mod settle;
pub mod shuffle;
pub mod side;
pub mod spin;
pub mod wait;
