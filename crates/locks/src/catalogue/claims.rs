//! # Claims: what a lock promises
//!
//! In terms that a test can check of any lock (`crates/sim/tests/claims`); a row of the catalogue names those that hold
//! for its lock. Every lock claims that it is not free for long while a thread waits.

/// A promise about the order in which threads acquire a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// First come, first served: a waiter is never passed over twice by the same thread.
    InOrder,
    /// Every waiter is served, however long other threads keep asking for the lock.
    Serves,
    /// No thread waits for longer than the sum of the bounds (from its options) of all waiters.
    Bounded,
    /// Of a bounded lock: two sections count for each waiter, because a later thread may have one of them.
    Twice,
    /// Waiters of the holder's NUMA node mostly go before others.
    Local,
    /// With more threads than keep the lock busy, only a few circulate at a time. With fewer, it is as fast as MCS.
    Restricts,
}
