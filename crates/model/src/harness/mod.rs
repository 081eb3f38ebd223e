//! # Objects to check: mutexes, condition variables, semaphores
//!
//! Models use these objects. They are what `posix` makes of the locks, without POSIX.
//!
//! | module | holds |
//! |---|---|
//! | [`mutex`], [`rw`] | a lock with its state, and the data that it protects |
//! | [`release`] | what the release of a mutex has to do besides: waiters that a signal has left to it |
//! | [`cond`] | a condition variable with the four ways in which a wait can end |
//! | [`sem`] | a semaphore |
//! | [`totals`] | what happened in all executions of a model, and how a seeded bug was found |

pub mod cond;
pub mod mutex;
pub mod release;
pub mod rw;
pub mod sem;
pub mod totals;

pub use cond::{Cond, Waited, finish};
pub use mutex::Mutex;
pub use release::{Release, ToRelease};
pub use rw::RwLock;
pub use sem::Sem;
pub(crate) use totals::message;
pub use totals::{Found, Totals};
