//! # The locks under model checkers
//!
//! The algorithms of `flashlock-locks` are written against a machine. Here that machine is a model checker, which runs
//! the same code under every schedule (loom, small programs) or under very many (shuttle, larger ones). All model tests
//! of the project stand in this package's `tests/`; what they cover, and what they cannot, is in `docs/models.md`.
//!
//! | module | holds |
//! |---|---|
//! | [`checker`] | what loom and shuttle have in common, as a trait |
//! | [`loom`], [`shuttle`] | the two, and how to run a model under them |
//! | [`machine`] | [`Model`], the `Machine` over a checker |
//! | [`word`] | its atomic word, whose orderings a test can weaken |
//! | [`meddle`] | single accesses that a test does otherwise |
//! | [`tag`] | what the words of each lock's state are for |
//! | [`world`] | one execution: settings, threads, time |
//! | [`arena`] | its queue nodes, and who has them |
//! | [`kernel`] | its futexes |
//! | [`harness`] | mutexes and condition variables made from the locks, with something to protect |

pub mod arena;
pub mod checker;
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
