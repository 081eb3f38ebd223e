//! # A value under a lock that may be a server's

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use flashlock_locks::closure::rcl::Section;
use flashlock_locks::closure::rcl::slot::Inline;
use flashlock_locks::machine::Deadline;
use flashlock_locks::parts::wait::{SpinThenPark, WaitPolicy};

use crate::adapt::Governor;
use crate::cond::Cond;
use crate::named::{self, Kind};
use crate::raw::{Raw, Recursive};
use crate::server::Server;

/// A value that can be accessed only through its lock. The lock is ordinary, or a server's, which then runs all
/// sections. Clients wait by policy `W`.
///
/// Use it for data on which many threads do little work, all the time, when one CPU can be spared. If sections are
/// long, or mostly find the lock free, an ordinary lock is better. This lock is ordinary until it is
/// [assigned](Delegated::assign).
pub struct Delegated<T: ?Sized, W: WaitPolicy = SpinThenPark> {
    lock: Raw<W>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time accesses the value, though not always the same thread: it is as if sent to it.
unsafe impl<T: ?Sized + Send, W: WaitPolicy> Sync for Delegated<T, W> {}

#[cold]
fn recursive() -> ! {
    panic!("a section asks for a section of the same value: it would wait for itself");
}

/// How a section ended.
type Outcome<R> = Result<R, Box<dyn Any + Send>>;

/// A closure on its way to the value; on the way back, its outcome.
union Call<'a, T: ?Sized, W: WaitPolicy, F, R> {
    work: ManuallyDrop<(&'a Delegated<T, W>, F)>,
    outcome: ManuallyDrop<Outcome<R>>,
}

impl<T, W, F, R> Call<'_, T, W, F, R>
where
    T: ?Sized,
    W: WaitPolicy,
    F: FnOnce(&mut Inside<'_, T, W>) -> R,
{
    /// Work -> outcome.
    ///
    /// # Safety
    /// The context is a call that has not been run, and nothing else accesses it. The lock is held.
    unsafe fn act(context: *mut ()) {
        let call: *mut Self = context.cast();
        // SAFETY: the callers' promise.
        unsafe {
            let (delegated, work) = ManuallyDrop::take(&mut (*call).work);
            let mut inside = Inside { delegated, value: PhantomData };
            let outcome = delegated.lock.inside(|| catch_unwind(AssertUnwindSafe(|| work(&mut inside))));
            (*call).outcome = ManuallyDrop::new(outcome);
        }
    }

    const IS_INLINE: bool = size_of::<Self>() <= size_of::<Inline>() && align_of::<Self>() <= align_of::<Inline>();

    /// Has the call run under the lock. Returns its outcome.
    fn run(mut self, lock: &Raw<W>) -> Outcome<R> {
        if Self::IS_INLINE {
            let mut bytes: Inline = [MaybeUninit::uninit(); 4];
            let place: *mut Self = (&raw mut bytes).cast();
            // SAFETY: it has room there. The section is called once, under the lock, by any thread: what it carries may
            // go there (`Send`), and comes back. It catches panics. The lock is borrowed until all of it has returned.
            unsafe {
                place.write(self);
                lock.run(Section::inline(Self::act, &mut bytes));
                let place: *mut Self = (&raw mut bytes).cast();
                ManuallyDrop::take(&mut (*place).outcome)
            }
        } else {
            let context: *mut Self = &raw mut self;
            // SAFETY: as above; it stays here.
            unsafe {
                lock.run(Section::new(Self::act, context.cast()));
                ManuallyDrop::take(&mut (*context).outcome)
            }
        }
    }
}

impl<T> Delegated<T> {
    /// This value, under an ordinary lock.
    pub fn new(value: T) -> Self {
        Self::waiting(value)
    }

    /// This value, under a lock of that kind and name. The [configuration](crate::config) may place the lock elsewhere.
    ///
    /// # Errors
    /// What is wrong with the configuration; why the server cannot be [opened](Server::open).
    pub fn named(name: &str, kind: Kind, value: T) -> io::Result<Self> {
        Ok(Self { lock: named::lock(kind, Some(name))?, value: UnsafeCell::new(value) })
    }

    /// This value, under an [adaptive](crate::adapt) lock of that name. The [configuration](crate::config) may place
    /// the lock elsewhere.
    ///
    /// # Errors
    /// What is wrong with the configuration; the system's error if it refuses the governor's thread.
    pub fn adaptive(name: &str, value: T) -> io::Result<Self> {
        Self::named(name, Kind::Adaptive, value)
    }

    /// This value, under an [adaptive](crate::adapt) lock of that governor.
    pub fn governed(governor: &Governor, name: &str, value: T) -> Self {
        Self { lock: Raw::adaptive(governor, Some(name)), value: UnsafeCell::new(value) }
    }

    /// This value, under a lock of that server.
    pub fn on(server: &Server, value: T) -> Self {
        Self::waiting_on(server, value)
    }
}

impl<T, W: WaitPolicy> Delegated<T, W> {
    /// As [`new`](Delegated::new), with any waiting policy: `Delegated::<_, Park>::waiting(value)`.
    pub fn waiting(value: T) -> Self {
        Self { lock: Raw::new(0), value: UnsafeCell::new(value) }
    }

    /// As [`on`](Delegated::on), with any waiting policy.
    pub fn waiting_on(server: &Server, value: T) -> Self {
        Self { lock: Raw::new(server.number()), value: UnsafeCell::new(value) }
    }

    /// The value, without the lock: the caller has exclusive access.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized + Send, W: WaitPolicy> Delegated<T, W> {
    /// Has the closure run with the value, with exclusive access, and returns what it returned. A panic inside comes
    /// out here, and the lock stays usable.
    ///
    /// The [crate] says what differs inside a section, and what is forbidden there.
    ///
    /// # Panics
    /// In a section of the same value, which would wait for itself.
    #[inline]
    pub fn run<R: Send>(&self, section: impl FnOnce(&mut T) -> R + Send) -> R {
        self.run_inside(|inside| section(inside))
    }

    /// As [`run`](Delegated::run), for sections that wait on condition variables.
    pub fn run_inside<R, F>(&self, section: F) -> R
    where
        R: Send,
        F: FnOnce(&mut Inside<'_, T, W>) -> R + Send,
    {
        if self.lock.is_inside() {
            recursive();
        }
        let call = Call::<'_, T, W, F, R> { work: ManuallyDrop::new((self, section)) };
        call.run(&self.lock).unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Makes the lock that server's, or ordinary with `None`. It waits for the lock. Requests that wait elsewhere go
    /// there. An adaptive lock stays there until it is [unpinned](Delegated::unpin).
    ///
    /// # Panics
    /// In a section of the same value.
    pub fn assign(&self, server: Option<&Server>) {
        self.lock.assign(server.map_or(0, Server::number)).unwrap_or_else(|Recursive| recursive());
    }

    /// Lets an [adaptive](crate::adapt) lock move again after it was [assigned](Delegated::assign).
    pub fn unpin(&self) {
        self.lock.unpin();
    }

    /// Whether it is [adaptive](crate::adapt).
    pub fn is_adaptive(&self) -> bool {
        self.lock.is_adaptive()
    }

    /// The number of the server that runs its sections; `None` if the calling threads run them. It may change at any
    /// time.
    pub fn server(&self) -> Option<u32> {
        Some(self.lock.server()).filter(|&number| number != 0)
    }

    /// The value, without the lock: the caller has exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default, W: WaitPolicy> Default for Delegated<T, W> {
    fn default() -> Self {
        Self::waiting(T::default())
    }
}

/// Shows the server; not the value, because that would have to wait for the lock.
impl<T: ?Sized, W: WaitPolicy> fmt::Debug for Delegated<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegated").field("server", &self.lock.server()).finish_non_exhaustive()
    }
}

/// The value inside a section.
pub struct Inside<'a, T: ?Sized, W: WaitPolicy = SpinThenPark> {
    delegated: &'a Delegated<T, W>,
    /// It stands for the borrowed value. It stays in the section's thread, which alone may wait: a pointer is neither
    /// `Send` nor `Sync`.
    value: PhantomData<(&'a mut T, *const ())>,
}

impl<T: ?Sized, W: WaitPolicy> Inside<'_, T, W> {
    /// Lets others in, waits until the condition variable is notified, and has the value alone again. Wake-ups may be
    /// spurious.
    ///
    /// On a server the section keeps its servicing thread meanwhile, and another thread goes on with other sections:
    /// see [`Options::threads`](crate::Options::threads).
    pub fn wait(&mut self, cond: &Cond) {
        // The value is not borrowed meanwhile, because `self` is.
        self.delegated.lock.wait(cond, None).expect("a section's lock is held");
    }

    /// The same, until that time at most. Returns whether time ran out.
    pub fn wait_until(&mut self, cond: &Cond, until: Deadline) -> bool {
        self.delegated.lock.wait(cond, Some(until)).expect("a section's lock is held")
    }
}

impl<T: ?Sized, W: WaitPolicy> Deref for Inside<'_, T, W> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the section holds the lock as long as this is borrowed.
        unsafe { &*self.delegated.value.get() }
    }
}

impl<T: ?Sized, W: WaitPolicy> DerefMut for Inside<'_, T, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this is borrowed mutably.
        unsafe { &mut *self.delegated.value.get() }
    }
}
