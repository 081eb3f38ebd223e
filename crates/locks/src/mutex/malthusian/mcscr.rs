//! # MCSCR: an MCS lock that restricts concurrency
//!
//! MCSCR is an MCS lock that lets only a few threads circulate, and keeps surplus waiters apart. **Use it** when many
//! threads want the lock, their sections compete for a shared cache, and an occasional long wait is acceptable.
//! **Rather not** when each wait must be short.
//!
//! **Problem.** Threads beyond those that keep a lock busy make the program slower: each brings its own data into the
//! shared cache, and wants a CPU. **Idea.** Let only as many threads circulate through the lock as keep it busy, the
//! **active circulating set** (ACS). The others are **passive** (PS) meanwhile. If more than one thread waits in the
//! queue, there are surplus threads, and the releaser **culls** one. If none waits, there are too few, and the releaser
//! takes the thread that became passive last: its data are the warmest, and it is the likeliest to be still polling.
//! **Source.** Dice, *Malthusian Locks*, EuroSys 2017: §1 (ACS, PS, work conservation), §4 (this lock), §5.1 and §5.4
//! (waiting, succession).
//!
//! **Departures.** Those of [`queue::culling`](crate::parts::queue::culling).
//! 1. In the paper, the releaser may excise any node between its own and the tail. Here it excises the first, so the
//!    lock goes to the second.
//! 2. A first waiter that has given up is removed instead of culled.
//! 3. With `evict=1`, see below, waiters publish whether they run. In the paper the kernel provides this (`schedctl`,
//!    §7; its measurements did not use it).
//!
//! ## The two lists
//! ```text
//!   main queue:    next ─> [S] ──> [T] <── tail       S is surplus, as T waits too: the next release culls S, serves T
//!   passive set:   secondary ────────────┐
//!                    ┌─> [P] ──> [Q] ──> [R] ─┐       P became passive last, R first (the eldest)
//!                    └────────────────────────┘       prev: Q -> P, R -> Q; P is the newest, its prev means nothing
//! ```
//!
//! ## The release
//! | passive set | trial | main queue | successor | moves |
//! |---|---|---|---|---|
//! | any | no | two or more | its second | its first is culled: newest of the passive set |
//! | any | no | one | that waiter | – |
//! | not empty | yes | one or more | the eldest | out of the passive set; the main queue waits behind it |
//! | not empty | no | empty | the newest | out of the passive set: re-provisioned |
//! | not empty | yes | empty | the eldest | out of the passive set |
//! | empty | – | empty | – | the lock is free |
//!
//! Each release that finds passive waiters makes a trial: a random draw that succeeds once in `eldest=` (1,000) times.
//! This trial alone makes the lock fair in the long run. **Work conservation**: only the last row frees the lock, and
//! no thread waits there. All steps take constant time.
//!
//! ## Preempted waiters: `evict=1`
//! With more polling threads than CPUs, the successor may be preempted. Then all threads stand still until it runs
//! again (§7: *lock waiter preemption*). With `evict=1` a polling waiter publishes the time, as in `mcs-tp`. The
//! release looks at the **tentative successor**, which the table above chooses. If that thread has published nothing
//! for 50 µs, or has published that it offers its CPU to others, it is **evicted** from the list, and the release
//! chooses anew. When the evicted thread runs, it joins the tail of the main queue.
//!
//! - Only a tentative successor is evicted. A preempted waiter that is culled, or passive already, delays no other
//!   thread, and may run again before its turn comes.
//! - It is evicted, not culled: a culled waiter is the newest passive one, which the next release would serve again. An
//!   evicted waiter comes back by itself when it runs. So the ACS consists of running threads, and the PS is unchanged.
//! - A sleeping successor is woken as usual. Only polling waiters can be found preempted. So the option does next to
//!   nothing under `wait=park`, and under `stp` it concerns the first microseconds of a wait.
//! - Work conservation holds except for evicted waiters: the lock may be free while evicted threads, none of which
//!   runs, wait. The first of them to run takes it.
//! - Every waiter that runs when its turn comes is served. Even the eldest may be evicted; it then rejoins as the
//!   youngest.
//!
//! The option is for `wait=spin` where threads may be without a CPU. With eight threads on four simulated CPUs, about
//! ten times as many sections are completed as without it (`crates/sim/tests/long_waits.rs`). Do not use it with other
//! waits: the passive waiters of `stp` take no CPU from the active ones, and publishing the time is pure cost.
//!
//! ## State, invariants and orderings
//! Those of [`queue::culling`](crate::parts::queue::culling), and: `prev` of a passive node names the next newer one,
//! except in the newest. `prev`, like all of the passive set, belongs to the holder: Relaxed. No checker can
//! distinguish the links' Release and Acquire from Relaxed. [The models](../models.md#what-neither-can-tell) say why
//! they stay.
//!
//! **Cannot:** do what `mcs` cannot do, or bound a wait in time. The eldest of n passive waiters waits for 1,000
//! releases on average; the newest waits for n times 1,000 on average, if not taken earlier.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::event::Event;
use crate::machine::node::state;
use crate::machine::{Handle, Machine, Word};
use crate::parts::policy::one_in;
use crate::parts::queue::culling::CullingLock;
use crate::parts::queue::link::{Link, handle_in};
use crate::parts::queue::service::{AsTuned, Service};
use crate::parts::queue::succession::{Holder, Succession};
use crate::parts::wait::SpinThenPark;

