//! # The papers' critical sections
//!
//! The workloads with which the papers measure locks, written once for any lock: a [`Raw`] lock of the catalogue on any
//! machine, or any other mutual exclusion (a `pthread_mutex_t`, in `flashlock compare`). A [`Workload`] owns its lock
//! and the data behind it. Each thread has a client, which performs operations until the runner ends the run. Memory
//! and time come from a [`Backend`]: the host, a simulated computer or a model checker. With the same seeds, clients
//! always request the same operations.
//!
//! Three functions run any workload with any lock, and check its result: [`run`](run::run) with threads,
//! `Simulation::perform` of `flashlock-sim` on a simulated computer, `loom::operations` of `flashlock-model` in every
//! schedule.
//!
//! | module | holds |
//! |---|---|
//! | [`key_value`] | a search tree behind one lock (CNA, EuroSys 2019, section 7.1.1) |
//! | [`avl`] | that tree |
//! | [`rand_array`] | random reads, inside and outside (Malthusian locks, EuroSys 2017, section 6.1) |
//! | [`buffer_pool`] | few buffers for many threads (Malthusian locks, section 6.11) |
//! | [`producer_consumer`] | a bounded queue (Malthusian locks, section 6.7) |
//! | [`directory`] | a directory that all threads list, under a readers-writer lock (ShflLocks, slides 79 and 80) |
//! | [`lock_torture`] | the kernel's own test of its spin lock (CNA, section 7.2.1) |
//! | [`sections`] | any sequence of sections: two loops of will-it-scale, leveldb (the CNA kernel patch) |
//! | [`shared_lines`] | sections that access shared lines, under one or several locks (RCL, USENIX ATC 2012) |
//! | [`catalogue`] | all of these, by name, with their parameters; what runs them: [`Runner`](catalogue::Runner) |
//! | [`backend`] | what a workload needs from a computer: [`Backend`], [`Lines`], [`Here`] |
//! | [`lock`], [`wait`] | what a workload needs from a lock, a condition variable, a semaphore |
//! | [`history`] | the fairness of a lock |
//! | [`run`](mod@run) | running a workload with threads of this computer |
//! | [`random`] | random numbers, for clients and for work outside critical sections |

#![no_std]

extern crate alloc;
// For clocks and sleep in `backend`, square roots in `history`, and threads in `run`.
extern crate std;

pub mod avl;
pub mod backend;
pub mod buffer_pool;
pub mod catalogue;
pub mod directory;
pub mod history;
pub mod key_value;
pub mod lock;
pub mod lock_torture;
pub mod producer_consumer;
pub mod rand_array;
pub mod random;
#[cfg(test)]
mod recorder;
pub mod run;
pub mod sections;
pub mod shared_lines;
pub mod wait;

pub use backend::{Backend, Here, Lines};
pub use buffer_pool::BufferPool;
pub use directory::Directory;
pub use flashlock_locks::parts::raw::Raw;
pub use key_value::KeyValue;
pub use lock::{Lock, RwLock};
pub use lock_torture::LockTorture;
pub use producer_consumer::ProducerConsumer;
pub use rand_array::RandArray;
pub use run::run;
pub use sections::Sections;
pub use shared_lines::SharedLines;

/// An operation under a lock that any number of threads repeat.
pub trait Workload: Sync {
    /// The state of one thread. Not shared.
    type Client;

    /// The client with this number; numbers start at 0.
    fn client(&self, seed: u64, number: u32) -> Self::Client;

    /// One operation, with the work before and after it outside the lock.
    fn operate(&self, client: &mut Self::Client);

    /// Whether this client's operations are counted.
    fn counts(&self, _client: &Self::Client) -> bool {
        true
    }

    /// The client performs no more operations. It must be called if operations wait for those of other clients: from
    /// now on they need not.
    fn retire(&self, _client: Self::Client) {}

    /// Checks that `operations` operations, of all clients together, left the right state. The error says what is
    /// wrong.
    fn check(&mut self, operations: u64) -> Result<(), &'static str>;
}
