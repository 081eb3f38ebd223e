//! What a workload needs from a lock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flashlock_locks::machine::Machine;
use flashlock_locks::parts::raw::{Raw, RawLock};

use crate::backend::OwnLine;

/// Mutual exclusion.
///
/// # Safety
///
/// Between the return of an `acquire` and the `release` by the same thread, no other thread returns from `acquire`. The
/// next thread that acquires sees all that a thread wrote before `release`. The closure of `section` runs once before
/// `section` returns, as if between the two.
///
/// A lock under test may turn out to break the promise. Then the workloads count wrongly or leave their data corrupt,
/// which their checks detect. They use indices instead of pointers, so corruption stays within their own data.
pub unsafe trait Lock: Sync {
    /// Waits until the calling thread holds the lock. The caller does not hold it.
    fn acquire(&self);

    /// Lets another thread in. The caller holds the lock.
    fn release(&self);

    /// Runs `inside` while no other thread holds the lock. With some locks, another thread runs it while this one
    /// waits. Workloads use this where they can.
    #[inline]
    fn section(&self, inside: impl FnOnce() + Send) {
        self.acquire();
        inside();
        self.release();
    }
}

/// A lock that lets in any number of readers, or one writer. [`Lock::acquire`] acquires it for writing.
///
/// # Safety
///
/// As for [`Lock`]. While a closure runs in `shared`, no thread is between `acquire` and `release`, nor in `section`;
/// and the closure sees what those wrote before.
pub unsafe trait RwLock: Lock {
    /// Runs `inside` once, before this returns, while no other thread holds the lock for writing.
    fn shared(&self, inside: impl FnOnce() + Send);
}

/// A lock that lets readers in one at a time: any mutex, for workloads with readers.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Exclusive<L>(pub L);

// SAFETY: it is the lock.
unsafe impl<L: Lock> Lock for Exclusive<L> {
    #[inline]
    fn acquire(&self) {
        self.0.acquire();
    }

    #[inline]
    fn release(&self) {
        self.0.release();
    }

    #[inline]
    fn section(&self, inside: impl FnOnce() + Send) {
        self.0.section(inside);
    }
}

// SAFETY: a reader excludes everything, like a writer.
unsafe impl<L: Lock> RwLock for Exclusive<L> {
    #[inline]
    fn shared(&self, inside: impl FnOnce() + Send) {
        self.0.section(inside);
    }
}

// SAFETY: a `RawLock` provides exclusion and visibility; the model checkers look for executions without them.
unsafe impl<M: Machine<Word: Sync>, L: RawLock<M, Queue: Sync>> Lock for Raw<M, L> {
    #[inline]
    fn acquire(&self) {
        self.lock();
    }

    #[inline]
    fn release(&self) {
        // SAFETY: `Lock::release` is called by the holder.
        unsafe { self.unlock() };
    }
}

/// The message of a check that finds overlapping sections.
pub(crate) const LOST: &str = "operations were lost: two threads were inside at once";

/// A lock whose holders count its sections. The count is read when a section begins and written when it ends, so a
/// section that overlaps with another one is lost. Both accesses are atomic because the lock under test may not
/// exclude. Each holder sees what the last holder wrote, like all data of a section. The count has a line of its own.
/// This store per section is not reported to a simulated backend. The lock is the first field, whatever its type,
/// because its address determines its set in the simulated caches.
#[repr(C)]
pub(crate) struct Counted<L> {
    lock: OwnLine<L>,
    count: OwnLine<AtomicU64>,
}

impl<L: Lock> Counted<L> {
    pub(crate) fn new(lock: L) -> Self {
        Self { lock: OwnLine(lock), count: OwnLine::default() }
    }

    /// Runs `inside` under the lock.
    #[inline]
    pub(crate) fn section(&self, inside: impl FnOnce() + Send) {
        self.lock.0.section(|| {
            let before = self.count.0.load(Relaxed);
            inside();
            self.count.0.store(before + 1, Relaxed);
        });
    }

    /// Checks that this many sections were counted.
    pub(crate) fn check(&self, sections: u64) -> Result<(), &'static str> {
        if self.count.0.load(Relaxed) == sections { Ok(()) } else { Err(LOST) }
    }
}

/// A lock that excludes no thread: for tests with one thread.
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
