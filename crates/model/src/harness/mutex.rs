//! A mutex to check.

use flashlock_locks::machine::{Deadline, Handle, Word as _};
use flashlock_locks::parts::adoption::{Chain, signal_all};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::zeroed::Zeroed;

use super::release::Release;
use crate::Model;
use crate::checker::{Checker, Data};
use crate::tag::Tag;
use crate::word::{Field, Word};
use crate::world::World;

/// A lock and the data that it protects.
///
/// Models may break the contract of its functions, as to a seeded bug. Memory stays intact all the same: nodes are
/// reached through an arena that checks handles, and the checkers watch the data.
pub struct Mutex<C: Checker, L: RawLock<Model<C>>> {
    /// The lock's word.
    pub word: Word<C>,
    /// The rest of its state.
    pub queue: L::Queue,
    /// What its release has to do besides.
    pub release: Release<C>,
    data: C::Data,
}

impl<C: Checker, L: RawLock<Model<C>, Queue: Tag>> Mutex<C, L> {
    /// A free lock.
    pub fn new() -> Self {
        Self::with(Zeroed::zeroed)
    }

    /// A free lock with the queue that this makes.
    pub(crate) fn with(queue: impl FnOnce() -> L::Queue) -> Self {
        let mutex = Self { word: Word::new(0), queue: queue(), release: Release::new(), data: C::Data::new() };
        mutex.word.tag(Field::LockWord);
        mutex.queue.tag();
        mutex
    }

    /// Acquires it.
    pub fn lock(&self) {
        // SAFETY: see `Mutex`.
        unsafe { L::lock(&self.word, &self.queue) };
        self.release.name_holder();
    }

    /// Acquires it, unless the deadline passes first. Returns whether it did.
    pub fn lock_until(&self, until: Deadline) -> bool {
        // SAFETY: see `Mutex`.
        self.release.name_holder_if(unsafe { L::lock_until(&self.word, &self.queue, until).is_ok() })
    }

    /// Acquires it if it is free.
    pub fn try_lock(&self) -> bool {
        // SAFETY: see `Mutex`.
        self.release.name_holder_if(unsafe { L::try_lock(&self.word, &self.queue) })
    }

    /// Releases it, then wakes the waiter that a signal has left to this release.
    pub fn unlock(&self) {
        // SAFETY: `release_with` wakes it.
        self.release_with(unsafe { self.release.take() });
    }

    /// Releases it for the thread that holds it.
    pub fn unlock_for_owner(&self) {
        // SAFETY: `release_with` wakes it.
        self.release_with(unsafe { self.release.take_for_owner() });
    }

    fn release_with(&self, waiter: Option<Handle>) {
        // SAFETY: see `Mutex`.
        unsafe { L::unlock(&self.word, &self.queue) };
        if let Some(waiter) = waiter {
            signal_all::<Model<C>>(waiter);
        }
    }

    /// Takes over the waiters of a broadcast.
    pub fn adopt(&self, chain: Chain) {
        // SAFETY: see `Mutex`.
        unsafe { L::adopt(&self.word, &self.queue, chain) };
    }

    /// Waits until the lock is acquired, after a signal.
    pub fn lock_woken(&self) {
        // SAFETY: see `Mutex`.
        unsafe { L::lock_woken(&self.word, &self.queue) };
        self.release.name_holder();
    }

    /// Waits until the lock, which has adopted the node, is acquired.
    pub fn lock_adopted(&self, node: Handle) {
        // SAFETY: see `Mutex`.
        unsafe { L::lock_adopted(&self.word, &self.queue, node) };
        self.release.name_holder();
    }

    /// Whether a thread holds it.
    pub fn is_locked(&self) -> bool {
        // SAFETY: see `Mutex`.
        unsafe { L::is_locked(&self.word, &self.queue) }
    }

    /// Accesses the data; only the holder may call this. Returns how often that was done before.
    pub fn visit(&self) -> u32 {
        self.data.visit()
    }

    /// A complete critical section.
    pub fn section(&self) {
        self.lock();
        self.visit();
        self.unlock();
    }

    /// A complete critical section, if the lock can be acquired within this many ticks. Returns whether it was.
    pub fn section_within(&self, ticks: u32) -> bool {
        self.section_until(World::<C>::get().deadline(ticks))
    }

    /// A complete critical section, if the lock can be acquired before the deadline. Returns whether it was.
    pub fn section_until(&self, until: Deadline) -> bool {
        let held = self.lock_until(until);
        if held {
            self.visit();
            self.unlock();
        }
        held
    }

    /// Destroys the lock and frees its memory. The data stays: it belongs to the program.
    pub fn free(&self) {
        let beside = self.queue.beside();
        // SAFETY: see `Mutex`.
        unsafe { L::destroy(&self.word, &self.queue) };
        self.word.tag(Field::Freed);
        self.release.free();
        self.queue.free();
        World::<C>::current(|world| world.arena.bar(&beside));
    }

    /// Identifies the mutex to a condition variable: the address of its [`Release`].
    pub fn address(&self) -> u64 {
        std::ptr::from_ref(&self.release) as u64
    }
}

impl<C: Checker, L: RawLock<Model<C>, Queue: Tag>> Default for Mutex<C, L> {
    fn default() -> Self {
        Self::new()
    }
}
