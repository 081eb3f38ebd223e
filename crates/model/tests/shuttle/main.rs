//! The locks under shuttle: protocols, in larger models.

mod common;
mod cond;
mod exclusion;
mod frozen;
mod lifetime;
mod shuffling;
