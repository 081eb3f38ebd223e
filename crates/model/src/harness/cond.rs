//! A condition variable to check.

use flashlock_locks::cond::{CondQueue, Morph, Outcome};
use flashlock_locks::machine::{Deadline, Handle};
use flashlock_locks::parts::adoption::{Chain, pass_baton};
use flashlock_locks::parts::raw::RawLock;

use super::mutex::Mutex;
use super::release::ToRelease;
use crate::Model;
use crate::checker::Checker;
use crate::tag::Tag;

/// How a wait on a condition variable ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// By a signal or a broadcast.
    Woken,
    /// By the deadline or by cancellation: no signal was consumed.
    GaveUp,
}

/// A condition variable.
pub struct Cond<C: Checker> {
    /// Its state.
    pub queue: CondQueue<Model<C>>,
}

impl<C: Checker> Cond<C> {
    /// A condition variable without waiters.
    pub fn new() -> Self {
        let queue = CondQueue::new();
        queue.tag();
        Self { queue }
    }

    /// Queues the calling thread; the mutex is at that address.
    pub fn enqueue(&self, mutex: u64) -> Handle {
        // SAFETY: a model may do anything with it: see `arena::handle_in`.
        unsafe { self.queue.enqueue(mutex) }
    }

    /// Waits; the caller holds the mutex before and after.
    pub fn wait<L>(&self, mutex: &Mutex<C, L>, until: Option<Deadline>) -> Waited
    where
        L: RawLock<Model<C>, Queue: Tag>,
    {
        let me = self.enqueue(mutex.address());
        mutex.unlock();
        finish(self.queue.wait(me, until), mutex)
    }

    /// A wait that is cancelled as soon as it has begun.
    pub fn wait_cancelled<L>(&self, mutex: &Mutex<C, L>) -> Waited
    where
        L: RawLock<Model<C>, Queue: Tag>,
    {
        let me = self.enqueue(mutex.address());
        mutex.unlock();
        finish(self.queue.cancel(me), mutex)
    }

    /// Destroys it and frees its memory. If a thread waits, returns false.
    pub fn destroy(&self) -> bool {
        let destroyed = self.queue.destroy(&ToRelease::<C>::NEW).is_ok();
        if destroyed {
            self.free();
        }
        destroyed
    }

    /// Frees its memory.
    pub fn free(&self) {
        self.queue.free();
    }

    /// Wakes one waiter; if the calling thread holds its mutex, when it releases that.
    pub fn signal(&self) {
        self.queue.signal(&ToRelease::<C>::NEW);
    }

    /// Wakes all waiters: if `moves`, by moving them to the lock's queue; otherwise one after the other, or, if the
    /// calling thread holds the mutex, when it releases that.
    pub fn broadcast<L>(&self, mutex: &Mutex<C, L>, moves: bool)
    where
        L: RawLock<Model<C>, Queue: Tag>,
    {
        self.queue.broadcast(&ToQueue { mutex, moves }, &ToRelease::<C>::NEW);
    }
}

impl<C: Checker> Default for Cond<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// Acquires the mutex as the outcome of the wait requires.
pub fn finish<C: Checker, L>(outcome: Outcome, mutex: &Mutex<C, L>) -> Waited
where
    L: RawLock<Model<C>, Queue: Tag>,
{
    match outcome {
        Outcome::Signaled(baton) => {
            mutex.lock_woken();
            pass_baton::<Model<C>>(baton);
            Waited::Woken
        }
        Outcome::Moved(me) => {
            mutex.lock_adopted(me);
            Waited::Woken
        }
        Outcome::TimedOut => {
            mutex.lock();
            Waited::GaveUp
        }
    }
}

struct ToQueue<'a, C: Checker, L: RawLock<Model<C>>> {
    mutex: &'a Mutex<C, L>,
    moves: bool,
}

// SAFETY: the chain goes to the lock, or is let go.
unsafe impl<C: Checker, L: RawLock<Model<C>, Queue: Tag>> Morph for ToQueue<'_, C, L> {
    fn few(&self) -> u32 {
        if self.moves { 1 } else { u32::MAX }
    }

    fn adopt(&self, mutex: u64, chain: Chain) {
        assert_eq!(mutex, self.mutex.address());
        if self.moves {
            self.mutex.adopt(chain);
        } else {
            chain.hand_over_hand::<Model<C>>();
        }
    }
}
