//! # The first use in a process
//!
//! **Problem.** What a lock holds in memory comes along into a forked child; the threads that it speaks of do not. If
//! one of them was in the middle of something, nobody will end it. **Idea.** The object keeps the epoch of the process
//! that last used it. Who finds another one there throws away what those threads did, before it does anything else; one
//! thread does, and the others wait for it.
//!
//! ## State
//! | `epoch` | meaning |
//! |---|---|
//! | 0 | never used: there is nothing to throw away |
//! | e | used in the process of epoch e |
//! | e, [`SETTLING`] | a thread of that process is throwing away what others have left |
//!
//! ## Invariants
//! 1. Nobody uses the object in a process whose epoch is not in `epoch`; so while it is SETTLING one thread alone
//!    touches it.
//! 2. A thread that did not survive a fork while it was at it is told from one that is at it here: its epoch is
//!    another.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `epoch` store | Release | `epoch` loads, Acquire | who goes on sees what was thrown away |
//! | `epoch` CAS | Relaxed | – | only who settles. What it finds in the object is older than the fork |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::{Machine, Patience, Word};

/// Bit of `epoch`. (Epochs are below.)
const SETTLING: u32 = 1 << 31;
/// How long (µs) somebody naps who waits for another to settle, which takes a few instructions: that one may have lost
/// its CPU.
const PAUSE: u32 = 50;

/// To be called before each use of the object: if it is the first in this process, `reset` throws away what threads of
/// other processes have left in it. The epoch for which that holds.
#[inline]
pub fn settle<M: Machine>(epoch: &M::Word, reset: impl FnOnce()) -> u32 {
    let now = M::epoch();
    if epoch.load(Acquire) != now {
        settle_slow::<M>(epoch, now, reset);
    }
    now
}

/// [`settle`], by who must not wait for another that is at it. Whether the object can be used; if not, another is at
/// it, or was a moment ago.
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
    loop {
        let seen = epoch.load(Acquire);
        if seen == now {
            return;
        } else if seen == now | SETTLING {
            M::spin_until(epoch, Acquire, Patience::Budget, |epoch| epoch == now);
            M::relax(PAUSE);
        } else if seen == 0 {
            let _ = epoch.compare_exchange(0, now, Relaxed, Relaxed);
        } else if epoch.compare_exchange(seen, now | SETTLING, Relaxed, Relaxed).is_ok() {
            reset();
            return epoch.store(now, Release);
        }
    }
}
