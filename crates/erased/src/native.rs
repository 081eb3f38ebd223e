//! The locks on the computer's threads.

use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::rw::{self, RawRwLock};
use flashlock_locks::{for_each_lock, for_each_rw_lock};
use flashlock_native::{Native, NoStats};

use crate::{Entry, entries};

/// The machine.
pub type Here = Native<NoStats>;
/// A mutual exclusion lock that threads share.
pub type Mutex = Box<dyn crate::Mutex + Send + Sync>;
/// A readers-writer lock that threads share.
pub type RwLock = Box<dyn crate::RwLock + Send + Sync>;

/// A free lock.
pub fn mutex<L: RawLock<Here, Queue: Send + Sync>>() -> Mutex {
    Box::new(Raw::<Here, L>::new())
}

/// A free readers-writer lock.
pub fn rw_lock<L: RawRwLock<Here, State: Send + Sync>>() -> RwLock {
    Box::new(rw::Raw::<Here, L>::new())
}

macro_rules! define_mutexes {
    ($($rows:tt)*) => {
        /// Every lock with every way of waiting. (A constant would be compiled where it is used.)
        pub static MUTEXES: &[Entry<fn() -> Mutex>] = entries!(mutex; $($rows)*);
    };
}
for_each_lock!(define_mutexes);

macro_rules! define_rw_locks {
    ($($rows:tt)*) => {
        /// Every readers-writer lock with every way of waiting.
        pub static RW_LOCKS: &[Entry<fn() -> RwLock>] = entries!(rw_lock; $($rows)*);
    };
}
for_each_rw_lock!(define_rw_locks);
