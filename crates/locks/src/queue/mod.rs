//! Queue locks that hand over directly: first come, first served, or with waiters set aside.

pub mod aside;
pub mod link;
pub mod mcs;
pub mod qspin;

pub use mcs::Mcs;
pub use qspin::Qspin;
