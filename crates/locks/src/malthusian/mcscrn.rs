//! # MCSCRN: an MCS lock that restricts concurrency to one NUMA node
//!
//! **Problem.** [MCSCR](super::mcscr) keeps the active circulating set small, but not in one place: if its threads are
//! on several NUMA nodes, lock and data travel with each hand-over. **Idea.** One node is **home**. Waiters of other
//! nodes are **remote**, and set aside; among those at home surplus ones are passive, as in MCSCR. Now and then another
//! node becomes home, and all its waiters come back. **Source.** Dice, *Malthusian Locks*, EuroSys 2017, §9.1.
//!
//! **Use it** when you would use `mcscr`, and the machine has several NUMA nodes. **Rather not** when there is one node
//! (use `mcscr`), or each wait must be short.
//!
//! **Departures.** Those of [`queue::culling`](crate::queue::culling). (1) The two lists, passive and remote, are one ring:
//! the passive ones first, the newest at the front; then the remote ones, in the order in which they were set aside,
//! and behind those, after a change of home, who was passive, the newest first. So the lock stays as small as MCSCR's;
//! where one part ends is looked for, when home is to change. (2) If nobody at home waits at all, another node becomes
//! home at once. (3) Which node is home is written nowhere. Who has the lock after a wait is at home, whatever row
//! below it was; so home is where the holder queued, and, while nobody is aside, where he runs.
//!
//! ## The three lists
//! ```text
//!   main queue:   next ─> [h1] ──> [h2] ──> [r4] <── tail        h: home, r: remote
//!   aside:        aside ──────────────────────────────────────────────────┐
//!                   ┌─> [h5] ──> [h3] ──> │ [r1] ──> [r2] ──> [r3] ───────┤
//!                   │   newest   eldest   │ eldest          newest        │
//!                   └─────── passive ─────┴────────── remote ─────────────┘
//! ```
//!
//! ## The release
//! | trial (`eldest=`) | main queue | aside | successor | moves |
//! |---|---|---|---|---|
//! | no | begins with remote ones, then h | any | h, or who follows it (see below) | the remote ones, to the end of the ring |
//! | no | begins with h1, h2 | any | h2 | h1 is culled: first of the ring |
//! | no | begins with h1, and r or nobody | any | h1 | – |
//! | no | remote ones only, or nobody | a passive one | the newest passive one: re-provisioned | all remote ones but the last |
//! | no | remote ones only, or nobody | none passive | first of the new home's | **a new home** |
//! | yes | any | a remote one | first of the new home's | **a new home** |
//! | yes | any | passive ones only | the eldest of them | – |
//! | – | empty | empty | – | the lock is free |
//!
//! A new home: the node of the remote waiter that came first. All its waiters go before the main queue, in order; those
//! that were passive are remote now, the last of the ring.
//!
//! `evict=1`: a successor that does not run is evicted, and arrives anew when he does, as in `mcscr`. The release
//! chooses anew for the same home; he may be of another NUMA node when he comes back.
//!
//! ## State, invariants and orderings
//! Those of [`queue::culling`](crate::queue::culling), and: in the ring, who is home comes before who is not; and the
//! successor is at home from then on. The ring is the holder's: Relaxed. Links of the main queue may be written at that
//! moment: Acquire. No checker can tell the links' Release and Acquire from Relaxed: [the
//! models](../models.md#what-neither-can-tell) argue for them.
//!
//! **Cannot:** what `mcs` cannot; and bound a wait in time: with n nodes a remote waiter waits for n × 1,000 releases
//! on average.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::event::Event;
use crate::machine::{Handle, Machine, Word};
use crate::policy::one_in;
use crate::queue::culling::CullingLock;
use crate::queue::link::Link;
use crate::queue::service::AsTuned;
use crate::queue::succession::{Holder, Succession};
use crate::wait::SpinThenPark;

/// The MCSCRN lock; waiters wait by policy `W`.
pub type Mcscrn<W = SpinThenPark> = CullingLock<FewestAtHome, W>;

/// As few threads as keep the lock busy, of one NUMA node.
pub struct FewestAtHome;

/// The number of the home node.
#[derive(Clone, Copy)]
struct Home(u32);

impl Home {
    /// That of who holds the lock. Relaxed: written by his thread before it queued.
    fn of<M: Machine>(holder: &Holder) -> Self {
        Self(holder.node.map_or_else(M::numa_node, |node| node.node::<M>().numa.load(Relaxed)))
    }

    /// Whether a waiter is at home.
    fn has<M: Machine>(self, waiter: Link) -> bool {
        waiter.numa::<M>() == self.0
    }
}

/// A piece of a list: `first … last`. What follows the last is the caller's to say.
#[derive(Clone, Copy)]
struct Piece {
    first: Link,
    last: Handle,
}

/// `pieces` in a row, without those that are empty; their inner links are written.
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

/// What a holder has aside.
struct Ring<'a, M: Machine>(&'a mut Holder, PhantomData<M>);

impl<M: Machine> Ring<'_, M> {
    fn all(&self) -> Option<Piece> {
        let last = self.0.aside?;
        Some(Piece { first: Link::from_word(last.node::<M>().next.load(Relaxed))?, last })
    }

    /// These are aside from now on.
    fn set(&mut self, all: Option<Piece>) {
        if let Some(all) = all {
            all.last.node::<M>().next.store(all.first.word(), Relaxed);
        }
        self.0.aside = all.map(|all| all.last);
    }

    /// The newest passive waiter, out of the ring.
    fn take_passive(&mut self, home: Home) -> Option<Handle> {
        let all = self.all().filter(|all| home.has::<M>(all.first))?;
        M::trace(Event::Reprovision);
        let rest = Link::from_word(all.first.to().node::<M>().next.load(Relaxed));
        self.set(rest.filter(|_| all.first.to() != all.last).map(|first| Piece { first, ..all }));
        Some(all.first.to())
    }

    /// Visits all of the ring, in order. What is visited may be put into a piece.
    fn for_each(&self, mut visit: impl FnMut(Link)) {
        let mut here = self.all();
        while let Some(Piece { first, last }) = here {
            let next = Link::from_word(first.to().node::<M>().next.load(Relaxed));
            here = next.filter(|_| first.to() != last).map(|first| Piece { first, last });
            visit(first);
        }
    }

    /// The eldest remote waiter's node becomes home: its waiters, out of the ring. None if nobody is remote.
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

    /// Who has waited for longest, if long-term fairness wants him served; and with a remote one, all of his node.
    fn in_fairness(&mut self, home: Home) -> Option<Piece> {
        let last = self.0.aside?;
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

/// The remote waiters at the front of the main queue that others follow, and who follows them: that one is home, or the
/// last.
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

impl Succession for FewestAtHome {
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
        // Nobody at home is in the main queue, which begins, and ends for now, with `here`.
        let piece = match ring.take_passive(home) {
            Some(passive) => Piece { first: Link::new(passive, passive.node::<M>().numa.load(Relaxed)), last: passive },
            None => match ring.move_home(home) {
                Some(moved) => moved,
                None => return here.to(), // And nobody is aside.
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
            None => (last, last), // Not reached: somebody is aside, at home or remote.
        }
    }
}
