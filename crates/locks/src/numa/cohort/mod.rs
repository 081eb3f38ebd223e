//! # Cohort locks: a lock for each NUMA node, and one above them
//!
//! **Problem.** A lock that goes to whoever came first takes itself and its data from NUMA node to NUMA node at almost
//! every hand-over. **Idea.** Each NUMA node has a **local** lock, and there is one **global** lock. A thread acquires
//! its node's local lock, then the global one. Who releases hands the local lock to the next thread of his node, *with
//! the global lock*, if somebody waits there: the threads of a node are a *cohort* that keeps the global lock for a
//! while. Any two locks will do, if the global one may be released by another thread than the one that acquired it, and
//! the local one can tell whether somebody waits. **Source.** Dice, Marathe & Shavit, *Lock Cohorting*, PPoPP 2012 and
//! TOPC 1(2), 2015: `C-BO-MCS`, `C-TKT-TKT`, `C-PTL-TKT`; as the rivals of CNA, Dice & Kogan, EuroSys 2019, §2 and §7.
//! The partitioned ticket lock: Dice, SPAA 2011.
//!
//! | lock | global | local | |
//! |---|---|---|---|
//! | `c-bo-mcs` | test-and-set with back-off | MCS | fast, and unfair: a NUMA node, or a thread, may take the global lock again and again |
//! | `c-tkt-tkt` | ticket | ticket | in order among the nodes, and in each |
//! | `c-ptl-tkt` | partitioned ticket | ticket | the same; the nodes poll different lines |
//!
//! **Use it** to compare: these are what NUMA-aware locks of one word were measured by. **Rather not** when locks are
//! many or mostly free: each costs memory for each NUMA node, and an acquisition takes two locks. Where threads
//! outnumber CPUs the ticket locks stand still.
//!
//! **Departures.** (1) Local locks are parts of a side block ([`side`](crate::side)), made when a thread of their node
//! first has to wait; the papers' are made with the lock. (2) The local lock is given up before the global one, not
//! after it: after the global lock is released the memory of the lock may be gone. (3) Whoever waited last counts the
//! hand-overs: `passes` of a part is 0 when it has not got the global lock, which is the papers' flag, too. (4) Who
//! finds the global lock free takes it alone, as long as nobody has ever waited, and so does a **try**: so a lock that
//! nobody has waited for has no side block. So does a **timed acquisition** of the locks made of tickets, which draw a
//! number only if it can be served at once (see [`ticket`](crate::spin::ticket)); under `c-bo-mcs` it waits in turn,
//! and leaves either queue by time-out. (5) A release by a thread of another NUMA node gives back the local lock that
//! came with the global one: the lock knows which (`home`). (6) In a forked child those who waited are forgotten
//! ([`settle`]). (7) There may be more levels than two: parts below parts ([`parts`]). Then "local" is each of them in
//! turn, from the innermost up, and "global" all that is above it.
//!
//! ```text
//!   lock:  global | home ──────────────┐
//!          side ──> [block] ─ node 0 ─> [part: local lock, passes = 3]  held with the global lock: the 3rd hand-over
//!                           ├ node 1 ─> [part: local lock, passes = 0]  held by who waits for the global lock;
//!                           │                                           others behind it
//!                           └ node 2    0: nobody has come from there
//! ```
//!
//! ## State of a part
//! | local lock | `passes` | meaning |
//! |---|---|---|
//! | free | 0 | nobody from here wants the lock |
//! | held | 0 | its holder waits for the global lock, or has just acquired that itself |
//! | held | n | the global lock came with it, n hand-overs ago |
//!
//! ## Invariants
//! 1. Who holds the global lock holds the lock, and nobody else does. `home` is written and read by the holder only:
//!    the innermost part whose local lock he has, and with it those of all parts above it; or 0, as it is whenever the
//!    global lock is free.
//! 2. `passes` of a part is written by who holds its local lock, with the global one. It is 0 whenever the local lock
//!    is released without that.
//! 3. The global lock stays held while it is passed on: `pass` hands the local lock to a waiter that cannot have left,
//!    or to nobody.
//! 4. A release ends with the store that grants a local lock, if that goes with what is above it; else with that of the
//!    global lock. The local locks below the one that is granted were released before. So nothing of the lock, nor of
//!    its side block, is accessed after another thread was let in.
//! 5. Who does not have to wait accesses nothing beside the lock. So processes that map the memory of a mutex of the
//!    default kind may take turns at it, as under glibc. The name of a side block means another block in another
//!    process, or none: who waits sees by the block itself whether it was made for this lock, here. If not, he looks
//!    for the lock now and then.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | the locks' own | – | – | [`queue::k42`](crate::queue::k42), [`ticket`](crate::spin::ticket), [`tas`](crate::spin::tas); [`global`], [`partitioned`] |
//! | `home`, `passes` | Relaxed | – | a local or the global lock orders them (invariants 1, 2) |
//! | `limit` of a part | Relaxed | – | written before the part is published |
//!
//! **Cannot:** let anybody in while the one that was chosen does not run, be it in the local or in the global queue.
//! Give its side block (128 bytes, and 128 for each NUMA node; `c-ptl-tkt`: up to 640 more) back if the program frees
//! the lock without destroying it. Cannot share its mutex with code that bypasses flashlock. `c-bo-mcs` cannot be fair:
//! its global lock may be taken by the same again and again. The locks made of tickets cannot sleep until they are
//! called (waiters nap), nor serve timed and tried acquisitions in turn.

