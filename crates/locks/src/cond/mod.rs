//! Condition variables.

pub mod deferral;
pub mod fifo;

pub use deferral::{AtOnce, Defer};
pub use fifo::{Busy, CondQueue, Morph, Outcome};
