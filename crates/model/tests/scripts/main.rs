//! The locks whose holder, or head, culls waiters, step by step in one thread: exactly these queues after each
//! hand-off; and what the catalogue counts.

mod catalogue;
mod cna;
mod mcscr;
mod qspin_cna;
mod random;
#[path = "../shared/rcl_ring.rs"]
mod rcl_ring;
mod script;
