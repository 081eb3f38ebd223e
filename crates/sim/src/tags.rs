//! # Cache directories
//!
//! Set-associative directories of lines with least-recently-used replacement. A directory says what fits, not what is
//! valid: the line's own record says which core may use it (see [`memory`](crate::memory)). So an entry may stand for a
//! copy that was invalidated.
//!
//! Every access that is not a hit reaches each level, in no particular order of lines. So sets start at cache lines of
//! the host, and contain only line numbers. For shared caches, a separate list says which core brought each line in.

use crate::host::{equal, prefetch};

/// No line.
const EMPTY: u32 = u32::MAX;
/// The number of line numbers in a cache line of the host.
const ALIGNED: usize = 64 / size_of::<u32>();

/// The directories of caches of one kind: one for each core or for each node.
#[derive(Debug)]
pub(crate) struct Tags {
    /// From index `first` on: cache by cache and set by set, the most recently used line first.
    lines: Vec<u32>,
    first: usize,
    /// The cores that brought them in, in the same order; empty for a core's private cache.
    by: Vec<u8>,
    /// The number of sets of each cache.
    sets: Divisor,
    ways: usize,
    /// The number of entries from one cache to the next.
    entries: usize,
}

/// A line that was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) line: u32,
    /// The core that had brought it in; 0 in a core's private cache.
    pub(crate) by: u32,
}

impl Tags {
    /// Bytes per line of a cache.
    pub(crate) const ENTRY: u64 = (size_of::<u32>() + size_of::<u8>()) as u64;

    /// The directories of `caches` private caches with `lines` lines each, or slightly fewer, to make full sets.
    pub(crate) fn of_cores(caches: u32, lines: u32, ways: u32) -> Self {
        let ways = ways.min(lines).max(1);
        let sets = (lines / ways).max(1);
        let entries = (sets as usize * ways as usize).next_multiple_of(ALIGNED);
        let lines = vec![EMPTY; caches as usize * entries + ALIGNED];
        let first = lines.as_ptr().align_offset(64).min(ALIGNED);
        Self { lines, first, by: Vec::new(), sets: Divisor::new(sets), ways: ways as usize, entries }
    }

    /// The same for caches that several cores share. They spread neighbouring lines over their sets, and record which
    /// core brought each line in.
    pub(crate) fn shared(caches: u32, lines: u32, ways: u32) -> Self {
        let mut this = Self::of_cores(caches, lines, ways);
        this.by = vec![0; this.lines.len() - ALIGNED];
        this
    }

    /// The index of the line's set in this cache.
    #[inline]
    fn set(&self, cache: u32, line: u32) -> usize {
        let set = if self.by.is_empty() {
            self.sets.remainder(line)
        } else {
            ((u64::from(line.wrapping_mul(0x9e37_79b1)) * u64::from(self.sets.number)) >> 32) as u32
        };
        cache as usize * self.entries + set as usize * self.ways
    }

    #[inline]
    fn lines(&mut self, set: usize) -> &mut [u32] {
        &mut self.lines[self.first + set..][..self.ways]
    }

    /// A hint that an access to the line comes soon.
    #[inline]
    pub(crate) fn expect(&self, cache: u32, line: u32) {
        let set = self.set(cache, line);
        prefetch(&self.lines[self.first + set]);
        prefetch(&self.lines[self.first + set + self.ways - 1]);
        self.by.get(set).into_iter().for_each(prefetch);
    }

    /// The line that would be evicted if this line came in now.
    #[inline]
    pub(crate) fn next_victim(&self, cache: u32, line: u32) -> Option<u32> {
        let last = self.lines[self.first + self.set(cache, line) + self.ways - 1];
        (last != EMPTY).then_some(last)
    }

    /// Whether the line is in the cache. If so, it becomes the most recently used.
    #[inline]
    pub(crate) fn touch(&mut self, cache: u32, line: u32) -> bool {
        let set = self.set(cache, line);
        let lines = self.lines(set);
        if !is_in(lines, line) {
            return false;
        }
        let (at, _) = move_to_front(lines, line);
        if let Some(by) = self.by.get_mut(set..=set + at) {
            by.rotate_right(1);
        }
        true
    }

    /// Brings a line in, in front of all others of its set. Returns the line that was evicted.
    #[inline]
    pub(crate) fn insert(&mut self, cache: u32, line: u32, by: u32) -> Option<Victim> {
        let (ways, set) = (self.ways, self.set(cache, line));
        let (at, last) = move_to_front(self.lines(set), line);
        let mut victim = Victim { line: last, by: 0 };
        if let Some(bys) = self.by.get_mut(set..set + ways) {
            victim.by = u32::from(bys[at]);
            bys.copy_within(..at, 1);
            bys[0] = by as u8;
        }
        (last != line && last != EMPTY).then_some(victim)
    }

    /// Brings a line in. Returns whether it was there already.
    #[inline]
    pub(crate) fn keep(&mut self, cache: u32, line: u32) -> bool {
        let set = self.set(cache, line);
        move_to_front(self.lines(set), line).1 == line
    }
}

