//! # Locks that are broken on purpose
//!
//! Tests of the tests: a torture that does not catch one of these is no torture. They are a crate of their own so that
//! no program that embeds flashlock can come by one.
#![no_std]

mod mutex;
mod rw;

pub use mutex::Busted;
pub use rw::BustedRw;

use flashlock_locks::machine::Machine;

/// Whether this acquisition shall fail to exclude.
fn slips<M: Machine>() -> bool {
    M::random().is_multiple_of(10_000)
}
