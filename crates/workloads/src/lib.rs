//! # The papers' critical sections
//!
//! What the papers measure locks with, written once for any lock: a [`Raw`] lock of the catalogue on any machine, or whatever
//! else excludes (a `pthread_mutex_t`, in `flashlock compare`). A workload owns its lock and the data behind it; a client,
//! one for each thread, performs operations until whoever runs it has seen enough. Nothing here starts threads, reads clocks or
//! asks the system for anything: that is left to the runner, which may be a simulator. Given their seeds, clients always ask
//! for the same operations.
//!
//! | module | holds |
//! |---|---|
//! | [`key_value`] | a search tree behind one lock (CNA, EuroSys 2019, section 7.1.1) |
//! | [`avl`] | that tree |
//! | [`lock`] | what a workload asks of a lock |
//! | [`random`] | chance, for clients and for work outside of critical sections |

#![no_std]

extern crate alloc;

pub mod avl;
pub mod key_value;
pub mod lock;
pub mod random;

pub use key_value::KeyValue;
pub use lock::{Lock, Raw};
