//! # Words beside locks: counts of nodes left behind, and words for readers that have left
//!
//! A table by the lock's address, in the [`registry`]. Two locks may share a count: then newcomers to the one stay out
//! of its queue (but not of a free lock) while very many have given up on the other. So there are never more such nodes
//! than the table allows for: 64 for each of its entries, and one for each thread that gives up at that moment. Its
//! lines are written only when somebody gives up, or is found to have done so; those who queue read them, each from its
//! own cache.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::ConstWord as _;
use flashlock_locks::wait::left::LeftBehind;

use crate::machine::{Native, Sink, Word32};
use crate::registry;

/// log2 of the table's length.
const BITS: u32 = 10;

/// How many counts there are.
pub(crate) const LENGTH: usize = 1 << BITS;

/// Which entry of a table of that length (log2) belongs to a lock there. Multiplicative hashing; locks are words, so
/// the low bits say nothing.
fn index(address: usize, bits: u32) -> usize {
    let spread = (address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (spread >> (u64::BITS - bits)) as usize
}

/// The count of the lock at this address.
pub fn count<S: Sink>(lock: *const Word32) -> &'static LeftBehind<Native<S>> {
    const { assert!(size_of::<LeftBehind<Native<S>>>() == size_of::<AtomicU32>()) };
    // SAFETY: a `LeftBehind` is transparently a word, and that transparently an `AtomicU32`, whatever `S` is.
    unsafe { &*(&raw const registry::get().left[index(lock.addr(), BITS)]).cast() }
}

/// How many nodes were left behind in all queues together.
pub fn all() -> u32 {
    registry::get().left.iter().fold(0, |sum, count| sum.wrapping_add(count.load(Relaxed)))
}

/// log2 of how many [`drain_word`] there are.
const DRAIN_WORDS_BITS: u32 = 6;

/// How many that is.
pub(crate) const DRAIN_WORDS: usize = 1 << DRAIN_WORDS_BITS;

/// A word on a line of its own.
#[repr(align(64))]
pub(crate) struct Padded(Word32);

impl Padded {
    pub(crate) const fn zero() -> Self {
        Self(Word32::ZERO)
    }
}

/// [`Machine::drain_word`](flashlock_locks::machine::Machine::drain_word)
pub fn drain_word(lock: *const Word32) -> &'static Word32 {
    &registry::get().drain[index(lock.addr(), DRAIN_WORDS_BITS)].0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neighbours, as locks in an array are, share no count as a rule.
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
