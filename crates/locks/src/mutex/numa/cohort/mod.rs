//! # Cohort locks: a lock for each NUMA node, and one above them
//!
//! A cohort lock combines a lock for each NUMA node with one lock above them, and keeps the lock on a node for several
//! hand-offs. **Use it** to compare: NUMA-aware locks of one word were measured against these. **Rather not** when
//! locks are many or mostly free: each needs memory for each NUMA node, and an acquisition takes two locks. Do not use
//! the ticket locks where threads outnumber CPUs: they come to a standstill.
//!
//! **Problem.** A first-come-first-served lock moves itself and its data from NUMA node to NUMA node at almost every
//! hand-off. **Idea.** Each NUMA node has a **local** lock, and there is one **global** lock. A thread acquires its
//! node's local lock, then the global lock. A releaser looks for waiters of its own node. If there is one, the releaser
//! hands the local lock to it *with the global lock*. So the threads of a node are a *cohort* that keeps the global
//! lock for a while. Any two locks will do if a thread other than its holder may release the global one, and if the
//! local one can detect waiters. **Source.** Dice, Marathe & Shavit, *Lock Cohorting*, PPoPP 2012 and TOPC 1(2), 2015:
//! `C-BO-MCS`, `C-TKT-TKT`, `C-PTL-TKT`; as the rivals of CNA, Dice & Kogan, EuroSys 2019, §2 and §7. The partitioned
//! ticket lock: Dice, SPAA 2011.
//!
//! | lock | global | local | |
//! |---|---|---|---|
//! | `c-bo-mcs` | test-and-set with back-off | MCS | fast and unfair: a NUMA node, or a thread, may take the global lock again and again |
//! | `c-tkt-tkt` | ticket | ticket | first come, first served among the nodes, and within each node |
//! | `c-ptl-tkt` | partitioned ticket | ticket | the same; the nodes poll different lines |
//!
//! **Departures.**
//! 1. Local locks are parts of a side block ([`side`](crate::parts::side)). A part is made when a thread of its node
//!    first needs it. The papers' local locks are made with the lock.
//! 2. The local lock is released before the global one, not after it: once the global lock is released, the memory of
//!    the lock may be freed.
//! 3. `passes` of a part counts the hand-offs, and is also the papers' flag: 0 says that the global lock did not come
//!    with the local lock.
//! 4. As long as no thread has ever waited, a thread that finds the global lock free takes only that lock. A **try**
//!    always takes only that lock. So a lock that no thread has waited for has no side block. A **timed acquisition**
//!    of the locks made of tickets also takes only the global lock, and draws a number only if that number can be
//!    served at once (see [`ticket`](crate::mutex::spin::ticket)). Under `c-bo-mcs` a timed acquisition waits in turn,
//!    and leaves either queue by time-out.
//! 5. A release by a thread of another NUMA node releases the local lock that came with the global one: the lock
//!    records which one (`home`).
//! 6. In a forked child, the waiters of the parent are forgotten ([`settle`]).
//! 7. There may be more than two levels: parts below parts ([`parts`]). Then "local" means each of them in turn, from
//!    the innermost up, and "global" means all levels above it.
//!
//! ```text
//!   lock:  global | home ──────────────┐
//!          side ──> [block] ─ node 0 ─> [part: local lock, passes = 3]  held with the global lock: the 3rd hand-off
//!                           ├ node 1 ─> [part: local lock, passes = 0]  its holder waits for the global lock;
//!                           │                                           other waiters queue behind it
//!                           └ node 2    0: no thread has come from this node yet
//! ```
//!
//! ## State of a part
//! | local lock | `passes` | meaning |
//! |---|---|---|
//! | free | 0 | no thread of this node wants the lock |
//! | held | 0 | its holder waits for the global lock, or has itself just acquired it |
//! | held | n | the global lock came with it, n hand-offs ago |
//!
//! ## Invariants
//! 1. The holder of the global lock holds the lock, and no other thread does. `home` is written and read by the holder
//!    only. It names the innermost part whose local lock the holder has; the holder then has those of all parts above
//!    it, too. It is 0 if the holder has no local lock, and whenever the global lock is free.
//! 2. `passes` of a part is written by the thread that holds its local lock together with the global one. It is 0
//!    whenever the local lock is released without the global one.
//! 3. The global lock stays held while it is passed on: `pass` hands the local lock to a waiter that can no longer
//!    leave, or else reports that there is no waiter.
//! 4. The last access of a release is the store that grants a local lock, if the levels above go with it, or else the
//!    store that releases the global lock. The local locks below the granted one were released before. So a releaser
//!    accesses neither the lock nor its side block after it has let another thread in.
//! 5. As long as no thread has had to wait, threads access nothing but the lock. So processes that map the memory of a
//!    mutex of the default kind may use it in turn, as under glibc. In another process, the name of a side block means
//!    another block, or none. So a waiter checks in the block itself whether the block was made for this lock in this
//!    process. If not, the waiter tries the lock at intervals.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | the locks' own | – | – | [`queue::k42`](crate::parts::queue::k42), [`ticket`](crate::mutex::spin::ticket), [`tas`](crate::mutex::spin::tas); [`global`], [`partitioned`] |
//! | `home`, `passes` | Relaxed | – | a local or the global lock orders them (invariants 1, 2) |
//! | `limit` of a part | Relaxed | – | written before the part is published |
//!
//! **Cannot:** let any thread in while the chosen successor does not run, in the local or in the global queue. Cannot
//! give its side block back (128 bytes, and 128 for each NUMA node; `c-ptl-tkt`: up to 640 more) if the program frees
//! the lock without destroying it. Cannot share its mutex with code that bypasses flashlock. `c-bo-mcs` cannot be fair:
//! the same thread may take its global lock again and again. The locks made of tickets cannot sleep until their number
//! is called (waiters nap), nor serve timed and tried acquisitions in turn.

