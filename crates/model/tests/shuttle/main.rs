//! The locks under shuttle: protocols, in larger models.

#[path = "../shared/closure_mutants.rs"]
mod closure_mutants;
mod closures;
mod common;
#[path = "../shared/compact_mutants.rs"]
mod compact_mutants;
mod cond;
mod culling;
#[path = "../shared/culling_mutants.rs"]
mod culling_mutants;
#[path = "../shared/evict_mutants.rs"]
mod evict_mutants;
mod evictions;
mod exclusion;
mod flash;
#[path = "../shared/flash_mutants.rs"]
mod flash_mutants;
mod frozen;
mod lifetime;
#[path = "../shared/modelled.rs"]
mod modelled;
#[path = "../shared/mutants.rs"]
mod mutants;
mod pending;
mod polite;
#[path = "../shared/polite_mutants.rs"]
mod polite_mutants;
mod protocols;
#[path = "../shared/qspin_mutants.rs"]
mod qspin_mutants;
mod rcl;
#[path = "../shared/rcl_printed.rs"]
mod rcl_printed;
#[path = "../shared/rcl_ring.rs"]
mod rcl_ring;
mod rw;
#[path = "../shared/rw_mutants.rs"]
mod rw_mutants;
mod sem;
#[path = "../shared/sem_mutants.rs"]
mod sem_mutants;
mod shuffling;
mod states;
mod still;
mod stopped;
mod trust;
mod unwaited;
mod woken;
