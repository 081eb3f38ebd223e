//! # ShflLocks: shuffling decouples the policy from the lock
//!
//! | file | holds |
//! |---|---|
//! | [`shfl`] | the lock: a word in front, one queue behind it; problem, sources, departures, invariants |
//! | [`head`] | the head's contention for the word |
//! | [`release`] | the release: to the first thread that takes the word, or to the head |
//! | [`sleeper`] | what a waiter does that wakes up before its turn |
//! | [`state`] | the state, and when the head is overdue |
//! | [`spin`] | the non-blocking ShflLock: the same without sleepers |
//!
//! Their queue, the wait in it, and the walk that reorders it, are a part: [`parts::shuffle`](crate::parts::shuffle).

pub mod head;
pub mod release;
pub mod shfl;
pub mod sleeper;
pub mod spin;
pub mod state;

pub use shfl::Shfl;
pub use spin::ShflSpin;
