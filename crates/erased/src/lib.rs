//! # Every lock, behind a trait object
//!
//! A test that runs with every lock of the catalogue should not be generic over the lock. The test, and each lock in
//! it, would be compiled for each of some seventy combinations of lock and way of waiting. A test that takes a `dyn`
//! [`Mutex`] or a `dyn` [`RwLock`] is compiled once. The locks are compiled once for all such tests: here. This is for
//! tests and for the simulation only, because each call costs an indirect jump.
//!
//! | module | holds |
//! |---|---|
//! | [`any`] | every lock as one type, for `flashlock simulate` (feature `any`) |
//! | `native` | the locks on the computer's threads (feature `native`) |
//! | `sim` | the locks on a simulated machine (feature `sim`) |

#[cfg(feature = "any")]
pub mod any;
#[cfg(feature = "native")]
pub mod native;
#[cfg(feature = "sim")]
pub mod sim;

use flashlock_locks::machine::{Deadline, Machine, TimedOut};
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::rw::{self, RawRwLock, Reader, Refusal, Writer};

/// A mutual exclusion lock: the functions of [`Raw`].
#[allow(missing_docs)]
pub trait Mutex {
    fn lock(&self);
    fn try_lock(&self) -> bool;
    fn lock_until(&self, until: Deadline) -> Result<(), TimedOut>;
    /// # Safety
    /// Part 2 of the [contract](flashlock_locks::parts::raw).
    unsafe fn unlock(&self);
}

impl<M: Machine, L: RawLock<M>> Mutex for Raw<M, L> {
    fn lock(&self) {
        self.lock();
    }

    fn try_lock(&self) -> bool {
        self.try_lock()
    }

    fn lock_until(&self, until: Deadline) -> Result<(), TimedOut> {
        self.lock_until(until)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the callers' promise.
        unsafe { self.unlock() };
    }
}

/// A readers-writer lock: the functions of [`rw::Raw`].
#[allow(missing_docs)]
pub trait RwLock {
    fn read(&self, how: Reader, until: Option<Deadline>) -> Result<(), Refusal>;
    fn try_read(&self, how: Reader) -> Result<(), Refusal>;
    fn write(&self, how: Writer, until: Option<Deadline>) -> Result<(), Refusal>;
    fn try_write(&self) -> bool;
    /// # Safety
    /// Part 2 of the [contract](flashlock_locks::parts::raw).
    unsafe fn unlock(&self);
}

impl<M: Machine, L: RawRwLock<M>> RwLock for rw::Raw<M, L> {
    fn read(&self, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        self.read(how, until)
    }

    fn try_read(&self, how: Reader) -> Result<(), Refusal> {
        self.try_read(how)
    }

    fn write(&self, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        self.write(how, until)
    }

    fn try_write(&self) -> bool {
        self.try_write()
    }

    unsafe fn unlock(&self) {
        // SAFETY: the callers' promise.
        unsafe { self.unlock() };
    }
}

/// A lock of the catalogue with one of its ways of waiting.
pub struct Entry<New> {
    /// The lock's name.
    pub lock: &'static str,
    /// Its name and its way of waiting, as users write them: `mcs:wait=park`.
    pub name: &'static str,
    /// Its way of waiting.
    pub wait: &'static str,
    /// Makes one.
    pub new: New,
}

/// The [`Entry`]s of rows of the catalogue: `entries!(FUNCTION; ROWS)`. The function makes the lock that is its type
/// argument.
#[cfg(any(feature = "native", feature = "sim"))]
macro_rules! entries {
    ($make:ident; $(($variant:ident, $lock:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        &[$($($crate::Entry {
            lock: $lock,
            name: concat!($lock, ":wait=", stringify!($wait)),
            wait: stringify!($wait),
            new: $make::<$type>,
        }),+),*]
    };
}
#[cfg(any(feature = "native", feature = "sim"))]
pub(crate) use entries;
