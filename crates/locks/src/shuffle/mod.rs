//! # ShflLocks: shuffling decouples the policy from the lock
//!
//! | file | holds |
//! |---|---|
//! | [`shfl`] | the lock: a word in front, one queue behind it, hand-off of overdue waits |
//! | [`front`] | the queue's front: joining, becoming head, leaving, skipping who gave up |
//! | [`shuffler`] | the walk that reorders the queue and wakes sleepers ahead of their turn |

pub mod front;
pub mod shfl;
pub mod shuffler;

pub use front::ShflQueue;
pub use shfl::Shfl;
