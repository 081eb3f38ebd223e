//! A lock that breaks all the claims of other locks.

use std::marker::PhantomData;

use flashlock_locks::parts::raw::RawLock;
use flashlock_sim::{Sim, Word, compute};

/// Another lock whose waiters look only once in `NS` ns: the lock may be free meanwhile.
pub(crate) struct Naps<L, const NS: u32>(PhantomData<L>);

impl<L: RawLock<Sim>, const NS: u32> RawLock<Sim> for Naps<L, NS> {
    type Queue = L::Queue;

    flashlock_locks::same_as!(Sim, L: new_queue try_lock lock_until unlock is_locked);

    unsafe fn lock(word: &Word, queue: &L::Queue) {
        // SAFETY: as above.
        while !unsafe { L::try_lock(word, queue) } {
            compute(f64::from(NS));
        }
    }
}
