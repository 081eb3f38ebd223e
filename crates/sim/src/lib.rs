//! # A simulated computer

#![warn(missing_docs)]

pub mod description;

pub use description::Description;
