//! A lock that breaks all the claims of other locks.

use std::marker::PhantomData;

use flashlock_locks::machine::{Deadline, TimedOut};
use flashlock_locks::parts::raw::RawLock;
use flashlock_sim::{Sim, Word, compute};

/// Another lock whose waiters look only once in `NS` ns: the lock may be free meanwhile.
pub(crate) struct Naps<L, const NS: u32>(PhantomData<L>);

impl<L: RawLock<Sim>, const NS: u32> RawLock<Sim> for Naps<L, NS> {
    type Queue = L::Queue;

    fn new_queue() -> L::Queue {
        L::new_queue()
    }

    unsafe fn try_lock(word: &Word, queue: &L::Queue) -> bool {
        // SAFETY: the caller's promises, here and in the other functions.
        unsafe { L::try_lock(word, queue) }
    }

    unsafe fn lock(word: &Word, queue: &L::Queue) {
        // SAFETY: as above.
        while !unsafe { L::try_lock(word, queue) } {
            compute(f64::from(NS));
        }
    }

    unsafe fn lock_until(word: &Word, queue: &L::Queue, until: Deadline) -> Result<(), TimedOut> {
        // SAFETY: as above.
        unsafe { L::lock_until(word, queue, until) }
    }

    unsafe fn unlock(word: &Word, queue: &L::Queue) {
        // SAFETY: as above.
        unsafe { L::unlock(word, queue) }
    }

    unsafe fn is_locked(word: &Word, queue: &L::Queue) -> bool {
        // SAFETY: as above.
        unsafe { L::is_locked(word, queue) }
    }
}
