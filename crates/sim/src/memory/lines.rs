//! # What is known of each line
//!
//! There may be millions of lines, and a program that reads them in no order has each one's 16 bytes fetched from this computer's own
//! memory: hence so few. Most lines have a copy in one core's cache at most, whose number stands in the line; the cores with copies of one
//! that has more stand in a table beside.
//!
//! | `copies` | cores with a copy |
//! |---|---|
//! | 0 | none |
//! | 1 … 256 | the one of that number, less one |
//! | above | those in the set of that number, less 257 |
//!
//! ## Invariants
//! 1. Each set in use has two cores or more, and belongs to one line of its chunk: there are never more of them than lines.

use std::ops::{Index, IndexMut};

use crate::Ps;
use crate::description::MAX_CORES;
use crate::host::prefetch;
use crate::shape::Cores;

/// Of [`Line::marks`]: the core with the only copy owns the line; exclusive or modified there.
const OWNED: u8 = 1 << 0;
/// The owner has written to it.
const DIRTY: u8 = 1 << 1;
/// Why the last-level cache that had it last has it no more.
const LOST_TO_ITSELF: u8 = 1 << 2;
const LOST_TO_ANOTHER: u8 = 1 << 3;

/// What is known of a line. Nothing but zeros: nobody has touched it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// When its server is free.
    pub(super) free_at: Ps,
    /// The nodes whose last-level cache has it.
    pub(super) llc: u32,
    copies: u16,
    marks: u8,
    /// The node that has its memory, plus one; 0: none yet.
    home: u8,
}

const _: () = assert!(size_of::<Line>() == 16);

/// Why a line is in no last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    No,
    /// The one who had brought it in brought in another one.
    ToItself,
    ToAnother,
}

impl Line {
    const NEW: Self = Self { free_at: 0, llc: 0, copies: 0, marks: 0, home: 0 };

    #[inline]
    pub(super) fn home(&self) -> Option<u32> {
        u32::from(self.home).checked_sub(1)
    }

    /// The node is its home, unless it has one.
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

    /// Whether a core has a copy.
    #[inline]
    pub(super) fn has_copies(&self) -> bool {
        self.copies != 0
    }

    /// Whether its owner has written to it.
    #[inline]
    pub(super) fn is_dirty(&self) -> bool {
        self.marks & DIRTY != 0
    }

    /// Its owner has written to it.
    #[inline]
    pub(super) fn soil(&mut self) {
        self.marks |= DIRTY;
    }

    /// The core with the only copy owns the line.
    pub(super) fn own(&mut self, dirty: bool) {
        debug_assert!(u32::from(self.copies).wrapping_sub(1) < MAX_CORES, "one core has a copy");
        self.marks = self.marks & !DIRTY | OWNED | if dirty { DIRTY } else { 0 };
    }

    /// Whoever has a copy shares it with others.
    pub(super) fn disown(&mut self) {
        self.marks &= !(OWNED | DIRTY);
    }

    pub(super) fn lose(&mut self, how: Lost) {
        self.marks &= !(LOST_TO_ITSELF | LOST_TO_ANOTHER);
        self.marks |= match how {
            Lost::No => 0,
            Lost::ToItself => LOST_TO_ITSELF,
            Lost::ToAnother => LOST_TO_ANOTHER,
        };
    }

    pub(super) fn lost(&self) -> Lost {
        match self.marks & (LOST_TO_ITSELF | LOST_TO_ANOTHER) {
            0 => Lost::No,
            LOST_TO_ITSELF => Lost::ToItself,
            _ => Lost::ToAnother,
        }
    }
}

/// All lines. Those that nobody has touched yet take no memory.
#[derive(Default)]
pub(super) struct Lines {
    chunks: Vec<Chunk>,
    count: u32,
}

/// Lines that are made at once.
const CHUNK: u32 = 1 << 15;
/// What a line's `copies` begin with that are a set.
const FIRST_SET: u16 = MAX_CORES as u16 + 1;

const _: () = assert!(FIRST_SET as u32 + CHUNK <= 1 << 16, "each line may have a set");

#[derive(Default)]
struct Chunk {
    /// None if nobody has touched any of them.
    lines: Box<[Line]>,
    /// Cores with copies of a line, and which of these sets nobody uses.
    sets: Vec<Cores>,
    spare: Vec<u16>,
}

