//! # A lock without a value
//!
//! What [`Delegated`](crate::Delegated) puts beside its value, and what the C interface is made of.

use std::marker::PhantomData;

use flashlock_locks::closure::rcl::{Lock, Section, acquire, assign, exec, release};
use flashlock_locks::machine::Deadline;
use flashlock_locks::wait::{SpinThenPark, WaitPolicy};

use crate::Machine;
use crate::cond::Cond;
use crate::here::{self, Here};

/// A lock that may be a server's; all-zero is an ordinary, free one. Clients wait by policy `W`.
#[repr(C)]
pub struct Raw<W: WaitPolicy = SpinThenPark> {
    lock: Lock<Machine>,
    wait: PhantomData<fn() -> W>,
}

/// Why nothing was done: the calling thread runs a section of this lock, and would wait for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recursive;

/// Why nothing was done: the calling thread runs no section of this lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInside;

impl<W: WaitPolicy> Raw<W> {
    /// A free lock, of the server of that number, or ordinary if it is 0.
    pub fn new(server: u32) -> Self {
        Self { lock: Lock::of(server), wait: PhantomData }
    }

    /// Has the section run under the lock. Its function calls [`inside`](Raw::inside). Not for who
    /// [is](Raw::is_inside) inside: it would wait for itself.
    ///
    /// # Safety
    /// The lock stays where it is until every call of this has returned.
    #[inline]
    pub unsafe fn run(&self, section: Section<'_>) {
        // SAFETY: the caller's promise.
        unsafe { exec::<Machine, W, _>(&self.lock, section, &Here) };
    }

    /// A section's work: while it runs, the calling thread is known to be inside this lock.
    #[inline]
    pub fn inside<R>(&self, work: impl FnOnce() -> R) -> R {
        here::inside(self.address(), work)
    }

    /// Whether the calling thread runs a section of this lock.
    #[inline]
    pub fn is_inside(&self) -> bool {
        here::is_inside(self.address())
    }

    fn address(&self) -> *const () {
        std::ptr::from_ref(&self.lock).cast()
    }

    /// In a section: lets others in, waits until the condition variable is notified, and has the lock again. Whether
    /// time ran out. It may return for no reason.
    ///
    /// # Errors
    /// [`NotInside`].
    pub fn wait(&self, cond: &Cond, until: Option<Deadline>) -> Result<bool, NotInside> {
        if !self.is_inside() {
            return Err(NotInside);
        }
        // SAFETY: this thread runs a section of it, and so holds it.
        let release = || unsafe { release(&self.lock, &Here) };
        Ok(cond.wait_between(until, release, || acquire::<Machine, W, _>(&self.lock, &Here)))
    }

    /// Makes the lock that server's, or ordinary if the number is 0. It waits for the lock.
    ///
    /// # Errors
    /// [`Recursive`].
    pub fn assign(&self, server: u32) -> Result<(), Recursive> {
        if self.is_inside() {
            return Err(Recursive);
        }
        acquire::<Machine, W, _>(&self.lock, &Here);
        // SAFETY: held. Should the server be closed later, clients find out.
        unsafe {
            assign(&self.lock, server, &Here);
            release(&self.lock, &Here);
        }
        Ok(())
    }

    /// The number of the server that runs its sections; 0 if who asks does. It may change at any time.
    pub fn server(&self) -> u32 {
        self.lock.server()
    }

    /// Whether somebody holds it. It may change at any time.
    pub fn is_held(&self) -> bool {
        use std::sync::atomic::Ordering::Relaxed;

        flashlock_locks::closure::rcl::word::is_held(self.lock.word.0.load(Relaxed))
    }
}
