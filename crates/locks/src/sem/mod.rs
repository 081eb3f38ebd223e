//! Counting semaphores.

pub mod call;
mod list;
pub mod queue;
pub mod waiter;

pub use queue::{Overflow, SemQueue, Semaphore};
pub use waiter::{Ended, Entry, Slept};
