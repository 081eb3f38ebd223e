//! # pthread objects on flashlock's locks
//!
//! The state of a lock lives in the program's own `pthread_mutex_t`, laid around the fields that glibc owns
//! ([`layout`]): no table, no allocation, no initialisation, and the static initialisers are free locks. What cannot be
//! served (robust, priority-inheriting, priority-protected and process-shared objects) goes to glibc's own code
//! ([`glibc`]).
//!
//! | module | holds |
//! |---|---|
//! | `cancel` | sleeping at a cancellation point |
//! | [`layout`] | where glibc keeps what, by version |
//! | [`kind`] | what kind of mutex it is, and whose |
//! | [`mutex`], [`cond`], [`rwlock`] | the semantics, generic over the lock |
//! | [`spin`], [`sem`] | spinlocks and semaphores, the same whatever the lock |
//! | `watch` | glibc's own locks, and what is counted of them |
//! | [`c11`] | `mtx_*` and `cnd_*` |
//! | [`dispatch`], [`dispatch_rw`] | from the exported function to the chosen lock |
//! | [`mod@common`] | the same for functions that do not depend on it |
//! | `environment` | the settings' text |
//! | [`glibc`] | the real functions |
//!
//! Every function of this crate may be called before any constructor has run, from several threads at once, in a forked
//! child, and from inside malloc.

pub mod c11;
mod cancel;
pub mod common;
pub mod cond;
pub mod dispatch;
pub mod dispatch_rw;
mod environment;
pub mod glibc;
pub mod kind;
pub mod layout;
pub mod mutex;
pub mod rwlock;
pub mod sem;
pub mod spin;
mod table;
#[cfg(feature = "stats")]
mod watch;

pub use common::common;
pub use dispatch::{init, table};
