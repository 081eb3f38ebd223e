//! Condition variables.

pub mod chain;
pub mod fifo;

pub use chain::{Chain, pass_baton};
pub use fifo::{Busy, CondQueue, Morph, Outcome};
