//! What flashlock measures: operations of this machine and of its kernel, and workloads under locks, on this machine
//! and on simulated ones.
//!
//! This is a crate of its own because it is worth optimising: the command around it parses arguments and prints.

pub mod costs;
pub mod cpu;
pub mod embedded;
pub mod evidence;
pub mod map;
pub mod noise;
pub mod pthread;
pub mod sections;
pub mod simulated;
