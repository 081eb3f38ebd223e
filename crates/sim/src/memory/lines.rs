//! # The records of lines
//!
//! What the memory model knows about each line.
//!
//! There may be millions of lines. A program that reads them at random makes the host fetch each record from its own
//! memory, so a record has only 16 bytes. Most lines have at most one copy in a core's cache; the line's record holds
//! that core's number. If a line has more copies, a separate table holds the set of cores.
//!
//! | `copies` | cores with a copy |
//! |---|---|
//! | 0 | none |
//! | 1 … 256 | the core with this number, less one |
//! | above | the set with this number, less 257 |
//!
//! ## Invariants
//! 1. Each set in use has at least two cores and belongs to one line of its chunk. So there are never more sets than
//!    lines.

use std::ops::{Index, IndexMut};

use super::sets::{FIRST_SET, Sets};
use crate::Ps;
use crate::description::MAX_CORES;
use crate::host::prefetch;
use crate::shape::Cores;

/// A bit of [`Line::marks`]: the core with the only copy owns the line; it is exclusive or modified there.
const OWNED: u8 = 1 << 0;
/// The owner has written to the line.
const DIRTY: u8 = 1 << 1;
/// Why the line's latest last-level cache has lost it.
const LOST_TO_ITSELF: u8 = 1 << 2;
const LOST_TO_ANOTHER: u8 = 1 << 3;

/// The record of a line. All zero: no thread has touched the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// When the line's server is free.
    pub(super) free_at: Ps,
    /// The nodes whose last-level cache has a copy, as bits.
    pub(super) llc: u32,
    copies: u16,
    marks: u8,
    /// The node of the line's memory, plus one; 0: none yet.
    home: u8,
}

const _: () = assert!(size_of::<Line>() == 16);

/// Why the line is in no last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    No,
    /// The core that had brought it in brought in another line.
    ToItself,
    ToAnother,
}

impl Line {
    const NEW: Self = Self { free_at: 0, llc: 0, copies: 0, marks: 0, home: 0 };

    #[inline]
    pub(super) fn home(&self) -> Option<u32> {
        u32::from(self.home).checked_sub(1)
    }

    /// The node becomes the line's home, unless it has one.
    #[inline]
    pub(super) fn settle_at(&mut self, node: u32) {
        if self.home == 0 {
            self.home = node as u8 + 1;
        }
    }

    #[inline]
    pub(super) fn owner(&self) -> Option<u32> {
        (self.marks & OWNED != 0).then(|| u32::from(self.copies) - 1)
    }

    #[inline]
    pub(super) fn is_owned_by(&self, core: u32) -> bool {
        self.marks & OWNED != 0 && u32::from(self.copies) == core + 1
    }

    /// Whether any core has a copy.
    #[inline]
    pub(super) fn has_copies(&self) -> bool {
        self.copies != 0
    }

    /// The core gets the first copy, and owns the line.
    #[inline]
    pub(super) fn begin_at(&mut self, core: u32) {
        debug_assert!(!self.has_copies());
        self.copies = core as u16 + 1;
        self.own(false);
    }

    /// Whether the owner has written to the line.
    #[inline]
    pub(super) fn is_dirty(&self) -> bool {
        self.marks & DIRTY != 0
    }

    /// The owner writes to the line.
    #[inline]
    pub(super) fn soil(&mut self) {
        self.marks |= DIRTY;
    }

    /// The core with the only copy becomes the owner.
    #[inline]
    pub(super) fn own(&mut self, dirty: bool) {
        debug_assert!(u32::from(self.copies).wrapping_sub(1) < MAX_CORES, "one core has a copy");
        self.marks = self.marks & !DIRTY | OWNED | if dirty { DIRTY } else { 0 };
    }

    /// The core with the only copy loses it.
    #[inline]
    fn leave(&mut self) {
        self.copies = 0;
        self.disown();
    }

    /// The owner, if there is one, shares the line with others.
    #[inline]
    pub(super) fn disown(&mut self) {
        self.marks &= !(OWNED | DIRTY);
    }

    #[inline]
    pub(super) fn lose(&mut self, how: Lost) {
        self.marks &= !(LOST_TO_ITSELF | LOST_TO_ANOTHER);
        self.marks |= match how {
            Lost::No => 0,
            Lost::ToItself => LOST_TO_ITSELF,
            Lost::ToAnother => LOST_TO_ANOTHER,
        };
    }

