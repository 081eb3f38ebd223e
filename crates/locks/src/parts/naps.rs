//! # Naps
//!
//! Waits that no thread ends: for another thread's next instructions, and at a lock that is gone.

use crate::machine::{Deadline, Machine, Pause, TimedOut, Word as _};

/// How long (µs) a thread with a deadline naps at most: the nap may end so much later.
const WITH_DEADLINE: u32 = 1_000;

/// Waits for another thread to execute a few more instructions. That thread may have been stopped in between, for as
/// long as one likes. So each nap (µs) is a quarter longer than the one before: the last one is about a fifth of the
/// whole wait. (A machine may end a long nap sooner.)
pub(crate) fn nap_longer<M: Machine>(nap: &mut u32, until: Option<Deadline>) {
    M::pause(Pause::Nap(if until.is_some() { (*nap).min(WITH_DEADLINE) } else { *nap }));
    *nap = nap.saturating_add(*nap / 4 + 1);
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
