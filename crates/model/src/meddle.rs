//! # Meddling: single accesses done differently
//!
//! A test seeds a bug in one access with this. The algorithm is the production one. When the machine recognises the
//! access, by the word's [`Field`] and by the value written, it does what the test says instead. So a test can say "the
//! waiter at the head of the queue does not write 2 when it leaves", without a copy of the algorithm.

use crate::word::{Field, Op};

/// An access that a thread is about to make, or a load that it has made.
pub struct Access<'a> {
    pub(crate) field: u8,
    /// The operation.
    pub op: Op,
    /// The value that the word must hold for the access.
    pub old: u32,
    /// The value written; the value that a load has seen; how many sleepers to wake; 1 if a sleep ended by its
    /// deadline.
    pub new: u32,
    /// A value that the test keeps for the thread; 0 at first.
    pub mark: &'a mut u32,
}

impl Access<'_> {
    /// Whether this is that operation, on a word with that purpose.
    pub fn is(&self, field: Field, op: Op) -> bool {
        self.field == field as u8 && self.op == op
    }
}

/// What the machine does instead.
#[derive(Clone, Copy)]
pub enum Instead {
    /// What the algorithm says, unchanged.
    AsTold,
    /// The same operation, but with this value instead of the value written, seen, expected by a sleeper, or woken.
    With(u32),
    /// Nothing, without the thread noticing.
    Nothing,
    /// A compare-and-exchange with another comparison: the word's value is changed by this function if it returns a
    /// value. A sleep begins if the function returns a value for the word's value.
    Loosely(fn(u32) -> Option<u32>),
    /// A compare-and-exchange in two steps: another thread may come in between.
    InTwoSteps,
}

/// Decides what is done instead of an access.
pub type Meddler = fn(&mut Access<'_>) -> Instead;
