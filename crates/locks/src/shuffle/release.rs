//! # Releasing a ShflLock that somebody waits for
//!
//! The releaser decides who is next: whoever comes first, as a rule; the head, if its wait is overdue. See
//! [`shfl`](super::shfl), departures 2 and 3, invariant 3.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Handle, Machine, Word};
use crate::node::{Node, state};
use crate::shuffle::front::{GRANTED, NOTIFY, PROMISED, ROUSE, named, naming, overdue, pass_over};
use crate::shuffle::shfl::{FREE, HELD, Lock, SLEEPERS};
use crate::wait::WaitPolicy;

/// A head that has waited this many bounds is handed the lock even if it sleeps, though its policy is to keep awake; and whatever
/// hand-overs cost.
const BOUNDS_MAX: u32 = 100;
/// A head waits for this many times as long as the lock stood still lately, before it is handed the lock.
const WORTH: u32 = 8;
/// How far a releaser looks for somebody who can be woken, if the head cannot.
const ROUSE_REACH: usize = 64;

impl<M: Machine> Lock<'_, M> {
    /// Releases the lock while somebody waits. `head` is what the releaser saw, without [`ARRIVAL`](super::front::ARRIVAL). Never
    /// inlined: the release of a lock that nobody waits for would save registers for it.
    #[inline(never)]
    pub(super) fn unlock_contended<W: WaitPolicy>(&self, head: u32) {
        match named(head).filter(|_| head & (PROMISED | ROUSE) == 0) {
            Some(waiter) if !pass_over(waiter.node::<M>()) => {
                if self.free() == Some(0) && waiter.node::<M>().state.load(Relaxed) == state::NAPPING {
                    rouse::<M>(waiter);
                }
            }
            _ if head & ROUSE != 0 => self.unlock_and_rouse::<W>(head),
            _ => self.unlock_slow::<W>(head),
        }
    }

    /// The holder won out of turn, past a head that may not run.
    #[cold]
    fn unlock_and_rouse<W: WaitPolicy>(&self, head: u32) {
        self.queue.head.fetch_and(!ROUSE, Relaxed); // Relaxed: the holder's own flag.
        self.unlock_slow::<W>(head & !ROUSE);
        if let Some(waiter) = named(head).filter(|waiter| waiter.node::<M>().is_alive()) {
            rouse::<M>(waiter);
        }
    }

    /// The rare cases: a waiter has to be told that it is head; the head's wait may be overdue; the head did not survive a fork.
    #[cold]
    fn unlock_slow<W: WaitPolicy>(&self, head: u32) {
        let Some(waiter) = named(head) else {
            self.free();
            return;
        };
        let node = waiter.node::<M>();
        if !node.is_alive() {
            self.queue.bury(self.queue.head.load(Relaxed));
            self.free();
        } else if head & PROMISED == NOTIFY {
            let told = self.queue.change_head(head, naming(waiter)).then(|| self.queue.install(waiter, false));
            self.free();
            if let Some(next) = told.flatten() {
                wake::<M>(next);
            }
        } else if !self.hand_over_if_overdue::<W>(waiter, node) {
            self.free();
        }
    }

    /// A head whose wait is overdue keeps awake, as far as its policy lets it and the scheduler lets it run.
    fn hand_over_if_overdue<W: WaitPolicy>(&self, waiter: Handle, node: &Node<M>) -> bool {
        let Some(waited) = overdue(node, bound::<M>()) else { return false };
        match node.state.load(Relaxed) {
            state::HEAD => self.grant(waiter, node),
            state::NAPPING if !W::SPINS || waited / BOUNDS_MAX >= M::tunables().bound_us => self.grant(waiter, node),
            _ => false,
        }
    }

    /// (word, head) -> (1, head | GRANTED): hands the lock over instead of freeing it. Fails if the head has left.
    ///
    /// The head may be falling asleep meanwhile: it writes 2, looks at `head`, and sleeps while the word is 2. Of the two
    /// exchanges of the word, if its own is the first, ours sees 2, makes the kernel refuse its sleep, or wakes it; if ours is,
    /// it sees the promise.
    fn grant(&self, waiter: Handle, node: &Node<M>) -> bool {
        let word: *const M::Word = self.word;
        if !self.queue.change_head(naming(waiter), naming(waiter) | PROMISED) {
            return false;
        }
        node.granted_at.store(M::micros(), Relaxed);
        let before = self.word.swap(HELD, AcqRel);
        if !self.queue.change_head(naming(waiter) | PROMISED, naming(waiter) | GRANTED) {
            return false; // Not while the rule holds that only the holder releases.
        }
        // Invariant 3 from here on.
        M::trace(Event::Grant);
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
        if self.word.swap(FREE, Release) != SLEEPERS {
            return None;
        }
        M::trace(Event::Wake);
        // All: the head, and foreign code, whose sleepers each count on being woken.
        Some(M::wake(word, u32::MAX))
    }
}

/// For how long (µs) a head waits before it is handed the lock: `bound=`, or so long that the lock does not stand still for more than
/// a small part of the time, if heads that are handed it do not run.
pub(super) fn bound<M: Machine>() -> u32 {
    let least = M::tunables().bound_us;
    least.max(M::stand_still().saturating_mul(WORTH)).min(least.saturating_mul(BOUNDS_MAX))
}

/// A lock that was handed over stood still for so long (µs). Half of what was so before counts, too: hand-overs differ.
pub(super) fn stood_still<M: Machine>(micros: u32) {
    M::set_stand_still(micros.max(M::stand_still() / 2));
}

/// Wakes a waiter that has just been made head.
pub(crate) fn wake<M: Machine>(waiter: Handle) {
    M::trace(Event::Wake);
    if M::unpark(waiter.node::<M>()) == 0 {
        // It does not sleep where it should: it is about to see what happened, or it is frozen.
        rouse::<M>(waiter);
    }
}

/// The head may be frozen. In case it is, wakes the first sleeper behind it, who will not wait for it for ever. Touches nodes only, which may have moved on meanwhile: then it
/// wakes somebody for nothing.
pub(crate) fn rouse<M: Machine>(head: Handle) {
    let mut here = head;
    for _ in 0..ROUSE_REACH {
        let Some(next) = Handle::from_word(here.node::<M>().next.load(Acquire)) else { return };
        let node = next.node::<M>();
        if node.state.load(Relaxed) == state::PARKED && M::unpark(node) > 0 {
            return;
        }
        here = next;
    }
}
