//! # CST readers-writer lock: a counter of readers for each NUMA node
//!
//! **Problem.** With one counter, each reader takes its cache line from the one before, and on several NUMA nodes readers that share
//! nothing else are as slow as that line travels. **Idea.** Readers count themselves on a line of their own NUMA node; a writer closes
//! all of these counters, and waits until their sum is zero. **Source.** Kashyap, Min & Kim, *Scalable NUMA-aware Blocking
//! Synchronization Primitives*, USENIX ATC'17 (CST); as the rival of ShflLocks, thesis defence, slides 79–80. **Departures.** (1) Below it
//! is a [`shfl-rw`](super::shfl), which is all there is until readers have met [`MEETINGS`] times, and where everybody waits. (2) The
//! counters are the parts of a side block ([`side`](crate::side)). (3) A reader comes and goes by the counter of the NUMA node where its thread was when it last had to wait; should
//! it leave by another one than it came by, or another thread release it, the sum is right, and a writer that sleeps notices later.
//!
//! ```text
//!   lock:  base (shfl-rw) | side ──> [index]  state: OPEN, DRAINING or WRITTEN
//!                                      ├─ NUMA node 0 ──> [counter]  readers, CLOSED
//!                                      ├─ NUMA node 1 ──> [counter]
//!                                      └─ NUMA node 2     0: nobody has come from there
//! ```
//!
//! ## State: 20 bytes, and 128 for the side block and for each NUMA node in it
//! | `side` | readers hold | a writer holds |
//! |---|---|---|
//! | 0 | `base` for reading | `base` for writing |
//! | index | a counter | `base` for writing, all counters are CLOSED, their sum is 0, the index says WRITTEN |
//!
//! | index | meaning | next |
//! |---|---|---|
//! | OPEN | no writer holds the counters | DRAINING, by who holds `base` for writing |
//! | DRAINING | a writer waits for the sum to become 0 | CLAIMED; OPEN if it gives up |
//! | CLAIMED | the sum was 0; the writer reads it once more | WRITTEN; DRAINING, if a reader has slipped in before |
//! | WRITTEN | held for writing | OPEN at the release |
//!
//! ## Invariants
//! 1. `side` becomes non-zero only in the hands of who holds `base` for writing, and a counter is added only by who holds it for reading. So
//!    whoever holds `base` knows by `side` what its holders count on.
//! 2. A reader that has counted itself holds the lock if the counter was not CLOSED and no writer holds `base`; or, past a writer that
//!    waits, if the index says DRAINING afterwards. Otherwise it takes itself out again.
//! 3. A writer says CLAIMED before it reads the counters for the last time, by read-modify-writes: a reader that has counted itself later
//!    finds CLAIMED, or WRITTEN; one that has done so earlier is found. So there are readers, or it says WRITTEN.
//! 4. The counters are opened before `base` is released, which is the last access; a reader that finds one open before that finds
//!    `base` held. A reader's last access is to its counter, or a wake of its address.
//! 5. A side block is given back by `destroy` alone.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | counter + 1 | AcqRel | counter or/and, by writers | sees the last section; invariant 3: the state of the index, and `base` |
//! | counter − 1 | Release | the writer's loads and ors | hands over what was read |
//! | counter or, and | AcqRel | both | as above |
//! | index `state` swap, load | AcqRel, Acquire | each other | invariant 3 goes through the counter; this keeps the argument local |
//!
//! Those of `side` and its parts: [`side`](crate::side).
//!
//! **Cannot:** let anybody in while a writer that is waiting for readers to go does not run, but readers past the bound. Give its side block back
//! if the program frees the lock without destroying it.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Local, Machine, Patience, Word};
use crate::node::Node;
use crate::rw::shfl::{READER, ShflRwState};
use crate::rw::{RawRwLock, Reader, Refusal, ShflRw, Writer};
use crate::side::Side;
use crate::wait::{SpinThenPark, WaitPolicy};

/// How often readers must have met in a lock before it gets a side block.
pub const MEETINGS: u32 = 64;
/// The longest nap (µs) of a writer that waits for readers. They wake it, unless they leave by another counter than the one it sleeps on.
const NAP: u32 = 1_000;
/// How long (µs) a reader that holds the lock waits for a writer to say that it waits for it.
const BREAK: u32 = 20;
/// How often a reader that waits for a writer may find that the next must wait twice as long.
const MOST_DOUBLINGS: u32 = 10;

