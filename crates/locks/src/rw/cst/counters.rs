//! # The counters of a CST readers-writer lock
//!
//! How readers are counted in distributed counters, and how a writer waits for them to leave. A reader that enters
//! counts itself in, on the counter of the part of the machine on which it runs. When it leaves, it counts itself out,
//! on the counter of the part on which it runs by then. Only the sum counts. A reader that leaves a closed counter
//! changes a word of the machine, the [drain word](crate::machine::Beside::Drain). The writer sleeps on that word,
//! because it cannot know which counter will change. The word is not in the lock, because the lock may have been freed
//! when the reader changes the word. See [`cst`](super), invariants 2 to 4.
//!
//! ## Orderings of `drain_word`
//! The writer sets ASLEEP, looks at the counters, and sleeps if the word is unchanged. A reader that leaves takes
//! itself out of its counter, and then changes the word. One of these two changes of the word comes first. If it is the
//! writer's, the writer is woken, or does not fall asleep. Otherwise the writer sees the counter as the reader left it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::fence;

use crate::machine::block::Block;
use crate::machine::copied::copied;
use crate::machine::{Beside, Deadline, Division, FIRST_EPOCH, Machine, Patience, Word};
use crate::parts::counted::{park, wake};
use crate::parts::side::Side;
use crate::parts::wait::WaitPolicy;

/// How long (µs) a writer that polls does so before it looks at its deadline.
const LOOK: u32 = 1_000;

// The states of the index, the block that names the counters.
const OPEN: u32 = 64;
pub(super) const DRAINING: u32 = 65;
const CLAIMED: u32 = 66;
pub(super) const WRITTEN: u32 = 67;
pub(super) const FOLDED: u32 = 68;

/// Bit of a counter.
const CLOSED: u32 = 1;
/// One reader in a counter.
const ONE: u32 = 2;
/// A counter with this many readers lets none in, so that no sum overflows. (It may count more readers than there are:
/// see [`Counters::level`].)
const FULL: i32 = (MOST * ONE) as i32;
/// That number of readers.
pub(super) const MOST: u32 = 1 << 23;
/// Bit of `drain_word`: a writer may sleep there.
const ASLEEP: u32 = 1;
/// What `drain_word` grows by.
const LEFT: u32 = 2;

/// The index, which is a [side block](crate::parts::side) whose parts are counters.
pub(super) struct Counters<M: Machine>(pub(super) Side<M>);

copied!(Counters<M>);

