//! # The locks under model checkers
//!
//! The algorithms of `flashlock-locks` are written against a machine. Here the machine is a model checker. It runs the
//! same code under every schedule (loom, for small programs) or under very many (shuttle, for larger ones). All model
//! tests of the project are in this package's `tests/`. `docs/models.md` says what they cover and what they cannot.
//! `examples/own-lock` checks a lock, a policy and a workload that this project does not know.
//!
//! This package is for tests only. Seeded bugs break the invariants of locks, so here safe code may have handles of
//! queue nodes ([`arena::handle_in`]). Everywhere else that takes `unsafe`.
//!
//! | module | holds |
//! |---|---|
//! | [`checker`] | what loom and shuttle have in common, as a trait |
//! | [`loom`], [`shuttle`] | the two checkers, and how to run a model under them |
//! | [`machine`] | [`Model`], the `Machine` on top of a checker |
//! | [`word`] | its atomic word, whose orderings a test can weaken |
//! | [`meddle`] | single accesses that a test does differently |
//! | [`tag`] | the purpose of each word in a lock's state |
//! | [`world`] | one execution: settings, threads, time |
//! | [`arena`] | its queue nodes and blocks, and which are taken |
//! | [`kernel`] | its futexes |
//! | [`backend`] | the checker as the memory of workloads |
//! | [`harness`] | mutexes, condition variables and semaphores to check, with data to protect |
//! | [`erased`](mod@erased) | mutexes of one type for all locks, so that models are compiled once |

pub mod arena;
pub mod backend;
pub mod checker;
pub mod erased;
pub mod harness;
pub mod kernel;
pub mod loom;
pub mod machine;
pub mod meddle;
pub mod shuttle;
pub mod tag;
pub mod word;
pub mod world;

pub use machine::Model;
pub use meddle::{Access, Instead};
pub use word::{Field, Op, Weaken};
pub use world::{Fault, Setup};

/// The locks under loom.
pub type Loom = Model<loom::Loomed>;
/// The locks under shuttle.
pub type Shuttle = Model<shuttle::Shuttled>;

/// Whether `FLASHLOCK_FULL` is set: this is a run that may take hours (`cargo xtask full`).
pub fn is_full() -> bool {
    std::env::var_os("FLASHLOCK_FULL").is_some_and(|value| value != "0" && !value.is_empty())
}
