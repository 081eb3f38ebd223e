//! # Condition variables for sections

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use flashlock_locks::closure::rcl::client::blocking;
use flashlock_locks::machine::{Deadline, Unparked};
use flashlock_native::futex;

use crate::Machine;
use crate::here::Here;

/// A condition variable, for [`Inside::wait`](crate::Inside::wait). All waiters on it must use the same lock. They are
/// woken in no particular order. All-zero is a condition variable without waiters.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Cond {
    /// How often it was notified. Waiters sleep on it.
    notified: AtomicU32,
}

impl Cond {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self { notified: AtomicU32::new(0) }
    }

    /// Calls `release`, sleeps, and calls `acquire`. A notification after `release`, or before it under the lock, is
    /// not missed. Returns whether time ran out.
    pub(crate) fn wait_between(&self, until: Option<Deadline>, release: impl FnOnce(), acquire: impl FnOnce()) -> bool {
        let seen = self.notified.load(Relaxed); // Under the lock.
        release();
        let ended = blocking::<Machine, _, _>(&Here, |blocks| {
            blocks();
            futex::park(&self.notified, seen, until)
        });
        let _ = self.notified.load(Acquire);
        acquire();
        matches!(ended, Unparked::TimedOut)
    }

    /// Wakes one waiter, if there is one. It may be called inside a section or outside.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.notify(u32::MAX);
    }

    fn notify(&self, count: u32) {
        self.notified.fetch_add(1, Release);
        futex::wake(&raw const self.notified, count);
    }
}
