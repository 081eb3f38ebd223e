//! Queue locks with direct hand-off: first come, first served, except `mcs-tp`, which passes over waiters that do not
//! run.

pub mod clh;
pub mod mcs;
pub mod mcs_tp;
pub mod qspin;

pub use clh::Clh;
pub use mcs::Mcs;
pub use mcs_tp::McsTp;
pub use qspin::Qspin;
