//! Condition variables.

pub mod fifo;

pub use fifo::{Busy, CondQueue, Morph, Outcome};
