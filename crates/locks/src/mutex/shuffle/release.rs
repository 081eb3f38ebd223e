//! # Releasing a ShflLock that threads wait for
//!
//! The release while threads wait: it decides which thread is next. As a rule it frees the word, and the first thread
//! that takes it is next. If the head's wait is overdue, the head is next. See [`shfl`](super::shfl), departures 2 and
//! 3, invariant 3, and the bound.
//!
//! | the head | what a release does |
//! |---|---|
//! | polls | frees the word; if the head's wait is overdue, the head has set ASKED, and the release hands it the lock |
//! | sleeps on the word (which is 2) | looks at the clock: frees the word and wakes the head; or, when it is time and the kernel confirms that the head sleeps, hands it the lock |
//! | neither, for long | one release in [`LOOK_EVERY`] looks at the clock, and evicts the head |

use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::node::{Node, state};
use crate::machine::{Handle, Machine, Word};
use crate::mutex::shuffle::state::{FREE, HELD, Lock, SLEEPERS, bound, is_idle};
use crate::parts::counted;
use crate::parts::shuffle::ShflQueue;
use crate::parts::shuffle::front::{ASKED, GRANTED, PROMISED, ROUSE, named, naming, note_awake, waited};
use crate::parts::shuffle::rouse::{note_all, note_if_woken, rouse, vouch_for};

/// Sections are short if there are this many releases within a bound. Then a sleeping head is woken when the bound is
/// over, so that it asks. It is handed the lock asleep only after another bound: otherwise the lock would stand still
/// while it wakes up.
const SHORT_SECTIONS: u32 = 16;
/// One release in this many looks whether the head runs (a power of two).
const LOOK_EVERY: u32 = 64;

