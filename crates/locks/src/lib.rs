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
//! **No safe function of this crate breaks memory**, whatever a program does with it. Locks share queue nodes and
//! blocks. A wrong word in a node may make *any* lock let two threads in, or make a closure lock call any address. So
//! two things are unsafe outside the crate:
//! - **To call a lock on state that is not its own.** The functions of the locks ask for that [contract](parts::raw).
//!   [`Raw`](parts::raw::Raw), [`rw::Raw`] and [`Delegate`](closure::Delegate) keep it, for programs that embed a lock.
//! - **To have a [handle](machine::Handle) of a node, or the [name](machine::block::Name) of a block.** These are
//!   permissions to write there. Safe code can neither make one nor be given one: machines, tests, and locks and parts
//!   of other crates promise to do with them what the numbered invariants of the page allow. An admission
//!   [policy](parts::policy) needs none: it looks at waiters, and cannot change them.
//!
//! Inside the crate any function may make a handle of a word. There the pages' invariants say which words hold one,
//! which thread may write what, and who gives a node back. The models and Miri (`cargo xtask miri`) check them.
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