pub mod global;
pub mod level;
pub mod local;
pub mod partitioned;
pub mod parts;

use core::iter::successors;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::block::{Block, Name};
use crate::machine::event::Event;
use crate::machine::{Deadline, Machine, TimedOut, Word};
use crate::parts::counted::Contention;
use crate::parts::naps::nap_longer;
use crate::parts::raw::RawLock;
use crate::parts::settle::{settle, settle_soon};
use crate::parts::side::{Side, above};
use crate::parts::wait::SpinThenPark;
use global::{BackOff, GlobalTicket};
use level::{Global, LocalLock, Place};
use local::{LocalMcs, LocalTicket};
use partitioned::PartitionedTicket;
use parts::{NumaNodes, Parts};

/// How long (µs) a waiter naps at first between tries if the side block belongs to another process.
const OUTSIDE: u32 = 1_000;
/// How long (µs) at most: it waits for whole sections, and newcomers look sooner.
const OUTSIDE_MOST: u32 = 20_000;

/// C-BO-MCS; waiters wait by policy `W`.
pub type CBoMcs<W = SpinThenPark> = Cohort<BackOff<W>, LocalMcs<W>>;
/// C-TKT-TKT.
pub type CTktTkt = Cohort<GlobalTicket, LocalTicket>;
/// C-PTL-TKT.
pub type CPtlTkt = Cohort<PartitionedTicket, LocalTicket>;

/// The cohort lock of a global and a local lock, with parts `P`.
pub struct Cohort<G, L, P = NumaNodes>(PhantomData<(G, L, P)>);

/// The state beside the word. The word belongs to the global lock.
#[repr(C)]
pub struct CohortQueue<M: Machine, S> {
    /// The side block, or 0.
    pub side: M::Word,
    /// The innermost part whose local lock the holder has, or 0.
    pub home: M::Word,
    /// The epoch of the process that last used it.
    pub epoch: M::Word,
    /// The global lock's state beside the word.
    pub global: S,
}

crate::zeroed!(CohortQueue<M, S> { side, home, epoch, global });

