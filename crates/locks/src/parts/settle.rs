//! # The first use in a process
//!
//! The first use of a lock, or of another object, in a forked child discards what the parent's threads left in it.
//!
//! **Problem.** A forked child gets a copy of a lock's memory, but not the threads that the memory refers to. If one of
//! these was in the middle of an operation, no thread will finish it. **Idea.** The object keeps the epoch of the
//! process that last used it. A thread that finds another epoch there discards what those threads left, before it does
//! anything else. One thread does this, and the others wait for it.
//!
//! ## State
//! | `epoch` | meaning |
//! |---|---|
//! | 0 | never used: there is nothing to discard |
//! | e | used in the process of epoch e |
//! | e, [`SETTLING`] | a thread of that process discards what others have left |
//!
//! ## Invariants
//! 1. No thread uses the object in a process whose epoch is not in `epoch`. So while it is SETTLING, only one thread
//!    touches it.
//! 2. A thread that was settling when its process forked does not exist in the child. Its epoch distinguishes it from a
//!    thread that settles there.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `epoch` store | Release | `epoch` loads, Acquire | a thread that goes on sees the discarded state |
//! | `epoch` CAS | Relaxed | – | chooses the thread that settles. What that thread finds in the object is older than the fork |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::{Machine, Patience, Word};
use crate::parts::naps::nap_longer;

/// Bit of `epoch`. (Epochs are below.)
const SETTLING: u32 = 1 << 31;
/// How long (µs) a thread naps at first while it waits for another one to settle.
const PAUSE: u32 = 50;

/// To be called before each use of the object. If this is the first use in this process, `reset` discards what threads
/// of other processes have left in it. Returns the epoch for which that holds.
#[inline]
pub fn settle<M: Machine>(epoch: &M::Word, reset: impl FnOnce()) -> u32 {
    let now = M::epoch();
    if epoch.load(Acquire) != now {
        settle_slow::<M>(epoch, now, reset);
    }
    now
}

/// [`settle`], for an attempt, which must not wait for long: a signal handler's own thread may be the one that settles.
/// Returns whether the object can be used. If another thread settles, polls for a moment.
#[inline]
pub fn settle_soon<M: Machine>(epoch: &M::Word, reset: impl FnOnce()) -> bool {
    epoch.load(Acquire) == M::epoch() || settle_soon_slow::<M>(epoch, reset)
}

/// Whether the object was last used in that process, or in this one, which a signal handler may have forked since.
pub fn was_used_in<M: Machine>(epoch: &M::Word, process: u32) -> bool {
    [process, M::epoch()].contains(&(epoch.load(Relaxed) & !SETTLING)) // Relaxed: it chooses nothing but a way to wait.
}

#[cold]
fn settle_soon_slow<M: Machine>(epoch: &M::Word, reset: impl FnOnce()) -> bool {
    let now = M::epoch();
    try_settle::<M>(epoch, reset) || M::spin_until(epoch, Acquire, Patience::Budget, |seen| seen == now).is_some()
}

/// [`settle`], for a thread that must not wait for another. Returns whether the object can be used. If not, another
/// thread settles, or did a moment ago.
pub fn try_settle<M: Machine>(epoch: &M::Word, reset: impl FnOnce()) -> bool {
    let (now, seen) = (M::epoch(), epoch.load(Acquire));
    if seen == now {
        return true;
    }
    let settling = if seen == 0 { now } else { now | SETTLING };
    // Relaxed: as in `settle_slow`.
    let mine = seen != settling && epoch.compare_exchange(seen, settling, Relaxed, Relaxed).is_ok();
    if mine && seen != 0 {
        reset();
        epoch.store(now, Release);
    }
    mine
}

/// 0 -> now, or e -> (now, SETTLING) -> now.
#[cold]
fn settle_slow<M: Machine>(epoch: &M::Word, now: u32, reset: impl FnOnce()) {
    let mut nap = PAUSE;
    loop {
        let seen = epoch.load(Acquire);
        if seen == now {
            return;
        } else if seen == now | SETTLING {
            M::spin_until(epoch, Acquire, Patience::Budget, |epoch| epoch == now);
            nap_longer::<M>(&mut nap, None);
        } else if seen == 0 {
            let _ = epoch.compare_exchange(0, now, Relaxed, Relaxed);
        } else if epoch.compare_exchange(seen, now | SETTLING, Relaxed, Relaxed).is_ok() {
            reset();
            return epoch.store(now, Release);
        }
    }
}