// The states of an index. (None is one of a queue node's.)
const OPEN: u32 = 64;
const DRAINING: u32 = 65;
const CLAIMED: u32 = 66;
const WRITTEN: u32 = 67;

/// Bit of a counter.
const CLOSED: u32 = 1;
/// A reader in a counter.
const ONE: u32 = 2;

/// The CST readers-writer lock; waiters wait by `W`.
pub struct CstRw<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

/// The state of one lock.
#[repr(C)]
pub struct CstRwState<M: Machine> {
    /// What writers hold, and where everybody waits.
    pub base: ShflRwState<M>,
    /// The index of the side block, or 0.
    pub side: M::Word,
    /// How often readers have met.
    pub met: M::Word,
}

/// The index of a [side block](crate::side), whose parts are counters.
struct Counters<M: Machine>(Side<M>);

impl<M: Machine> Clone for Counters<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Counters<M> {}

impl<M: Machine> Counters<M> {
    fn node(self) -> &'static Node<M> {
        self.0.0
    }

    /// How many readers have passed the writer that waits.
    fn passed(self) -> &'static M::Word {
        &self.node().role
    }

    fn counter(self, numa: u32) -> Option<&'static M::Word> {
        self.0.part(numa).map(|part| &part.node::<M>().state)
    }

    fn counters(self) -> impl Iterator<Item = &'static M::Word> {
        self.0.parts().map(|part| &part.state)
    }

    /// The counter by which the calling thread comes and goes; made if there is none. The caller holds `base` for reading.
    fn own_counter(self) -> &'static M::Word {
        &self.0.part_or_make(home::<M>(), None, |_| ()).node::<M>().state
    }

    /// The counter by which the calling thread comes and goes.
    fn own(self) -> Option<&'static M::Word> {
        self.counter(home::<M>())
    }

    /// That counter, or any other.
    fn own_or_other(self) -> Option<&'static M::Word> {
        self.own().or_else(|| self.counters().next())
    }

    /// Takes a reader out.
    fn leave(self) {
        if let Some(counter) = self.own_or_other() {
            take_out::<M>(counter);
        }
    }

    /// A reader past a writer that waits, if there is one (invariant 2). `own`: by its own counter only.
    fn pass(self, own: bool) -> bool {
        let Some(counter) = (if own { self.own() } else { self.own_or_other() }) else { return false };
        counter.fetch_add(ONE, AcqRel);
        if self.node().state.load(Acquire) == DRAINING {
            return true;
        }
        take_out::<M>(counter);
        false
    }

    /// Closes all counters; how many readers there are.
    fn close(self) -> i32 {
        self.counters().map(|counter| readers(counter.fetch_or(CLOSED, AcqRel))).sum()
    }

    /// Opens all counters.
    fn open(self) {
        self.node().state.store(OPEN, Release);
        for counter in self.counters() {
            counter.fetch_and(!CLOSED, AcqRel);
        }
    }

    /// DRAINING -> CLAIMED -> WRITTEN, as soon as there are no readers; or `false`, when the deadline has passed. (`late` says that.)
    fn drain<W: WaitPolicy>(self, late: impl Fn() -> bool, until: Option<Deadline>) -> bool {
        self.passed().store(0, Relaxed);
        self.node().state.store(DRAINING, Release);
        loop {
            if self.close() <= 0 {
                self.node().state.swap(CLAIMED, AcqRel);
                if self.close() <= 0 {
                    self.node().state.store(WRITTEN, Relaxed); // Means something to its holder only.
                    return true; // Invariant 3.
                }
                self.node().state.store(DRAINING, Release);
            }
            if late() {
                return false;
            }
            self.await_leaver::<W>(until);
        }
    }

    /// Waits until a counter that has readers changes, or for a while.
    fn await_leaver<W: WaitPolicy>(self, until: Option<Deadline>) {
        let Some(counter) = self.counters().find(|counter| readers(counter.load(Relaxed)) > 0) else { return };
        let patience = if W::PARKS { Patience::Budget } else { Patience::Until(M::sooner(NAP, until)) };
        if W::SPINS && M::spin_until(counter, Relaxed, patience, |seen| readers(seen) <= 0).is_some() {
            return;
        }
        let seen = counter.load(Relaxed);
        if W::PARKS && readers(seen) > 0 {
            M::trace(Event::Park);
            M::park(counter, seen, Some(M::sooner(NAP, until)));
        }
    }
}

