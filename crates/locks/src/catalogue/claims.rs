//! # Claims: what a lock is there for
//!
//! In terms that a test can check of any lock (`crates/sim/tests/claims`); a row of the catalogue names those that hold
//! for its lock. Of every lock it is claimed that it is not free for long while somebody waits.

/// What a lock promises of the order in which threads have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Who comes first is served first; nobody who has waited is passed over by the same thread again.
    InOrder,
    /// Everybody who waits is served, however long others go on asking.
    Serves,
    /// Nobody waits for longer than the bounds of all who wait, as its options say, one after the other.
    Bounded,
    /// Of a bounded lock: two sections for each waiter, since one may be somebody's who came later.
    Twice,
    /// Waiters of the holder's NUMA node come before others, mostly.
    Local,
    /// With more threads than are needed to keep the lock busy, few of them take turns at a time; with fewer it is as
    /// fast as MCS.
    Restricts,
}
