//! # CST readers-writer lock: a counter of readers for each part of the machine
//!
//! The default readers-writer lock: on a lock that is mostly read, readers on different parts of the machine use
//! different counters.
//!
//! **Problem.** With one counter, each reader fetches its cache line from the previous reader's CPU. On several NUMA
//! nodes, readers that share nothing else are then as slow as that line travels. **Idea.** Readers count themselves on
//! a line of their own NUMA node. A writer closes all of these counters, and waits until their sum is zero. **Source.**
//! Kashyap, Min & Kim, *Scalable NUMA-aware Blocking Synchronization Primitives*, USENIX ATC'17 (CST); compared with
//! ShflLocks in the thesis defence, slides 79–80.
//!
//! **Use it** when you do not know which readers-writer lock to use: it is the default. It gains when nearly all
//! acquisitions are for reading, and come from many CPUs. Until readers meet often, it is a [`shfl-rw`](super::shfl).
//! **Rather not** when writers are frequent, because each looks at all counters; or when such locks are many, because
//! each gets a side block.
//!
//! **Departures.**
//! 1. It is built on a [`shfl-rw`](super::shfl), on which threads wait. There are no other counters until a reader has
//!    found other readers there 512 times (readers *met*: `meetings=`), with few writers between.
//! 2. The counters are the parts of a side block ([`side`](crate::parts::side)).
//! 3. There is a counter for each part of the machine
//!    ([`Division::Readers`](crate::machine::Division::Readers)). If NUMA nodes are few, each is divided
//!    further, because the line also travels within a node: two CPUs of one node complete more sections on two counters
//!    than on one.
//! 4. A reader uses the counter of the part on which it runs at that moment. If it leaves by another counter than it
//!    came by, or another thread releases the lock, the sum is still right.
//! 5. A reader that finds a writer polls for a while before it queues. A writer that finds readers sleeps only if they
//!    do not leave soon.
//! 6. After 1,024 writers (`writers=`), readers use the central counter again, until they have met as often again. So a
//!    lock that is no longer mostly read becomes cheap to write.
//!
//! ```text
//!   lock:  base (shfl-rw) | heat | side ──> [index]  state: OPEN, DRAINING or WRITTEN
//!                                             ├─ part 0 ──> [counter]  readers, CLOSED
//!                                             ├─ part 1 ──> [counter]
//!                                             └─ part 2     0: no reader has come from there
//! ```
//!
//! ## State: 20 bytes, and 128 for the side block and for each part in it
//! | `heat` | meaning | readers hold | a writer holds |
//! |---|---|---|---|
//! | below 2^30 | how often readers have met | `base` for reading | `base` for writing |
//! | from there to DISTRIBUTED | a reader (of the process named by the epoch) is about to switch to the counters | the same | the same |
//! | DISTRIBUTED | `side` is in use | a counter | `base` for writing, all counters are CLOSED, their sum is 0, the index says WRITTEN |
//!
//! | index | meaning | next |
//! |---|---|---|
//! | OPEN | no writer holds the counters | CLAIMED, by the thread that holds `base` for writing |
//! | CLAIMED | a writer closes the counters, and reads them | WRITTEN if the sum is 0, else DRAINING |
//! | DRAINING | a writer waits for the sum to become 0 | CLAIMED; OPEN if it gives up, or is an *orphan* |
//! | WRITTEN | held for writing | OPEN at the release, or FOLDED |
//! | FOLDED | not in use; all counters are CLOSED | OPEN, by the thread that holds `base` for writing |
//!
//! An *orphan* is a writer that does not exist in a forked child.
//!
//! ## The bound
//! That of [`shfl-rw`](super::shfl), with its assumptions, and twice as many sections. Let n other threads use the
//! lock, each with sections of at most s. Let T be `bound=`, d the longest time until a woken thread runs, and p the
//! number of readers that pass a waiting writer. A thread has the lock after at most
//! **(n + 2) · (4 s + T + 2 d) + T + p · s + 1.1 ms**.
//!
//! *Why.* Threads wait on `base`. While the counters are in use, a writer that has acquired `base` first waits until
//! the readers have left the counters: one more section, and the time until the writer runs. It holds `base` meanwhile,
//! so its hold of `base` counts as two sections. No reader comes in by a counter then, except those that pass: they
//! have waited for T, 2 T and so on up to 1,024 T, as under `shfl-rw`. So the same limit applies: if r threads read and
//! r · s is 1,024 T or more, readers can keep a writer out without end. A reader that is about to switch to the
//! counters spends 1.1 ms on that, at most.
//!
//! ## Invariants
//! 1. Only the thread that holds `base` for writing (and the counters, if in use) sets `heat` to DISTRIBUTED, and back.
//!    Only a thread that holds `base` for reading adds a counter. So a thread that holds `base`, or a counter, knows
//!    from `heat` where holders are counted.
//! 2. A reader that has counted itself holds the lock in two cases: the counter was not CLOSED and no writer holds
//!    `base`; or, past a writer that waits, the index says DRAINING afterwards. Otherwise it takes itself out again.
//! 3. A writer says CLAIMED, and then reads the counters, by read-modify-writes. So either there are readers, or the
//!    writer says WRITTEN:
//!    - A reader that counts itself later finds CLOSED, and CLAIMED or WRITTEN.
//!    - A reader that has counted itself earlier is found by the writer, or has left by then.
//!    - The sum may be too large, by readers that are about to take themselves out. It is never too small: they use the
//!      counter by which they came.
//! 4. The counters are opened before `base` is released, which is the last access. A reader that finds a counter open
//!    before that finds `base` held. While the counters are not in use they are CLOSED. A reader's last access to the
//!    lock is to its counter.
//! 5. Only `destroy` gives a side block back.
//! 6. A lock uses only a side block that was made for its address. So a lock that was copied or moved, with its state,
//!    does not use the block of the lock from which it came. Its readers use the central counter until it is made anew.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | counter + 1 | AcqRel | writers' `fetch_or`, `fetch_and` | sees the last section, the state, and `base` (invariant 3) |
//! | counter − 1 | Release | the writer's `fetch_or`s | hands over what was read |
//! | counter `fetch_or`, `fetch_and` | AcqRel | both | as above |
//! | index `state` store, load | Release, Acquire | each other | invariant 3 goes through the counter; this keeps the argument local |
//! | `heat` = DISTRIBUTED; fence in `adopt` | Release; Acquire | each other | a thread that asks for orphans finds the epoch that `begin` has written |
//! | `heat`, else | Relaxed | – | a hint; a fact for a thread that holds the lock, by `base` or a counter (invariant 1) |
//! | index `epoch` load, CAS | Acquire, AcqRel | each other | a thread that asks later sees that another has asked, and does not take a writer of its own process for an orphan |
//!
//! For `side` and its parts see [`side`](crate::parts::side); for the word on which a writer sleeps,
//! [`counters`]. No checker can distinguish the Release with which a writer opens a counter from
//! Relaxed: [the models](../models.md#what-neither-can-tell) say why.
//!
//! **Cannot:**
//! - detect the release of a lock that no thread holds, while readers use distributed counters;
//! - let threads in while the writer that waits for readers has no CPU, except readers past the bound;
//! - give its side block back if the program frees the lock without destroying it, or moves the lock. So at most 1,024
//!   locks of a process have one. The others stay without.

