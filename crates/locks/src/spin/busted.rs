//! # Busted: excludes all but once in ten thousand
//!
//! A test of the tests. It is [`Futex`](super::Futex), except that about one acquisition in 10,000 returns without the lock. A
//! torture that does not catch it within a second is no torture. Built only with the feature `busted`.

use crate::machine::{Deadline, Machine, TimedOut};
use crate::raw::RawLock;
use crate::spin::Futex;

/// The deliberately broken lock.
pub struct Busted;

/// Whether this acquisition shall fail to exclude.
fn slips<M: Machine>() -> bool {
    M::random() % 10_000 == 0
}

impl<M: Machine> RawLock<M> for Busted {
    type Queue = ();

    const GLIBC_WORD: bool = true;

    fn new_queue() {}

    fn try_lock(word: &M::Word, queue: &()) -> bool {
        <Futex as RawLock<M>>::try_lock(word, queue)
    }

    fn lock(word: &M::Word, queue: &()) {
        if !slips::<M>() {
            <Futex as RawLock<M>>::lock(word, queue);
        }
    }

    fn lock_until(word: &M::Word, queue: &(), until: Deadline) -> Result<(), TimedOut> {
        if slips::<M>() { Ok(()) } else { <Futex as RawLock<M>>::lock_until(word, queue, until) }
    }

    fn unlock(word: &M::Word, queue: &()) {
        <Futex as RawLock<M>>::unlock(word, queue);
    }

    fn is_locked(word: &M::Word, queue: &()) -> bool {
        <Futex as RawLock<M>>::is_locked(word, queue)
    }
}
