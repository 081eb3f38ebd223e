//! What a workload asks of a lock.

use core::marker::PhantomData;

use flashlock_locks::machine::{Machine, Word};
use flashlock_locks::raw::RawLock;

/// Mutual exclusion.
///
/// # Safety
///
/// Between the return of an `acquire` and the `release` by the same thread no other thread returns from `acquire`, and what a
/// thread wrote before `release` is seen by the next one that has acquired. Workloads keep their data in this.
///
/// A lock that is tried out may turn out not to keep the promise. The workloads then count wrongly or leave their data in
/// disorder, which their checks tell; they use indices and no pointers, so that disorder stays within their own data.
pub unsafe trait Lock: Sync {
    /// Waits until the calling thread holds the lock. The caller does not hold it.
    fn acquire(&self);

    /// Lets another thread in. The caller holds the lock.
    fn release(&self);
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

/// Excludes nobody: for tests with one thread.
#[cfg(test)]
pub(crate) struct NoLock;

// SAFETY: used by one thread only.
#[cfg(test)]
unsafe impl Lock for NoLock {
    fn acquire(&self) {}
    fn release(&self) {}
}
