//! # Naps
//!
//! Waits that no thread ends: for another thread's next instructions, and at a lock that is gone.

use crate::machine::{Deadline, Machine, Pause, TimedOut, Word as _};

/// Waits for another thread to execute a few more instructions. That thread may have been stopped in between, for as
/// long as one likes, so each nap (µs) is a quarter longer than the one before: it ends late by at most a fifth of the
/// whole wait.
pub(crate) fn nap_longer<M: Machine>(nap: &mut u32) {
    M::pause(Pause::Nap(*nap));
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