impl Index<u32> for Lines {
    type Output = Line;

    #[inline]
    fn index(&self, line: u32) -> &Line {
        self.chunks[(line / CHUNK) as usize].lines.get((line % CHUNK) as usize).unwrap_or(&Line::NEW)
    }
}

impl IndexMut<u32> for Lines {
    #[inline]
    fn index_mut(&mut self, line: u32) -> &mut Line {
        &mut self.chunk(line).lines[(line % CHUNK) as usize]
    }
}

impl Lines {
    /// So many more lines; the number of the first of them.
    pub(super) fn extend(&mut self, lines: u32) -> u32 {
        let first = self.count;
        self.count = first.checked_add(lines).expect("2^32 lines are more than any machine has");
        self.chunks.resize_with(self.count.div_ceil(CHUNK) as usize, Chunk::default);
        first
    }

    /// Somebody will ask for the line soon.
    #[inline]
    pub(super) fn expect(&self, line: u32) {
        self.chunks[(line / CHUNK) as usize].lines.get((line % CHUNK) as usize).into_iter().for_each(prefetch);
    }

    /// With its lines.
    #[inline]
    fn chunk(&mut self, line: u32) -> &mut Chunk {
        let chunk = &mut self.chunks[(line / CHUNK) as usize];
        if chunk.lines.is_empty() {
            chunk.make();
        }
        chunk
    }

    /// Whether that core has a copy.
    #[inline]
    pub(super) fn has_copy(&self, line: u32, core: u32) -> bool {
        let copies = self[line].copies;
        if copies < FIRST_SET {
            u32::from(copies) == core + 1
        } else {
            self.chunks[(line / CHUNK) as usize].sets[usize::from(copies - FIRST_SET)].contains(core)
        }
    }

    /// The cores with a copy.
    pub(super) fn copies(&self, line: u32) -> Cores {
        match self[line].copies {
            0 => Cores::NONE,
            set @ FIRST_SET.. => self.chunks[(line / CHUNK) as usize].sets[usize::from(set - FIRST_SET)],
            core => Cores::only(u32::from(core) - 1),
        }
    }

    /// That core has a copy, and nobody else.
    pub(super) fn give_to(&mut self, line: u32, core: u32) {
        let chunk = self.chunk(line);
        let copies = std::mem::replace(&mut chunk.lines[(line % CHUNK) as usize].copies, core as u16 + 1);
        if copies >= FIRST_SET {
            chunk.spare.push(copies - FIRST_SET);
        }
    }

    /// That core has a copy, too.
    pub(super) fn add_copy(&mut self, line: u32, core: u32) {
        let chunk = self.chunk(line);
        let copies = &mut chunk.lines[(line % CHUNK) as usize].copies;
        let mine = core as u16 + 1;
        if *copies >= FIRST_SET {
            chunk.sets[usize::from(*copies - FIRST_SET)].insert(core);
        } else if *copies == 0 {
            *copies = mine;
        } else if *copies != mine {
            let set = [u32::from(*copies) - 1, core].into_iter().collect();
            *copies = match chunk.spare.pop() {
                Some(spare) => {
                    chunk.sets[usize::from(spare)] = set;
                    FIRST_SET + spare
                }
                None => {
                    chunk.sets.push(set);
                    FIRST_SET + (chunk.sets.len() - 1) as u16
                }
            };
        }
    }

    /// These cores have no copy any more, nor own it.
    pub(super) fn remove_copies(&mut self, line: u32, cores: &Cores) {
        let chunk = self.chunk(line);
        let line = &mut chunk.lines[(line % CHUNK) as usize];
        if line.copies == 0 {
            return;
        }
        if line.copies < FIRST_SET {
            if cores.contains(u32::from(line.copies) - 1) {
                line.copies = 0;
                line.disown();
            }
            return;
        }
        let number = line.copies - FIRST_SET;
        let set = &mut chunk.sets[usize::from(number)];
        set.remove_all(cores);
        if let Some(few) = set.at_most_one() {
            line.copies = few.map_or(0, |core| core as u16 + 1);
            chunk.spare.push(number);
        }
    }
}

impl Chunk {
    #[cold]
    fn make(&mut self) {
        self.lines = vec![Line::NEW; CHUNK as usize].into_boxed_slice();
    }
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
