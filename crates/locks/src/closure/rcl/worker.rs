//! # A servicing thread, as others see it
//!
//! Its words: where it is, which request it runs, and what it sleeps on while another one has the [turn](super::turn).

use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::machine::{Machine, Word};

/// The bits of the word `turn` that say which worker has the turn.
pub(super) const HOLDER: u32 = (1 << 12) - 1;

/// Workers of a server, at most.
pub const WORKERS: u32 = HOLDER - 1;
/// The number by which the manager has the turn. No worker has it.
pub(super) const MANAGER: u32 = WORKERS;

/// A servicing thread, as others see it.
#[repr(C, align(64))]
pub struct Worker<M: Machine> {
    /// Odd: inside a section. It changes with each section that begins or ends.
    pub(super) at: M::Word,
    /// The same, for the worker's own thread, which then need not read `at`. If it read `at`, loom would not try all
    /// that other threads may see there.
    steps: M::Word,
    /// The number of the client whose request it runs.
    pub(super) slot: M::Word,
    /// 1: inside a section, where it waits for something of this library.
    pub(super) blocked: M::Word,
    /// Changes when the worker is given the turn. The worker sleeps on it.
    pub(super) bed: M::Word,
    /// The next free worker's number, plus one.
    pub(super) next: M::Word,
}

impl<M: Machine> Worker<M> {
    /// A worker that has not begun.
    pub fn new() -> Self {
        let zero = || M::Word::new(0);
        Self { at: zero(), steps: zero(), slot: zero(), blocked: zero(), bed: zero(), next: zero() }
    }

    /// outside -> inside -> outside. Release: a thread that sees the step sees what was done before it, including that
    /// the lock was taken. Only the worker itself calls this.
    #[inline(always)]
    pub(super) fn step(&self) {
        let step = self.steps.load(Relaxed).wrapping_add(1);
        self.steps.store(step, Relaxed);
        self.at.store(step, Release);
    }

    /// inside -> outside, while `act` takes another lock, -> inside the same section. For the manager the worker has
    /// made no progress.
    #[inline(always)]
    pub(super) fn outside<T>(&self, act: impl FnOnce() -> T) -> T {
        let step = self.steps.load(Relaxed);
        self.at.store(step.wrapping_add(1), Release);
        let result = act();
        self.at.store(step, Release);
        result
    }

    /// Its words and their names, for checkers.
    pub fn words(&self) -> [(&M::Word, &'static str); 3] {
        [(&self.at, "at"), (&self.blocked, "blocked"), (&self.bed, "bed")]
    }
}

impl<M: Machine> Default for Worker<M> {
    fn default() -> Self {
        Self::new()
    }
}
