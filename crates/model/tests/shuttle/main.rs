//! The locks under shuttle: protocols, in larger models.

mod common;
mod cond;
mod exclusion;
mod frozen;
mod lifetime;
#[path = "../shared/mutants.rs"]
mod mutants;
mod protocols;
mod shuffling;
mod states;
