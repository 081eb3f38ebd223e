//! # The queue whose waiters reorder it
//!
//! | file | holds |
//! |---|---|
//! | [`front`] | the front of the queue: joining, becoming head, leaving, skipping abandoned nodes |
//! | [`shuffler`] | the walk that reorders the queue and wakes sleepers ahead of their turn |

#[cfg(test)]
pub(crate) mod bench;
pub mod front;
pub mod shuffler;

pub use front::ShflQueue;
