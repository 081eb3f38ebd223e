//! # Busted: admits a reader or a writer too many once in ten thousand
//!
//! It is [`FutexRw`], except that about one acquisition in 10,000 returns without the lock.

use flashlock_locks::machine::{Deadline, Machine};
use flashlock_locks::rw::futex::FutexRwState;
use flashlock_locks::rw::{FutexRw, RawRwLock, Reader, Refusal, Writer};

use crate::slips;

/// The deliberately broken lock.
pub struct BustedRw;

impl<M: Machine> RawRwLock<M> for BustedRw {
    type State = FutexRwState<M>;

    const MOST_READERS: u32 = <FutexRw as RawRwLock<M>>::MOST_READERS;

    fn new_state() -> FutexRwState<M> {
        <FutexRw as RawRwLock<M>>::new_state()
    }

    unsafe fn enter(state: &FutexRwState<M>) -> bool {
        // SAFETY: the caller's promise.
        slips::<M>() || unsafe { <FutexRw as RawRwLock<M>>::enter(state) }
    }

    unsafe fn read(state: &FutexRwState<M>, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        // SAFETY: the caller's promise.
        unsafe { <FutexRw as RawRwLock<M>>::read(state, how, until) }
    }

    unsafe fn try_read(state: &FutexRwState<M>, how: Reader) -> Result<(), Refusal> {
        // SAFETY: the caller's promise.
        unsafe { <FutexRw as RawRwLock<M>>::try_read(state, how) }
    }

    unsafe fn write(state: &FutexRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        // SAFETY: the caller's promise.
        if slips::<M>() { Ok(()) } else { unsafe { <FutexRw as RawRwLock<M>>::write(state, how, until) } }
    }

    unsafe fn try_write(state: &FutexRwState<M>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { <FutexRw as RawRwLock<M>>::try_write(state) }
    }

    unsafe fn unlock(state: &FutexRwState<M>) {
        // SAFETY: the caller's promise.
        unsafe { <FutexRw as RawRwLock<M>>::unlock(state) };
    }

    unsafe fn is_written(state: &FutexRwState<M>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { <FutexRw as RawRwLock<M>>::is_written(state) }
    }

    unsafe fn is_held(state: &FutexRwState<M>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { <FutexRw as RawRwLock<M>>::is_held(state) }
    }
}
