//! # Client numbers
//!
//! Each client of a server takes a small number when it joins, and gives it back when it leaves.
//!
//! **Problem.** A server looks at the lines of all its clients. So their numbers must be small, and become small again
//! when clients leave. **Idea.** Long-lived adaptive renaming of the simplest kind (the paper refers to Brodsky, Ellen
//! & Woelfel, DISC 2006): a newcomer takes the least number that is free, in a map of bits. The server looks at the
//! bits, 32 numbers a word, and at the lines of those that are set.
//!
//! ```text
//!   live[0] 0b…0111   live[1] 0b…0001   live[2] 0   live[3] 0          range = 2 words, version 17
//!            ^ clients 0, 1, 2    ^ client 32                          of which the server looks at so many
//! ```
//! `range` shrinks when the last words become empty. Its version shows a thread that lowers it whether a number was
//! taken meanwhile. Versions repeat after 2^20 numbers taken. So a client that must wait for long checks whether it is
//! within the range, and raises the range if not.
//!
//! ## Invariants
//! 1. A bit is set and cleared by the one client whose number it is.
//! 2. A client that has its number is within the range, except when versions have repeated.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::{Machine, Word};

/// Numbers in a word.
pub const EACH: u32 = u32::BITS;
/// Words of bits, at most.
pub const MOST: u32 = (1 << VERSION) - 1;
/// Where the version begins in a range.
const VERSION: u32 = 12;

/// A server's client numbers.
pub(super) struct Names<'m, M: Machine> {
    pub(super) range: &'m M::Word,
    pub(super) live: &'m [M::Word],
}

/// How many words of bits the server looks at.
#[inline(always)]
pub(super) const fn words(range: u32) -> usize {
    (range & MOST) as usize
}

/// A range of so many words, with the next version.
const fn after(range: u32, words: u32) -> u32 {
    ((range >> VERSION).wrapping_add(1) << VERSION) | words
}

impl<M: Machine> Names<'_, M> {
    /// The least number that is free, or was a moment ago; none if there are too many clients.
    pub(super) fn take(&self) -> Option<u32> {
        for (at, word) in self.live.iter().enumerate() {
            loop {
                let free = word.load(Relaxed).trailing_ones();
                if free == EACH {
                    break;
                }
                // Acquire: the number's last client no longer uses it. Release: with `range`.
                if word.fetch_or(1 << free, AcqRel) & 1 << free == 0 {
                    self.cover(at as u32);
                    return Some(at as u32 * EACH + free);
                }
            }
        }
        None
    }

    /// Extends the scanned range to this word and bumps its version.
    fn cover(&self, word: u32) {
        let mut range = self.range.load(Relaxed);
        loop {
            let new = after(range, (range & MOST).max(word + 1));
            match self.range.compare_exchange(range, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => range = now,
            }
        }
    }

    /// A number that is in use -> within the range, if it is not. Returns whether it was not.
    pub(super) fn ensure(&self, number: u32) -> bool {
        let is_out = words(self.range.load(Relaxed)) as u32 <= number / EACH;
        if is_out {
            self.cover(number / EACH);
        }
        is_out
    }

    /// Gives a number back. The last client of a word lowers the range, if it is the last word.
    pub(super) fn give(&self, number: u32) {
        let bit = 1 << (number % EACH);
        if self.live[(number / EACH) as usize].fetch_and(!bit, AcqRel) == bit {
            self.shrink();
        }
    }

    /// The range -> one that ends with a word that is not empty. Acquire: a client that took its number before the
    /// range seen here has set its bit; a client that takes one later changes the version.
    fn shrink(&self) {
        loop {
            let range = self.range.load(Acquire);
            let last = self.live[..words(range)].iter().rposition(|word| word.load(Acquire) != 0);
            let wanted = last.map_or(0, |last| last as u32 + 1);
            let as_is = wanted == range & MOST;
            if as_is || self.range.compare_exchange(range, after(range, wanted), Release, Relaxed).is_ok() {
                return;
            }
        }
    }
}
