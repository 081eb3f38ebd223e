//! Locks that keep their hand-offs on one NUMA node.

pub mod cna;
pub mod cohort;
pub mod cst;
pub mod hmcs;
pub mod qspin_cna;

pub use cna::Cna;
pub use cohort::{CBoMcs, CPtlTkt, CTktTkt};
pub use cst::Cst;
pub use hmcs::Hmcs;
pub use qspin_cna::QspinCna;