impl<M: Machine> Counters<M> {
    fn block(self) -> &'static Block<M> {
        self.0.0
    }

    /// OPEN, DRAINING, CLAIMED, WRITTEN or FOLDED; 0 before it was first used.
    pub(super) fn state(self) -> &'static M::Word {
        &self.block().state
    }

    /// How many readers have passed the waiting writer.
    pub(super) fn passed(self) -> &'static M::Word {
        &self.block().passed
    }

    /// How many writers there have been since readers use distributed counters. Only writers access it, hence Relaxed.
    pub(super) fn writers(self) -> &'static M::Word {
        &self.block().writers
    }

    /// [`Memory::epoch`](crate::machine::Memory::epoch) of the last process that has looked for a writer that does not
    /// exist in it: see [`adopt`](Self::adopt).
    fn epoch(self) -> &'static M::Word {
        &self.block().epoch
    }

    /// The word that readers change when they leave.
    fn drain_word(self) -> &'static M::Word {
        M::beside(Beside::Drain, &raw const *self.state())
    }

    fn all(self) -> impl Iterator<Item = &'static M::Word> {
        self.0.parts().map(|part| &part.state)
    }

    /// The counter for the CPUs on which the calling thread runs.
    #[inline(always)]
    pub(super) fn own(self) -> Option<&'static M::Word> {
        self.0.part(M::part(Division::Readers)).map(|part| &part.block::<M>().state)
    }

    #[inline]
    fn own_or_other(self) -> Option<&'static M::Word> {
        self.own().or_else(|| self.all().next())
    }

    /// The thread's own counter; makes it if there is none. The caller holds `base` for reading.
    fn own_or_made(self) -> &'static M::Word {
        &self.0.part_or_make(M::part(Division::Readers), None, |_| ()).block::<M>().state
    }

    /// Whether the thread's own counter lets no more readers in.
    pub(super) fn is_own_full(self) -> bool {
        self.own_or_other().is_some_and(|counter| is_full(counter.load(Relaxed)))
    }

    /// Whether there are about as many readers as can be counted. It is not exact: readers that look at the same time
    /// may all come in. It looks twice, because one look may find in two counters what [`level`](Self::level) moves
    /// from one to the other.
    pub(super) fn has_most(self) -> bool {
        (0..2).all(|_| self.readers() >= MOST as i32)
    }

    /// A reader that holds `base` comes in.
    #[inline]
    pub(super) fn add(self) {
        let own = self.own_or_made();
        if is_full(own.fetch_add(ONE, AcqRel)) {
            self.level(own);
        }
    }

    /// Moves a full counter's surplus to the counter with the least. Readers may increment one counter and decrement
    /// another; this evens them out. The caller holds `base` for reading, so no writer adds the counters up meanwhile.
    #[cold]
    fn level(self, full: &'static M::Word) {
        let Some(least) = self.all().min_by_key(|counter| counter.load(Relaxed) as i32) else { return };
        let surplus = full.load(Relaxed) & !CLOSED;
        if is_full(surplus) && !core::ptr::eq(least, full) {
            // The full counter first. A sum that is too small meanwhile harms no thread, because `base` keeps writers
            // out; with a sum that is too large, readers would be refused. AcqRel, as for all additions.
            full.fetch_add(surplus.wrapping_neg(), AcqRel);
            least.fetch_add(surplus, AcqRel);
        }
    }

    /// A reader comes in, unless the counter is closed, or `kept_out` returns true afterwards.
    #[inline]
    pub(super) fn enter(self, kept_out: impl FnOnce() -> bool) -> bool {
        let Some(counter) = self.own() else { return false };
        let before = counter.fetch_add(ONE, AcqRel);
        if before & CLOSED == 0 && !is_full(before) && !kept_out() {
            return true;
        }
        self.take_out(counter);
        false
    }

    /// A reader passes a waiting writer, if there is one (invariant 2), by its own counter or any other.
    pub(super) fn pass(self) -> bool {
        let Some(counter) = self.own_or_other() else { return false };
        counter.fetch_add(ONE, AcqRel);
        if self.state().load(Acquire) == DRAINING {
            return true;
        }
        self.take_out(counter);
        false
    }

    /// A reader leaves, by its own counter or any other.
    #[inline]
    pub(super) fn leave(self) {
        if let Some(counter) = self.own_or_other() {
            self.take_out(counter);
        }
    }

    /// (counter) -> (counter - 1 reader). If the counter is closed, a writer may wait for that. The lock is not
    /// accessed afterwards.
    #[inline]
    fn take_out(self, counter: &'static M::Word) {
        if counter.fetch_add(ONE.wrapping_neg(), Release) & CLOSED != 0 {
            signal_drain::<M>(self.drain_word());
        }
    }

    /// The number of readers that `count` finds in the counters.
    fn sum(self, count: impl Fn(&'static M::Word) -> u32) -> i32 {
        // Wrapping: each counter may wrap, because a reader may come by one counter and leave by another.
        self.all().map(count).fold(0, |sum: u32, counter| sum.wrapping_add(counter & !CLOSED)) as i32 / ONE as i32
    }

    /// About how many readers there are.
    pub(super) fn readers(self) -> i32 {
        self.sum(|counter| counter.load(Relaxed))
    }

    /// Opens all counters.
    pub(super) fn open(self) {
        self.state().store(OPEN, Release);
        self.all().for_each(|counter| _ = counter.fetch_and(!CLOSED, AcqRel));
    }

    /// WRITTEN -> FOLDED: the counters stay closed.
    pub(super) fn fold(self) {
        self.state().store(FOLDED, Relaxed); // A thread without the lock learns only that it must look again.
    }

    /// OPEN or DRAINING -> CLAIMED -> WRITTEN if there are no readers (invariant 3), else DRAINING. Returns whether
    /// there are none.
    fn claim(self) -> bool {
        self.state().store(CLAIMED, Release);
        if self.sum(|counter| counter.fetch_or(CLOSED, AcqRel)) <= 0 {
            self.state().store(WRITTEN, Relaxed); // Only its holder needs it.
            return true;
        }
        self.state().store(DRAINING, Release);
        false
    }

    /// Whether `base` is held by a writer that does not exist in this process, a forked child. That writer did not hold
    /// the lock yet, or no longer held it. If so, the caller must do what a writer that gives up does; only one caller
    /// gets this answer. Each thread of a child must ask before it acquires `base` for writing, or opens the counters.
    /// Until the first thread has asked, everything is as the fork left it.
    #[inline]
    pub(super) fn adopt(self, is_written: impl Fn() -> bool) -> bool {
        let mine = M::epoch();
        if mine == FIRST_EPOCH {
            return false;
        }
        fence(Acquire); // Pairs with the Release of `heat`: `begin` comes first.
        // Acquire here, and AcqRel below: if several threads ask at the same time, the one that wins the exchange has
        // not seen what threads do once the first has asked.
        let of = self.epoch().load(Acquire);
        if of == mine {
            return false;
        }
        let is_orphaned = is_written() && self.state().load(Acquire) != WRITTEN;
        self.epoch().compare_exchange(of, mine, AcqRel, Acquire).is_ok() && is_orphaned
    }

    /// Starts counting: held for writing by no thread, all counters open. The caller holds `base` for writing.
    pub(super) fn begin(self) {
        self.epoch().store(M::epoch(), Relaxed); // All of this is published by the release of `base`.
        self.writers().store(0, Relaxed);
        self.open();
    }

    /// Closes the counters and waits until there are no readers: returns `true`, in the state WRITTEN; or `false` if
    /// the deadline has passed, which `late` says.
    pub(super) fn drain<W: WaitPolicy>(self, late: impl Fn() -> bool, until: Option<Deadline>) -> bool {
        self.passed().store(0, Relaxed);
        while !self.claim() {
            loop {
                if late() {
                    return false;
                }
                if self.await_drain::<W>(until) {
                    break;
                }
            }
        }
        true
    }

    /// Waits until there seem to be no readers, or for a while. Returns whether there are none.
    fn await_drain<W: WaitPolicy>(self, until: Option<Deadline>) -> bool {
        let drain = self.drain_word();
        let patience = if W::PARKS { Patience::Budget } else { Patience::Until(M::sooner(LOOK, until)) };
        if W::SPINS && M::spin_until(drain, Relaxed, patience, |_| self.readers() <= 0).is_some() {
            return true;
        }
        if W::PARKS {
            let seen = drain.fetch_or(ASLEEP, Acquire) | ASLEEP;
            if self.readers() > 0 {
                park::<M>(drain, seen, until);
            }
        }
        self.readers() <= 0
    }
}

/// Whether a counter with this value lets no reader in. Signed: more may have left by it than came by it.
fn is_full(counter: u32) -> bool {
    counter as i32 >= FULL
}

/// A reader changes the drain word when it leaves, and wakes the writers that sleep there. A writer that falls asleep
/// meanwhile sets the flag again, or finds the word changed.
#[cold]
fn signal_drain<M: Machine>(drain: &'static M::Word) {
    if drain.fetch_add(LEFT, Release) & ASLEEP != 0 {
        drain.fetch_and(!ASLEEP, Relaxed);
        wake::<M>(drain, u32::MAX);
    }
}
