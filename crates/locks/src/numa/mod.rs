//! Locks that keep their hand-offs on one NUMA node.

pub mod cna;
pub mod qspin_cna;

pub use cna::Cna;
pub use qspin_cna::QspinCna;
