//! Cores with copies of a line, where there are several: see [`lines`](super::lines).

use std::ops::{Index, IndexMut};

use crate::description::MAX_CORES;
use crate::shape::Cores;

/// What a line's `copies` begin with that are a set.
pub(super) const FIRST_SET: u16 = MAX_CORES as u16 + 1;

/// Cores with copies of a line, by what the line's `copies` says; and which of these sets nobody uses.
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
    /// How many there are, in use or not.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// What the `copies` are of a line that these cores have.
    pub(super) fn make(&mut self, cores: Cores) -> u16 {
        let copies = self.spare.pop().unwrap_or_else(|| {
            self.sets.push(Cores::NONE);
            FIRST_SET + (self.sets.len() - 1) as u16
        });
        self[copies] = cores;
        copies
    }

    /// Nobody uses the set any more.
    pub(super) fn spare(&mut self, copies: u16) {
        self.spare.push(copies);
    }

    /// What the line's `copies` are without these cores.
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
