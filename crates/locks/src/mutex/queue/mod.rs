//! Queue locks with direct hand-off: first come, first served.

pub mod clh;
pub mod mcs;
pub mod mcs_tp;
pub mod qspin;

pub use clh::Clh;
pub use mcs::Mcs;
pub use mcs_tp::McsTp;
pub use qspin::Qspin;