mod counters;
mod distributed;

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::event::Event;
use crate::machine::{Deadline, Machine, Patience, Word};
use crate::parts::naps::nap_longer;
use crate::parts::policy::GroupByRole;
use crate::parts::wait::{SpinThenPark, WaitPolicy};
use crate::rw::cst::counters::{Counters, DRAINING, FOLDED, WRITTEN};
use crate::rw::shfl::wait::OtherEntry;
use crate::rw::shfl::{ShflRwState, Want, has_no_readers, is_written};
use crate::rw::{RawRwLock, Reader, Refusal, Writer};

/// How long (µs) a reader that holds the lock waits for a writer to say that it waits for readers.
const BREAK: u32 = 20;
/// How often a reader that may not wait looks again, if a thread that does not hold the lock is in its way.
const TRIES: u32 = 32;
/// How many times the wait of a reader behind a waiting writer may be doubled.
const MOST_DOUBLINGS: u32 = 10;

/// The CST readers-writer lock; waiters wait by `W`.
pub struct CstRw<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

/// The state of one lock.
#[repr(C)]
pub struct CstRwState<M: Machine> {
    /// What writers hold, and where all threads wait.
    pub base: ShflRwState<M>,
    /// The name of the side block's index, or 0.
    pub side: M::Word,
    /// How often readers have met, or that they use distributed counters.
    pub heat: M::Word,
}

crate::zeroed!(CstRwState<M> { base, side, heat });

impl<M: Machine> CstRwState<M> {
    /// Acquires for reading, if no writer keeps the caller out.
    #[inline(always)]
    fn enter(&self) -> bool {
        // A hint; both paths look again.
        if self.counts_centrally() { self.enter_base() } else { self.enter_distributed() }
    }

    /// Whether a thread holds the lock, or did a moment ago.
    fn is_held(&self) -> bool {
        self.base.is_held() || self.side().is_some_and(|side| side.readers() > 0)
    }

    /// (counter) -> (counter + 1 reader), if no writer keeps it out. Never inlined, nor is the release: the path
    /// without a side block stays short.
    #[inline(never)]
    fn enter_distributed(&self) -> bool {
        let Some(side) = self.side() else { return self.enter_base() };
        // Checking first avoids an increment that would be undone. Acquire in the second look: if the writer has left,
        // it has finished with the lock (invariant 4).
        !self.base.is_closed() && side.enter(|| self.base.is_closed_acquire())
    }

