//! Locks that restrict how many threads circulate through them.

pub mod lifo_cr;
pub mod loiter;
pub mod mcscr;
pub mod mcscrn;

pub use lifo_cr::LifoCr;
pub use loiter::Loiter;
pub use mcscr::Mcscr;
pub use mcscrn::Mcscrn;
