//! A readers-writer lock to check.

use flashlock_locks::machine::Deadline;
use flashlock_locks::parts::zeroed::Zeroed;
use flashlock_locks::rw::{RawRwLock, Reader, Writer};

use crate::Model;
use crate::checker::{Checker, Data};
use crate::tag::Tag;

/// A readers-writer lock and the data that it protects.
pub struct RwLock<C: Checker, L: RawRwLock<Model<C>>> {
    /// The lock's state.
    pub state: L::State,
    data: C::Data,
}

impl<C: Checker, L: RawRwLock<Model<C>, State: Tag>> RwLock<C, L> {
    /// A free lock.
    pub fn new() -> Self {
        let lock = Self { state: Zeroed::zeroed(), data: C::Data::new() };
        lock.state.tag();
        lock
    }

    /// Acquires it for reading, as `pthread_rwlock_rdlock` does: fast path first.
    pub fn read(&self, how: Reader, until: Option<Deadline>) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::enter(&self.state) || L::read(&self.state, how, until).is_ok() }
    }

    /// Acquires it for writing.
    pub fn write(&self, how: Writer, until: Option<Deadline>) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::write(&self.state, how, until).is_ok() }
    }

    /// Tries to acquire it for reading.
    pub fn try_read(&self, how: Reader) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::try_read(&self.state, how).is_ok() }
    }

    /// Tries to acquire it for writing.
    pub fn try_write(&self) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::try_write(&self.state) }
    }

    /// Releases it.
    pub fn unlock(&self) {
        // SAFETY: as in `Mutex`.
        unsafe { L::unlock(&self.state) };
    }

    /// Whether a thread holds it.
    pub fn is_held(&self) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::is_held(&self.state) }
    }

    /// Reads the data; only a thread that holds the lock may call this. Returns how often the data was written.
    pub fn look(&self) -> u32 {
        self.data.look()
    }

    /// Writes the data; only the writer that holds the lock may call this. Returns how often that was done before.
    pub fn visit(&self) -> u32 {
        self.data.visit()
    }

    /// Destroys the lock and frees its memory. The data stays: it belongs to the program.
    pub fn free(&self) {
        // SAFETY: as in `Mutex`.
        unsafe { L::destroy(&self.state) };
        self.state.free();
    }
}

impl<C: Checker, L: RawRwLock<Model<C>, State: Tag>> Default for RwLock<C, L> {
    fn default() -> Self {
        Self::new()
    }
}
