//! # ShflLocks: shuffling decouples the policy from the lock
//!
//! | file | holds |
//! |---|---|
//! | [`shfl`] | the lock: a word in front, one queue behind it; problem, sources, departures, invariants |
//! | [`turn`] | the wait in the queue |
//! | [`head`] | the head's contention for the word |
//! | [`release`] | the release: to the first thread that takes the word, or to the head |
//! | [`spin`] | the non-blocking ShflLock: the same without sleepers |
//!
//! Their queue, and the walk that reorders it, are a part: [`parts::shuffle`](crate::parts::shuffle).

pub mod head;
pub mod release;
pub mod shfl;
pub mod spin;
pub mod turn;

pub use shfl::Shfl;
pub use spin::ShflSpin;
