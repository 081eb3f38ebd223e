//! Locks that restrict how many threads circulate through them.

pub mod mcscr;

pub use mcscr::Mcscr;