/// The state of one lock: its word and its queue.
struct Lock<'a, M: Machine, G: Global, L, P> {
    word: &'a M::Word,
    queue: &'a CohortQueue<M, G::State<M>>,
    local: PhantomData<(L, P)>,
}

impl<'a, M: Machine, G: Global, L: LocalLock, P: Parts> Lock<'a, M, G, L, P> {
    fn new(word: &'a M::Word, queue: &'a CohortQueue<M, G::State<M>>) -> Self {
        let this = Self { word, queue, local: PhantomData };
        settle::<M>(&queue.epoch, || this.reset());
        this
    }

    /// The same, for an attempt. None if another thread settles.
    fn for_try(word: &'a M::Word, queue: &'a CohortQueue<M, G::State<M>>) -> Option<Self> {
        let this = Self { word, queue, local: PhantomData };
        settle_soon::<M>(&queue.epoch, || this.reset()).then_some(this)
    }

    /// In a forked child no thread waits. The holder, if there is one, has the local locks of `home` and of the parts
    /// above it.
    fn reset(&self) {
        let held = G::is_held::<M>(self.word, &self.queue.global);
        if let Some(side) = self.own_side() {
            let home = Name::from_word(self.queue.home.load(Relaxed)).filter(|_| held);
            side.all_names(&mut |part| {
                let is_held = line::<M>(home).any(|other| other == part);
                L::reset::<M>(part.block(), is_held);
                if !is_held {
                    part.block::<M>().passes.store(0, Relaxed);
                }
            });
        }
        G::reset(&self.place(), held);
    }

    /// The side block, if there is one and it belongs to this process (invariant 5).
    fn own_side(&self) -> Option<Side<M>> {
        Side::of(&self.queue.side).filter(|side| side.is_of(&self.queue.side))
    }

    /// The side block, made if there is none. None if it belongs to another process.
    #[inline]
    fn side(&self) -> Option<Side<M>> {
        let side = Side::of(&self.queue.side).unwrap_or_else(|| {
            M::trace(Event::SideBlock);
            Side::make_owned(&self.queue.side, |_| ())
        });
        side.is_of(&self.queue.side).then_some(side)
    }

    fn place(&self) -> Place<'_, M, G::State<M>> {
        Place { word: self.word, state: &self.queue.global, named: &self.queue.side }
    }

    /// Takes only the global lock: `home` stays 0 (invariant 1).
    fn try_lock(&self) -> bool {
        G::try_lock(&self.place())
    }

    fn lock(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        // Once a thread has waited, others usually have to wait, too. Then a look at the global lock would only disturb
        // the threads that hand it on within a part.
        let is_new = self.queue.side.load(Relaxed) == 0;
        if is_new && self.try_lock() { Ok(()) } else { self.lock_in_queue(until) }
    }

    /// Acquires the local locks and the global lock, where that is possible.
    fn lock_in_queue(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let mut waiting = Contention::new();
        let ended = match (self.side(), until) {
            (None, _) => {
                waiting.begin();
                self.wait_outside(until)
            }
            // Departure 4.
            (Some(_), Some(_)) if !L::CAN_LEAVE => G::lock(&self.place(), until, &mut waiting),
            (Some(side), _) => self.lock_all(side, until, &mut waiting),
        };
        waiting.end(ended)
    }

    /// Tries the lock at intervals: its side block belongs to another process (invariant 5).
    #[cold]
    fn wait_outside(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let mut nap = OUTSIDE;
        while !self.try_lock() {
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                return Err(TimedOut);
            }
            nap_longer::<M>(&mut nap, until);
            nap = nap.min(OUTSIDE_MOST);
        }
        Ok(())
    }

    fn lock_all(&self, side: Side<M>, until: Option<Deadline>, waiting: &mut Contention<M>) -> Result<(), TimedOut> {
        let home = P::home(side);
        self.climb(home, until, waiting)?;
        self.queue.home.store(home.word(), Relaxed);
        // For statistics only.
        let before = side.0.state.load(Relaxed);
        if before != home.word() {
            side.0.state.store(home.word(), Relaxed);
            let before = line::<M>(Name::from_word(before)).last();
            if before.is_some() && before != line::<M>(Some(home)).last() {
                M::trace(Event::CohortMove);
            }
        }
        Ok(())
    }

    /// Acquires the local lock of a part, and the locks above it unless they come with it.
    fn climb(&self, part: Name, until: Option<Deadline>, waiting: &mut Contention<M>) -> Result<(), TimedOut> {
        let part = part.block::<M>();
        L::lock(part, until, waiting)?;
        if part.passes.load(Relaxed) != 0 {
            return Ok(());
        }
        let ended = match above(part) {
            Some(above) => self.climb(above, until, waiting),
            None => G::lock(&self.place(), until, waiting),
        };
        ended.inspect_err(|_| L::unlock(part)) // Invariant 2.
    }

    fn unlock(&self) {
        // Releasing a free lock does nothing.
        if !G::is_held::<M>(self.word, &self.queue.global) {
            return;
        }
        if let Some(home) = Name::from_word(self.queue.home.load(Relaxed)) {
            for part in line::<M>(Some(home)) {
                let part = part.block::<M>();
                if Self::pass(part) {
                    return;
                }
                L::unlock(part); // Invariant 4.
            }
            self.queue.home.store(0, Relaxed);
        }
        G::unlock(&self.place());
    }

    /// (held, n) -> (held by the next waiter of this part, n + 1), if there is a waiter and n is below the limit.
    /// Otherwise (held, 0).
    fn pass(part: &Block<M>) -> bool {
        let mut passes = part.passes.load(Relaxed);
        if passes < parts::limit(part) && L::has_waiters(part) {
            let event = if above(part).is_none() { Event::CohortPass } else { Event::CohortNear };
            // In the part, not in the waiter's node: the waiter polls its node, so that line would have to travel
            // twice.
            passes += 1;
            part.passes.store(passes, Relaxed);
            if L::pass(part) {
                M::trace(event);
                return true;
            }
        }
        if passes != 0 {
            part.passes.store(0, Relaxed);
        }
        false
    }
}