pub mod global;
pub mod level;
pub mod local;
pub mod partitioned;
pub mod parts;

use core::iter::successors;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::event::Event;
use crate::machine::{Deadline, Machine, TimedOut, Word};
use crate::raw::RawLock;
use crate::settle::settle;
use crate::side::{Block, Name, Side, above};
use crate::wait::SpinThenPark;
use global::{BackOff, GlobalTicket};
use level::{Global, LocalLock, Place, Waiting};
use local::{LocalMcs, LocalTicket};
use partitioned::PartitionedTicket;
use parts::{NumaNodes, Parts};

/// How long (µs) somebody naps who waits for a lock that another process's waiters queue for.
const OUTSIDE: u32 = 1_000;

/// C-BO-MCS; waiters wait by policy `W`.
pub type CBoMcs<W = SpinThenPark> = Cohort<BackOff<W>, LocalMcs<W>>;
/// C-TKT-TKT.
pub type CTktTkt = Cohort<GlobalTicket, LocalTicket>;
/// C-PTL-TKT.
pub type CPtlTkt = Cohort<PartitionedTicket, LocalTicket>;

/// The cohort lock of a global and a local lock, with parts `P`.
pub struct Cohort<G, L, P = NumaNodes>(PhantomData<(G, L, P)>);

/// What is behind the word, which is the global lock's.
#[repr(C)]
pub struct CohortQueue<M: Machine, S> {
    /// The side block, or 0.
    pub side: M::Word,
    /// The innermost part whose local lock the holder has, or 0.
    pub home: M::Word,
    /// The epoch of those who use it.
    pub epoch: M::Word,
    /// What the global lock has beside the word.
    pub global: S,
}

/// The two pieces of state of one lock.
struct Lock<'a, M: Machine, G: Global, L, P> {
    word: &'a M::Word,
    queue: &'a CohortQueue<M, G::State<M>>,
    local: PhantomData<(L, P)>,
}

impl<'a, M: Machine, G: Global, L: LocalLock, P: Parts> Lock<'a, M, G, L, P> {
    fn new(word: &'a M::Word, queue: &'a CohortQueue<M, G::State<M>>) -> Self {
        let this = Self { word, queue, local: PhantomData };
        this.settle();
        this
    }

    /// In a forked child nobody waits, and the holder, if there is one, has the local locks of `home` and of the parts
    /// above it.
    fn settle(&self) {
        settle::<M>(&self.queue.epoch, || {
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
        });
    }

    /// The side block, if there is one and it is this process's (invariant 5).
    fn own_side(&self) -> Option<Side<M>> {
        Side::of(&self.queue.side).filter(|side| side.is_of(&self.queue.side))
    }

