//! What is known of each line.

use std::ops::{Index, IndexMut};

use crate::Ps;
use crate::shape::Cores;

/// No owner.
pub(super) const NOBODY: u16 = u16::MAX;
/// No home yet.
pub(super) const NOWHERE: u8 = u8::MAX;

/// What is known of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) sharers: Cores,
    /// When its server is free.
    pub(super) free_at: Ps,
    /// The nodes whose last-level cache has it.
    pub(super) llc: u32,
    /// Exclusive or modified there.
    pub(super) owner: u16,
    /// The owner has written to it.
    pub(super) dirty: bool,
    pub(super) home: u8,
    /// Why the last-level cache that had it last has it no more.
    pub(super) lost: Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    No,
    /// The one who had brought it in brought in another one.
    ToItself,
    ToAnother,
}

impl Line {
    pub(super) const NEW: Self =
        Self { sharers: Cores::NONE, free_at: 0, llc: 0, owner: NOBODY, dirty: false, home: NOWHERE, lost: Lost::No };

    pub(super) fn owner(&self) -> Option<u32> {
        (self.owner != NOBODY).then_some(u32::from(self.owner))
    }
}

/// All lines. Those that nobody has touched yet take no memory.
#[derive(Default)]
pub(super) struct Lines {
    chunks: Vec<Option<Box<[Line]>>>,
    count: u32,
}

/// Lines that are made at once.
const CHUNK: u32 = 1 << 10;

impl Index<u32> for Lines {
    type Output = Line;

    fn index(&self, line: u32) -> &Line {
        self.chunks[(line / CHUNK) as usize].as_ref().map_or(&Line::NEW, |chunk| &chunk[(line % CHUNK) as usize])
    }
}

impl IndexMut<u32> for Lines {
    #[inline]
    fn index_mut(&mut self, line: u32) -> &mut Line {
        let chunk = &mut self.chunks[(line / CHUNK) as usize];
        let chunk = chunk.get_or_insert_with(|| vec![Line::NEW; CHUNK as usize].into_boxed_slice());
        &mut chunk[(line % CHUNK) as usize]
    }
}

impl Lines {
    /// So many more lines; the number of the first of them.
    pub(super) fn extend(&mut self, lines: u32) -> u32 {
        let first = self.count;
        self.count = first.checked_add(lines).expect("2^32 lines are more than any machine has");
        self.chunks.resize_with(self.count.div_ceil(CHUNK) as usize, || None);
        first
    }
}
