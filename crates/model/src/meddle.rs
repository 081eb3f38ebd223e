//! # Accesses done otherwise
//!
//! A seeded bug in one access: the algorithm is the production one, and the machine does what the test says whenever it
//! recognizes that access, by the word's [`Field`] and by what is written. So a test can say "the head that leaves does
//! not write 2", and needs no copy of the algorithm.

use crate::word::{Field, Op};

/// An access that a thread is about to make, or a load that it has made.
pub struct Access<'a> {
    pub(crate) field: u8,
    /// Which one.
    pub op: Op,
    /// What the word must hold for it.
    pub old: u32,
    /// What is written; what a load has seen; how many are to be woken; 1 if a sleep ended by its deadline.
    pub new: u32,
    /// What the test remembers of the thread: 0 at first.
    pub mark: &'a mut u32,
}

impl Access<'_> {
    /// Whether it is this operation, on a word of this kind.
    pub fn is(&self, field: Field, op: Op) -> bool {
        self.field == field as u8 && self.op == op
    }
}

/// What the machine does.
#[derive(Clone, Copy)]
pub enum Instead {
    /// What the algorithm says.
    AsTold,
    /// The same, with this value for the one that is written, seen, expected by a sleeper, or woken.
    With(u32),
    /// Nothing, and the thread does not notice.
    Nothing,
    /// A compare-and-exchange that compares otherwise: what the word holds is changed like this, if at all. A sleep
    /// begins if there is such a change of what the word holds.
    Loosely(fn(u32) -> Option<u32>),
    /// A compare-and-exchange in two steps: somebody else may come in between.
    InTwoSteps,
}

/// Decides what is done instead.
pub type Meddler = fn(&mut Access<'_>) -> Instead;
