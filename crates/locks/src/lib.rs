//! # flashlock's lock algorithms
//!
//! Each lock is one file. It is written once against [`machine::Machine`], and runs natively, under model checkers and
//! on a simulated computer. The crate is `no_std`, has no dependencies, allocates nothing and knows nothing of
//! operating systems. `docs/glossary.md` explains the terms, and cites the papers that they come from.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | what a lock asks of a computer: words, queue nodes, places, clocks, events, settings |
//! | [`parts`] | what locks are made of, each once |
//! | [`mutex`], [`rw`], [`closure`] | the locks: mutexes, readers-writer locks, closure locks |
//! | [`cond`], [`sem`] | the condition variable, the semaphore |
//! | [`catalogue`] | the lists of locks that everything else is generated from |
//!
//! Each uses only those above it in the table; `docs/architecture.md` has the picture, and `cargo xtask docs --check`
//! checks it.
//!
//! A lock's state has two pieces, a word and a queue of up to five words. So it fits around the fields of a foreign
//! object: the `__kind` of a `pthread_mutex_t` must stay where glibc expects it.
//!
//! ## What is safe
//! [`Raw`](parts::raw::Raw), [`rw::Raw`] and [`Delegate`](closure::Delegate) are for programs that embed a lock; a
//! program that uses only these, and keeps what their unsafe functions ask, has intact memory. The functions of the
//! locks themselves ask for the [contract](parts::raw) that their state is their own. [`parts`], [`cond`] and [`sem`]
//! are what locks and the preload are made of. Their functions reach nothing but the machine's words, nodes and blocks,
//! whatever numbers the words hold. But all locks of a process share these: a program that writes to a node, or waits
//! with one, against the invariants on the part's page may make *another* lock let two threads in, or make a closure
//! lock call any address.
#![no_std]
#![warn(missing_docs)]

pub mod catalogue;
pub mod closure;
pub mod cond;
pub mod machine;
pub mod mutex;
pub mod parts;
pub mod rw;
pub mod sem;
