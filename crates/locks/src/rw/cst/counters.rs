//! # The counters of a CST readers-writer lock
//!
//! Readers count themselves in on the counter of the CPUs among which they run, and out again on the one of those among
//! which they run then. What counts is the sum. Who has left a closed counter says so by a word of the machine's,
//! [`drain`](Machine::drain_word), on which the writer sleeps: it cannot know which counter will change, and the lock
//! may be gone by then. See [`cst`](super), invariants 2 to 4.
//!
//! ## Orderings of `drain_word`
//! The writer sets ASLEEP, looks at the counters, and sleeps if the word is as it was; who leaves takes itself out of
//! its counter, and changes the word. Of these two changes one comes first: if the writer's, it is woken, or does not
//! fall asleep; else it sees the counter as the reader left it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::fence;

use crate::event::Event;
use crate::machine::{Deadline, FIRST_EPOCH, Machine, Patience, Word};
use crate::side::{Block, Side};
use crate::wait::WaitPolicy;

/// The longest wait (µs) of a writer that polls, before it looks at its deadline.
const LOOK: u32 = 1_000;

// The states of an index, the block that names the counters.
const OPEN: u32 = 64;
pub(super) const DRAINING: u32 = 65;
const CLAIMED: u32 = 66;
pub(super) const WRITTEN: u32 = 67;
pub(super) const FOLDED: u32 = 68;

/// Bit of a counter.
const CLOSED: u32 = 1;
/// A reader in a counter.
const ONE: u32 = 2;
/// A counter with so many readers lets nobody in, so that no sum overflows. (It may have more than there are: see
/// [`Counters::level`].)
const FULL: i32 = (MOST * ONE) as i32;
/// How many that are.
pub(super) const MOST: u32 = 1 << 23;
/// Bit of `drain_word`: a writer may sleep there.
const ASLEEP: u32 = 1;
/// What `drain_word` grows by.
const LEFT: u32 = 2;

/// The index of a [side block](crate::side), whose parts are counters.
pub(super) struct Counters<M: Machine>(pub(super) Side<M>);

impl<M: Machine> Clone for Counters<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Counters<M> {}

