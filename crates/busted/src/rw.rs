//! # Busted: admits a reader or a writer too many once in ten thousand
//!
//! It is [`FutexRw`], except that about one acquisition in 10,000 returns without the lock.

use flashlock_locks::machine::{Deadline, Machine};
use flashlock_locks::rw::futex::FutexRwState;
use flashlock_locks::rw::{FutexRw, RawRwLock, Refusal, Writer};

use crate::slips;

/// The deliberately broken lock.
pub struct BustedRw;

// SAFETY: none: it is broken on purpose. It has no nodes.
unsafe impl<M: Machine> RawRwLock<M> for BustedRw {
    type State = FutexRwState<M>;

    flashlock_locks::same_rw_as!(
        M, FutexRw: MOST_READERS acquire_read try_acquire_read try_acquire_write release is_written is_held
    );

    unsafe fn acquire_fast(state: &FutexRwState<M>) -> bool {
        // SAFETY: the callers' promise.
        slips::<M>() || unsafe { <FutexRw as RawRwLock<M>>::acquire_fast(state) }
    }

    unsafe fn acquire_write(state: &FutexRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        // SAFETY: the callers' promise.
        if slips::<M>() { Ok(()) } else { unsafe { <FutexRw as RawRwLock<M>>::acquire_write(state, how, until) } }
    }
}
