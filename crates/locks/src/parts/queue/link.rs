//! # A link that says where its waiter is
//!
//! A link names the next waiter of a queue, and the NUMA node on which that waiter is. Take it for a lock that looks
//! for waiters of one NUMA node: it need not touch each waiter's line (Dice & Kogan, CNA, §6).
//!
//! A handle has 28 bits, so four bits of the word are left for the NUMA node.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Handle, Machine, Word};

const HANDLE: u32 = Handle::LIMIT - 1;
const NUMA_SHIFT: u32 = Handle::LIMIT.trailing_zeros();
/// No link has all of these bits set. If a word that may hold a link holds a handle for another purpose, all of these
/// bits are set.
pub const NO_LINK: u32 = !HANDLE;
/// NUMA nodes from this number on do not fit into a link: their number is read from the queue node.
const FAR: u32 = (NO_LINK >> NUMA_SHIFT) - 1;

const _: () = assert!(Handle::LIMIT.is_power_of_two() && FAR == 14);

/// A note in the place where a waiter that has joined a queue is about to link itself: the lock is its own. (This is no
/// link, and no note that names a node.)
pub const GIVEN: u32 = NO_LINK | Handle::RESERVED;

/// A note in the same place: the waiter links itself behind this node instead.
pub const fn moved(to: Handle) -> u32 {
    NO_LINK | to.word()
}

/// The node that such a note names.
pub(crate) fn moved_to(word: u32) -> Option<Handle> {
    handle_in(word).filter(|_| word & NO_LINK == NO_LINK)
}

/// The handle in a word whose top four bits say something else.
pub(crate) fn handle_in(word: u32) -> Option<Handle> {
    Handle::from_word(word & HANDLE)
}

/// What a node's `next` holds: the next waiter, and its NUMA node (plus one, in the top four bits; 0 for "not said").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    word: u32,
    to: Handle,
}

impl Link {
    /// The link to a waiter that is on this NUMA node.
    pub fn new(to: Handle, numa: u32) -> Self {
        let said = if numa < FAR { numa + 1 } else { 0 };
        Self { word: to.word() | said << NUMA_SHIFT, to }
    }

    /// A link that does not say where its waiter is.
    pub fn without_numa(to: Handle) -> Self {
        Self { word: to.word(), to }
    }

    /// The link in a word, or `None` if it names no waiter. For tests.
    ///
    /// # Safety
    /// That of [`Handle::new`], for the waiter.
    pub unsafe fn in_word(word: u32) -> Option<Self> {
        Self::from_word(word)
    }

    /// The link in a word, or `None` if it names no waiter.
    pub(crate) fn from_word(word: u32) -> Option<Self> {
        handle_in(word).map(|to| Self { word, to })
    }

    /// The waiter that it names.
    pub fn to(self) -> Handle {
        self.to
    }

    /// The word to store.
    pub fn word(self) -> u32 {
        self.word
    }

    /// The NUMA node of the waiter that it names, if it says.
    pub fn numa_hint(self) -> Option<u32> {
        (self.word >> NUMA_SHIFT).checked_sub(1)
    }

    /// The NUMA node of the waiter that it names. Touches that waiter's line only if the link does not say. Relaxed:
    /// the node was published with the link.
    pub fn numa<M: Machine>(self) -> u32 {
        self.numa_hint().unwrap_or_else(|| self.to.node::<M>().numa.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_whom_and_where() {
        for handle in [2, 77, Handle::LIMIT - 1] {
            assert_eq!(handle_in(handle | NO_LINK), Handle::from_word(handle));
            let to = Handle::from_word(handle).unwrap();
            for numa in [0, 1, 13] {
                let link = Link::from_word(Link::new(to, numa).word()).unwrap();
                assert_eq!((link.to(), link.word() >> NUMA_SHIFT), (to, numa + 1));
            }
            // Too far to be said: nothing spills into the handle.
            for numa in [14, 15, 16, 4095, u32::MAX] {
                let link = Link::from_word(Link::new(to, numa).word()).unwrap();
                assert_eq!((link.to(), link.word() >> NUMA_SHIFT), (to, 0));
            }
            assert_eq!((moved_to(moved(to)), moved_to(GIVEN)), (Some(to), None));
            assert_eq!(moved_to(Link::new(to, 13).word()), None);
            // A chain linked by a condition variable does not say where its waiters are.
            assert_eq!(Link::from_word(handle).unwrap().to(), to);
        }
    }
}