    #[inline]
    pub(super) fn lost(&self) -> Lost {
        match self.marks & (LOST_TO_ITSELF | LOST_TO_ANOTHER) {
            0 => Lost::No,
            LOST_TO_ITSELF => Lost::ToItself,
            _ => Lost::ToAnother,
        }
    }
}

/// The records of all lines. Lines that no thread has touched take no memory.
#[derive(Default)]
pub(super) struct Lines {
    chunks: Vec<Chunk>,
    count: u32,
}

/// The number of records that are allocated at once.
const CHUNK: u32 = 1 << 15;

const _: () = assert!(FIRST_SET as u32 + CHUNK <= 1 << 16, "each line may have a set");

#[derive(Default)]
struct Chunk {
    /// `None` until a thread touches one of the lines.
    lines: Option<Box<[Line; CHUNK as usize]>>,
    sets: Sets,
}

impl Index<u32> for Lines {
    type Output = Line;

    #[inline]
    fn index(&self, line: u32) -> &Line {
        self.chunks[(line / CHUNK) as usize].lines.as_ref().map_or(&Line::NEW, |lines| &lines[(line % CHUNK) as usize])
    }
}

impl IndexMut<u32> for Lines {
    #[inline]
    fn index_mut(&mut self, line: u32) -> &mut Line {
        self.chunk(line).0
    }
}

impl Lines {
    /// Adds `lines` lines. Returns the number of the first.
    pub(super) fn extend(&mut self, lines: u32) -> u32 {
        let first = self.count;
        self.count = first.checked_add(lines).expect("2^32 lines are more than any machine has");
        self.chunks.resize_with(self.count.div_ceil(CHUNK) as usize, Chunk::default);
        first
    }

    /// A hint that an access to the line comes soon.
    #[inline]
    pub(super) fn expect(&self, line: u32) {
        prefetch(&self[line]);
    }

    /// The line's record, and the sets of its chunk.
    #[inline]
    fn chunk(&mut self, line: u32) -> (&mut Line, &mut Sets) {
        let Chunk { lines, sets } = &mut self.chunks[(line / CHUNK) as usize];
        (&mut lines.get_or_insert_with(untouched)[(line % CHUNK) as usize], sets)
    }

    fn sets(&self, line: u32) -> &Sets {
        &self.chunks[(line / CHUNK) as usize].sets
    }

    /// Whether the core has a copy.
    #[inline]
    pub(super) fn has_copy(&self, line: u32, core: u32) -> bool {
        match self[line].copies {
            set @ FIRST_SET.. => self.sets(line)[set].contains(core),
            one => u32::from(one) == core + 1,
        }
    }

    /// Whether one of these cores has a copy.
    #[inline]
    pub(super) fn has_copy_in(&self, line: u32, cores: &Cores) -> bool {
        match self[line].copies {
            0 => false,
            set @ FIRST_SET.. => self.sets(line)[set].intersects(cores),
            one => cores.contains(u32::from(one) - 1),
        }
    }

    /// The cores with a copy.
    pub(super) fn copies(&self, line: u32) -> Cores {
        match self[line].copies {
            0 => Cores::NONE,
            set @ FIRST_SET.. => self.sets(line)[set],
            one => Cores::only(u32::from(one) - 1),
        }
    }

    /// The core becomes the only one with a copy.
    pub(super) fn give_to(&mut self, line: u32, core: u32) {
        let (line, sets) = self.chunk(line);
        let copies = std::mem::replace(&mut line.copies, core as u16 + 1);
        if copies >= FIRST_SET {
            sets.spare(copies);
        }
    }

    /// The core gets a copy, too.
    pub(super) fn add_copy(&mut self, line: u32, core: u32) {
        let (line, sets) = self.chunk(line);
        match line.copies {
            0 => line.copies = core as u16 + 1,
            set @ FIRST_SET.. => sets[set].insert(core),
            one if u32::from(one) == core + 1 => {}
            one => line.copies = sets.make([u32::from(one) - 1, core].into_iter().collect()),
        }
    }

    /// These cores lose their copies, and the ownership.
    #[inline]
    pub(super) fn remove_copies(&mut self, line: u32, cores: &Cores) {
        let (line, sets) = self.chunk(line);
        match line.copies {
            0 => {}
            set @ FIRST_SET.. => line.copies = sets.remove(set, cores),
            one if cores.contains(u32::from(one) - 1) => line.leave(),
            _ => {}
        }
    }

