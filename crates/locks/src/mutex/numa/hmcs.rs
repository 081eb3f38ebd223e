//! # HMCS: MCS locks in a hierarchy
//!
//! HMCS is a hierarchy of MCS queues, shaped like the machine, that hands the lock on within a NUMA node for a counted
//! number of hand-offs. **Use it** when one lock is hot on a machine with several NUMA nodes, each thread has a CPU,
//! and fairness among the nodes matters: their turns are counted. **Rather not** when locks are many or mostly free:
//! each needs memory for each NUMA node, and an acquisition takes as many locks as there are levels.
//!
//! **Problem.** A first-come-first-served queue lock moves itself and its data from NUMA node to NUMA node at almost
//! every hand-off. **Idea.** There is one queue for each NUMA node, and one above them. The first waiter of a node's
//! queue stands in the upper queue for all of them. The holder hands the lock on within its node until the node has had
//! it for the permitted number of hand-offs. Then the lock goes to the next node, in the order in which they came. If a
//! node has groups of CPUs that are nearer to each other, each group has a queue of its own. The first of a group's
//! queue stands in the node's queue for the whole group, and so on. So HMCS is a [cohort lock](super::cohort) of MCS
//! locks at all levels. **Source.** Chabbi, Fagan & Mellor-Crummey, *High Performance Locks for Multi-level NUMA
//! Systems*, PPoPP 2015; as the rival of CNA, Dice & Kogan, EuroSys 2019, §2 and §7.
//!
//! ```text
//! levels=2         levels=3           levels=4
//!   machine  tail    machine    tail    machine    tail
//!   node     part    node       part    node       part   passes=: its hand-offs to other caches, until the next node
//!                    cache, or            cache      part   near=: its hand-offs to other cores, until the next cache
//!                    core         part      core       part   near=: hand-offs within it, until the next core
//! ```
//!
//! **Departures.** Those of [`cohort`](super::cohort), and those of [`queue::k42`](crate::parts::queue::k42) at all
//! levels. So no thread keeps a queue node while it holds the lock. The upper queues consist of threads' queue nodes;
//! the paper's have a queue node for each queue below them.
//! 1. There are two levels, NUMA nodes and the machine. With three, there are also groups of CPUs: those that share a
//!    last-level cache where a NUMA node has several, or else the hardware threads of a core. With four, there are
//!    both. The paper's lock takes any number of levels, and so does this code (each is a type around the next:
//!    [`parts`](super::cohort::parts)), but [`Machine`](crate::machine::Machine) reports no more. The default is two,
//!    because each further level is one lock more to acquire when no thread waits. The fourth is pure cost where a NUMA
//!    node has one last-level cache.
//! 2. A queue that must let the lock go, because it has had it for long enough, is released before the one above it
//!    (departure 2 of `cohort`). The paper's lock releases from the top down.
//!
//! ## State, invariants, orderings
//! Those of [`cohort`](super::cohort); the global lock's `tail` is the lock's word. A part's `passes` is the paper's
//! count in the status of a node; 0 means that the upper lock must still be acquired.
//!
//! **Cannot:** let any thread in while the chosen successor does not run. Cannot give its side block back (128 bytes,
//! and 128 for each NUMA node; with more levels 128 for each group) if the program frees the lock without destroying
//! it. Cannot share its mutex with code that bypasses flashlock.

use crate::mutex::numa::cohort::Cohort;
use crate::mutex::numa::cohort::global::GlobalMcs;
use crate::mutex::numa::cohort::local::LocalMcs;
use crate::mutex::numa::cohort::parts::ByOption;
use crate::parts::wait::SpinThenPark;

/// The HMCS lock, of two to four levels; waiters wait by policy `W`.
pub type Hmcs<W = SpinThenPark> = Cohort<GlobalMcs<W>, LocalMcs<W>, ByOption>;