    /// As [`enter`](Self::enter), for a reader that passes waiting writers: it respects no bar.
    fn enter_again(&self, side: Counters<M>) -> bool {
        if self.counts_centrally() {
            return self.enter_base();
        }
        !self.base.is_written() && side.enter(|| self.base.is_written_acquire())
    }

    /// The release if the side block is in use.
    #[inline(never)]
    fn leave_distributed(&self) {
        let Some(side) = self.side() else { return self.base.release() };
        // Relaxed: the caller holds the lock, so it sees whether it holds it for writing.
        if side.state().load(Relaxed) == WRITTEN { self.end_writing(side) } else { side.leave() }
    }

    /// (base) -> (base + 1 reader), or the same on a counter.
    #[inline(always)]
    fn enter_base(&self) -> bool {
        let Some(before) = self.base.count_in() else { return false };
        let alone = has_no_readers(before) && self.counts_centrally();
        alone || self.stay(before)
    }

    /// (base + 1 reader) -> (counter + 1 reader), if there are counters.
    #[inline]
    fn move_to_counters(&self) {
        if let Some(side) = self.side() {
            side.add();
            self.base.release();
        }
    }

    /// Acquires for a reader that holds the lock already, as far as is known. `false` if that cannot be, because a
    /// writer holds the lock.
    fn read_again(&self, side: Counters<M>, until: Option<Deadline>) -> bool {
        let mut nap = BREAK;
        while !matches!(side.state().load(Relaxed), WRITTEN | FOLDED) {
            if side.pass() || self.enter_again(side) {
                return true;
            }
            let moved = || side.own().is_none_or(|_| side.is_own_full()) && !self.base.is_written();
            if moved() || until.is_some_and(|deadline| M::expired(&deadline)) {
                return false; // This thread is now on a part where no reader can come in this way, or it is late.
            }
            // A writer that holds `base` is about to say that it waits, or finds that it has to.
            nap_longer::<M>(&mut nap, until);
        }
        false
    }

    /// Whether the holder of `base` neither has the lock nor waits for readers to leave. It is about to do one of them,
    /// or to leave.
    fn is_in_between(&self) -> bool {
        let is_known = |side: Counters<M>| matches!(side.state().load(Relaxed), WRITTEN | DRAINING);
        self.base.is_written() && !self.side().map_or_else(|| !self.is_making(), is_known)
    }

    /// Polls until it is known what the holder of `base` is about to do, but not for long.
    #[cold]
    fn await_writer(&self) {
        M::spin_until(&self.base.count, Relaxed, Patience::Budget, |_| !self.is_in_between());
    }

    /// Acquires for reading if that is possible at once, or if only a thread that does not hold the lock is in its way.
    fn try_through(&self, how: Reader) -> Result<(), Refusal> {
        for _ in 0..TRIES {
            let tried = self.try_enter(how);
            let is_final = match how {
                Reader::Behind => !self.is_in_between(),
                _ => self.is_held_for_writing(),
            };
            if tried != Err(Refusal::Busy) || is_final {
                return tried;
            }
            self.await_writer();
        }
        Err(Refusal::Busy)
    }

    /// Whether a writer seems to hold the lock.
    fn is_held_for_writing(&self) -> bool {
        let has_counters = |side: Counters<M>| side.state().load(Relaxed) == WRITTEN;
        self.base.is_written() && self.side().map_or_else(|| !self.is_making(), has_counters)
    }

    /// Acquires for reading if that is possible at once.
    fn try_enter(&self, how: Reader) -> Result<(), Refusal> {
        if how != Reader::Behind && self.side().is_some_and(Counters::pass) {
            return Ok(());
        }
        self.base.try_read(how).inspect(|()| self.move_to_counters())
    }

    /// A reader polls for a while before it queues: most writers finish soon.
    fn poll<W: WaitPolicy>(&self, side: Counters<M>) -> bool {
        let open = |seen| !is_written(seen) && self.enter_distributed();
        let came = W::SPINS
            && side.own().is_some()
            && M::spin_until(&self.base.count, Relaxed, Patience::Budget, open).is_some();
        if came {
            M::trace(Event::RwContended);
        }
        came
    }

    /// A reader that holds nothing waits until the counters are open, or passes the waiting writer.
    fn read_slow<W: WaitPolicy>(&self, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        let (begun, passed) = (M::micros(), Cell::new(false));
        let look = || {
            passed.set(self.pass_after(begun));
            passed.get()
        };
        let elsewhere: OtherEntry<'_> = if how == Reader::Behind { None } else { Some(&look) };
        match self.base.acquire::<W, GroupByRole>(Want::Read(how), until, elsewhere) {
            Ok(()) => {
                if !passed.get() {
                    self.move_to_counters();
                }
                Ok(())
            }
            // The lock may be gone.
            Err(Refusal::TimedOut)
                if how != Reader::Behind && M::is_there(&self.heat) && self.try_through(how).is_ok() =>
            {
                Ok(())
            }
            refused => refused,
        }
    }

