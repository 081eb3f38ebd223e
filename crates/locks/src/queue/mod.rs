//! Strict queue locks: first come, first served, by direct hand-off.

pub mod mcs;

pub use mcs::Mcs;