impl<M: Machine> Lock<'_, M> {
    /// Releases the lock while threads wait. `head` is what the releaser saw, without
    /// [`ARRIVAL`](crate::parts::shuffle::front::ARRIVAL). Never inlined: otherwise the release of a lock without
    /// waiters would save registers for it.
    #[inline(never)]
    pub(super) fn unlock_contended(&self, head: u32) {
        match named(head).filter(|_| head & (PROMISED | ROUSE) == 0) {
            Some(waiter) if !pass_over(waiter.node::<M>()) && !self.sleeps(waiter.node::<M>()) => {
                // It may have fallen asleep since, or be about to.
                if self.free().is_some() {
                    note_if_woken::<M>(waiter);
                }
            }
            _ => self.unlock_slow(head),
        }
    }

    /// Whether the head sleeps, or is about to. If the word is not 2, the head has been woken.
    fn sleeps(&self, node: &Node<M>) -> bool {
        node.state.load(Relaxed) == state::NAPPING && self.word.load(Relaxed) == SLEEPERS
    }

    /// The rarer cases: the head's wait may be overdue; the head does not run, or did not survive a fork; or the holder
    /// won out of turn, past a head that may not run.
    #[cold]
    fn unlock_slow(&self, head: u32) {
        if head & ROUSE != 0 {
            self.queue.head.fetch_and(!ROUSE, Relaxed); // Relaxed: the holder's own flag.
        }
        let Some(waiter) = named(head) else { return self.free_unseen() };
        let node = waiter.node::<M>();
        if !node.is_alive() {
            self.queue.discard_dead_queue(self.queue.head.load(Relaxed));
            return self.free_unseen();
        }
        let sleeps = self.sleeps(node);
        let asked = head & PROMISED == ASKED;
        if (asked || sleeps && is_due(node)) && self.hand_over(waiter, node, sleeps) {
            return;
        }
        if !sleeps && !asked && is_idle(node) {
            self.evict(waiter);
        }
        if sleeps {
            note_awake::<M>(waiter); // Already here: this thread, too, may be stopped after the wake-up.
        }
        let woken = self.free();
        // From here on, only nodes are accessed.
        if let Some(woken) = woken {
            vouch_for::<M>(waiter, woken);
        }
        if head & ROUSE != 0 {
            rouse::<M>(waiter);
        }
    }

    /// [`Self::free`], by a releaser that saw no head. There may be one by now, which sleeps, and waiters behind it
    /// that rely on its wake-up. If that wakes a thread, it also leaves a note to the waiters of the queue, wherever
    /// they are.
    ///
    /// If it wakes none, no waiter is looked for. The word is 2 without a sleeper whenever a head that slept has the
    /// lock and no thread came after it, and a look at all nodes would cost each such release too much. So a waiter
    /// sleeps on if the releaser stood still between its two accesses for as long as that waiter had patience, *and*
    /// the new head froze while it slept.
    #[inline]
    pub(super) fn free_unseen(&self) {
        let (word, queue): (*const M::Word, *const ShflQueue<M>) = (self.word, self.queue);
        if self.word.hand_back(FREE, HELD, Release) {
            wake_unseen::<M>(word, queue);
        }
    }

    /// (word, head) -> (1, head | GRANTED): hands the lock over instead of freeing it. Returns false if the head has
    /// left, or if it seemed to sleep and the kernel says that it did not: then it may be frozen.
    ///
    /// Meanwhile the head may be falling asleep: it writes 2, looks at `head`, and sleeps while the word is 2. Both
    /// threads exchange the word. If the head's exchange comes first, ours sees 2, and keeps the head from falling
    /// asleep, or wakes it. If ours comes first, the head sees the promise.
    fn hand_over(&self, waiter: Handle, node: &Node<M>, sleeps: bool) -> bool {
        let word: *const M::Word = self.word;
        let promises = |from| self.queue.change_head(from, naming(waiter) | PROMISED);
        if !promises(naming(waiter)) && !promises(naming(waiter) | ASKED) {
            return false;
        }
        // This wake-up is within the section, but there is only one in a bound. From here on the head sees the promise.
        if sleeps && M::wake(word, u32::MAX) == 0 {
            self.queue.change_head(naming(waiter) | PROMISED, naming(waiter) | ASKED);
            return false;
        }
        node.granted_at.store(M::micros(), Relaxed);
        let before = self.word.swap(HELD, AcqRel);
        if !self.queue.change_head(naming(waiter) | PROMISED, naming(waiter) | GRANTED) {
            return false; // Never, as long as only the holder releases.
        }
        // From here on, invariant 3.
        M::trace(Event::Grant);
        note_awake::<M>(waiter);
        if before == SLEEPERS {
            counted::wake::<M>(word, u32::MAX);
        }
        true
    }

    /// 1 | 2 -> 0. If the word was 2, wakes all threads that sleep on it, and returns how many slept. The caller
    /// [vouches](vouch_for) for the head.
    #[inline]
    pub(super) fn free(&self) -> Option<u32> {
        let word: *const M::Word = self.word;
        if !self.word.hand_back(FREE, HELD, Release) {
            return None;
        }
        Some(wake_sleepers::<M>(word))
    }
}

/// Wakes all threads that sleep on the word: the head, and foreign code, whose sleepers each rely on being woken.
/// Returns how many slept.
#[cold]
#[inline(never)]
fn wake_sleepers<M: Machine>(word: *const M::Word) -> u32 {
    counted::wake::<M>(word, u32::MAX)
}

/// Wakes all threads that sleep on the word, for a releaser that saw no head: see [`Lock::free_unseen`]. The queue may
/// be gone: only its address is used.
#[cold]
#[inline(never)]
fn wake_unseen<M: Machine>(word: *const M::Word, queue: *const ShflQueue<M>) {
    if counted::wake::<M>(word, u32::MAX) > 0 {
        note_all::<M>(ShflQueue::mark_of(queue));
    }
}

/// The release passes this head over. Returns whether it should look whether the head runs. Only the holder calls this.
#[inline]
fn pass_over<M: Machine>(node: &Node<M>) -> bool {
    let passes = node.passes.load(Relaxed).wrapping_add(1);
    node.passes.store(passes, Relaxed);
    passes.is_multiple_of(LOOK_EVERY)
}

/// Whether a sleeping head is to be handed the lock now.
fn is_due<M: Machine>(node: &Node<M>) -> bool {
    let (waited, bound) = (waited(node), bound(node));
    waited >= bound && (waited >= bound.saturating_mul(2) || node.passes.load(Relaxed) < SHORT_SECTIONS)
}
