//! # A lock, an admission policy and a workload of your own, outside flashlock's tree
//!
//! | module | holds |
//! |---|---|
//! | [`lock`] | `ParkingTicket`, a lock |
//! | [`policy`] | `SameGroup`, an admission policy for ShflLocks |
//! | [`workload`] | `Histogram`, a workload |
//! | `tests` | all three on this computer, on a simulated one, and under the model checker loom |
//!
//! `docs/adding.md` explains each step.

pub mod lock;
pub mod policy;
#[cfg(test)]
mod tests;
pub mod workload;
