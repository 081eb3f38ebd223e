//! # When readers count apart
//!
//! Apart, readers do not meet on a line, but a writer has a line of each part of the machine to look at. So they count together until they have met
//! often, with few writers between, and again once so many writers have come that it is time to see whether they still would. See
//! [`cst`](super), invariant 1.

use core::sync::atomic::Ordering::Relaxed;

use crate::event::Event;
use crate::machine::{Machine, Word};
use crate::rw::cst::CstRwState;
use crate::rw::cst::counters::Counters;
use crate::rw::shfl::has_no_readers;
use crate::rw::{RawRwLock, ShflRw};
use crate::side::Side;
use crate::wait::WaitPolicy;

/// So many meetings a writer makes up for, while readers count together: the side block, at which a writer has more to do, is for locks that are mostly read.
const MEETINGS_PER_WRITER: u32 = 16;
/// The `heat` of a lock in which readers count apart.
const APART: u32 = 1 << 31;

impl<M: Machine> CstRwState<M> {
    /// Whether readers count together: a hint, or a fact for who holds the lock (invariant 1, so Relaxed).
    #[inline(always)]
    pub(super) fn is_folded(&self) -> bool {
        self.heat.load(Relaxed) != APART
    }

    /// The side block, if it is in use.
    #[inline]
    pub(super) fn side(&self) -> Option<Counters<M>> {
        if self.is_folded() { None } else { Side::of(&self.side).map(Counters) }
    }

    /// A reader that has come in by `base` goes over to its counter if there is a side block, or leaves again if it is time to make one. Whether it
    /// has stayed.
    #[cold]
    pub(super) fn stay<W: WaitPolicy>(&self, before: u32) -> bool {
        if !self.is_folded() {
            self.move_aside::<W>();
            return true;
        }
        // Relaxed: it is a hint.
        let one = u32::from(!has_no_readers(before));
        let met = self.heat.fetch_add(one, Relaxed) + one;
        let stays = met < M::tunables().meetings;
        if !stays {
            ShflRw::<W>::unlock(&self.base);
        }
        stays
    }

    /// A writer that has acquired a lock whose side block is not in use makes that less likely. Relaxed, and not atomic: it is a hint, which nobody
    /// else makes APART.
    #[inline]
    pub(super) fn note_writer(&self) {
        let met = self.heat.load(Relaxed);
        if met != 0 {
            self.heat.store(met.saturating_sub(MEETINGS_PER_WRITER), Relaxed);
        }
    }

    /// Counts meetings from 0 again. Whether there were as many as `least`, and readers count together. The caller holds nothing.
    pub(super) fn forget_meetings(&self, least: u32) -> bool {
        let met = self.heat.load(Relaxed);
        (least..APART).contains(&met) && self.heat.compare_exchange(met, 0, Relaxed, Relaxed).is_ok()
    }

    /// Lets readers count apart, if they do not, the machine admits one more lock, and the lock can be had for that within the bound. The caller
    /// holds nothing of it.
    #[cold]
    pub fn count_apart<W: WaitPolicy>(&self) {
        let is_new = self.side.load(Relaxed) == 0;
        if is_new && !M::admit_apart() {
            return;
        }
        let soon = M::sooner(M::tunables().bound_us.max(1), None);
        if self.base.acquire_uncounted::<W>(soon).is_err() {
            if is_new {
                M::gone_apart();
            }
            return;
        }
        let made = self.side.load(Relaxed) != 0;
        if made && is_new {
            M::gone_apart(); // By another.
        }
        if self.is_folded() {
            let index = Side::<M>::of(&self.side).unwrap_or_else(|| Side::make(&self.side, |_| ()));
            Counters(index).writers().store(0, Relaxed);
            Counters(index).open();
            self.heat.store(APART, Relaxed);
            M::trace(Event::RwApart);
        }
        ShflRw::<W>::unlock(&self.base);
    }

    /// The release of a writer where there is a side block.
    #[inline(never)]
    pub(super) fn end_writing<W: WaitPolicy>(&self, side: Counters<M>) {
        let writers = side.writers().load(Relaxed) + 1;
        if writers < M::tunables().writers {
            side.writers().store(writers, Relaxed);
            side.open();
        } else {
            side.fold();
            self.heat.store(0, Relaxed);
            M::trace(Event::RwTogether);
        }
        ShflRw::<W>::unlock(&self.base);
    }
}
