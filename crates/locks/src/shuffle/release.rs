//! # Releasing a ShflLock that somebody waits for
//!
//! The releaser decides who is next: whoever comes first, as a rule; the head, if its wait is overdue. See
//! [`shfl`](super::shfl), departures 2 and 3, invariant 3, and the bound.
//!
//! | the head | what a release does |
//! |---|---|
//! | polls | frees the word; a head whose wait is overdue has said so (ASKED), and is handed the lock |
//! | sleeps on the word (which is 2) | looks at the clock: frees the word and wakes it, or hands it the lock, if the kernel says that it did sleep |
//! | neither, for long | one release in [`LOOK_EVERY`] looks at the clock, and takes it out of the queue |

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Handle, Machine, Word};
use crate::node::{Node, state};
use crate::queue::link::handle_in;
use crate::shuffle::front::{ASKED, GRANTED, PROMISED, ROUSE, named, naming, note_awake, waited};
use crate::shuffle::shfl::{FREE, HELD, Lock, SLEEPERS};

/// For hand-overs to heads that do not run at once, the bound is stretched up to so many bounds ...
const STRETCHES: u32 = 100;
/// ... so that the lock does not stand still for more than one part of the time in so many ...
const WORTH: u32 = 8;
/// ... but not for a head that has queued for so long (µs).
const PATIENT: u32 = 50_000;
/// So many releases within a bound are short sections: there, a head that sleeps is woken when the bound is over, to
/// ask, and handed the lock asleep only after another bound. Else the lock would stand still for as long as it takes to
/// wake up.
const SHORT_SECTIONS: u32 = 16;
/// One release in so many looks whether the head runs (a power of two).
const LOOK_EVERY: u32 = 64;
/// A head that has not asked for so long (µs) after it should have does not run.
const IDLE: u32 = 25_000;
/// How far a releaser looks for somebody who can be woken, if the head cannot.
const ROUSE_REACH: usize = 64;

impl<M: Machine> Lock<'_, M> {
    /// Releases the lock while somebody waits. `head` is what the releaser saw, without
    /// [`ARRIVAL`](super::front::ARRIVAL). Never inlined: the release of a lock that nobody waits for would save
    /// registers for it.
    #[inline(never)]
    pub(super) fn unlock_contended(&self, head: u32) {
        match named(head).filter(|_| head & (PROMISED | ROUSE) == 0) {
            Some(waiter) if !pass_over(waiter.node::<M>()) && !self.sleeps(waiter.node::<M>()) => {
                self.free();
            }
            _ => self.unlock_slow(head),
        }
    }

    /// Whether the head sleeps, or is about to. (If the word is not 2, it has been woken.)
    fn sleeps(&self, node: &Node<M>) -> bool {
        node.state.load(Relaxed) == state::NAPPING && self.word.load(Relaxed) == SLEEPERS
    }

    /// The rarer cases: the head's wait may be overdue, or it does not run, or did not survive a fork; or the holder
    /// won out of turn, past a head that may not run.
    #[cold]
    fn unlock_slow(&self, head: u32) {
        if head & ROUSE != 0 {
            self.queue.head.fetch_and(!ROUSE, Relaxed); // Relaxed: the holder's own flag.
        }
        let Some(waiter) = named(head) else {
            self.free();
            return;
        };
        let node = waiter.node::<M>();
        if !node.is_alive() {
            self.queue.bury(self.queue.head.load(Relaxed));
            self.free();
            return;
        }
        let sleeps = self.sleeps(node);
        let asked = head & PROMISED == ASKED;
        if (asked || sleeps && is_due(node)) && self.hand_over(waiter, node, sleeps) {
            return;
        }
        if !sleeps && !asked && is_idle(node) {
            self.evict(waiter);
        }
        let woken = self.free();
        // From here on nodes only.
        if woken.is_some_and(|woken| woken > 0) {
            note_awake::<M>(waiter);
        }
        let unheard = woken == Some(0) && node.state.load(Relaxed) == state::NAPPING;
        if unheard || head & ROUSE != 0 {
            rouse::<M>(waiter);
        }
    }

    /// The holder takes a head that does not run out of the queue.
    pub(super) fn evict(&self, idle: Handle) {
        if self.queue.evict(idle, Some(self.word)).is_some() {
            self.note_sleeper();
        }
    }

    /// 1 | 2 -> 2: the holder's release wakes who was moved to the word. Relaxed: it is the holder's own release.
    pub(super) fn note_sleeper(&self) {
        self.word.swap(SLEEPERS, Relaxed);
    }

    /// (word, head) -> (1, head | GRANTED): hands the lock over instead of freeing it. Fails if the head has left, or
    /// if it seemed to sleep and the kernel says that it did not: then it may be frozen.
    ///
    /// The head may be falling asleep meanwhile: it writes 2, looks at `head`, and sleeps while the word is 2. Of the
    /// two exchanges of the word, if its own is the first, ours sees 2, makes the kernel refuse its sleep, or wakes it;
    /// if ours is, it sees the promise.
    fn hand_over(&self, waiter: Handle, node: &Node<M>, sleeps: bool) -> bool {
        let word: *const M::Word = self.word;
        let promises = |from| self.queue.change_head(from, naming(waiter) | PROMISED);
        if !promises(naming(waiter)) && !promises(naming(waiter) | ASKED) {
            return false;
        }
        // Within the section, but once in a bound; and from here on it sees the promise.
        if sleeps && M::wake(word, u32::MAX) == 0 {
            self.queue.change_head(naming(waiter) | PROMISED, naming(waiter) | ASKED);
            return false;
        }
        node.granted_at.store(M::micros(), Relaxed);
        let before = self.word.swap(HELD, AcqRel);
        if !self.queue.change_head(naming(waiter) | PROMISED, naming(waiter) | GRANTED) {
            return false; // Not while the rule holds that only the holder releases.
        }
        // Invariant 3 from here on.
        M::trace(Event::Grant);
        note_awake::<M>(waiter);
        if before == SLEEPERS {
            M::trace(Event::Wake);
            M::wake(word, u32::MAX);
        }
        true
    }

    /// 1 | 2 -> 0; then wakes who sleeps on the word, if anybody may, and says how many did.
    #[inline]
    pub(super) fn free(&self) -> Option<u32> {
        let word: *const M::Word = self.word;
        if !self.word.hand_back(FREE, HELD, Release) {
            return None;
        }
        Some(wake_sleepers::<M>(word))
    }
}