    /// The side block, made if there is none. None if there is one that another process has made.
    #[inline]
    fn side(&self) -> Option<Side<M>> {
        let side = Side::of(&self.queue.side).unwrap_or_else(|| {
            M::trace(Event::SideBlock);
            Side::make_owned(&self.queue.side)
        });
        side.is_of(&self.queue.side).then_some(side)
    }

    fn place(&self) -> Place<'_, M, G::State<M>> {
        Place { word: self.word, state: &self.queue.global, named: &self.queue.side }
    }

    /// The global lock alone. `home` is 0 (invariant 1).
    fn try_lock(&self) -> bool {
        G::try_lock(&self.place())
    }

    fn lock(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        // Once somebody has waited, others do as a rule; then a look at the global lock costs those who hand it on in a
        // part.
        let is_new = self.queue.side.load(Relaxed) == 0;
        if is_new && self.try_lock() { Ok(()) } else { self.lock_in_line(until) }
    }

    /// By way of the local locks, if that can be.
    fn lock_in_line(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let mut waiting = Waiting::new();
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

    /// Looks for the lock now and then: its waiters are another process's (invariant 5).
    #[cold]
    fn wait_outside(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        while !self.try_lock() {
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                return Err(TimedOut);
            }
            M::relax(OUTSIDE);
        }
        Ok(())
    }

    fn lock_all(&self, side: Side<M>, until: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<(), TimedOut> {
        let home = P::home(side);
        self.climb(home, until, waiting)?;
        self.queue.home.store(home.word(), Relaxed);
        // For statistics alone.
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

    /// Acquires the local lock of a part, and what is above it, unless that comes with it.
    fn climb(&self, part: Name, until: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<(), TimedOut> {
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
        // A free lock: nothing.
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

    /// (held, n) -> (held by the next in this part, n + 1), if somebody waits and the part has not had it for too long;
    /// else (held, 0).
    fn pass(part: &Block<M>) -> bool {
        let mut passes = part.passes.load(Relaxed);
        if passes < parts::limit(part) && L::has_waiters(part) {
            let event = if above(part).is_none() { Event::CohortPass } else { Event::CohortNear };
            // In the part, not in the waiter's node: that he polls, and it would have to travel twice.
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
    /// Acquires the lock as one who has found it held, whether it is or not. For models, where few threads are to meet
    /// in the local locks.
    pub fn lock_in_line<M: Machine>(
        word: &M::Word,
        queue: &CohortQueue<M, G::State<M>>,
        until: Option<Deadline>,
    ) -> Result<(), TimedOut> {
        Lock::<M, G, L, P>::new(word, queue).lock_in_line(until)
    }
}

impl<M: Machine, G: Global, L: LocalLock, P: Parts> RawLock<M> for Cohort<G, L, P> {
    type Queue = CohortQueue<M, G::State<M>>;

    fn new_queue() -> Self::Queue {
        let zero = || M::Word::new(0);
        CohortQueue { side: zero(), home: zero(), epoch: zero(), global: G::new::<M>() }
    }

    fn try_lock(word: &M::Word, queue: &Self::Queue) -> bool {
        let taken = Lock::<M, G, L, P>::new(word, queue).try_lock();
        if taken {
            M::trace(Event::Acquire);
        }
        taken
    }

    fn lock(word: &M::Word, queue: &Self::Queue) {
        M::trace(Event::Acquire);
        // Without a deadline it cannot time out.
        let _ = Lock::<M, G, L, P>::new(word, queue).lock(None);
    }

    fn lock_until(word: &M::Word, queue: &Self::Queue, until: Deadline) -> Result<(), TimedOut> {
        Lock::<M, G, L, P>::new(word, queue).lock(Some(until)).inspect(|()| M::trace(Event::Acquire))
    }

    fn unlock(word: &M::Word, queue: &Self::Queue) {
        Lock::<M, G, L, P>::new(word, queue).unlock();
    }

    fn is_locked(word: &M::Word, queue: &Self::Queue) -> bool {
        G::is_held::<M>(word, &queue.global)
    }

    fn destroy(_: &M::Word, queue: &Self::Queue) {
        if let Some(side) = Side::<M>::of(&queue.side).filter(|side| side.is_of(&queue.side)) {
            G::destroy(side);
            Side::<M>::give_back(&queue.side);
        }
    }
}
