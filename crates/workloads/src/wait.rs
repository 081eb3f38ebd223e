//! What a workload needs from a condition variable and from a semaphore.

use core::sync::atomic::Ordering::Relaxed;

use flashlock_locks::cond::{AtOnce, CondQueue, Morph, Outcome};
use flashlock_locks::machine::{Machine, Patience, Unparked, Word};
use flashlock_locks::parts::adoption::{Chain, pass_baton};
use flashlock_locks::sem::{Entry, SemQueue, Semaphore, Slept};

use crate::lock::Lock;

/// A condition variable.
pub trait Condition: Sync {
    /// Releases the lock, waits to be woken, and acquires it again. It may return without a wake-up.
    fn wait(&self, lock: &impl Lock);
    /// Wakes one waiter, if there is one.
    fn signal(&self);
    /// Wakes all waiters.
    fn broadcast(&self);
}

/// How waiters wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// They sleep.
    Sleeping,
    /// They poll, however long it takes.
    Polling,
}

impl Waiting {
    /// Waits while the word holds `expected`, or until woken.
    fn wait<M: Machine>(self, word: &M::Word, expected: u32) {
        match self {
            Self::Sleeping => drop(M::park(word, expected, None)),
            Self::Polling => drop(M::spin_until(word, Relaxed, Patience::Forever, |seen| seen != expected)),
        }
    }
}

/// The condition variable of `flashlock-locks`.
pub struct RawCond<M: Machine> {
    queue: CondQueue<M>,
    waiting: Waiting,
}

impl<M: Machine> RawCond<M> {
    /// A condition variable without waiters.
    pub fn new(waiting: Waiting) -> Self {
        Self { queue: CondQueue::new(), waiting }
    }
}

/// Never moves a waiter to a mutex, because waiters name none.
struct NotMoved;

// SAFETY: it does nothing with a chain.
unsafe impl Morph for NotMoved {
    fn few(&self) -> u32 {
        0
    }

    fn adopt(&self, _mutex: u64, _chain: Chain) {
        unreachable!("no waiter names a mutex")
    }
}

impl<M: Machine<Word: Sync>> Condition for RawCond<M> {
    fn wait(&self, lock: &impl Lock) {
        // SAFETY: the handle goes to `wait_with`, and what comes back to `pass_baton`.
        let me = unsafe { self.queue.enqueue(0) };
        lock.release();
        let outcome = self.queue.wait_with(me, |word, expected| {
            self.waiting.wait::<M>(word, expected);
            Unparked::Woken
        });
        lock.acquire();
        if let Outcome::Signaled(baton) = outcome {
            pass_baton::<M>(baton);
        }
    }

    fn signal(&self) {
        self.queue.signal(&AtOnce);
    }

    fn broadcast(&self) {
        self.queue.broadcast(&NotMoved, &AtOnce);
    }
}

/// The semaphore of `flashlock-locks`.
pub struct RawSem<M: Machine> {
    word: M::Word,
    queue: SemQueue<M>,
    waiting: Waiting,
}

impl<M: Machine> RawSem<M> {
    /// A semaphore with so many permits.
    pub fn new(permits: u32, waiting: Waiting) -> Self {
        Self { word: M::Word::new(permits), queue: SemQueue::new(), waiting }
    }

    fn semaphore(&self) -> Semaphore<'_, M> {
        // SAFETY: the parts are private, and nothing else uses them.
        unsafe { Semaphore::new(&self.word, &self.queue) }
    }
}

/// A counting semaphore.
pub trait Permits: Sync {
    /// Takes a permit, and waits if there is none.
    fn take(&self);
    /// Returns a permit.
    fn give(&self);
}

impl<M: Machine<Word: Sync>> Permits for RawSem<M> {
    fn take(&self) {
        let semaphore = self.semaphore();
        if semaphore.try_wait() {
            return;
        }
        // SAFETY: the handle goes to `wait_with`.
        if let Entry::Queued(me) = unsafe { semaphore.begin(None) } {
            semaphore.wait_with(me, None, |word, expected| {
                self.waiting.wait::<M>(word, expected);
                Slept::Woken
            });
        }
    }

    fn give(&self) {
        // There are at most as many permits as buffers: no overflow.
        let _ = self.semaphore().post();
    }
}
