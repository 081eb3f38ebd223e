//! Queue locks with direct hand-off: first come, first served, or with waiters culled.

pub mod clh;
pub mod culling;
pub mod k42;
pub mod link;
pub mod mcs;
pub mod mcs_tp;
pub mod qspin;
pub mod service;
pub mod succession;

pub use clh::Clh;
pub use mcs::Mcs;
pub use mcs_tp::McsTp;
pub use qspin::Qspin;
