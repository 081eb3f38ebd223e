//! What the release of a mutex has to do besides.

use std::marker::PhantomData;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::cond::Defer;
use flashlock_locks::cond::deferral::{Place, leave, take, take_back};
use flashlock_locks::machine::{Handle, Word as _};

use crate::Model;
use crate::checker::Checker;
use crate::word::{Field, Word};

/// Which thread holds a mutex, and the waiter of a condition variable that its release wakes: what `posix` keeps in a
/// `pthread_mutex_t` beside the lock.
pub struct Release<C: Checker> {
    held: std::sync::Mutex<Held<C>>,
    waiter: Word<C>,
}

/// What only the holder writes.
struct Held<C: Checker> {
    by: Option<C::Id>,
    /// The epoch in which a waiter was left to the release.
    deferred_in: Option<u32>,
}

impl<C: Checker> Release<C> {
    pub(super) fn new() -> Self {
        Self { held: std::sync::Mutex::new(Held { by: None, deferred_in: None }), waiter: Word::new(0) }
    }

    fn held<R>(&self, act: impl FnOnce(&mut Held<C>) -> R) -> R {
        act(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn name_holder(&self) {
        self.held(|held| held.by = Some(C::id()));
    }

    pub(super) fn name_holder_if(&self, acquired: bool) -> bool {
        if acquired {
            self.name_holder();
        }
        acquired
    }

    /// Marks the word as freed memory. The checker sees a write, so it also has others look before it, and after it.
    pub(super) fn free(&self) {
        self.waiter.store(0, Relaxed);
        self.waiter.tag(Field::Freed);
    }

    /// The word in the mutex of this address that holds the waiter, for seeded bugs.
    pub fn waiter_in(mutex: u64) -> &'static Word<C> {
        &ToRelease::of(mutex).waiter
    }

    /// Takes the waiter, before the release. (It is the owner's: then no access is modelled if nothing was left here.)
    ///
    /// # Safety
    /// The caller wakes it, once.
    pub(super) unsafe fn take(&self) -> Option<Handle> {
        let is_marked = self.held(|held| {
            held.by = None;
            held.deferred_in.is_some()
        });
        // SAFETY: the callers' promise; only `ToRelease` writes the word, and `free`, when nobody uses it any more.
        if is_marked { unsafe { take::<Model<C>>(self) } } else { None }
    }

    /// [`Release::take`] by another thread than the owner.
    ///
    /// # Safety
    /// That of [`Release::take`].
    pub(super) unsafe fn take_for_owner(&self) -> Option<Handle> {
        self.held(|held| held.by = None);
        self.fence();
        // SAFETY: as in `take`.
        unsafe { take::<Model<C>>(self) }
    }
}

impl<C: Checker> Place<Model<C>> for Release<C> {
    fn is_mine(&self) -> bool {
        self.held(|held| held.by == Some(C::id()))
    }

    fn waiter(&self) -> &Word<C> {
        &self.waiter
    }

    fn mark(&self, epoch: u32) {
        self.held(|held| held.deferred_in = Some(epoch));
    }

    fn unmark(&self) {
        self.held(|held| held.deferred_in = None);
    }

    fn is_marked(&self, epoch: u32) -> bool {
        self.held(|held| held.deferred_in == Some(epoch))
    }

    fn fence(&self) {
        C::fence();
        // Whoever passes the fence looks at the owner next, which is in the same memory. That look is not modelled.
        // This one is: here others may run, and the memory must still exist.
        self.waiter.load(Relaxed);
    }
}

/// Leaves wake-ups to the release of mutexes.
pub struct ToRelease<C>(PhantomData<C>);

impl<C: Checker> ToRelease<C> {
    /// The only one.
    pub const NEW: Self = Self(PhantomData);

    fn of(mutex: u64) -> &'static Release<C> {
        // SAFETY: a waiter that has yet to acquire the mutex names it; models drop their mutexes at their end.
        unsafe { &*(mutex as *const Release<C>) }
    }
}

// SAFETY: `Mutex::unlock` does so.
unsafe impl<C: Checker> Defer for ToRelease<C> {
    fn defer(&self, mutex: u64, waiter: Handle) -> bool {
        mutex != 0 && leave(Self::of(mutex), waiter)
    }

    fn recall(&self, mutex: u64, waiter: Handle) -> bool {
        take_back(Self::of(mutex), waiter)
    }
}
