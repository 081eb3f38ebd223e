//! # Words beside locks: counts of nodes left behind, and drain words
//!
//! Some locks need a little state that does not fit into the lock: a count of nodes left behind, or a drain word. It is
//! in tables in the [`registry`], indexed by the lock's address. One word there is for all locks ([`distributed`]).
//!
//! Two locks may share a count. If very many waiters have given up on one of them, newcomers to the other stay out of
//! its queue too (but not out of a free lock). So the number of nodes left behind is bounded by what the table allows:
//! 64 for each entry, and one for each thread that is giving up at that moment. A line of the table is written only
//! when a waiter gives up, or when one that gave up is found. Threads that queue only read it, each from its own cache.

use core::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::{ConstWord as _, Word as _};

use crate::machine::Word32;
use crate::registry;

/// log2 of the number of counts.
const BITS: u32 = 10;

/// The number of counts.
pub(crate) const LENGTH: usize = 1 << BITS;

/// The entry of a lock at `address` in a table of `1 << bits` entries. Multiplicative hashing; locks are words, so the
/// low bits carry no information.
fn index(address: usize, bits: u32) -> usize {
    let spread = (address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (spread >> (u64::BITS - bits)) as usize
}

/// The count of nodes left behind in the queue of the lock at this address.
#[inline]
pub fn count(lock: *const Word32) -> &'static Word32 {
    &registry::get().left[index(lock.addr(), BITS)]
}

/// How many nodes are left behind in all queues together.
pub fn all() -> u32 {
    registry::get().left.iter().fold(0, |sum, count| sum.wrapping_add(count.load(Relaxed)))
}

/// log2 of the number of drain words (see [`drain_word`]).
const DRAIN_WORDS_BITS: u32 = 6;

/// The number of drain words.
pub(crate) const DRAIN_WORDS: usize = 1 << DRAIN_WORDS_BITS;

/// A word on its own cache line.
#[repr(align(64))]
pub(crate) struct Padded(Word32);

impl Padded {
    pub(crate) const fn zero() -> Self {
        Self(Word32::ZERO)
    }
}

/// The word on which a writer of the lock at this address waits for readers to leave.
pub fn drain_word(lock: *const Word32) -> &'static Word32 {
    &registry::get().drain[index(lock.addr(), DRAIN_WORDS_BITS)].0
}

/// How many readers-writer locks use distributed counters.
pub(crate) fn distributed() -> &'static Word32 {
    &registry::get().distributed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neighbouring locks, as in an array, usually share no count.
    #[test]
    fn locks_spread_over_the_table() {
        for stride in [4, 40, 64, 4096] {
            let mut used = [0u32; LENGTH];
            (0..256).for_each(|i| used[index(0x7f12_3456_7000 + i * stride, BITS)] += 1);
            let most = used.iter().max().copied();
            assert!(most <= Some(6), "stride {stride}: {most:?} of 256 locks share a count");
        }
    }
}
