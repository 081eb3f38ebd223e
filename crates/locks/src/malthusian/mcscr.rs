//! # MCSCR: an MCS lock that restricts concurrency
//!
//! **Problem.** Threads beyond those that keep a lock busy do not make the program faster. They make it slower: each brings its
//! own data into the shared cache, and its own wish for a CPU. **Idea.** Let as few threads circulate through the lock as keep
//! it busy, the **active circulating set** (ACS), and let the others be **passive** (PS) meanwhile. There are surplus threads when more
//! than one waits in the queue: the releaser **culls** one. There are too few when nobody does: it takes the one that became passive last,
//! which is the warmest, and the likeliest to be still polling. **Source.** Dice, *Malthusian Locks*, EuroSys 2017: §1 (ACS, PS, work
//! conservation), §4 (this lock), §5.1 and §5.4 (waiting, succession).
//!
//! **Use it** when many threads want the lock, their sections drag data through a cache that they share, and a wait now and then may be long. **Rather not** when each wait must be short.
//!
//! **Departures.** Those of [`queue::aside`](crate::queue::aside). (1) The text
//! lets the releaser excise any node between its own and the tail: here it is the first, so the lock goes to who came after it.
//! (2) A first waiter that has given up is taken out instead of culled. (3) `evict=1`, see below, knows who runs by what waiters publish; in the text
//! (§7, which did not use it in its measurements) it is the kernel that tells (`schedctl`).
//!
//! ## The two lists
//! ```text
//!   main queue:    next ─> [S] ──> [T] <── tail           S is surplus: T waits, too. The next release culls S and serves T
//!   passive list:  aside ────────────────┐
//!                    ┌─> [P] ──> [Q] ──> [R] ─┐           P became passive last, R first (the eldest)
//!                    └────────────────────────┘           prev: Q -> P, R -> Q; that of P, the newest, means nothing
//! ```
//!
//! ## The release
//! | passive list | trial | main queue | successor | moves |
//! |---|---|---|---|---|
//! | any | no | two or more | its second | its first is culled: newest of the passive list |
//! | any | no | one | that one | – |
//! | not empty | yes | one or more | the eldest | out of the passive list; the main queue waits behind it |
//! | not empty | no | empty | the newest | out of the passive list: re-provisioned |
//! | not empty | yes | empty | the eldest | out of the passive list |
//! | empty | – | empty | – | the lock is free |
//!
//! The trial is a draw at each release that finds passive waiters, and says yes once in `eldest=` (1,000) times: that is all the
//! long-term fairness there is. **Work conservation**: the last row is the only one that frees the lock, and nobody waits there.
//! All steps take constant time.
//!
//! ## Preempted waiters: `evict=1`
//! With more threads that poll than CPUs, the successor may have lost his CPU, and all stand still until he has it again (§7: *lock waiter
//! preemption*). With `evict=1` who polls publishes the time, as in `mcs-tp`; the release looks at the **tentative successor** of the
//! table above, whichever row it is from. Has he published nothing for 50 µs, or that he offers his CPU to others, he is **evicted** from the chain, and
//! the release chooses anew. When he runs, he arrives anew, at the tail of the main queue.
//!
//! - Nobody else is evicted: a preempted waiter that is culled, or passive already, is in nobody's way. When his turn comes he may run again.
//! - He is not culled instead: a release re-provisions from the passive list, the newest first, and would come upon him again at once. Evicted he comes back by
//!   himself, when he runs. So the ACS is made of threads that run, and the PS is as it was.
//! - Who sleeps is woken, as ever: only who polls can be told to be preempted. So under `wait=park` the option does next to nothing, and under `stp` it is
//!   about the first microseconds of a wait.
//! - Work conservation, for whom it can be: the lock is free while nobody waits *but those who were evicted*, none of whom runs. The first to run has it.
//! - Everybody is served, but for who never runs when his turn comes: the eldest, too, may be evicted, and is the youngest then.
//!
//! It is for `wait=spin` where a CPU for each thread is not sure: with eight threads on four simulated CPUs there are about ten times as many sections as without
//! (`crates/sim/tests/long_waits.rs`). With other waits rather not: the passive waiters of `stp` take no CPU from the active ones, which is better still, and then
//! to publish the time only costs.
//!
//! ## State, invariants and orderings
//! Those of [`queue::aside`](crate::queue::aside), and: `prev` of a passive node that is not the newest names the next newer one.
//! `prev`, like all of the passive list, is the holder's: Relaxed.
//! No checker can tell the links' Release and Acquire from Relaxed: [the models](../models.md#what-neither-can-tell) argue for them.
//!
//! **Cannot:** what `mcs` cannot; and bound a wait in time: the eldest of n passive waiters waits for 1,000 releases on average,
//! the newest, at worst, for n times as many.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::event::Event;
use crate::machine::{Handle, Machine, Word};
use crate::node::state;
use crate::policy::one_in;
use crate::queue::aside::AsideLock;
use crate::queue::link::{Link, handle_in};
use crate::queue::service::{AsTuned, Service};
use crate::queue::succession::{Holder, Succession};
use crate::wait::SpinThenPark;

