//! # ShflLocks: shuffling decouples the policy from the lock
//!
//! | file | holds |
//! |---|---|
//! | [`shfl`] | the lock: a word in front, one queue behind it; problem, sources, departures, invariants |
//! | [`turn`] | the wait in the queue |
//! | [`head`] | the head's contention for the word |
//! | [`release`] | the release: to the first thread that takes the word, or to the head |
//! | [`spin`] | the non-blocking ShflLock: the same without sleepers |
//! | [`front`] | the front of the queue: joining, becoming head, leaving, skipping abandoned nodes |
//! | [`shuffler`] | the walk that reorders the queue and wakes sleepers ahead of their turn |

pub mod front;
pub mod head;
pub mod release;
pub mod shfl;
pub mod shuffler;
pub mod spin;
pub mod turn;

pub use front::ShflQueue;
pub use shfl::Shfl;
pub use spin::ShflSpin;
