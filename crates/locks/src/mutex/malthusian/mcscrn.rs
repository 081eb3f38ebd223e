//! # MCSCRN: an MCS lock that restricts concurrency to one NUMA node
//!
//! MCSCRN lets only a few threads circulate, all of one NUMA node at a time. **Use it** when you would use `mcscr`, and
//! the machine has several NUMA nodes. **Rather not** when there is one node (use `mcscr`), or each wait must be short.
//!
//! **Problem.** [MCSCR](super::mcscr) keeps the active circulating set small, but not in one place: if its threads are
//! on several NUMA nodes, lock and data travel with each hand-off. **Idea.** One node is **home**. Waiters of other
//! nodes are **remote**: they are culled. Of the waiters at home, surplus ones are culled, too, and are **passive**, as
//! in MCSCR. Now and then another node becomes home, and all its waiters come back. **Source.** Dice, *Malthusian
//! Locks*, EuroSys 2017, §9.1.
//!
//! **Departures.** Those of [`queue::culling`](crate::parts::queue::culling).
//! 1. The two lists of culled waiters, passive and remote, are one ring. The passive waiters come first, the newest at
//!    the front. Then come the remote waiters, in the order in which they were culled. After a change of home, the
//!    waiters that were passive follow, the newest first. So the lock stays as small as MCSCR's. Where a part of the
//!    ring ends is found by a search, when home is to change.
//! 2. If no thread waits at home at all, another node becomes home at once.
//! 3. No word says which node is home. A thread that has the lock after a wait is at home, whichever row below chose
//!    it. So home is the node on which the holder queued, or, while the ring is empty, the node on which it runs.
//!
//! ## The three lists
//! ```text
//!   main queue:   next ─> [h1] ──> [h2] ──> [r4] <── tail        h: home, r: remote
//!   ring:         secondary ──────────────────────────────────────────────┐
//!                   ┌─> [h5] ──> [h3] ──> │ [r1] ──> [r2] ──> [r3] ───────┤
//!                   │   newest   eldest   │ eldest          newest        │
//!                   └─────── passive ─────┴────────── remote ─────────────┘
//! ```
//!
//! ## The release
//! | trial (`eldest=`) | main queue | ring | successor | moves |
//! |---|---|---|---|---|
//! | no | begins with remote ones, then h | any | h, or the waiter behind it (see below) | the remote ones, to the end of the ring |
//! | no | begins with h1, h2 | any | h2 | h1 is culled: first of the ring |
//! | no | begins with h1, and r or nothing behind it | any | h1 | – |
//! | no | remote ones only, or empty | a passive one | the newest passive one: re-provisioned | all remote ones but the last |
//! | no | remote ones only, or empty | none passive | first waiter of the new home | **a new home** |
//! | yes | any | a remote one | first waiter of the new home | **a new home** |
//! | yes | any | passive ones only | the eldest of them | – |
//! | – | empty | empty | – | the lock is free |
//!
//! A new home: the node of the remote waiter that came first. All waiters of that node go before the main queue, in
//! order. The waiters that were passive are remote now, and stand last in the ring.
//!
//! `evict=1`: a successor that does not run is evicted, and joins anew when it runs, as in `mcscr`. The release chooses
//! anew for the same home. The evicted thread may be on another NUMA node when it comes back.
//!
//! ## State, invariants and orderings
//! Those of [`queue::culling`](crate::parts::queue::culling), and: in the ring, waiters at home come before the others;
//! and the successor's node is home from then on. The ring belongs to the holder: Relaxed. Links of the main queue may
//! be written at that moment: Acquire. No checker can distinguish the links' Release and Acquire from Relaxed: [the
//! models](../models.md#what-neither-can-tell) say why they stay.
//!
//! **Cannot:** do what `mcs` cannot do, or bound a wait in time: with n nodes a remote waiter waits for n × 1,000
//! releases on average.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::event::Event;
use crate::machine::{Handle, Machine, Word};
use crate::parts::policy::one_in;
use crate::parts::queue::culling::CullingLock;
use crate::parts::queue::link::Link;
use crate::parts::queue::service::AsTuned;
use crate::parts::queue::succession::{Holder, Succession};
use crate::parts::wait::SpinThenPark;

/// The MCSCRN lock; waiters wait by policy `W`.
pub type Mcscrn<W = SpinThenPark> = CullingLock<FewestAtHome, W>;

/// A succession in which as few threads circulate as keep the lock busy, all of one NUMA node.
pub struct FewestAtHome;

/// The number of the home node.
#[derive(Clone, Copy)]
struct Home(u32);

impl Home {
    /// The home of this holder. Relaxed: the holder's thread wrote it before it queued.
    fn of<M: Machine>(holder: &Holder) -> Self {
        Self(holder.node.map_or_else(M::numa_node, |node| node.node::<M>().numa.load(Relaxed)))
    }

    /// Whether a waiter is at home.
    fn has<M: Machine>(self, waiter: Link) -> bool {
        waiter.numa::<M>() == self.0
    }
}

/// A piece of a list: `first … last`. The caller decides what follows the last.
#[derive(Clone, Copy)]
struct Piece {
    first: Link,
    last: Handle,
}

/// `pieces` in a row, without the empty ones. Writes the links between them.
fn joined<M: Machine>(pieces: &[Option<Piece>]) -> Option<Piece> {
    pieces.iter().flatten().copied().reduce(|before, after| {
        before.last.node::<M>().next.store(after.first.word(), Relaxed);
        Piece { last: after.last, ..before }
    })
}

/// Adds a waiter at the end of a piece.
fn add<M: Machine>(piece: &mut Option<Piece>, waiter: Link) {
    *piece = joined::<M>(&[*piece, Some(Piece { first: waiter, last: waiter.to() })]);
}

