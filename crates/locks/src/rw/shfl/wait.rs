//! # What a thread waits for at a readers-writer ShflLock
//!
//! For reading or for writing, since when, and what else it checks meanwhile.

use crate::machine::Machine;
use crate::parts::shuffle::turn::LOOK;
use crate::rw::Reader;
use crate::rw::shfl::Want;

/// An extra test of a reader that may pass waiting writers, whenever it looks for the lock itself: has it been admitted
/// through the distributed counters?
pub(crate) type OtherEntry<'a> = Option<&'a dyn Fn() -> bool>;

/// What a thread waits for, and since when.
pub(crate) struct Wait<'a> {
    pub(super) want: Want,
    /// When it began, in µs.
    pub(super) since: u32,
    /// How long (µs) it waits at most once it is head.
    pub(super) at_head: Option<u32>,
    elsewhere: OtherEntry<'a>,
}

impl<'a> Wait<'a> {
    /// A wait that begins now.
    pub(crate) fn begin<M: Machine>(want: Want) -> Self {
        Self { want, since: M::micros(), at_head: None, elsewhere: None }
    }

    /// The same, for at most this long (µs) once it is head.
    pub(crate) fn at_head(self, at_head: u32) -> Self {
        Self { at_head: Some(at_head), ..self }
    }

    /// The same, with that extra test.
    pub(crate) fn looking(self, elsewhere: OtherEntry<'a>) -> Self {
        Self { elsewhere, ..self }
    }

    /// Whether it has an extra test.
    pub(super) fn looks_around(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Whether that says that the reader was admitted.
    pub(super) fn is_over(&self) -> bool {
        self.elsewhere.is_some_and(|look| look())
    }

    /// Whether it may pass waiting writers in the end.
    pub(super) fn passes(&self) -> bool {
        matches!(self.want, Want::Read(Reader::Newcomer | Reader::Again))
    }

    /// How long (µs) the waiter sleeps before it looks for itself the first time.
    pub(super) fn look<M: Machine>(&self) -> u32 {
        if self.passes() { M::tunables().bound_us.max(1) } else { LOOK }
    }
}
