//! # Naps
//!
//! Waits that no thread ends: for another thread's next instructions, and at a lock that is gone.
//!
//! A waiter that gets up by itself does not know whether the lock still exists. So it asks the kernel before it reads
//! the lock, and stays away from a lock that is gone.

use crate::machine::{Deadline, Machine, Pause, TimedOut, Word as _};

/// How long (µs) a thread with a deadline naps at most: the nap may end so much later.
const WITH_DEADLINE: u32 = 1_000;
/// No page is smaller.
const SMALLEST_PAGE: usize = 4096;

/// Waits for another thread to execute a few more instructions. That thread may have been stopped in between, for as
/// long as one likes. So each nap (µs) is a quarter longer than the one before: the last one is about a fifth of the
/// whole wait. (A machine may end a long nap sooner.)
pub(crate) fn nap_longer<M: Machine>(nap: &mut u32, until: Option<Deadline>) {
    M::pause(Pause::Nap(if until.is_some() { (*nap).min(WITH_DEADLINE) } else { *nap }));
    *nap = nap.saturating_add(*nap / 4 + 1);
}

/// Whether there is memory where a lock was: both of its ends.
pub(crate) fn is_whole<M: Machine>(first: &M::Word, last: &M::Word) -> bool {
    let page = |word: &M::Word| (&raw const *word).addr() / SMALLEST_PAGE;
    M::is_there(last) && (page(first) == page(last) || M::is_there(first))
}

/// The lock's memory has been freed: no thread will ever wake its sleepers.
#[cold]
pub(crate) fn stay_away<M: Machine>(until: Option<Deadline>) -> TimedOut {
    let mine = M::Word::new(0);
    while until.is_none_or(|deadline| !M::expired(&deadline)) {
        M::park(&mine, 0, until);
    }
    TimedOut
}