/// Moves the line to the front and all entries before it back by one, or all entries if it was not there. Returns where
/// the line was, or the last place, and the line that was at that place.
#[inline]
fn move_to_front(set: &mut [u32], line: u32) -> (usize, u32) {
    let last = set.len() - 1;
    let (mut moved, mut at) = (line, 0);
    let (blocks, rest) = set.as_chunks_mut();
    for block in blocks {
        let before @ [a, b, c, d] = *block;
        let found = equal(&before, line);
        if found != 0 {
            let place = found.trailing_zeros() as usize;
            *block = match place {
                0 => [moved, b, c, d],
                1 => [moved, a, c, d],
                2 => [moved, a, b, d],
                _ => [moved, a, b, c],
            };
            return (at + place, line);
        }
        *block = [moved, a, b, c];
        (moved, at) = (d, at + 4);
    }
    for place in rest {
        moved = std::mem::replace(place, moved);
        if moved == line {
            return (at, line);
        }
        at += 1;
    }
    (last, moved)
}

/// Whether the line is in the set.
#[inline]
fn is_in(set: &[u32], line: u32) -> bool {
    let (blocks, rest) = set.as_chunks();
    blocks.iter().any(|block| equal(block, line) != 0) || rest.contains(&line)
}

/// A divisor that is used often. It divides by multiplication (Lemire, Kaser and Kurz, "Faster remainder by direct
/// computation", 2019).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    number: u32,
    /// 2⁶⁴ divided by the number, rounded up; 0 for 1.
    inverse: u64,
}

impl Divisor {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, inverse: (u64::MAX / u64::from(number)).wrapping_add(1) }
    }

    #[inline]
    fn remainder(self, dividend: u32) -> u32 {
        let part = self.inverse.wrapping_mul(u64::from(dividend));
        ((u128::from(part) * u128::from(self.number)) >> 64) as u32
    }

    /// The quotient of the dividend and the number, rounded down.
    #[inline]
    pub(crate) fn quotient(self, dividend: u32) -> u32 {
        if self.number == 1 {
            return dividend;
        }
        ((u128::from(self.inverse) * u128::from(dividend)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut tags = Tags::of_cores(2, 4, 2);
        assert_eq!((tags.insert(1, 0, 7), tags.insert(1, 2, 8)), (None, None));
        assert!(tags.touch(1, 0));
        assert_eq!(tags.insert(1, 4, 9), Some(Victim { line: 2, by: 0 }));
        assert_eq!((tags.touch(1, 0), tags.touch(1, 2), tags.touch(1, 4)), (true, false, true));
        assert_eq!(tags.insert(1, 1, 9), None, "another set");
        assert_eq!((tags.keep(1, 0), tags.keep(1, 6), tags.keep(1, 4)), (true, false, false));
        assert_eq!((tags.touch(0, 0), tags.insert(0, 0, 7)), (false, None), "another cache");
    }

    #[test]
    fn sets_of_all_sizes_are_lists() {
        for ways in 1..=21 {
            let (mut tags, mut list) = (Tags::shared(3, ways, ways), Vec::<(u32, u32)>::new());
            let mut random = 1_u32;
            for by in (0..1000).map(|step| step % 256) {
                random = random.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                let line = (random >> 16) % (ways * 3 / 2 + 1);
                let at = list.iter().position(|&(other, _)| other == line);
                assert_eq!(tags.next_victim(1, line), list.get(ways as usize - 1).map(|&(last, _)| last));
                if random >> 31 == 0 {
                    assert_eq!(tags.touch(1, line), at.is_some(), "{ways} ways");
                    let Some(at) = at else { continue };
                    list[..=at].rotate_right(1);
                } else {
                    at.into_iter().for_each(|at| _ = list.remove(at));
                    let full = list.len() == ways as usize;
                    let victim = if full { list.pop().map(|(line, by)| Victim { line, by }) } else { None };
                    list.insert(0, (line, by));
                    assert_eq!(tags.insert(1, line, by), victim, "{ways} ways");
                }
            }
        }
    }

    #[test]
    fn it_is_known_who_brought_a_line_in() {
        let mut tags = Tags::shared(2, 3, 3);
        (1..=3).for_each(|line| assert_eq!(tags.insert(1, line, 10 + line), None));
        assert!(tags.touch(1, 1));
        assert_eq!(tags.insert(1, 2, 22), None, "who used it last");
        assert_eq!(tags.insert(1, 4, 14), Some(Victim { line: 3, by: 13 }));
        assert_eq!(tags.insert(1, 5, 255), Some(Victim { line: 1, by: 11 }));
        assert_eq!(tags.insert(1, 6, 16), Some(Victim { line: 2, by: 22 }));
        assert!(tags.touch(1, 4) && tags.touch(1, 6));
        assert_eq!(tags.insert(1, 7, 17), Some(Victim { line: 5, by: 255 }));
    }

    #[test]
    fn what_fits_stays() {
        let mut tags = Tags::shared(2, 1 << 10, 16);
        (0..512).for_each(|line| _ = tags.insert(1, line, 0));
        let kept = (0..512).filter(|&line| tags.touch(1, line)).count();
        assert!(kept > 500, "{kept} of 512 lines in a cache of 1,024");
    }

    #[test]
    fn division_is_division() {
        let numbers = [1, 2, 3, 7, 63, 64, 65, 511, 2304, 65_536, 1 << 20, u32::MAX - 1, u32::MAX];
        for number in numbers {
            let divisor = Divisor::new(number);
            for other in numbers.into_iter().chain(0..1000).chain([u32::MAX / 2]) {
                for dividend in [other.wrapping_sub(1), other, other.wrapping_add(1)] {
                    assert_eq!(divisor.remainder(dividend), dividend % number, "{dividend} by {number}");
                    assert_eq!(divisor.quotient(dividend), dividend / number, "{dividend} by {number}");
                }
            }
        }
    }
}
