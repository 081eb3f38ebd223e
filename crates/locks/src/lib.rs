//! # flashlock's lock algorithms
//!
//! One file per lock, written once against [`machine::Machine`] and run natively, under model checkers and on a
//! simulated computer. The crate is `no_std`, has no dependencies, allocates nothing and knows nothing of operating
//! systems.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`], [`node`] | what a lock asks of a computer; the queue node |
//! | [`raw`] | the interface that all locks share |
//! | [`settle`] | the first use of a lock in a forked child |
//! | [`side`] | state of a lock that is too large for the lock |
//! | [`wait`] | waiting policies: spin, spin-then-park, park |
//! | [`policy`] | admission policies for shuffling locks |
//! | [`flash`], [`spin`], [`queue`], [`shuffle`], [`numa`], [`malthusian`] | the locks |
//! | [`closure`] | locks that are given what is to be done under them, and the interface that they share |
//! | [`rw`] | the readers-writer locks, and the interface that they share |
//! | [`cond`], [`sem`] | the condition variable, the semaphore |
//! | [`order`] | in which order their waiters are called |
//! | [`catalogue`] | the list of locks that everything else is generated from |
//! | [`event`] | the list of events that statistics are generated from |
//!
//! A lock's state comes in two pieces, a word and a queue of up to four words, so that it can be laid around the fields
//! of a foreign object (a `pthread_mutex_t`, whose `__kind` must stay where glibc expects it).
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
