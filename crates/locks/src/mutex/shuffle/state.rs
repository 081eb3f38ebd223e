//! # The two pieces of state of a ShflLock, and when its head is overdue
//!
//! What waiters, the head and the releaser share. See [`shfl`](super::shfl), departure 2 and the bound.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::node::Node;
use crate::machine::{Handle, Kept, Machine, Word};
use crate::parts::shuffle::ShflQueue;
use crate::parts::shuffle::front::waited;

/// No thread holds the lock.
pub(super) const FREE: u32 = 0;
/// A thread holds the lock.
pub(super) const HELD: u32 = 1;
/// The same, and a thread sleeps on the word.
pub(super) const SLEEPERS: u32 = 2;

/// If heads do not run at once when they are handed the lock, the bound is stretched, up to this many bounds ...
const STRETCHES: u32 = 100;
/// ... so that the lock stands still for at most one part of the time in this many ...
const WORTH: u32 = 8;
/// ... but not for a head that has queued for this long (µs).
const PATIENT: u32 = 50_000;
/// A head that should have asked this long (µs) ago, and has not, does not run.
const IDLE: u32 = 25_000;

/// The two pieces of state of one lock.
pub(super) struct Lock<'a, M: Machine> {
    pub(super) word: &'a M::Word,
    pub(super) queue: &'a ShflQueue<M>,
}

/// 0 -> 1
#[inline(always)]
pub(super) fn try_take<M: Machine>(word: &M::Word) -> bool {
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
}

impl<M: Machine> Lock<'_, M> {
    /// The holder evicts a head that does not run.
    pub(super) fn evict(&self, idle: Handle) {
        if self.queue.evict(idle, Some(self.word)).is_some() {
            self.note_sleeper();
        }
    }

    /// 1 | 2 -> 2: the holder's release wakes the thread that was moved to the word. Relaxed: the release is the
    /// holder's own.
    pub(super) fn note_sleeper(&self) {
        self.word.swap(SLEEPERS, Relaxed);
    }
}

/// For how long (µs) a head should have run: since it became head, or was last woken, if that is later.
pub(super) fn awake_for<M: Machine>(head: &Node<M>) -> u32 {
    waited(head).min(M::micros().wrapping_sub(head.granted_at.load(Relaxed)))
}

/// Whether a head that has not asked, and does not sleep, does not run.
pub(super) fn is_idle<M: Machine>(node: &Node<M>) -> bool {
    awake_for(node) > bound(node).saturating_mul(2).saturating_add(IDLE)
}

/// How long (µs) a head waits before it is handed the lock: `bound=`. If heads do not run when they are handed the
/// lock, it is longer for a while, so that the lock stands still only for a small part of the time.
pub(super) fn bound<M: Machine>(head: &Node<M>) -> u32 {
    let least = M::tunables().bound_us;
    let queued = M::micros().wrapping_sub(head.queued_at.load(Relaxed));
    if queued >= PATIENT { least } else { stretched::<M>(least) }
}

fn stretched<M: Machine>(least: u32) -> u32 {
    least.max(Kept::RecentStall.get::<M>().saturating_mul(WORTH)).min(least.saturating_mul(STRETCHES))
}

/// A lock that was handed over stood still for this long (µs). Half of the last value counts, too: hand-offs differ.
pub(super) fn record_stall<M: Machine>(micros: u32) {
    Kept::RecentStall.set::<M>(micros.max(Kept::RecentStall.get::<M>() / 2));
}