/// A part and those above it, from the innermost up.
fn line<M: Machine>(innermost: Option<Name>) -> impl Iterator<Item = Name> {
    successors(innermost, |part| above(part.block::<M>()))
}

impl<G: Global, L: LocalLock, P: Parts> Cohort<G, L, P> {
    /// Acquires the lock by the path of a thread that found it held, whether it is held or not. For models, in which
    /// few threads are to meet in the local locks.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    pub unsafe fn lock_in_queue<M: Machine>(
        word: &M::Word,
        queue: &CohortQueue<M, G::State<M>>,
        until: Option<Deadline>,
    ) -> Result<(), TimedOut> {
        Lock::<M, G, L, P>::new(word, queue).lock_in_queue(until)
    }
}

// SAFETY: invariants 1 to 5; what `G` and `L` do is their promise.
unsafe impl<M: Machine, G: Global, L: LocalLock, P: Parts> RawLock<M> for Cohort<G, L, P> {
    type Queue = CohortQueue<M, G::State<M>>;

    unsafe fn try_acquire(word: &M::Word, queue: &Self::Queue) -> bool {
        Lock::<M, G, L, P>::for_try(word, queue).is_some_and(|lock| lock.try_lock())
    }

    unsafe fn acquire(word: &M::Word, queue: &Self::Queue, until: Option<&Deadline>) -> Result<(), TimedOut> {
        Lock::<M, G, L, P>::new(word, queue).lock(until.copied())
    }

    unsafe fn release(word: &M::Word, queue: &Self::Queue) {
        Lock::<M, G, L, P>::new(word, queue).unlock();
    }

    unsafe fn is_locked(word: &M::Word, queue: &Self::Queue) -> bool {
        G::is_held::<M>(word, &queue.global)
    }

    unsafe fn destroy(_: &M::Word, queue: &Self::Queue) {
        if let Some(side) = Side::<M>::of(&queue.side).filter(|side| side.is_of(&queue.side)) {
            G::destroy(side);
            Side::<M>::give_back(&queue.side);
        }
    }
}
