//! # The word of a queued spinlock
//!
//! The layout of the four bytes of [`qspin`](super) and [`qspin-cna`](crate::mutex::numa::qspin_cna), and predicates on
//! them.
//!
//! ```text
//!    31      30      29     28   27                          0
//!  +--------+-------+------+----+----------------------------+
//!  | LOCKED |PENDING|SLEEPS|HEIR|  tail: the last waiter     |
//!  +--------+-------+------+----+----------------------------+
//! ```
//!
//! LOCKED is the top bit, so adding it toggles it and carries into no other bit. So a release is one addition. It
//! cannot fail, whichever threads join meanwhile, and it says whether a thread sleeps. (The kernel stores a byte there.
//! A byte store into a 32-bit atomic is outside of Rust's memory model, and could not say whether a thread sleeps.)

use crate::machine::{FIRST_EPOCH, Handle, Machine};
use crate::parts::queue::link::handle_in;

/// No thread holds the lock or waits.
pub const FREE: u32 = 0;
/// A thread holds the lock.
pub const LOCKED: u32 = 1 << 31;
/// A waiter without a node is next, before all waiters in the queue.
pub const PENDING: u32 = 1 << 30;
/// The waiter that is PENDING, or the head of the queue, or both, sleep on this word or are about to.
pub const SLEEPS: u32 = 1 << 29;
/// The waiter that is PENDING belongs to a process with the second epoch.
pub const HEIR: u32 = 1 << 28;

/// All of these.
pub const FLAGS: u32 = !(Handle::LIMIT - 1);

const _: () = assert!(HEIR == Handle::LIMIT && LOCKED.wrapping_add(LOCKED) == 0);

/// The last waiter in the queue.
#[inline]
pub(crate) fn tail(word: u32) -> Option<Handle> {
    handle_in(word)
}

/// The same, as a word.
#[inline]
pub fn tail_word(word: u32) -> u32 {
    word & (Handle::LIMIT - 1)
}

/// Whether a thread holds the lock.
#[inline]
pub fn is_locked(word: u32) -> bool {
    word & LOCKED != 0
}

/// The mark that a thread sets to become PENDING. It differs from the mark of any ancestor process. Only one bit says
/// to which process the thread belongs. So in processes with the third epoch or a later one, no thread may become
/// PENDING.
#[inline]
pub fn pending_mark<M: Machine>() -> Option<u32> {
    match M::epoch().wrapping_sub(FIRST_EPOCH) {
        0 => Some(PENDING),
        1 => Some(PENDING | HEIR),
        _ => None,
    }
}

/// Whether a live waiter is PENDING. In a forked child the bit may be left over from a thread that does not exist
/// there.
#[inline]
pub fn has_pending<M: Machine>(word: u32) -> bool {
    word & PENDING != 0 && pending_mark::<M>() == Some(word & (PENDING | HEIR))
}

/// Whether the head of the queue must wait.
#[inline]
pub fn is_busy<M: Machine>(word: u32) -> bool {
    is_locked(word) || has_pending::<M>(word)
}

/// Whether any thread may take the lock: no live thread holds it or waits. The word was loaded with Acquire: the node
/// that it names must be seen prepared.
pub fn is_vacant<M: Machine>(word: u32) -> bool {
    !is_busy::<M>(word) && tail(word).is_none_or(|last| !last.node::<M>().is_alive())
}

/// The word with this tail (0: none), and without flags set before a fork.
pub fn with_tail<M: Machine>(word: u32, last: u32) -> u32 {
    let pending = if has_pending::<M>(word) { PENDING | HEIR } else { 0 };
    // SLEEPS concerns the head or the waiter that is PENDING; a word with neither would never be FREE again.
    let sleeps = if pending | last == 0 { 0 } else { SLEEPS };
    word & (LOCKED | pending | sleeps) | last
}

/// The word without PENDING.
pub fn without_pending<M: Machine>(word: u32) -> u32 {
    with_tail::<M>(word & !(PENDING | HEIR), tail_word(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_touches_one_bit() {
        for others in [0, PENDING, SLEEPS | 5, PENDING | HEIR | SLEEPS | (Handle::LIMIT - 1)] {
            assert_eq!((others | LOCKED).wrapping_add(LOCKED), others);
            assert_eq!(tail(others | LOCKED), tail(others));
        }
    }

    #[test]
    fn flags_name_nobody() {
        for word in [FREE, LOCKED, LOCKED | PENDING | HEIR | SLEEPS, LOCKED | Handle::RESERVED] {
            assert_eq!(tail(word), None);
        }
    }
}