/// Wakes who sleeps on the word: the head, and foreign code, whose sleepers each count on being woken. How many did.
#[cold]
#[inline(never)]
fn wake_sleepers<M: Machine>(word: *const M::Word) -> u32 {
    M::trace(Event::Wake);
    M::wake(word, u32::MAX)
}

/// A releaser passes this head over. Whether it should look if it runs. Called by the holder only.
#[inline]
fn pass_over<M: Machine>(node: &Node<M>) -> bool {
    let passes = node.passes.load(Relaxed).wrapping_add(1);
    node.passes.store(passes, Relaxed);
    passes.is_multiple_of(LOOK_EVERY)
}

/// Whether a head that sleeps is to be handed the lock now.
fn is_due<M: Machine>(node: &Node<M>) -> bool {
    let (waited, bound) = (waited(node), bound(node));
    waited >= bound && (waited >= bound.saturating_mul(2) || node.passes.load(Relaxed) < SHORT_SECTIONS)
}

/// Whether a head that has not asked, and does not sleep, does not run.
pub(super) fn is_idle<M: Machine>(node: &Node<M>) -> bool {
    waited(node) > bound(node).saturating_mul(2).saturating_add(IDLE)
}

/// For how long (µs) a head waits before it is handed the lock: `bound=`; or, for a while, so long that the lock does
/// not stand still for more than a small part of the time, if heads that are handed it do not run.
pub(super) fn bound<M: Machine>(head: &Node<M>) -> u32 {
    let least = M::tunables().bound_us;
    let queued = M::micros().wrapping_sub(head.queued_at.load(Relaxed));
    if queued >= PATIENT { least } else { stretched::<M>(least) }
}

fn stretched<M: Machine>(least: u32) -> u32 {
    least.max(M::recent_stall().saturating_mul(WORTH)).min(least.saturating_mul(STRETCHES))
}

/// A lock that was handed over stood still for so long (µs). Half of what was so before counts, too: hand-overs differ.
pub(super) fn stood_still<M: Machine>(micros: u32) {
    M::set_recent_stall(micros.max(M::recent_stall() / 2));
}

/// Wakes a waiter that has just been made head.
pub(crate) fn wake<M: Machine>(waiter: Handle) {
    M::trace(Event::Wake);
    if M::unpark(waiter.node::<M>()) == 0 {
        // It does not sleep where it should: it is about to see what happened, or it is frozen.
        rouse::<M>(waiter);
    }
}

/// The head may be frozen. In case it is, wakes the first sleeper behind it, who looks for the lock itself. Touches
/// nodes only, which may have moved on meanwhile: then it wakes somebody for nothing.
pub(crate) fn rouse<M: Machine>(head: Handle) {
    let mut here = head;
    for _ in 0..ROUSE_REACH {
        let Some(next) = handle_in(here.node::<M>().next.load(Acquire)) else { return };
        let node = next.node::<M>();
        if node.state.load(Relaxed) == state::PARKED && M::unpark(node) > 0 {
            return;
        }
        here = next;
    }
}
