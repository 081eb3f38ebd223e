//! A lock that breaks all the claims of other locks.

use std::marker::PhantomData;

use flashlock_locks::machine::{Deadline, TimedOut};
use flashlock_locks::parts::raw::RawLock;
use flashlock_sim::{Sim, Word, compute};

/// Another lock whose waiters look only once in `NS` ns: the lock may be free meanwhile.
pub(crate) struct Naps<L, const NS: u32>(PhantomData<L>);

// SAFETY: that of `L`.
unsafe impl<L: RawLock<Sim>, const NS: u32> RawLock<Sim> for Naps<L, NS> {
    type Queue = L::Queue;

    flashlock_locks::same_as!(Sim, L: try_acquire release is_locked);

    unsafe fn acquire(word: &Word, queue: &L::Queue, until: Option<&Deadline>) -> Result<(), TimedOut> {
        if until.is_some() {
            // SAFETY: the callers' promise.
            return unsafe { L::acquire(word, queue, until) };
        }
        // SAFETY: the callers' promise.
        while !unsafe { L::try_acquire(word, queue) } {
            compute(f64::from(NS));
        }
        Ok(())
    }
}