impl<M: Machine> Counters<M> {
    fn block(self) -> &'static Block<M> {
        self.0.0
    }

    /// OPEN, DRAINING, CLAIMED, WRITTEN or FOLDED; 0 before the first of them.
    pub(super) fn state(self) -> &'static M::Word {
        &self.block().state
    }

    /// How many readers have passed the writer that waits.
    pub(super) fn passed(self) -> &'static M::Word {
        &self.block().passed
    }

    /// How many writers there have been since readers count apart. Theirs alone, hence Relaxed.
    pub(super) fn writers(self) -> &'static M::Word {
        &self.block().writers
    }

    /// [`Machine::epoch`] of the process that was the last to ask for writers which do not exist in it:
    /// [`adopt`](Self::adopt).
    fn epoch(self) -> &'static M::Word {
        &self.block().epoch
    }

    /// The word by which readers say that they have left.
    fn drain_word(self) -> &'static M::Word {
        M::drain_word(&raw const *self.state())
    }

    fn all(self) -> impl Iterator<Item = &'static M::Word> {
        self.0.parts().map(|part| &part.state)
    }

    /// The counter of the CPUs among which the calling thread runs.
    #[inline(always)]
    pub(super) fn own(self) -> Option<&'static M::Word> {
        self.0.part(M::reader_part()).map(|part| &part.block::<M>().state)
    }

    #[inline]
    fn own_or_other(self) -> Option<&'static M::Word> {
        self.own().or_else(|| self.all().next())
    }

    /// Its own counter; made if there is none. The caller holds `base` for reading.
    fn own_or_made(self) -> &'static M::Word {
        &self.0.part_or_make(M::reader_part(), None, |_| ()).block::<M>().state
    }

    /// Whether the counter of where the calling thread runs lets nobody in.
    pub(super) fn is_own_full(self) -> bool {
        self.own_or_other().is_some_and(|counter| is_full(counter.load(Relaxed)))
    }

    /// Whether there are as many readers as can be counted. More or less: those who look at once may all come in.
    /// Twice: one look may find in two counters what [`level`](Self::level) moves from one to the other.
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

    /// What a counter has too much goes to the one that has least: more have come by the one, and left by the other.
    /// The caller holds `base` for reading: no writer adds up meanwhile.
    #[cold]
    fn level(self, full: &'static M::Word) {
        let Some(least) = self.all().min_by_key(|counter| counter.load(Relaxed) as i32) else { return };
        let surplus = full.load(Relaxed) & !CLOSED;
        if is_full(surplus) && !core::ptr::eq(least, full) {
            // This one first: a sum that is too small meanwhile harms nobody, for `base` keeps writers out; one too
            // large would be refused. AcqRel, as all additions.
            full.fetch_add(surplus.wrapping_neg(), AcqRel);
            least.fetch_add(surplus, AcqRel);
        }
    }

    /// A reader comes in, unless the counter is closed, or `kept_out` afterwards.
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

    /// A reader past a writer that waits, if there is one (invariant 2), by its own counter or any other.
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

    /// (counter) -> (counter - 1 reader). If it is closed, a writer may wait for that. The lock is not accessed
    /// afterwards.
    #[inline]
    fn take_out(self, counter: &'static M::Word) {
        if counter.fetch_add(ONE.wrapping_neg(), Release) & CLOSED != 0 {
            say_so::<M>(self.drain_word());
        }
    }

    /// The readers that `count` finds in the counters.
    fn sum(self, count: impl Fn(&'static M::Word) -> u32) -> i32 {
        // Wrapping: each of them may, for who has come by one may leave by another.
        self.all().map(count).fold(0, |sum: u32, counter| sum.wrapping_add(counter & !CLOSED)) as i32 / ONE as i32
    }

    /// How many readers there are, more or less.
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
        self.state().store(FOLDED, Relaxed); // Says nothing to who holds nothing but to look again.
    }

    /// Whether there are no readers: OPEN or DRAINING -> CLAIMED -> WRITTEN (invariant 3), or DRAINING.
    fn claim(self) -> bool {
        self.state().store(CLAIMED, Release);
        if self.sum(|counter| counter.fetch_or(CLOSED, AcqRel)) <= 0 {
            self.state().store(WRITTEN, Relaxed); // Means something to its holder only.
            return true;
        }
        self.state().store(DRAINING, Release);
        false
    }

    /// Whether `base` is held by a writer that does not exist, for this is a forked child, and that had not got the
    /// lock yet, or not any more. If so, the caller is to do for it what a writer does that gives up. Only one is told
    /// so. To be asked by each thread of a child before it acquires `base` for writing, or opens the counters: until
    /// the first has asked, all is as the fork left it.
    #[inline]
    pub(super) fn adopt(self, is_written: impl Fn() -> bool) -> bool {
        let mine = M::epoch();
        if mine == FIRST_EPOCH {
            return false;
        }
        fence(Acquire); // With the Release of `heat`: `begin` comes first.
        // Acquire here, and AcqRel: what others do once the first has asked is not seen by who asks at the same time,
        // and prevails.
        let of = self.epoch().load(Acquire);
        if of == mine {
            return false;
        }
        let is_orphaned = is_written() && self.state().load(Acquire) != WRITTEN;
        self.epoch().compare_exchange(of, mine, AcqRel, Acquire).is_ok() && is_orphaned
    }

    /// Counting begins: WRITTEN by nobody, all open. The caller holds `base` for writing.
    pub(super) fn begin(self) {
        self.epoch().store(M::epoch(), Relaxed); // All of this is published by the release of `base`.
        self.writers().store(0, Relaxed);
        self.open();
    }

    /// Closes the counters and waits until there are no readers: `true`, and WRITTEN; or `false`, when the deadline has
    /// passed. (`late` says that.)
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

    /// Waits until there seem to be no readers, or for a while. Whether there are none.
    fn await_drain<W: WaitPolicy>(self, until: Option<Deadline>) -> bool {
        let drain = self.drain_word();
        let patience = if W::PARKS { Patience::Budget } else { Patience::Until(M::sooner(LOOK, until)) };
        if W::SPINS && M::spin_until(drain, Relaxed, patience, |_| self.readers() <= 0).is_some() {
            return true;
        }
        if W::PARKS {
            let seen = drain.fetch_or(ASLEEP, Acquire) | ASLEEP;
            if self.readers() > 0 {
                M::trace(Event::Park);
                M::park(drain, seen, until);
            }
        }
        self.readers() <= 0
    }
}

/// Whether this is the value of a counter that lets nobody in. Signed: more may have left by it than came by it.
fn is_full(counter: u32) -> bool {
    counter as i32 >= FULL
}

/// A reader says that it has left, and wakes the writers that sleep. Another that falls asleep meanwhile sets the flag
/// anew, or finds the word changed.
#[cold]
fn say_so<M: Machine>(drain: &'static M::Word) {
    if drain.fetch_add(LEFT, Release) & ASLEEP != 0 {
        drain.fetch_and(!ASLEEP, Relaxed);
        M::trace(Event::Wake);
        M::wake(drain, u32::MAX);
    }
}
