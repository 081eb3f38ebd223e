//! # When readers use distributed counters
//!
//! With distributed counters, readers do not meet on a line, but a writer must look at a line of each part of the
//! machine. So readers use the central counter until they have met there often, with few writers between. After a
//! number of writers they use it again, to see whether they would still meet. See [`cst`](super), invariant 1.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::{Beside, Deadline, FIRST_EPOCH, Machine, Word};
use crate::parts::side::Side;
use crate::parts::wait::WaitPolicy;
use crate::rw::cst::CstRwState;
use crate::rw::cst::counters::Counters;
use crate::rw::shfl::has_no_readers;

/// Each writer makes up for this many meetings, while readers use the central counter. The side block makes writing
/// more expensive, so it is for locks that are mostly read.
const MEETINGS_PER_WRITER: u32 = 16;
/// The `heat` of a lock in which readers use distributed counters.
const DISTRIBUTED: u32 = 1 << 31;
/// The least `heat` of a lock in which a reader is about to switch to distributed counters. (No number of meetings gets
/// there.) The reader's epoch is above the lowest eight bits, to which late meetings may be added.
const MAKING: u32 = 1 << 30;
/// Bit of such a `heat`: the reader holds `base` for that.
const HOLDING: u32 = 1 << 29;
/// The bits of an epoch that are kept there.
const EPOCH: u32 = 0xffff;
/// How long (µs) that reader waits for its turn, at most. If very many readers meet, most of them wait in the queue, as
/// this one would have done.
const IN_LINE: u32 = 1_000;
/// How long (µs) it then waits for readers to leave. New readers are kept out meanwhile.
const PATIENCE: u32 = 100;

/// How many locks at most may have a side block at the same time: 1.1 KiB each on a machine with one or two NUMA nodes.
/// This bounds what is lost in a program that frees its locks without destroying them, as C++'s `std::shared_mutex`
/// does.
const MOST_LOCKS: u32 = 1024;

/// Counts one more lock that may have a side block, unless there are [`MOST_LOCKS`]. Relaxed: a count, which orders
/// nothing.
fn admit<W: Word>(locks: &W) -> bool {
    let admitted = locks.fetch_add(1, Relaxed) < MOST_LOCKS;
    if !admitted {
        dismiss(locks);
    }
    admitted
}

/// Undoes [`admit`]: this lock got no side block, or has none any more.
fn dismiss<W: Word>(locks: &W) {
    locks.fetch_add(u32::MAX, Relaxed);
}

/// The `heat` that says that the calling process is about to switch.
fn making<M: Machine>() -> u32 {
    MAKING | (M::epoch() & EPOCH) << 8
}

impl<M: Machine> CstRwState<M> {
    /// Whether readers use the central counter: a hint, but certain for a thread that holds the lock (invariant 1, so
    /// Relaxed). If it is false, the side block may still be that of another lock (invariant 6).
    #[inline(always)]
    pub(super) fn counts_centrally(&self) -> bool {
        self.heat.load(Relaxed) != DISTRIBUTED
    }

    /// The side block, if it is in use.
    #[inline]
    pub(super) fn side(&self) -> Option<Counters<M>> {
        if self.heat.load(Relaxed) == DISTRIBUTED { self.own_index().map(Counters) } else { None }
    }

    /// The side block, if there is one and it was made for this lock (invariant 6).
    #[inline]
    fn own_index(&self) -> Option<Side<M>> {
        Side::of(&self.side).filter(|index| index.is_of(&self.side))
    }

    /// A reader that has come in by `base` moves to its counter if the side block is in use, or leaves again if it is
    /// time to make one. Returns whether it has stayed.
    #[cold]
    pub(super) fn stay(&self, before: u32) -> bool {
        if !self.counts_centrally() {
            self.move_to_counters();
            return true;
        }
        if self.is_making() {
            return true;
        }
        // Relaxed: it is a hint.
        let one = u32::from(!has_no_readers(before));
        let met = self.heat.fetch_add(one, Relaxed) + one;
        let stays = met < M::tunables().meetings;
        if !stays {
            self.base.release();
        }
        stays
    }

    /// A writer that has acquired a lock whose side block is not in use makes its use less likely. Relaxed, and not
    /// atomic: it is a hint, and no other thread sets DISTRIBUTED meanwhile.
    #[inline]
    pub(super) fn note_writer(&self) {
        let met = self.heat.load(Relaxed);
        if met != 0 && met < MAKING {
            self.heat.store(met.saturating_sub(MEETINGS_PER_WRITER), Relaxed);
        }
    }

    /// Whether a reader is about to switch to distributed counters: a hint.
    pub(super) fn is_making(&self) -> bool {
        (MAKING..DISTRIBUTED).contains(&self.heat.load(Relaxed))
    }

