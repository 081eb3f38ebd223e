//! Locks that keep their hand-offs on one NUMA node.

pub mod cna;

pub use cna::Cna;
