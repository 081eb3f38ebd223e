//! # HMCS: MCS locks in a hierarchy
//!
//! **Problem.** A queue lock that goes to whoever came first takes itself and its data from NUMA node to NUMA node at
//! almost every hand-over. **Idea.** Queues like the machine: one for each NUMA node, and one above them. The first of
//! a node's queue stands in the upper one for all of them; who has the lock hands it on within his node until it has
//! been there for so many hand-overs, then to the next node, in the order in which they came. If there are groups of
//! CPUs within a node that are nearer to each other, each of them has a queue of its own, whose first stands in the
//! node's for all of them, and so on. So it is a [cohort lock](super::cohort), of MCS locks throughout. **Source.**
//! Chabbi, Fagan & Mellor-Crummey, *High Performance Locks for Multi-level NUMA Systems*, PPoPP 2015; as the rival of
//! CNA, Dice & Kogan, EuroSys 2019, §2 and §7.
//!
//! **Use it** when one lock is hot on a machine with several NUMA nodes, each thread has a CPU, and fairness among the
//! nodes matters: their turns are counted. **Rather not** when locks are many or mostly free: each costs memory for
//! each NUMA node, and an acquisition takes as many locks as there are levels.
//!
//! ```text
//! levels=2         levels=3           levels=4
//!   machine  tail    machine    tail    machine    tail
//!   node     part    node       part    node       part   passes=: its hand-overs to other caches, until the next node
//!                    cache, or            cache      part   near=: its hand-overs to other cores, until the next cache
//!                    core         part      core       part   near=: hand-overs within it, until the next core
//! ```
//!
//! **Departures.** Those of [`cohort`](super::cohort), and those of [`queue::k42`](crate::queue::k42) at all levels: so
//! no thread keeps a node while it holds the lock, and the upper queues are of threads' nodes; the paper's have a node
//! for each queue below them. (1) There are two levels, NUMA nodes and the machine; or three, with groups of CPUs that
//! share a last-level cache where a NUMA node has several, else of the hardware threads of a core; or four, with both.
//! The paper's lock takes any number of levels, and so does this code (each is a type around the next:
//! [`parts`](super::cohort::parts)); the machine tells of no more. A machine does not get more than two unasked: each
//! is one lock more to acquire when nobody waits. The fourth only costs where a NUMA node has one last-level cache. (2)
//! A queue that must let the lock go, for it has had it for so long, is released before the one above it (departure 2
//! of `cohort`); the paper's releases from the top down.
//!
//! ## State, invariants, orderings
//! Those of [`cohort`](super::cohort); the global lock's `tail` is the lock's word. A part's `passes` is the paper's
//! count in the status of a node: 0 for "the upper lock is yet to be acquired".
//!
//! **Cannot:** let anybody in while the one that was chosen does not run. Give its side block (128 bytes, and 128 for
//! each NUMA node; with more levels 128 for each group) back if the program frees the lock without destroying it.
//! Cannot share its mutex with code that bypasses flashlock.

use crate::numa::cohort::Cohort;
use crate::numa::cohort::global::GlobalMcs;
use crate::numa::cohort::local::LocalMcs;
use crate::numa::cohort::parts::ByOption;
use crate::wait::SpinThenPark;

/// The HMCS lock, of two to four levels; waiters wait by policy `W`.
pub type Hmcs<W = SpinThenPark> = Cohort<GlobalMcs<W>, LocalMcs<W>, ByOption>;
