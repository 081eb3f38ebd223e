//! # CST: a blocking lock for each NUMA node, made at first use
//!
//! CST is a cohort lock whose waiters may sleep: it stays on a NUMA node for several hand-offs, and goes to waiters
//! that are awake. **Use it** when one lock is hot on a machine with several NUMA nodes, and threads may outnumber
//! CPUs. **Rather not** when locks are many or mostly free: each needs memory for each NUMA node that threads come
//! from, and an acquisition takes two locks; `shfl` does as much with neither.
//!
//! **Problem.** Hierarchical locks spin. Where threads outnumber CPUs, they hand the lock to waiters that do not run;
//! or, if waiters sleep, each hand-off waits for a wake-up. And these locks allocate the parts of all NUMA nodes at
//! once, also of those that no thread uses. **Idea.** A node's part of the lock is made at first use. It holds a queue
//! of waiters that are awake, and a separate list of waiters that **sleep**. The lock stays in the node for a number of
//! hand-offs, and goes to waiters that are awake. A sleeper is woken for a later turn of its node, while the lock is
//! elsewhere. **Source.** Kashyap, Min & Kim, *Scalable NUMA-aware Blocking Synchronization Primitives*, USENIX ATC'17
//! (CST); it is compared with ShflLocks in the thesis defence, slides 29–32, 70 and 78, and with CNA in Dice & Kogan,
//! EuroSys 2019, §2.
//!
//! **Departures.** Those of [`cohort`](super::cohort), of which this is one, and of
//! [`queue::k42`](crate::parts::queue::k42).
//! 1. The paper's per-node structures form a list that is searched. Here they are parts of a side block.
//! 2. The rules for sleepers are this project's, after the paper's intention. Each hand-off within the node prefers an
//!    awake waiter. A node with no awake waiter releases the global lock and wakes its eldest sleeper, which acquires
//!    the global lock anew. So no node waits for a wake-up while another node could go on.
//! 3. Each turn of a node ends with its eldest sleeper, if it has any. So n sleepers are served within n turns.
//! 4. The paper's waiters sleep when another task wants their CPU. Here a thread cannot find out which tasks wait for
//!    its CPU. So waiters poll for the spin budget, and then for 10 ms at most, as long as no waiter of the process has
//!    lost its CPU lately.
//!
//! | | `hmcs` | `cst` |
//! |---|---|---|
//! | a hand-off within the node goes to | the first waiter; if it sleeps, all threads wait until it has woken up | the first waiter that is awake |
//! | order within the node | first come, first served | the same among awake waiters; sleepers after them, each in its turn |
//! | levels | two to four | two |
//!
//! ```text
//!   part:  tail ─────────────────────┐
//!          next ─> [B] ──next─> [C]                  WAITING, or fallen asleep since the last release
//!          sleepers ─> [P] ──next─> [Q] <─ sleepers  PARKED, or ABANDONED. P is the eldest
//! ```
//!
//! ## State of a part (beside that of `cohort`), and hand-offs
//! | waiters of the node | limit | the release |
//! |---|---|---|
//! | one is awake | not reached | moves the sleepers before it to the list; hands it the local and the global lock |
//! | all sleep | not reached | moves all of them to the list; then as in the next row |
//! | any in the list | reached, or none awake | hands the local lock to the eldest sleeper; releases the global lock |
//! | none in the list | reached | hands the local lock to the first waiter; releases the global lock |
//!
//! ## Invariants (beside those of `cohort` and `queue::k42`)
//! 1. The list of sleepers is read and written by the holder of the local lock only. A node in it is in no other queue.
//!    The node's thread changes the state from PARKED to ABANDONED, and nothing else.
//! 2. When a sleeper from the list is granted the local lock, its node stands before the main queue. Either the part's
//!    `next` names the first of that queue, or will, and the sleeper's node says MOVED. Or the sleeper's node is the
//!    tail.
//!
//! ## Orderings (beside those of `cohort` and `queue::k42`)
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `state` WAITING -> HEAD | Release | `state` load in `wait::turn` | hands over this section |
//! | the same, failing | Acquire | `state` -> ABANDONED | its thread no longer uses the node |
//! | `tail` CAS HELD -> the eldest | Release | `tail.swap` of a joining thread | the eldest's node is prepared |
//! | the list | Relaxed | – | invariant 1 |
//!
//! **Cannot:** let any thread in while the chosen successor does not run. Cannot give its side block back (128 bytes,
//! and 128 for each NUMA node) if the program frees the lock without destroying it. Cannot share its mutex with code
//! that bypasses flashlock. With `wait=park` all waiters sleep, so the lock stays on no node.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::machine::block::Block;
use crate::machine::event::Event;
use crate::machine::node::is_asleep;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::mutex::numa::cohort::Cohort;
use crate::mutex::numa::cohort::global::GlobalMcs;
use crate::mutex::numa::cohort::level::LocalLock;
use crate::mutex::numa::cohort::local::{LocalMcs, words};
use crate::parts::counted::Contention;
use crate::parts::queue::k42::{Alone, First, HELD, MOVED, Unlinked};
use crate::parts::wait::{self, SpinThenPark, Staying, WaitPolicy};

