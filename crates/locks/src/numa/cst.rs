//! # CST: a blocking lock for each NUMA node, made when somebody comes from there
//!
//! **Problem.** Hierarchical locks spin: where threads outnumber CPUs, they hand the lock to waiters that do not run,
//! or, if waiters sleep, wait at each hand-over until one has been woken. And they are made whole, for NUMA nodes that
//! nobody uses. **Idea.** A node's part of the lock is made at first use. In it wait those that are awake, and, apart
//! from them, those that **sleep**. The lock stays in the node for so many hand-overs, and goes to waiters that are
//! awake; who sleeps is woken for a later turn of his node, while the lock is elsewhere. **Source.** Kashyap, Min &
//! Kim, *Scalable NUMA-aware Blocking Synchronization Primitives*, USENIX ATC'17 (CST); compared with ShflLocks, thesis
//! defence, slides 29–32, 70, 78; of CNA, Dice & Kogan, EuroSys 2019, §2.
//!
//! **Use it** when one lock is hot on a machine with several NUMA nodes, and threads may outnumber CPUs.
//! **Rather not** when locks are many or mostly free: each costs memory for each NUMA node that threads come from, and
//! an acquisition takes two locks; `shfl` does as much with neither.
//!
//! **Departures.** Those of [`cohort`](super::cohort), of which this is one, and of [`queue::k42`](crate::queue::k42).
//! (1) The paper's per-node structures form a list that is searched; here they are parts of a side block. (2) The rules
//! for sleepers are this project's, after the paper's intention: an awake waiter is preferred at each hand-over within
//! the node; a node in which nobody waits awake gives the global lock up, and wakes its eldest sleeper, who acquires it
//! anew. So no node waits for a wake-up while another could go on. (3) Each turn of a node ends with its eldest
//! sleeper, if it has any: so n sleepers are served within n turns. (4) The paper's waiters sleep when another task
//! wants their CPU. Here they poll for the spin budget, and then on, for 10 ms at most, as long as no waiter of the
//! process has lately lost its CPU: no thread is told what else waits for its own.
//!
//! | | `hmcs` | `cst` |
//! |---|---|---|
//! | a hand-over within the node goes to | the first waiter; if he sleeps, everybody waits until he has woken up | the first waiter that is awake |
//! | order within the node | first come, first served | the same among the awake; sleepers after them, each in his turn |
//! | levels | two to four | two |
//!
//! ```text
//!   part:  tail ─────────────────────┐
//!          next ─> [B] ──next─> [C]                  WAITING, or fallen asleep since the last release
//!          sleepers ─> [P] ──next─> [Q] <─ sleepers  PARKED, or ABANDONED. P is the eldest
//! ```
//!
//! ## State of a part (beside that of `cohort`), and hand-overs
//! | waiters of the node | limit | the release |
//! |---|---|---|
//! | one is awake | not reached | sleepers before him are put aside; he has it all |
//! | all sleep | not reached | all are put aside; as below |
//! | any aside | reached, or none awake | the local lock to the eldest that sleeps; the global lock is released |
//! | none aside | reached | the local lock to the first; the global lock is released |
//!
//! ## Invariants (beside those of `cohort` and `queue::k42`)
//! 1. The list of sleepers is written and read by who holds the local lock. A node in it is in no other queue; its
//!    thread changes its state, from PARKED to ABANDONED, and nothing else.
//! 2. Who is granted the local lock from the list stands before the main queue when he is: the part's `next` names its
//!    first, or will, and his node says MOVED; or he is its tail.
//!
//! ## Orderings (beside those of `cohort` and `queue::k42`)
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `state` WAITING -> HEAD | Release | `state` load in `wait::turn` | hands over this section |
//! | the same, failing | Acquire | `state` -> ABANDONED | its thread has done with the node |
//! | `tail` CAS HELD -> the eldest | Release | `tail.swap` of who joins | his node is prepared |
//! | the list | Relaxed | – | invariant 1 |
//!
//! **Cannot:** let anybody in while the one that was chosen does not run. Give its side block (128 bytes, and 128 for
//! each NUMA node) back if the program frees the lock without destroying it. Cannot share its mutex with code that
//! bypasses flashlock. With `wait=park` all waiters sleep: the lock stays in no node.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::node::is_asleep;
use crate::numa::cohort::Cohort;
use crate::numa::cohort::global::GlobalMcs;
use crate::numa::cohort::level::{LocalLock, Waiting};
use crate::numa::cohort::local::{LocalMcs, words};
use crate::queue::k42::{Alone, First, HELD, MOVED, Unlinked};
use crate::side::Block;
use crate::wait::{self, SpinThenPark, Staying, WaitPolicy};

/// The CST mutex; waiters wait by policy `W`.
pub type Cst<W = SpinThenPark> = Cohort<GlobalMcs<Staying<W>>, LocalCst<Staying<W>>>;

/// MCS in a part, with sleepers aside; waiters wait by policy `W`.
pub struct LocalCst<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

impl<W: WaitPolicy> LocalLock for LocalCst<W> {
    const CAN_LEAVE: bool = true;

    fn lock<M: Machine>(part: &Block<M>, until: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<(), TimedOut> {
        LocalMcs::<W>::lock(part, until, waiting)
    }

    /// Not counting those aside.
    fn has_waiters<M: Machine>(part: &Block<M>) -> bool {
        words(part).has_waiters()
    }

    /// To the first that is awake. Those before him go aside; but one behind whom somebody has yet to link himself has
    /// it, awake or not.
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

    /// To the eldest that sleeps; if there is none, as MCS.
    fn unlock<M: Machine>(part: &Block<M>) {
        while let Some(eldest) = Sleepers(part).take() {
            stand_first(part, eldest);
            if wait::grant::<M>(eldest, M::numa_node) {
                return;
            }
            step_back(part, eldest);
        }
        LocalMcs::<W>::unlock(part);
    }

    fn reset<M: Machine>(part: &Block<M>, held: bool) {
        LocalMcs::<W>::reset(part, held);
        Sleepers(part).forget();
    }
}

/// Puts the eldest sleeper before the main queue (invariant 2), whose first the part's `next` names, or will name.
fn stand_first<M: Machine>(part: &Block<M>, eldest: Handle) {
    let (words, next) = (words(part), &eldest.node::<M>().next);
    while !words.has_waiters() {
        next.store(0, Relaxed);
        if words.tail.compare_exchange(HELD, eldest.word(), Release, Relaxed).is_ok() {
            return;
        }
    }
    next.store(MOVED, Relaxed); // Published with the grant.
}

/// Takes him away from there: he has given up. Whoever is behind him is the first.
fn step_back<M: Machine>(part: &Block<M>, eldest: Handle) {
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
    /// Behind the others.
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

    /// The eldest.
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

    /// In a forked child: their threads do not exist here.
    fn forget(&self) {
        self.0.sleepers.iter().for_each(|end| end.store(0, Relaxed));
    }
}