    /// The same for one core. Returns whether it had a copy.
    #[inline]
    pub(super) fn remove_copy(&mut self, line: u32, core: u32) -> bool {
        let (line, sets) = self.chunk(line);
        match line.copies {
            set @ FIRST_SET.. => {
                let had = sets[set].contains(core);
                if had {
                    line.copies = sets.remove(set, &Cores::only(core));
                }
                had
            }
            one => {
                let had = u32::from(one) == core + 1;
                if had {
                    line.leave();
                }
                had
            }
        }
    }
}

/// Records of untouched lines.
#[cold]
fn untouched() -> Box<[Line; CHUNK as usize]> {
    vec![Line::NEW; CHUNK as usize].try_into().expect("so many")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(of: &[u32]) -> Cores {
        of.iter().copied().collect()
    }

    #[test]
    fn copies_are_a_set() {
        let mut lines = Lines::default();
        lines.extend(2 * CHUNK);
        for line in [0, CHUNK + 1] {
            assert_eq!(lines.copies(line), Cores::NONE);
            lines.add_copy(line, 255);
            lines.add_copy(line, 255);
            assert_eq!((lines.copies(line), lines.has_copy(line, 255)), (cores(&[255]), true));
            lines.add_copy(line, 0);
            lines.add_copy(line, 100);
            assert_eq!(lines.copies(line), cores(&[0, 100, 255]));
            assert!(lines.has_copy(line, 100) && !lines.has_copy(line, 99));
            assert!(lines.has_copy_in(line, &cores(&[99, 100])) && !lines.has_copy_in(line, &cores(&[99, 101])));
            lines.remove_copies(line, &cores(&[0, 1, 2]));
            assert_eq!(lines.copies(line), cores(&[100, 255]));
            lines.remove_copies(line, &cores(&[255]));
            assert_eq!((lines.copies(line), lines[line].owner()), (cores(&[100]), None));
            lines.remove_copies(line, &cores(&[255]));
            assert_eq!(lines.copies(line), cores(&[100]));
            lines.remove_copies(line, &cores(&[100]));
            assert_eq!((lines.copies(line), lines[line].owner()), (Cores::NONE, None));
        }
    }

    #[test]
    fn a_set_that_is_needed_no_more_is_used_again() {
        let mut lines = Lines::default();
        lines.extend(CHUNK);
        for line in 0..CHUNK {
            let (one, other) = (line % 256, (line + 1) % 256);
            lines.add_copy(line, one);
            lines.add_copy(line, other);
            match line % 3 {
                0 => lines.give_to(line, 7),
                1 => lines.remove_copies(line, &cores(&[one, other])),
                _ => lines.remove_copies(line, &cores(&[one])),
            }
        }
        assert_eq!(lines.chunks[0].sets.len(), 1);
    }

    #[test]
    fn a_core_loses_its_copy_once() {
        let mut lines = Lines::default();
        lines.extend(1);
        assert!(!lines.remove_copy(0, 0), "nobody has touched it");
        (1..=3).for_each(|core| lines.add_copy(0, core));
        assert_eq!([0, 2, 2, 3].map(|core| lines.remove_copy(0, core)), [false, true, false, true]);
        assert_eq!((lines.copies(0), lines.has_copy_in(0, &cores(&[0, 2, 3]))), (cores(&[1]), false));
        lines[0].own(true);
        assert_eq!([0, 1, 1].map(|core| lines.remove_copy(0, core)), [false, true, false]);
        assert_eq!((lines.copies(0), lines[0].owner(), lines[0].is_dirty()), (Cores::NONE, None, false));
    }

    #[test]
    fn marks_do_not_touch_each_other() {
        let mut lines = Lines::default();
        lines.extend(1);
        lines.give_to(0, 255);
        let line = &mut lines[0];
        line.lose(Lost::ToAnother);
        assert_eq!((line.owner(), line.lost(), line.home()), (None, Lost::ToAnother, None));
        line.own(false);
        line.settle_at(31);
        line.settle_at(2);
        assert_eq!((line.owner(), line.is_dirty(), line.home()), (Some(255), false, Some(31)));
        line.soil();
        line.lose(Lost::ToItself);
        assert!(line.is_dirty() && line.is_owned_by(255) && !line.is_owned_by(254));
        line.disown();
        assert_eq!((line.owner(), line.is_dirty(), line.lost()), (None, false, Lost::ToItself));
        line.lose(Lost::No);
        assert_eq!(line.lost(), Lost::No);
    }
}
