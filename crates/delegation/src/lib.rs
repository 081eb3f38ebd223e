//! # Delegation: servers that run critical sections
//!
//! The runtime of Remote Core Locking: its threads, and their policy. Use it when many threads run short sections on
//! the same data, and a CPU can be spared for a server. The protocol is [`rcl`](flashlock_locks::closure::rcl).
//!
//! ```
//! use flashlock_delegation::{Delegated, Options, Server};
//!
//! let server = Server::open(Options::default())?;
//! let counter = Delegated::on(&server, 0_u64);
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| counter.run(|count| *count += 1));
//!     }
//! });
//! assert_eq!(counter.into_inner(), 4);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`server`] | [`Server`]: its options, opening and closing |
//! | [`delegated`] | [`Delegated`]: a value, and a lock that may be a server's |
//! | [`raw`] | the lock alone, which the interfaces for other languages are made of |
//! | [`adapt`] | locks that go to a server when that pays, and come back |
//! | [`config`] | which server runs which lock: a file, and variables |
//! | [`named`] | servers by name; where a new lock starts |
//! | [`cond`] | condition variables for sections |
//! | [`statistics`] | what a server counts |
//! | `threads` | servicing threads, and the management thread that elects them |
//! | `host` | a server's memory, and the table of servers by number |
//! | `here` | the calling thread: its client numbers, and whether it is a servicing thread |
//! | `fifo` | real-time scheduling, if it is asked for and allowed |
//!
//! ## What differs inside a section
//! A section of a delegated lock runs in a servicing thread. There
//! - the thread id, thread-local storage, `errno`, the signal mask, the name and the stack (2 MiB, as of any Rust
//!   thread) are that thread's;
//! - a signal that is sent to the client's thread is handled there, while the section goes on here;
//! - all signals are blocked, except those that the kernel sends to the thread that causes them: SIGSEGV, SIGBUS,
//!   SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPIPE and SIGXFSZ; and SIGABRT. So `raise` of another signal has no effect;
//! - a panic travels to the client, and the lock stays usable. The caller decides whether the value is;
//! - sections of other locks may be run, also of the same server: those run in place.
//!
//! ## What is forbidden
//! - A section of the same lock inside a section: it would wait for itself, and panics instead. (If sections of other
//!   servers are in between, so that another thread would have to find out, it does wait.)
//! - To end the thread inside a section (`pthread_exit`): the server would lose it, with the lock held.
//! - A section in a signal handler: the handler may have interrupted one.
//! - To go on in the child of a `fork` that was made inside a section: the child has the servicing thread, and no
//!   client.
//!
//! A child that was forked outside of sections has none of its parent's servers. There, a delegated lock becomes
//! ordinary when it is next used, and servers can be opened. If another thread was running a section of a lock at the
//! fork, that lock stays held in the child, as any mutex does.

pub mod adapt;
pub mod cond;
pub mod config;
pub mod delegated;
mod fifo;
mod here;
mod host;
pub mod named;
mod process;
pub mod raw;
pub mod server;
mod start;
pub mod statistics;
mod threads;

pub use cond::Cond;
pub use delegated::{Delegated, Inside};
pub use named::Kind;
pub use server::{Options, Scheduling, Server};
pub use statistics::Statistics;

use flashlock_native::{Native, NoStats};

/// The machine that servers run on.
type Machine = Native<NoStats>;
