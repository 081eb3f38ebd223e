//! # The queue whose waiters reorder it
//!
//! | file | holds |
//! |---|---|
//! | [`front`] | the front of the queue: joining, becoming head, leaving, skipping abandoned nodes |
//! | [`turn`] | the wait in the queue |
//! | [`rouse`] | waking waiters, and leaving notes to them |
//! | [`batch`] | which waiter is in a group, and which is the shuffler |
//! | [`shuffler`] | the walk that reorders the queue and wakes sleepers ahead of their turn |

pub mod batch;
#[cfg(test)]
pub(crate) mod bench;
pub mod front;
pub mod rouse;
pub mod shuffler;
pub mod turn;

pub use front::ShflQueue;
