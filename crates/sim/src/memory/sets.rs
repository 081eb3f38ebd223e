//! Sets of cores with copies of a line, for lines with several copies: see [`lines`](super::lines).

use std::ops::{Index, IndexMut};

use crate::description::MAX_CORES;
use crate::shape::Cores;

/// The first value of a line's `copies` that names a set.
pub(super) const FIRST_SET: u16 = MAX_CORES as u16 + 1;

/// The sets, by the value of a line's `copies`, and the unused ones among them.
#[derive(Default)]
pub(super) struct Sets {
    sets: Vec<Cores>,
    spare: Vec<u16>,
}

impl Index<u16> for Sets {
    type Output = Cores;

    #[inline]
    fn index(&self, copies: u16) -> &Cores {
        &self.sets[usize::from(copies - FIRST_SET)]
    }
}

impl IndexMut<u16> for Sets {
    #[inline]
    fn index_mut(&mut self, copies: u16) -> &mut Cores {
        &mut self.sets[usize::from(copies - FIRST_SET)]
    }
}

impl Sets {
    /// The number of sets, used or not.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// A set of these cores. Returns the value for the line's `copies`.
    pub(super) fn make(&mut self, cores: Cores) -> u16 {
        let copies = self.spare.pop().unwrap_or_else(|| {
            self.sets.push(Cores::NONE);
            FIRST_SET + (self.sets.len() - 1) as u16
        });
        self[copies] = cores;
        copies
    }

    /// The set is no longer used.
    pub(super) fn spare(&mut self, copies: u16) {
        self.spare.push(copies);
    }

    /// Removes these cores from the set. Returns the new value of the line's `copies`.
    pub(super) fn remove(&mut self, copies: u16, cores: &Cores) -> u16 {
        let set = &mut self[copies];
        set.remove_all(cores);
        match set.at_most_one() {
            None => copies,
            Some(few) => {
                self.spare.push(copies);
                few.map_or(0, |core| core as u16 + 1)
            }
        }
    }
}
