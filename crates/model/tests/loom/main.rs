//! The locks under loom: orderings, and protocols in small models.

// loom's atomics are not `Sync`, and need not be: its threads are coroutines of one.
#![allow(clippy::arc_with_non_send_sync)]

#[path = "../shared/closure_mutants.rs"]
mod closure_mutants;
mod closures;
mod cohort;
#[path = "../shared/cohort_mutants.rs"]
mod cohort_mutants;
mod common;
#[path = "../shared/compact_mutants.rs"]
mod compact_mutants;
mod cond;
mod culling;
#[path = "../shared/culling_mutants.rs"]
mod culling_mutants;
mod deferral;
#[path = "../shared/evict_mutants.rs"]
mod evict_mutants;
mod evictions;
mod exclusion;
mod flash;
#[path = "../shared/flash_mutants.rs"]
mod flash_mutants;
mod forked;
mod home;
mod lifo;
#[path = "../shared/modelled.rs"]
mod modelled;
#[path = "../shared/mutants.rs"]
mod mutants;
mod notes;
mod orderings;
mod policies;
mod polite;
#[path = "../shared/polite_mutants.rs"]
mod polite_mutants;
mod protocols;
mod qspin;
#[path = "../shared/qspin_mutants.rs"]
mod qspin_mutants;
mod queues;
mod rcl;
#[path = "../shared/rcl_ring.rs"]
mod rcl_ring;
mod rw;
#[path = "../shared/rw_mutants.rs"]
mod rw_mutants;
mod sem;
#[path = "../shared/sem_mutants.rs"]
mod sem_mutants;
mod stacks;
mod states;
mod timeouts;
mod tries;
mod walks;
