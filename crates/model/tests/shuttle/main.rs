//! The locks under shuttle: protocols, in larger models.

mod aside;
#[path = "../shared/aside_mutants.rs"]
mod aside_mutants;
mod common;
mod cond;
mod exclusion;
mod frozen;
mod lifetime;
#[path = "../shared/mutants.rs"]
mod mutants;
mod protocols;
#[path = "../shared/qspin_mutants.rs"]
mod qspin_mutants;
mod shuffling;
mod states;
