//! # Locks that find out themselves whether a server pays
//!
//! An *adaptive* lock starts as an ordinary one. It goes to a server when it is hot, and comes back when it cools. It
//! moves to another server when locks are in each other's way. Use one if you do not know whether a server pays for the
//! lock. Section 6 of the paper calls this its future work.
//!
//! ```
//! use flashlock_delegation::Delegated;
//!
//! let index = Delegated::adaptive("index", Vec::new())?;
//! index.run(|index| index.push(1));
//! assert_eq!(index.into_inner(), [1]);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`policy`] | the decisions, as a function of measured numbers |
//! | [`thresholds`] | when a server pays on this machine |
//! | `meter` | what is measured of a lock, and how |
//! | [`governor`] | measures, asks the policy, and says where locks are to be |
//!
//! **What it costs.** A section of an adaptive lock counts itself, and reads a cache line that hardly ever changes. One
//! section in about 125 is timed. A lock that is not adaptive pays for a comparison with null.
//!
//! **Pinning.** [`Delegated::assign`](crate::Delegated::assign) moves the lock and keeps it there, until
//! [`Delegated::unpin`](crate::Delegated::unpin). The [configuration](crate::config) pins as well: a lock that it
//! places on a server or makes ordinary is not adaptive.
//!
//! **What it cannot see.**
//! - CPUs that other processes use. The governor counts the CPUs that this process may use (affinity, cgroup), and
//!   subtracts what this process's own threads use.
//! - Cache misses. It compares sections that follow one of the same thread with sections that follow one of another
//!   thread: the extra time of the latter is that of the cache lines that travel.
//! - Threads that have a client number and are idle. They lower the use rate of their server, so a lock that few of
//!   many threads use comes back sooner than it should.
//! - Distances. It does not choose the CPU or the NUMA node of a server: the server's threads are not bound.

pub mod governor;
pub(crate) mod meter;
pub mod policy;
pub mod thresholds;

pub use governor::{Decision, Governor, Report};
pub use policy::Why;
pub use thresholds::Thresholds;
