//! The locks on a simulated machine.

use std::rc::Rc;

use flashlock_locks::machine::{Deadline, TimedOut};
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::rw::{self, RawRwLock, Reader, Refusal, Writer};
use flashlock_locks::{for_each_lock, for_each_rw_lock};
use flashlock_sim::{Placed, Sim, Simulation};

use crate::{Entry, entries};

/// A mutual exclusion lock in simulated memory.
pub type Mutex = Rc<dyn crate::Mutex>;
/// A readers-writer lock in simulated memory.
pub type RwLock = Rc<dyn crate::RwLock>;

/// Places a free lock. Reports call it "lock".
pub fn mutex<L: RawLock<Sim>>(simulation: &mut Simulation) -> Mutex {
    Rc::new(simulation.place("lock", Raw::<Sim, L>::new()))
}

/// Places a free readers-writer lock. Reports call it "lock".
pub fn rw_lock<L: RawRwLock<Sim>>(simulation: &mut Simulation) -> RwLock {
    Rc::new(simulation.place("lock", rw::Raw::<Sim, L>::new()))
}

impl<T: crate::Mutex> crate::Mutex for Placed<T> {
    fn lock(&self) {
        (**self).lock();
    }

    fn try_lock(&self) -> bool {
        (**self).try_lock()
    }

    fn lock_until(&self, until: Deadline) -> Result<(), TimedOut> {
        (**self).lock_until(until)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the callers' promise.
        unsafe { (**self).unlock() };
    }
}

impl<T: crate::RwLock> crate::RwLock for Placed<T> {
    fn read(&self, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        (**self).read(how, until)
    }

    fn try_read(&self, how: Reader) -> Result<(), Refusal> {
        (**self).try_read(how)
    }

    fn write(&self, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        (**self).write(how, until)
    }

    fn try_write(&self) -> bool {
        (**self).try_write()
    }

    unsafe fn unlock(&self) {
        // SAFETY: the callers' promise.
        unsafe { (**self).unlock() };
    }
}

macro_rules! define_mutexes {
    ($($rows:tt)*) => {
        /// Every lock with every way of waiting. (A constant would be compiled where it is used.)
        pub static MUTEXES: &[Entry<fn(&mut Simulation) -> Mutex>] = entries!(mutex; $($rows)*);
    };
}
for_each_lock!(define_mutexes);

macro_rules! define_rw_locks {
    ($($rows:tt)*) => {
        /// Every readers-writer lock with every way of waiting.
        pub static RW_LOCKS: &[Entry<fn(&mut Simulation) -> RwLock>] = entries!(rw_lock; $($rows)*);
    };
}
for_each_rw_lock!(define_rw_locks);
