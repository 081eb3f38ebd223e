//! Queue locks that hand over directly: first come, first served, or with waiters set aside.

pub mod aside;
pub mod link;
pub mod mcs;

pub use mcs::Mcs;
