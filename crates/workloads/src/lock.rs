//! What a workload asks of a lock.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flashlock_locks::machine::{Machine, Word};
use flashlock_locks::raw::RawLock;

use crate::ground::OwnLine;

/// Mutual exclusion.
///
/// # Safety
///
/// Between the return of an `acquire` and the `release` by the same thread no other thread returns from `acquire`, and
/// what a thread wrote before `release` is seen by the next one that has acquired. What is given to `section` is done
/// once before that returns, as if between the two. Workloads keep their data in this.
///
/// A lock that is tried out may turn out not to keep the promise. The workloads then count wrongly or leave their data
/// in disorder, which their checks tell; they use indices and no pointers, so that disorder stays within their own
/// data.
pub unsafe trait Lock: Sync {
    /// Waits until the calling thread holds the lock. The caller does not hold it.
    fn acquire(&self);

    /// Lets another thread in. The caller holds the lock.
    fn release(&self);

    /// Does something while no other thread holds the lock; some locks have another thread do it, while this one waits.
    /// Workloads use this where they can.
    #[inline]
    fn section(&self, inside: impl FnOnce() + Send) {
        self.acquire();
        inside();
        self.release();
    }
}

/// A lock that lets in any number of readers, or one writer: who acquires it writes.
///
/// # Safety
///
/// As of [`Lock`]: while something is done in `shared`, no thread is between `acquire` and `release`, nor in `section`;
/// and it sees what was done there before.
pub unsafe trait RwLock: Lock {
    /// Does something once, before this returns, while no other thread holds the lock for writing.
    fn shared(&self, inside: impl FnOnce() + Send);
}

/// A lock of the catalogue on a machine, with its state in place.
pub struct Raw<M: Machine, L: RawLock<M>> {
    word: M::Word,
    queue: L::Queue,
    lock: PhantomData<fn() -> L>,
}

impl<M: Machine, L: RawLock<M>> Raw<M, L> {
    /// Free.
    pub fn new() -> Self {
        Self { word: M::Word::new(0), queue: L::new_queue(), lock: PhantomData }
    }

    /// Whether somebody holds it, or did a moment ago.
    pub fn is_locked(&self) -> bool {
        L::is_locked(&self.word, &self.queue)
    }
}

impl<M: Machine, L: RawLock<M>> Drop for Raw<M, L> {
    fn drop(&mut self) {
        if !self.is_locked() {
            L::destroy(&self.word, &self.queue);
        }
    }
}

impl<M: Machine, L: RawLock<M>> Default for Raw<M, L> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: exclusion and visibility are what a `RawLock` is for; the model checkers look for executions without.
unsafe impl<M: Machine<Word: Sync>, L: RawLock<M, Queue: Sync>> Lock for Raw<M, L> {
    #[inline]
    fn acquire(&self) {
        L::lock(&self.word, &self.queue);
    }

    #[inline]
    fn release(&self) {
        L::unlock(&self.word, &self.queue);
    }
}

/// What a check says when sections overlapped.
pub(crate) const LOST: &str = "operations were lost: two threads were inside at once";

/// A lock whose sections are counted by whoever holds it, and by nothing else: the count is read when a section begins
/// and written when it ends, so that one which overlaps with another is lost. Both are atomic, for a lock may not
/// exclude; each sees what the last holder wrote, as anything in a section does. The count has a line of its own: a
/// store for each section, which a simulated ground is not told of. The lock comes first, whatever type it has: which
/// sets of a simulated cache it is in, it says by its place.
#[repr(C)]
pub(crate) struct Counted<L> {
    lock: OwnLine<L>,
    count: OwnLine<AtomicU64>,
}

impl<L: Lock> Counted<L> {
    pub(crate) fn new(lock: L) -> Self {
        Self { lock: OwnLine(lock), count: OwnLine::default() }
    }

    /// Does something under the lock.
    #[inline]
    pub(crate) fn section(&self, inside: impl FnOnce() + Send) {
        self.lock.0.section(|| {
            let before = self.count.0.load(Relaxed);
            inside();
            self.count.0.store(before + 1, Relaxed);
        });
    }

    /// Whether so many sections were counted.
    pub(crate) fn check(&self, sections: u64) -> Result<(), &'static str> {
        if self.count.0.load(Relaxed) == sections { Ok(()) } else { Err(LOST) }
    }
}

/// Excludes nobody: for tests with one thread.
#[cfg(test)]
pub(crate) struct NoLock;

// SAFETY: used by one thread only.
#[cfg(test)]
unsafe impl Lock for NoLock {
    fn acquire(&self) {}
    fn release(&self) {}
}

// SAFETY: used by one thread only.
#[cfg(test)]
unsafe impl RwLock for NoLock {
    fn shared(&self, inside: impl FnOnce() + Send) {
        inside();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_sections_are_noticed() {
        let counted = Counted::new(NoLock);
        counted.section(|| ());
        counted.section(|| ());
        assert_eq!(counted.check(2), Ok(()));
        counted.section(|| counted.section(|| ()));
        assert_eq!(counted.check(4), Err(LOST));
    }
}