/// The MCSCR lock; waiters wait by policy `W`, and those are served whom `S` serves.
pub type Mcscr<W = SpinThenPark, S = AsTuned> = AsideLock<Fewest<S>, W>;

/// As few threads as keep the lock busy.
pub struct Fewest<S = AsTuned>(PhantomData<S>);

impl<S: Service> Succession for Fewest<S> {
    type Service = S;
    /// Who has come since is surplus, too: twice as many threads would circulate where sections are short.
    const SEES_LATECOMERS: bool = true;

    fn choose<M: Machine>(holder: &mut Holder, first: Link) -> Handle {
        if let Some(eldest) = holder.aside
            && is_eldests_turn::<M>()
        {
            take_eldest::<M>(holder, eldest);
            eldest.node::<M>().next.store(first.word(), Relaxed);
            return eldest;
        }
        // A second that has not linked itself yet is no surplus yet.
        match holder.behind::<M>(first.to()) {
            // Relaxed: a hint. Who gives up later is found when its turn comes.
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

/// The Bernoulli trial for long-term fairness.
fn is_eldests_turn<M: Machine>() -> bool {
    one_in::<M>(M::tunables().eldest)
}

/// Makes `surplus`, the first of the main queue, the newest passive waiter.
fn cull<M: Machine>(holder: &mut Holder, surplus: Link) {
    M::trace(Event::Cull);
    let node = surplus.to().node::<M>();
    let Some(eldest) = holder.aside else {
        node.next.store(surplus.word(), Relaxed);
        return holder.aside = Some(surplus.to());
    };
    let link = &eldest.node::<M>().next;
    let newest = link.load(Relaxed);
    if let Some(newest) = Link::from_word(newest) {
        newest.to().node::<M>().prev.store(surplus.to().word(), Relaxed);
    }
    node.next.store(newest, Relaxed);
    link.store(surplus.word(), Relaxed);
}

/// Takes the newest passive waiter out of the list that ends with `eldest`.
fn take_newest<M: Machine>(holder: &mut Holder, eldest: Handle) -> Handle {
    M::trace(Event::Reprovision);
    let link = &eldest.node::<M>().next;
    match Link::from_word(link.load(Relaxed)).map(Link::to) {
        Some(newest) if newest != eldest => {
            link.store(newest.node::<M>().next.load(Relaxed), Relaxed);
            newest
        }
        _ => {
            holder.aside = None;
            eldest
        }
    }
}

/// Takes `eldest`, the last, out of the passive list.
fn take_eldest<M: Machine>(holder: &mut Holder, eldest: Handle) {
    M::trace(Event::Eldest);
    let node = eldest.node::<M>();
    let newest = node.next.load(Relaxed);
    let is_alone = handle_in(newest) == Some(eldest);
    match Handle::from_word(node.prev.load(Relaxed)) {
        Some(newer) if !is_alone => {
            newer.node::<M>().next.store(newest, Relaxed);
            holder.aside = Some(newer);
        }
        _ => holder.aside = None,
    }
}