/// The ring of culled waiters of a holder.
struct Ring<'a, M: Machine>(&'a mut Holder, PhantomData<M>);

impl<M: Machine> Ring<'_, M> {
    fn all(&self) -> Option<Piece> {
        let last = self.0.secondary?;
        Some(Piece { first: Link::from_word(last.node::<M>().next.load(Relaxed))?, last })
    }

    /// Makes `all` the ring.
    fn set(&mut self, all: Option<Piece>) {
        if let Some(all) = all {
            all.last.node::<M>().next.store(all.first.word(), Relaxed);
        }
        self.0.secondary = all.map(|all| all.last);
    }

    /// Takes the newest passive waiter out of the ring.
    fn take_passive(&mut self, home: Home) -> Option<Handle> {
        let all = self.all().filter(|all| home.has::<M>(all.first))?;
        M::trace(Event::Reprovision);
        let rest = Link::from_word(all.first.to().node::<M>().next.load(Relaxed));
        self.set(rest.filter(|_| all.first.to() != all.last).map(|first| Piece { first, ..all }));
        Some(all.first.to())
    }

    /// Visits all of the ring, in order. A visited waiter may be put into a piece.
    fn for_each(&self, mut visit: impl FnMut(Link)) {
        let mut here = self.all();
        while let Some(Piece { first, last }) = here {
            let next = Link::from_word(first.to().node::<M>().next.load(Relaxed));
            here = next.filter(|_| first.to() != last).map(|first| Piece { first, last });
            visit(first);
        }
    }

    /// Makes the eldest remote waiter's node home, and takes its waiters out of the ring. None if there is no remote
    /// waiter.
    fn move_home(&mut self, home: Home) -> Option<Piece> {
        let (mut new, mut moved, mut others, mut passive) = (None, None, None, None);
        self.for_each(|waiter| {
            let piece = if home.has::<M>(waiter) {
                &mut passive
            } else if new.get_or_insert(Home(waiter.numa::<M>())).has::<M>(waiter) {
                &mut moved
            } else {
                &mut others
            };
            add::<M>(piece, waiter);
        });
        if moved.is_some() {
            M::trace(Event::Rehome);
        }
        self.set(joined::<M>(&[others, passive]));
        moved
    }

    /// Takes the eldest waiter, if the trial for long-term fairness says so. If that waiter is remote, takes all
    /// waiters of its node.
    fn in_fairness(&mut self, home: Home) -> Option<Piece> {
        let last = self.0.secondary?;
        if !one_in::<M>(M::tunables().eldest) {
            return None;
        }
        M::trace(Event::Eldest);
        self.move_home(home).or_else(|| {
            let (mut eldest, mut others) = (None, None);
            self.for_each(|waiter| add::<M>(if waiter.to() == last { &mut eldest } else { &mut others }, waiter));
            self.set(others);
            eldest
        })
    }
}

/// The remote waiters at the front of the main queue, and the waiter behind them: the first one at home, or, if there
/// is none, the last one that is known.
fn remote_ones<M: Machine>(holder: &Holder, home: Home, first: Link) -> (Option<Piece>, Link) {
    let (mut remote, mut here) = (None, first);
    while !home.has::<M>(here)
        && let Some(next) = holder.behind::<M>(here.to())
    {
        remote = Some(Piece { first, last: here.to() });
        here = next;
    }
    (remote, here)
}

// SAFETY: it moves waiters that have successors, and writes links of the secondary queue (invariants 1, 2 and 4).
unsafe impl Succession for FewestAtHome {
    type Service = AsTuned;
    /// As under `mcscr`.
    const SEES_LATECOMERS: bool = true;

    fn choose<M: Machine>(holder: &mut Holder, first: Link) -> Handle {
        let home = Home::of::<M>(holder);
        let mut ring = Ring::<M>(holder, PhantomData);
        if let Some(served) = ring.in_fairness(home) {
            served.last.node::<M>().next.store(first.word(), Relaxed);
            return served.first.to();
        }
        let (remote, here) = remote_ones::<M>(ring.0, home, first);
        if remote.is_some() {
            M::trace(Event::Alteration);
            ring.set(joined::<M>(&[ring.all(), remote]));
        }
        if home.has::<M>(here) {
            let second = ring.0.behind::<M>(here.to());
            let Some(second) = second.filter(|&second| home.has::<M>(second)) else { return here.to() };
            M::trace(Event::Cull);
            ring.set(joined::<M>(&[Some(Piece { first: here, last: here.to() }), ring.all()]));
            return second.to();
        }
        // No waiter at home is in the main queue. For now, that queue consists of `here` alone.
        let piece = match ring.take_passive(home) {
            Some(passive) => Piece { first: Link::new(passive, passive.node::<M>().numa.load(Relaxed)), last: passive },
            None => match ring.move_home(home) {
                Some(moved) => moved,
                None => return here.to(), // And the ring is empty.
            },
        };
        piece.last.node::<M>().next.store(here.word(), Relaxed);
        piece.first.to()
    }

    fn recall<M: Machine>(holder: &mut Holder, last: Handle) -> (Handle, Handle) {
        let home = Home::of::<M>(holder);
        let mut ring = Ring::<M>(holder, PhantomData);
        if let Some(served) = ring.in_fairness(home) {
            return (served.first.to(), served.last);
        }
        if let Some(passive) = ring.take_passive(home) {
            return (passive, passive);
        }
        match ring.move_home(home) {
            Some(moved) => (moved.first.to(), moved.last),
            None => (last, last), // Not reached: the ring is not empty, so it has a passive or a remote waiter.
        }
    }
}