    /// Passes the waiting writer, if the wait since `begun` has been long enough for that.
    fn pass_after(&self, begun: u32) -> bool {
        let Some(side) = self.side() else { return false };
        let bound = u64::from(M::tunables().bound_us) << side.passed().load(Relaxed).min(MOST_DOUBLINGS);
        let passed = u64::from(M::micros().wrapping_sub(begun)) >= bound && side.pass();
        if passed {
            side.passed().fetch_add(1, Relaxed); // A hint.
            M::trace(Event::RwPassed);
        }
        passed
    }

    /// The holder of `base` waits for the readers in the counters. Returns whether they have left. If not, `base` is
    /// released.
    fn claim_counters<W: WaitPolicy>(&self, late: impl Fn() -> bool, until: Option<Deadline>) -> bool {
        let Some(side) = self.side() else {
            self.note_writer();
            return true;
        };
        let drained = side.drain::<W>(late, until);
        if !drained {
            self.give_up(side);
        }
        drained
    }

    /// The holder of `base` stops waiting.
    fn give_up(&self, side: Counters<M>) {
        side.open();
        self.base.release();
    }

    /// In a forked child, a writer that was acquiring the lock does not exist: gives up for it.
    #[inline]
    fn forget_the_dead(&self) {
        self.undo_orphaned_switch();
        if let Some(side) = self.side().filter(|side| side.adopt(|| self.base.is_written())) {
            self.give_up(side);
        }
    }
}

// SAFETY: invariants 1 to 6.
unsafe impl<M: Machine, W: WaitPolicy> RawRwLock<M> for CstRw<W> {
    type State = CstRwState<M>;

    const MOST_READERS: u32 = counters::MOST;

    #[inline(always)]
    unsafe fn acquire_fast(state: &CstRwState<M>) -> bool {
        state.enter()
    }

    unsafe fn acquire_read(state: &CstRwState<M>, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        state.forget_the_dead();
        let is_full = state.side().is_some_and(Counters::is_own_full);
        if is_full && state.side().is_some_and(Counters::has_most) {
            return Err(Refusal::Overflow);
        }
        match state.side() {
            Some(side) if how == Reader::Again && state.read_again(side, until) => return Ok(()),
            // It collided with its own earlier read lock.
            None if how == Reader::Again => state.forget_meetings(),
            // SAFETY: the callers' promise.
            None if state.is_due() => unsafe { state.count_distributed::<W>(until) },
            _ => {}
        }
        match state.side() {
            Some(side) if !is_full && state.poll::<W>(side) => Ok(()),
            _ => state.read_slow::<W>(how, until),
        }
    }

    unsafe fn try_acquire_read(state: &CstRwState<M>, how: Reader) -> Result<(), Refusal> {
        state.forget_the_dead();
        if state.side().is_some_and(|side| side.is_own_full() && side.has_most()) {
            return Err(Refusal::Overflow);
        }
        state.try_through(how)
    }

    unsafe fn acquire_write(state: &CstRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        state.forget_the_dead();
        let late = || until.is_some_and(|deadline| M::expired(&deadline));
        let acquired = state.base.acquire::<W, GroupByRole>(Want::Write(how), until, None);
        let claimed = acquired.is_ok_and(|()| state.claim_counters::<W>(late, until));
        if claimed { Ok(()) } else { Err(Refusal::TimedOut) }
    }

    unsafe fn try_acquire_write(state: &CstRwState<M>) -> bool {
        state.forget_the_dead();
        // Do not close the counters if readers are inside anyway.
        let has_readers = state.side().is_some_and(|side| side.readers() > 0);
        !has_readers && state.base.try_write() && state.claim_counters::<W>(|| true, None)
    }

    #[inline]
    unsafe fn release(state: &CstRwState<M>) {
        // Not a hint here: the caller holds the lock.
        if state.counts_centrally() { state.base.release() } else { state.leave_distributed() }
    }

    unsafe fn is_written(state: &CstRwState<M>) -> bool {
        match state.side() {
            Some(side) => side.state().load(Relaxed) == WRITTEN,
            None => state.base.is_written(),
        }
    }

    unsafe fn is_held(state: &CstRwState<M>) -> bool {
        state.is_held()
    }

    unsafe fn destroy(state: &CstRwState<M>) {
        // A lock that is held is left as it is: it is better to lose the block than the readers that it counts.
        if state.side.load(Relaxed) != 0 && !state.is_held() {
            state.give_index_back();
        }
    }
}
