//! # MCS-TP: a queue lock that passes over waiters that do not run
//!
//! An MCS lock whose releaser skips preempted waiters. **Use it** when you would use `mcs` with `wait=spin`, but cannot
//! be sure of a CPU for each thread. **Rather not** when order matters.
//!
//! **Problem.** With more threads than CPUs, a strict queue hands the lock to waiters that have lost their CPU. Then
//! all threads wait until such a waiter has a CPU again. **Idea.** A waiter that polls **publishes the time**: it says
//! when it last polled. A releaser that finds an old time takes that waiter out of the queue and goes on to the next.
//! The waiter that was taken out queues again when it runs. **Source.** He, Scherer & Scott, *Preemption Adaptivity in
//! Time-Published Queue-Based Spin Locks*, HiPC 2005.
//!
//! The waiter's and the releaser's side are a [service](crate::parts::queue::service): `mcscr` and `mcscrn` have it,
//! too.
//!
//! **Departures.** Those of [`mcs`](super::mcs), whose queue this is.
//! 1. Waiters may sleep (`wait=stp`). A waiter that sleeps is woken, not passed over.
//! 2. The holder does not publish when its section began. A waiter whose spin budget is spent sleeps, or offers its
//!    CPU, whether the holder runs or not.
//! 3. The last waiter is passed over like any other: then the lock is free.
//! 4. A waiter that offers its CPU to other threads says so: it publishes a time long ago. (Otherwise its last poll, a
//!    moment before, would make it look as if it ran at the very moment when it stops running.) A waiter that has
//!    polled for a millisecond offers its CPU again and again. So it may lose its place although no thread wanted its
//!    CPU.
//!
//! This is MCS with the option that `mcscr` has as `evict=1` (Dice, *Malthusian Locks*, §7). So `mcs` has no option of
//! that name.
//!
//! ## State
//! As in `mcs`. A node may also be in these states:
//! ```text
//!   WAITING ── releaser finds `since` old ──> LEAVING ── out of the queue ──> EVICTED ──> (its thread queues anew)
//!                                                │                             │
//!                                                └─ its thread sleeps: PARTING ┘
//! ```
//!
//! ## Invariants (beside those of `mcs`)
//! 1. Only the releaser makes a node LEAVING, only from WAITING, and only if the node's thread publishes (`PUBLISHES`).
//!    After that, the thread only waits for EVICTED.
//! 2. An EVICTED node is named by no link, and belongs to its thread.
//!
//! ## Orderings (beside those of `mcs`)
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `state` -> EVICTED | Release | `state` loads, Acquire | the releaser has accessed the node for the last time |
//! | `state` -> LEAVING, -> PARTING | Relaxed | – | what its thread wrote came with the link that names it |
//! | `since` | Relaxed | – | a hint: an old value costs a place in the queue |
//!
//! **Cannot:** what `mcs` cannot, except that a preempted waiter stops no other thread. Cannot be fair: a preempted
//! waiter loses its place.

use crate::mutex::queue::mcs::Mcs;
use crate::parts::queue::service::TimePublished;
use crate::parts::wait::SpinThenPark;

/// The time-published MCS lock; waiters wait by policy `W`.
pub type McsTp<W = SpinThenPark> = Mcs<W, TimePublished>;