/// The MCSCR lock; waiters wait by policy `W`. `S` decides whether waiters that do not run are passed over.
pub type Mcscr<W = SpinThenPark, S = AsTuned> = CullingLock<Fewest<S>, W>;

/// A succession in which as few threads circulate as keep the lock busy.
pub struct Fewest<S = AsTuned>(PhantomData<S>);

// SAFETY: it moves waiters that have successors, and writes links of the secondary queue (invariants 1, 2 and 4).
unsafe impl<S: Service> Succession for Fewest<S> {
    type Service = S;
    /// A waiter that joined since is surplus, too. Without a second look, twice as many threads would circulate where
    /// sections are short.
    const SEES_LATECOMERS: bool = true;

    fn choose<M: Machine>(holder: &mut Holder, first: Link) -> Handle {
        if let Some(eldest) = holder.secondary
            && is_eldests_turn::<M>()
        {
            take_eldest::<M>(holder, eldest);
            eldest.node::<M>().next.store(first.word(), Relaxed);
            return eldest;
        }
        // A second waiter that has not linked itself does not make the first one surplus yet.
        match holder.behind::<M>(first.to()) {
            // Relaxed: a hint. A waiter that gives up later is detected when its turn comes.
            Some(second) if first.to().node::<M>().state.load(Relaxed) != state::ABANDONED => {
                cull::<M>(holder, first);
                second.to()
            }
            _ => first.to(),
        }
    }

    fn recall<M: Machine>(holder: &mut Holder, eldest: Handle) -> (Handle, Handle) {
        let taken = if is_eldests_turn::<M>() {
            take_eldest::<M>(holder, eldest);
            eldest
        } else {
            take_newest::<M>(holder, eldest)
        };
        (taken, taken)
    }
}

/// The trial for long-term fairness.
fn is_eldests_turn<M: Machine>() -> bool {
    one_in::<M>(M::tunables().eldest)
}

/// Makes `surplus`, the first of the main queue, the newest passive waiter.
fn cull<M: Machine>(holder: &mut Holder, surplus: Link) {
    M::trace(Event::Cull);
    let node = surplus.to().node::<M>();
    let Some(eldest) = holder.secondary else {
        node.next.store(surplus.word(), Relaxed);
        return holder.secondary = Some(surplus.to());
    };
    let link = &eldest.node::<M>().next;
    let newest = link.load(Relaxed);
    if let Some(newest) = Link::from_word(newest) {
        newest.to().node::<M>().prev.store(surplus.to().word(), Relaxed);
    }
    node.next.store(newest, Relaxed);
    link.store(surplus.word(), Relaxed);
}

/// Takes the newest passive waiter out of the set, whose last is `eldest`.
fn take_newest<M: Machine>(holder: &mut Holder, eldest: Handle) -> Handle {
    M::trace(Event::Reprovision);
    let link = &eldest.node::<M>().next;
    match Link::from_word(link.load(Relaxed)).map(Link::to) {
        Some(newest) if newest != eldest => {
            link.store(newest.node::<M>().next.load(Relaxed), Relaxed);
            newest
        }
        _ => {
            holder.secondary = None;
            eldest
        }
    }
}

/// Takes `eldest`, the last, out of the passive set.
fn take_eldest<M: Machine>(holder: &mut Holder, eldest: Handle) {
    M::trace(Event::Eldest);
    let node = eldest.node::<M>();
    let newest = node.next.load(Relaxed);
    let is_alone = handle_in(newest) == Some(eldest);
    match Handle::from_word(node.prev.load(Relaxed)) {
        Some(newer) if !is_alone => {
            newer.node::<M>().next.store(newest, Relaxed);
            holder.secondary = Some(newer);
        }
        _ => holder.secondary = None,
    }
}
