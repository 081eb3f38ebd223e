//! # Locks that are glibc's word alone
//!
//! What `futex` and `tas` share: 0 is free, 1 is held, 2 is held, and a thread may sleep on the word. They differ in
//! how a thread waits ([`OneWord::wait`]).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::{Deadline, Handle, Machine, TimedOut, Unparked, Word};
use crate::parts::adoption::Chain;
use crate::parts::counted::{contended, park, wake};
use crate::parts::raw::RawLock;

/// No thread holds the lock.
pub(crate) const FREE: u32 = 0;
/// A thread holds it.
pub(crate) const HELD: u32 = 1;
/// The same, and a thread may sleep on the word.
pub(crate) const SLEEPERS: u32 = 2;

/// A lock that is this word alone.
pub(crate) trait OneWord {
    /// 0 -> 1, or 0 -> 2 by a thread that may have slept on the word.
    fn wait<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut>;
}

/// 0 -> 1
#[inline(always)]
pub(crate) fn try_take<M: Machine>(word: &M::Word) -> bool {
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
}

/// 1 -> 0, or 2 -> 0 and a wake-up.
#[inline(always)]
pub(crate) fn release<M: Machine>(word: &M::Word) {
    if word.hand_back(FREE, HELD, Release) {
        wake::<M>(word, 1);
    }
}

/// 0 -> 2, sleeping while it is not 0.
pub(crate) fn sleep<M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
    while word.swap(SLEEPERS, Acquire) != FREE {
        if park::<M>(word, SLEEPERS, until) == Unparked::TimedOut {
            // The word stays 2, because others may sleep. One last try, in case a release raced the time-out.
            if word.compare_exchange(FREE, SLEEPERS, Acquire, Relaxed).is_ok() {
                break;
            }
            return Err(TimedOut);
        }
    }
    Ok(())
}

#[cold]
fn lock_slow<L: OneWord, M: Machine>(word: &M::Word, until: Option<Deadline>) -> Result<(), TimedOut> {
    contended::<M>(|| L::wait::<M>(word, until))
}

#[cold]
fn lock_asleep<M: Machine>(word: &M::Word) {
    // Without a deadline it cannot time out.
    let _ = contended::<M>(|| sleep::<M>(word, None));
}

// SAFETY: it has no nodes; those of a broadcast are moved as `adoption` says (1 to 3).
unsafe impl<M: Machine, L: OneWord + 'static> RawLock<M> for L {
    type Queue = ();

    const GLIBC_WORD: bool = true;

    #[inline]
    unsafe fn try_acquire(word: &M::Word, _: &()) -> bool {
        try_take::<M>(word)
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, _: &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        if try_take::<M>(word) { Ok(()) } else { lock_slow::<L, M>(word, until.copied()) }
    }

    #[inline]
    unsafe fn release(word: &M::Word, _: &()) {
        release::<M>(word);
    }

    unsafe fn is_locked(word: &M::Word, _: &()) -> bool {
        word.load(Relaxed) != FREE
    }

    /// (word, sleepers) -> (2 if held, sleepers + chain). If the lock is free, wakes one of them
    /// ([`futex`](crate::mutex::spin::futex), invariant 4).
    ///
    /// The first waiter is moved like the others, but stays CLAIMED until the word has been accessed for the last time.
    /// A waiter that is not asleep on its node (it may be stopped) is neither moved nor woken, and delays no other.
    unsafe fn take_over(word: &M::Word, _: &(), chain: Chain) {
        let address: *const M::Word = word;
        let claim = chain.claim_on_first::<M>();
        M::requeue(chain.first().node::<M>(), address);
        chain.park_followers::<M>(|follower| M::requeue(follower, address));
        if word.compare_exchange(HELD, SLEEPERS, Relaxed, Relaxed) == Err(FREE) {
            M::wake(address, 1);
        }
        chain.park_first::<M>(claim);
    }

    /// 0 -> 2, sleeping while it is not 0. All locks of this kind do the same.
    unsafe fn acquire_adopted(word: &M::Word, _: &(), me: Handle) {
        lock_asleep::<M>(word);
        M::give_node(me);
    }
}
