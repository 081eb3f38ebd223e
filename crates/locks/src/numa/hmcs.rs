//! # HMCS: MCS locks in a hierarchy
//!
//! **Problem.** A queue lock that goes to whoever came first takes itself and its data from NUMA node to NUMA node at almost every hand-over. **Idea.**
//! Queues like the machine: one for each NUMA node, and one above them. The first of a node's queue stands in the upper one for all of them; who has
//! the lock hands it on within his node until it has been there for so many hand-overs, then to the next node, in the order in which they came. So it
//! is a [cohort lock](super::cohort), of MCS locks throughout. **Source.** Chabbi, Fagan & Mellor-Crummey, *High Performance Locks for Multi-level NUMA
//! Systems*, PPoPP 2015; as the rival of CNA, Dice & Kogan, EuroSys 2019, §2 and §7.
//!
//! **Use it** when one lock is hot on a machine with several NUMA nodes, each thread has a CPU, and fairness among the nodes matters: their turns are counted. **Rather not** when locks are many or mostly free: each costs memory for each NUMA node, and an acquisition takes two locks.
//!
//! **Departures.** Those of [`cohort`](super::cohort), and those of [`mcs`](crate::queue::mcs) at both levels: so no thread keeps a node while it holds
//! the lock, and the upper queue is one of threads' nodes; the paper's has a node for each queue below it. (1) There are two levels, NUMA nodes and the
//! machine; the paper's lock takes any number of them.
//!
//! ## State, invariants, orderings
//! Those of [`cohort`](super::cohort); the global lock's `tail` is the lock's word. A part's `passes` is the paper's count in the status of a node: 0 for
//! "the upper lock is yet to be acquired".
//!
//! **Cannot:** let anybody in while the one that was chosen does not run. Give its side block (128 bytes, and 128 for each NUMA node) back if the program
//! frees the lock without destroying it. Cannot share its mutex with code that bypasses flashlock.

use crate::numa::cohort::Cohort;
use crate::numa::cohort::level::{GlobalMcs, LocalMcs};
use crate::wait::SpinThenPark;

/// The HMCS lock of two levels; waiters wait by policy `W`.
pub type Hmcs<W = SpinThenPark> = Cohort<GlobalMcs<W>, LocalMcs<W>>;
