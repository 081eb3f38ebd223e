//! # What is in a cache
//!
//! A set-associative directory of lines with least-recently-used replacement. It says what fits, not what is valid: who may use a
//! line is known to the line itself (see [`memory`](crate::memory)), so an entry may stand for a copy that was invalidated.

/// No line.
const EMPTY: u32 = u32::MAX;

/// The directory of one cache.
#[derive(Debug)]
pub(crate) struct Tags {
    /// Set by set, the most recently used first.
    entries: Vec<Entry>,
    sets: u32,
    ways: usize,
    /// Spreads neighbours over the sets, as caches do that many cores share.
    hashed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    line: u32,
    /// Who brought it in.
    by: u32,
}

/// A line that had to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) line: u32,
    /// Who had brought it in.
    pub(crate) by: u32,
}

impl Tags {
    /// Bytes for each line of a cache.
    pub(crate) const ENTRY: u64 = size_of::<Entry>() as u64;

    /// A cache of so many lines, or of a few fewer, to make full sets.
    pub(crate) fn new(lines: u32, ways: u32, hashed: bool) -> Self {
        let ways = ways.min(lines).max(1);
        let sets = (lines / ways).max(1);
        let entries = vec![Entry { line: EMPTY, by: 0 }; (sets * ways) as usize];
        Self { entries, sets, ways: ways as usize, hashed }
    }

    fn set(&mut self, line: u32) -> &mut [Entry] {
        let spread = if self.hashed { line.wrapping_mul(0x9e37_79b1) } else { line };
        let set =
            if self.hashed { (u64::from(spread) * u64::from(self.sets)) >> 32 } else { u64::from(spread % self.sets) };
        let first = set as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }

    /// Whether the line is in; it has just been used.
    #[inline]
    pub(crate) fn touch(&mut self, line: u32) -> bool {
        let set = self.set(line);
        if set[0].line == line {
            return true;
        }
        let Some(at) = set.iter().position(|entry| entry.line == line) else { return false };
        set[..=at].rotate_right(1);
        true
    }

    /// Brings a line in, in front of all others of its set; the last one goes.
    pub(crate) fn insert(&mut self, line: u32, by: u32) -> Option<Victim> {
        if self.touch(line) {
            self.set(line)[0].by = by;
            return None;
        }
        let set = self.set(line);
        set.rotate_right(1);
        let Entry { line: victim, by: victim_by } = std::mem::replace(&mut set[0], Entry { line, by });
        (victim != EMPTY).then_some(Victim { line: victim, by: victim_by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut tags = Tags::new(4, 2, false);
        assert_eq!((tags.insert(0, 7), tags.insert(2, 8)), (None, None));
        assert!(tags.touch(0));
        assert_eq!(tags.insert(4, 9), Some(Victim { line: 2, by: 8 }));
        assert_eq!((tags.touch(0), tags.touch(2), tags.touch(4)), (true, false, true));
        assert_eq!(tags.insert(1, 9), None, "another set");
    }

    #[test]
    fn what_fits_stays() {
        let mut tags = Tags::new(1 << 10, 16, true);
        (0..512).for_each(|line| _ = tags.insert(line, 0));
        let kept = (0..512).filter(|&line| tags.touch(line)).count();
        assert!(kept > 500, "{kept} of 512 lines in a cache of 1,024");
    }
}