/// The NUMA node by whose counter the calling thread comes and goes: the one on which it ran when it last had to wait. It must not be another
/// with each move of the thread: a writer sleeps on a counter that has readers.
#[inline]
fn home<M: Machine>() -> u32 {
    match M::local(Local::RwNode) {
        0 => new_home::<M>(),
        known => known - 1,
    }
}

#[cold]
fn new_home<M: Machine>() -> u32 {
    let node = M::numa_node();
    M::set_local(Local::RwNode, node + 1);
    node
}

/// The readers in a counter; negative if some have left that came by another.
fn readers(counter: u32) -> i32 {
    counter as i32 >> 1
}

/// A reader leaves a counter. If that is closed, a writer may sleep on it.
#[inline]
fn take_out<M: Machine>(counter: &'static M::Word) {
    if counter.fetch_add(ONE.wrapping_neg(), Release) & CLOSED != 0 {
        M::wake(counter, u32::MAX);
    }
}

impl<M: Machine> CstRwState<M> {
    fn side(&self) -> Option<Counters<M>> {
        Side::of(&self.side).map(Counters)
    }

    /// (base + 1 reader) -> (counter + 1 reader), if there are counters.
    #[inline]
    fn move_aside<W: WaitPolicy>(&self) {
        if let Some(side) = self.side() {
            side.own_counter().fetch_add(ONE, AcqRel);
            ShflRw::<W>::unlock(&self.base);
        }
    }

    /// Readers that find others here make a side block in the end. Whether it is time for that.
    fn meets(&self) -> bool {
        if self.base.count.load(Relaxed) < 2 * READER {
            return false;
        }
        // Relaxed, and not atomic: it is a hint.
        let met = self.met.load(Relaxed) + 1;
        self.met.store(met, Relaxed);
        met >= MEETINGS
    }

    /// Makes the side block, if there is none and the lock can be had for that within the bound. The caller holds nothing of it.
    #[cold]
    pub fn make_side<W: WaitPolicy>(&self) {
        self.met.store(0, Relaxed);
        let soon = M::sooner(M::tunables().bound_us.max(1), None);
        if self.base.acquire_uncounted::<W>(soon).is_err() {
            return;
        }
        if self.side.load(Relaxed) == 0 {
            Side::<M>::make(&self.side, |index| index.state.store(OPEN, Relaxed)); // Published by the exchange.
            M::trace(Event::RwSide);
        }
        ShflRw::<W>::unlock(&self.base);
    }

    /// A reader that holds the lock already, as far as is known. `false` if that cannot be, for a writer does.
    fn read_again<W: WaitPolicy>(&self, side: Counters<M>) -> bool {
        while side.node().state.load(Relaxed) != WRITTEN {
            if side.pass(true) {
                M::trace(Event::RwRead);
                return true;
            }
            if CstRw::<W>::enter(self) {
                return true;
            }
            if side.own().is_none() {
                return false; // It has moved since, or has not come by here at all.
            }
            // A writer that holds `base` is about to say that it waits, or finds that it has to.
            M::relax(BREAK);
        }
        false
    }

    /// A reader that holds nothing waits until the counters are open, or passes the writer that waits.
    fn read_aside<W: WaitPolicy>(&self, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        new_home::<M>();
        let begun = M::micros();
        let mut patience = M::tunables().bound_us.max(1);
        loop {
            let limit = if how == Reader::Behind { until } else { Some(M::sooner(patience, until)) };
            match ShflRw::<W>::read(&self.base, how, limit) {
                Ok(()) => {
                    self.move_aside::<W>();
                    return Ok(());
                }
                Err(Refusal::TimedOut) => {}
                Err(refusal) => return Err(refusal),
            }
            let late = until.is_some_and(|deadline| M::expired(&deadline));
            if how != Reader::Behind && self.pass_after(begun, late) {
                M::trace(Event::RwRead);
                return Ok(());
            }
            if late {
                return Err(Refusal::TimedOut);
            }
            patience = patience.saturating_mul(2).min(1 << 20);
        }
    }