/// The CST mutex; waiters wait by policy `W`.
pub type Cst<W = SpinThenPark> = Cohort<GlobalMcs<Staying<W>>, LocalCst<Staying<W>>>;

/// MCS in a part, with a separate list of sleepers; waiters wait by policy `W`.
pub struct LocalCst<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

// SAFETY: the words of `LocalMcs`, and `sleepers`; invariants 1 and 2, and those of `k42`.
unsafe impl<W: WaitPolicy> LocalLock for LocalCst<W> {
    const CAN_LEAVE: bool = true;

    fn lock<M: Machine>(part: &Block<M>, until: Option<Deadline>, waiting: &mut Contention<M>) -> Result<(), TimedOut> {
        LocalMcs::<W>::lock(part, until, waiting)
    }

    /// Does not count the list of sleepers.
    fn has_waiters<M: Machine>(part: &Block<M>) -> bool {
        words(part).has_waiters()
    }

    /// Hands the lock to the first waiter that is awake, and moves the sleepers before it to the list. A sleeper whose
    /// successor has not linked itself yet cannot be moved: it gets the lock asleep.
    fn pass<M: Machine>(part: &Block<M>) -> bool {
        let words = words(part);
        let mut first = if words.has_waiters() { words.first_waiter(Alone::Kept) } else { First::Nobody };
        loop {
            first = match first {
                First::Nobody => return false,
                First::Joiner => match words.give() {
                    Ok(()) => return true,
                    Err(linked) => linked,
                },
                First::Waiter(waiter) => match wait::grant_awake::<M>(waiter, M::numa_node) {
                    Ok(()) => return true,
                    Err(seen) if is_asleep(seen) => match words.unlink(waiter, Alone::Kept) {
                        Ok(after) => {
                            Sleepers(part).add(waiter);
                            after
                        }
                        Err(Unlinked) if wait::grant::<M>(waiter, M::numa_node) => return true,
                        Err(Unlinked) => words.skip(waiter, Alone::Kept),
                    },
                    Err(_) => words.skip(waiter, Alone::Kept),
                },
            }
        }
    }

    /// Hands the lock to the eldest sleeper. If there is none, releases it as MCS does.
    fn unlock<M: Machine>(part: &Block<M>) {
        while let Some(eldest) = Sleepers(part).take() {
            push_front(part, eldest);
            if wait::grant::<M>(eldest, M::numa_node) {
                return;
            }
            undo_push_front(part, eldest);
        }
        LocalMcs::<W>::unlock(part);
    }

    fn reset<M: Machine>(part: &Block<M>, held: bool) {
        LocalMcs::<W>::reset(part, held);
        Sleepers(part).forget();
    }
}

/// Puts the eldest sleeper before the main queue (invariant 2). The part's `next` names the first of that queue, or
/// will.
fn push_front<M: Machine>(part: &Block<M>, eldest: Handle) {
    let (words, next) = (words(part), &eldest.node::<M>().next);
    while !words.has_waiters() {
        next.store(0, Relaxed);
        if words.tail.compare_exchange(HELD, eldest.word(), Release, Relaxed).is_ok() {
            return;
        }
    }
    next.store(MOVED, Relaxed); // Published by the grant.
}

/// Undoes `push_front`, because the sleeper has given up. The waiter behind it becomes the first.
fn undo_push_front<M: Machine>(part: &Block<M>, eldest: Handle) {
    let words = words(part);
    if eldest.node::<M>().next.load(Relaxed) == MOVED {
        words.drop_left(eldest);
    } else if let First::Waiter(first) = words.skip(eldest, Alone::Kept) {
        words.next.store(first.word(), Relaxed);
    }
}

/// The list of sleepers in a part (invariant 1).
struct Sleepers<'a, M: Machine>(&'a Block<M>);

impl<M: Machine> Sleepers<'_, M> {
    /// Adds a sleeper at the end.
    fn add(&self, sleeper: Handle) {
        M::trace(Event::CohortCulling);
        let [first, last] = &self.0.sleepers;
        sleeper.node::<M>().next.store(0, Relaxed);
        match Handle::from_word(last.load(Relaxed)) {
            Some(last) => last.node::<M>().next.store(sleeper.word(), Relaxed),
            None => first.store(sleeper.word(), Relaxed),
        }
        last.store(sleeper.word(), Relaxed);
    }

    /// Removes and returns the eldest.
    fn take(&self) -> Option<Handle> {
        let [first, last] = &self.0.sleepers;
        let eldest = Handle::from_word(first.load(Relaxed))?;
        let next = eldest.node::<M>().next.load(Relaxed);
        first.store(next, Relaxed);
        if next == 0 {
            last.store(0, Relaxed);
        }
        Some(eldest)
    }

    /// For a forked child, in which the sleepers' threads do not exist.
    fn forget(&self) {
        self.0.sleepers.iter().for_each(|end| end.store(0, Relaxed));
    }
}
