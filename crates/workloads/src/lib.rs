//! # The papers' critical sections
//!
//! What the papers measure locks with, written once for any lock: a [`Raw`] lock of the catalogue on any machine, or
//! whatever else excludes (a `pthread_mutex_t`, in `flashlock compare`). A [`Workload`] owns its lock and the data
//! behind it; a client, one for each thread, performs operations until whoever runs it has seen enough. Nothing here
//! starts threads: that is left to the runner. What takes memory or time is asked of a [`Backend`]: this computer, or a
//! simulated one. Given their seeds, clients always ask for the same operations.
//!
//! | module | holds |
//! |---|---|
//! | [`key_value`] | a search tree behind one lock (CNA, EuroSys 2019, section 7.1.1) |
//! | [`avl`] | that tree |
//! | [`rand_array`] | random reads, inside and outside (Malthusian locks, EuroSys 2017, section 6.1) |
//! | [`buffer_pool`] | few buffers for many threads (Malthusian locks, section 6.11) |
//! | [`producer_consumer`] | a bounded queue (Malthusian locks, section 6.7) |
//! | [`directory`] | a directory that everybody lists, under a readers-writer lock (ShflLocks, slides 79 and 80) |
//! | [`lock_torture`] | the kernel's own test of its spin lock (CNA, section 7.2.1) |
//! | [`sections`] | any sequence of sections of given lengths; two of will-it-scale, and leveldb (the CNA kernel patch) |
//! | [`shared_lines`] | sections that read and write shared lines, one after the other, under one lock or several (RCL, USENIX ATC 2012, section 4) |
//! | [`ground`] | what a workload asks of a computer: [`Backend`], [`Lines`], [`Here`] |
//! | [`lock`], [`wait`] | what a workload asks of a lock; of a condition variable and a semaphore |
//! | [`history`] | how fair a lock was |
//! | [`random`] | chance, for clients and for work outside of critical sections |

#![no_std]

extern crate alloc;
// For clocks and sleep in `ground`, and square roots in `history`.
extern crate std;

pub mod avl;
pub mod buffer_pool;
pub mod directory;
pub mod ground;
pub mod history;
pub mod key_value;
pub mod lock;
pub mod lock_torture;
pub mod producer_consumer;
pub mod rand_array;
pub mod random;
pub mod sections;
pub mod shared_lines;
#[cfg(test)]
mod told;
pub mod wait;

pub use buffer_pool::BufferPool;
pub use directory::Directory;
pub use ground::{Backend, Here, Lines};
pub use key_value::KeyValue;
pub use lock::{Lock, Raw, RwLock};
pub use lock_torture::LockTorture;
pub use producer_consumer::ProducerConsumer;
pub use rand_array::RandArray;
pub use sections::Sections;
pub use shared_lines::SharedLines;

/// Something to do with a lock, again and again, by any number of threads.
pub trait Workload: Sync {
    /// One thread's part. Not shared.
    type Client;

    /// The client of that number; numbers count from 0.
    fn client(&self, seed: u64, number: u32) -> Self::Client;

    /// One operation, with the work that comes before and after it outside of the lock.
    fn operate(&self, client: &mut Self::Client);

    /// Whether the client's operations are what is counted.
    fn counts(&self, _client: &Self::Client) -> bool {
        true
    }

    /// The client performs no more operations. To be called where operations wait for those of other clients: they need
    /// not any more.
    fn retire(&self, _client: Self::Client) {}

    /// Whether so many operations, of all clients together, left what they should have; what is wrong otherwise.
    fn check(&mut self, operations: u64) -> Result<(), &'static str>;
}
