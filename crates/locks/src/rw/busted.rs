//! # Busted: admits a reader or a writer too many once in ten thousand
//!
//! A test of the tests, like [`crate::spin::busted`]: it is [`FutexRw`], except that about one
//! acquisition in 10,000 returns without the lock.

use crate::machine::{Deadline, Machine};
use crate::rw::futex::FutexRwState;
use crate::rw::{FutexRw, RawRwLock, Reader, Refusal, Writer};

/// The deliberately broken lock.
pub struct BustedRw;

/// Whether this acquisition shall fail to exclude.
fn slips<M: Machine>() -> bool {
    M::random().is_multiple_of(10_000)
}

impl<M: Machine> RawRwLock<M> for BustedRw {
    type State = FutexRwState<M>;

    const MOST_READERS: u32 = <FutexRw as RawRwLock<M>>::MOST_READERS;

    fn new_state() -> FutexRwState<M> {
        <FutexRw as RawRwLock<M>>::new_state()
    }

    fn enter(state: &FutexRwState<M>) -> bool {
        slips::<M>() || <FutexRw as RawRwLock<M>>::enter(state)
    }

    fn read(state: &FutexRwState<M>, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        <FutexRw as RawRwLock<M>>::read(state, how, until)
    }

    fn try_read(state: &FutexRwState<M>, how: Reader) -> Result<(), Refusal> {
        <FutexRw as RawRwLock<M>>::try_read(state, how)
    }

    fn write(state: &FutexRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        if slips::<M>() { Ok(()) } else { <FutexRw as RawRwLock<M>>::write(state, how, until) }
    }

    fn try_write(state: &FutexRwState<M>) -> bool {
        <FutexRw as RawRwLock<M>>::try_write(state)
    }

    fn unlock(state: &FutexRwState<M>) {
        <FutexRw as RawRwLock<M>>::unlock(state);
    }

    fn is_written(state: &FutexRwState<M>) -> bool {
        <FutexRw as RawRwLock<M>>::is_written(state)
    }

    fn is_held(state: &FutexRwState<M>) -> bool {
        <FutexRw as RawRwLock<M>>::is_held(state)
    }
}
