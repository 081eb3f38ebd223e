//! `Polite` with one bug each: the production code with one function done wrong.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flashlock_locks::machine::{Deadline, Machine, Patience, TimedOut, Word as _};
use flashlock_locks::mutex::spin::Polite;
use flashlock_locks::mutex::spin::polite::{CLAIMED, FREE, HELD};
use flashlock_locks::parts::raw::RawLock;

pub(crate) trait PoliteBug: 'static {
    fn acquire<M: Machine>(word: &M::Word) {
        // SAFETY: the callers' promise.
        unsafe { <Polite as RawLock<M>>::lock(word, &()) };
    }
    fn unlock<M: Machine>(word: &M::Word) {
        // SAFETY: the callers' promise.
        unsafe { <Polite as RawLock<M>>::release(word, &()) };
    }
}

pub(crate) struct MutantPolite<B>(PhantomData<B>);

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine, B: PoliteBug> RawLock<M> for MutantPolite<B> {
    type Queue = ();

    flashlock_locks::same_as!(M, Polite: try_acquire is_locked);

    unsafe fn acquire(word: &M::Word, queue: &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        if until.is_some() {
            // SAFETY: the callers' promise.
            return unsafe { <Polite as RawLock<M>>::acquire(word, queue, until) };
        }
        B::acquire::<M>(word);
        Ok(())
    }
    unsafe fn release(word: &M::Word, _: &()) {
        B::unlock::<M>(word);
    }
}

/// Polls, claims by `stake`, and polls on. Under a fair checker, a thread that polls this often never gets the lock.
fn poll_and_claim<M: Machine>(word: &M::Word, stake: impl FnOnce(u32)) {
    let taken = |seen| seen & HELD == 0 && word.compare_exchange(seen, HELD | FREE, Acquire, Relaxed).is_ok();
    if M::spin_until(word, Relaxed, Patience::Budget, taken).is_none() {
        let seen = word.load(Relaxed);
        if seen & HELD != 0 {
            stake(seen);
        }
        let mut polls = 0;
        M::spin_until(word, Relaxed, Patience::Forever, |seen| {
            polls += 1;
            assert!(polls < 200, "a lock that nobody holds, and nobody gets");
            taken(seen)
        });
    }
}

/// A claim is stored, and not exchanged for what was seen: the lock may have been released meanwhile.
pub(crate) struct ClaimsByStore;
impl PoliteBug for ClaimsByStore {
    fn acquire<M: Machine>(word: &M::Word) {
        poll_and_claim::<M>(word, |_| word.store(HELD | FREE | CLAIMED, Relaxed));
    }
}

/// A claimant takes the lock without a look at whether it is held.
pub(crate) struct TakesWhatIsHeld;
impl PoliteBug for TakesWhatIsHeld {
    fn acquire<M: Machine>(word: &M::Word) {
        let taken = |seen| seen & HELD == 0 && word.compare_exchange(seen, HELD | FREE, Acquire, Relaxed).is_ok();
        if M::spin_until(word, Relaxed, Patience::Budget, taken).is_none() {
            word.swap(HELD | FREE, Acquire);
        }
    }
}

/// The release leaves the lock held if it was claimed.
pub(crate) struct LeavesItHeld;
impl PoliteBug for LeavesItHeld {
    fn acquire<M: Machine>(word: &M::Word) {
        poll_and_claim::<M>(word, |seen| {
            let _ = word.compare_exchange(seen, seen | CLAIMED, Relaxed, Relaxed);
        });
    }
    fn unlock<M: Machine>(word: &M::Word) {
        let seen = word.load(Relaxed);
        word.store(if seen & CLAIMED == 0 { FREE } else { seen }, Release);
    }
}
