//! # pthread objects on flashlock's locks
//!
//! The pthread functions, implemented with flashlock's locks. The state of a lock is in the program's own
//! `pthread_mutex_t`, around the fields that glibc owns ([`layout`]). So there is no table, no allocation and no
//! initialisation, and the static initialisers are free locks. Objects that cannot be served (robust,
//! priority-inheriting, priority-protected and process-shared ones) are left to glibc's own code ([`glibc`]).
//!
//! | module | holds |
//! |---|---|
//! | `cancel` | sleeping at a cancellation point |
//! | [`layout`] | the layout of glibc's objects, by version |
//! | [`kind`] | the kind of a mutex, and whether glibc serves it |
//! | [`mutex`], [`cond`], [`rwlock`] | the semantics, generic over the lock |
//! | `cond_shared` | waits on process-shared condition variables, which glibc serves |
//! | [`spin`], [`sem`] | spinlocks and semaphores, which do not depend on the chosen lock |
//! | `watch` | counting the use of glibc's own locks |
//! | [`c11`] | `mtx_*` and `cnd_*` |
//! | [`dispatch`], [`dispatch_rw`] | from the exported function to the chosen lock |
//! | [`mod@common`] | the same for functions that do not depend on the lock |
//! | `environment` | the text of the settings |
//! | [`glibc`] | glibc's own functions |
//!
//! Every function of this crate may be called before any constructor has run, from several threads at once, in a forked
//! child, and from inside malloc.

pub mod c11;
mod cancel;
pub mod common;
pub mod cond;
mod cond_shared;
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
