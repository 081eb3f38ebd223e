//! Semaphores with one bug each: the production code with one function done wrong.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Handle, Machine, Word as _};
use flashlock_locks::sem::call::kind;
use flashlock_locks::sem::{Semaphore, Slept};

const QUEUED: u32 = 1 << 31;
const BUSY: u32 = 1 << 30;

fn word_of<'a, M: Machine>(semaphore: &Semaphore<'a, M>) -> &'a M::Word {
    // SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
    unsafe { semaphore.word() }
}

/// A post that adds its permit, and then looks whether a thread waits.
pub(crate) fn adds_and_looks<M: Machine>(semaphore: &Semaphore<'_, M>) {
    let seen = word_of(semaphore).load(Relaxed);
    if seen & QUEUED != 0 || word_of(semaphore).compare_exchange(seen, seen + 1, Release, Relaxed).is_err() {
        return semaphore.post().expect("room");
    }
    assert!(word_of(semaphore).load(Relaxed) != u32::MAX);
}

/// A post that calls no waiter if another thread is at the list, as if that thread did.
pub(crate) fn leaves_it_to_the_list<M: Machine>(semaphore: &Semaphore<'_, M>) {
    loop {
        let seen = word_of(semaphore).load(Relaxed);
        if seen & BUSY == 0 {
            return semaphore.post().expect("room");
        }
        if word_of(semaphore).compare_exchange(seen, seen + 1, Release, Relaxed).is_ok() {
            return;
        }
    }
}

/// A post that takes no notice of the list: the waiters that sleep there go on sleeping.
pub(crate) fn calls_nobody<M: Machine>(semaphore: &Semaphore<'_, M>) {
    word_of(semaphore).fetch_add(1, Release);
}

/// A cancelled wait that takes along the permit for which it was called.
pub(crate) fn keeps_the_permit<M: Machine>(semaphore: &Semaphore<'_, M>, me: Handle) {
    if kind(me.node::<M>().state.load(Acquire)) == state::WAITS {
        return semaphore.cancel(me);
    }
    semaphore.wait_with(me, None, |_, _| Slept::Interrupted);
}