    /// Passes the writer that waits, if the wait since `begun` has been long enough for that.
    fn pass_after(&self, begun: u32, late: bool) -> bool {
        let Some(side) = self.side() else { return false };
        let bound = u64::from(M::tunables().bound_us) << side.passed().load(Relaxed).min(MOST_DOUBLINGS);
        let passed = (late || u64::from(M::micros().wrapping_sub(begun)) >= bound) && side.pass(false);
        if passed {
            side.passed().fetch_add(1, Relaxed); // A hint.
            M::trace(Event::RwPassed);
        }
        passed
    }

    /// The holder of `base` waits for the readers in the counters. Whether they have gone; if not, `base` is released.
    fn claim_counters<W: WaitPolicy>(&self, late: impl Fn() -> bool, until: Option<Deadline>) -> bool {
        let Some(side) = self.side() else { return true };
        let drained = side.drain::<W>(late, until);
        if !drained {
            side.open();
            ShflRw::<W>::unlock(&self.base);
        }
        drained
    }
}

impl<M: Machine, W: WaitPolicy> RawRwLock<M> for CstRw<W> {
    type State = CstRwState<M>;

    const MOST_READERS: u32 = <ShflRw<W> as RawRwLock<M>>::MOST_READERS;

    fn new_state() -> CstRwState<M> {
        CstRwState { base: ShflRw::<W>::new_state(), side: M::Word::new(0), met: M::Word::new(0) }
    }

    #[inline]
    fn enter(state: &CstRwState<M>) -> bool {
        if let Some(side) = state.side() {
            let Some(counter) = side.own() else { return false };
            // Acquire on `base`: if its writer has gone, it has done with the lock.
            if counter.fetch_add(ONE, AcqRel) & CLOSED == 0 && !state.base.is_written_acquire() {
                M::trace(Event::RwRead);
                return true;
            }
            take_out::<M>(counter);
            return false;
        }
        if state.meets() || !ShflRw::<W>::enter(&state.base) {
            return false;
        }
        state.move_aside::<W>();
        true
    }

    fn read(state: &CstRwState<M>, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        match state.side() {
            Some(side) if how == Reader::Again && state.read_again::<W>(side) => return Ok(()),
            None if how == Reader::Newcomer && state.met.load(Relaxed) >= MEETINGS => state.make_side::<W>(),
            _ => {}
        }
        state.read_aside::<W>(how, until)
    }

    fn try_read(state: &CstRwState<M>, how: Reader) -> Result<(), Refusal> {
        if how != Reader::Behind && state.side().is_some_and(|side| side.pass(true)) {
            M::trace(Event::RwRead);
            return Ok(());
        }
        ShflRw::<W>::try_read(&state.base, how).inspect(|()| state.move_aside::<W>())
    }

    fn write(state: &CstRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        ShflRw::<W>::write(&state.base, how, until)?;
        let late = || until.is_some_and(|deadline| M::expired(&deadline));
        if state.claim_counters::<W>(late, until) { Ok(()) } else { Err(Refusal::TimedOut) }
    }

    fn try_write(state: &CstRwState<M>) -> bool {
        ShflRw::<W>::try_write(&state.base) && state.claim_counters::<W>(|| true, None)
    }

    #[inline]
    fn unlock(state: &CstRwState<M>) {
        let Some(side) = state.side() else { return ShflRw::<W>::unlock(&state.base) };
        // Relaxed: as the caller holds the lock, it is seen whether for writing.
        if side.node().state.load(Relaxed) == WRITTEN {
            side.open();
            ShflRw::<W>::unlock(&state.base);
        } else {
            side.leave();
        }
    }

    fn is_written(state: &CstRwState<M>) -> bool {
        match state.side() {
            Some(side) => side.node().state.load(Relaxed) == WRITTEN,
            None => ShflRw::<W>::is_written(&state.base),
        }
    }

    fn is_held(state: &CstRwState<M>) -> bool {
        let aside = |side: Counters<M>| side.counters().map(|counter| readers(counter.load(Relaxed))).sum::<i32>() > 0;
        ShflRw::<W>::is_held(&state.base) || state.side().is_some_and(aside)
    }

    fn destroy(state: &CstRwState<M>) {
        // One that is held is left as it is: better lose the block than its readers.
        if !Self::is_held(state) {
            Side::<M>::give_back(&state.side);
        }
    }
}
