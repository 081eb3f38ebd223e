//! The locks under loom: orderings, and protocols in small models.

// loom's atomics are not `Sync`, and need not be: its threads are coroutines of one.
#![allow(clippy::arc_with_non_send_sync)]

mod aside;
#[path = "../shared/aside_mutants.rs"]
mod aside_mutants;
mod common;
mod cond;
mod exclusion;
mod forked;
#[path = "../shared/mutants.rs"]
mod mutants;
mod orderings;
mod protocols;
mod rw;
#[path = "../shared/rw_mutants.rs"]
mod rw_mutants;
mod states;
mod timeouts;
mod walks;