    /// Whether readers have met often enough.
    pub(super) fn is_due(&self) -> bool {
        (M::tunables().meetings..MAKING).contains(&self.heat.load(Relaxed))
    }

    /// (heat between `least` and `most`) -> (heat). Returns whether it was between them. Relaxed: a hint, except
    /// DISTRIBUTED, which is neither end.
    fn change_heat(&self, least: u32, most: u32, heat: u32) -> bool {
        let mut seen = self.heat.load(Relaxed);
        while (least..=most).contains(&seen) {
            match self.heat.compare_exchange(seen, heat, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Starts counting meetings from 0 again.
    pub(super) fn forget_meetings(&self) {
        self.change_heat(1, MAKING - 1, 0);
    }

    /// Switches to distributed counters, if they are not in use, one more lock may have a side block, and the readers
    /// that hold the lock leave soon. The caller holds nothing of the lock.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    #[cold]
    pub unsafe fn count_distributed<W: WaitPolicy>(&self, until: Option<Deadline>) {
        if !self.change_heat(0, MAKING - 1, making::<M>()) {
            return; // Another thread is about to do so.
        }
        // A block of another lock stays where it is, and this lock without one.
        let is_blank = self.side.load(Relaxed) == 0;
        let index = if is_blank { self.make_index() } else { self.own_index() };
        let acquired = index.is_some() && self.base.acquire_uncounted::<W>(M::sooner(IN_LINE, until), PATIENCE).is_ok();
        match index {
            Some(index) if acquired && self.counts_centrally() => {
                self.heat.store(making::<M>() | HOLDING, Relaxed); // From now on no thread counts meetings.
                Counters(index).begin();
                self.heat.store(DISTRIBUTED, Release); // After `begin`, for a thread that asks for orphans.
                M::trace(Event::RwDistributed);
            }
            _ => _ = self.change_heat(MAKING, DISTRIBUTED - 1, 0),
        }
        if acquired {
            self.base.release();
        }
    }

    /// Makes the side block, which is not in use yet, unless there are too many.
    fn make_index(&self) -> Option<Side<M>> {
        let locks = self.locks();
        if !admit(locks) {
            return None;
        }
        let mut mine = core::ptr::null();
        let index = Side::make_owned(&self.side, |block| mine = core::ptr::from_ref(block));
        if !core::ptr::eq(index.0, mine) {
            dismiss(locks); // Another thread was faster.
        }
        Some(index)
    }

    /// Gives the side block back, which no thread uses. That of another lock stays its own.
    pub(super) fn give_index_back(&self) {
        let is_own = self.own_index().is_some();
        self.heat.store(0, Relaxed);
        if is_own {
            Side::<M>::give_back(&self.side);
            dismiss(self.locks());
        } else {
            self.side.store(0, Relaxed); // Relaxed: no thread uses the lock.
        }
    }

    /// How many locks were admitted.
    fn locks(&self) -> &'static M::Word {
        M::beside(Beside::Distributed, &raw const self.side)
    }

    /// In a forked child, forgets a reader that was about to switch: it does not exist there.
    pub(super) fn undo_orphaned_switch(&self) {
        if M::epoch() == FIRST_EPOCH {
            return;
        }
        let heat = self.heat.load(Acquire); // Written before the fork, or by a thread of this process.
        let is_mine = (heat & !HOLDING) >> 8 == making::<M>() >> 8;
        if (MAKING..DISTRIBUTED).contains(&heat) && !is_mine && self.change_heat(heat, heat, 0) && heat & HOLDING != 0 {
            self.base.release();
        }
    }

    /// The release of a writer if the side block is in use.
    #[inline(never)]
    pub(super) fn end_writing(&self, side: Counters<M>) {
        side.adopt(|| false); // So that no other thread takes this writer for one that does not exist.
        let writers = side.writers().load(Relaxed) + 1;
        if writers < M::tunables().writers {
            side.writers().store(writers, Relaxed);
            side.open();
        } else {
            side.fold();
            self.heat.store(0, Relaxed);
            M::trace(Event::RwTogether);
        }
        self.base.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bench::Plain;

    #[test]
    fn so_many_are_admitted_and_another_when_one_is_gone() {
        let locks = Plain::new(0);
        assert_eq!((0..2 * MOST_LOCKS).filter(|_| admit(&locks)).count(), MOST_LOCKS as usize);
        dismiss(&locks);
        assert!(admit(&locks) && !admit(&locks));
        (0..MOST_LOCKS).for_each(|_| dismiss(&locks));
        assert_eq!(locks.load(Relaxed), 0);
    }
}
