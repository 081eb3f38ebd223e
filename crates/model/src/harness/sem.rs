//! A semaphore to check.

use flashlock_locks::machine::{Deadline, Word as _};
use flashlock_locks::sem::{Ended, Entry, SemQueue, Semaphore};

use crate::Model;
use crate::checker::{Checker, Data};
use crate::tag::Tag;
use crate::word::{Field, Word};

/// A semaphore, and data that its permit protects if there is only one.
pub struct Sem<C: Checker> {
    word: Word<C>,
    queue: SemQueue<Model<C>>,
    data: C::Data,
}

impl<C: Checker> Sem<C> {
    /// A semaphore with this many permits.
    pub fn new(permits: u32) -> Self {
        let sem = Self { word: Word::new(permits), queue: SemQueue::new(), data: C::Data::new() };
        sem.word.tag(Field::SemWord);
        sem.queue.tag();
        sem
    }

    /// The production semaphore.
    pub fn semaphore(&self) -> Semaphore<'_, Model<C>> {
        // SAFETY: the two are private.
        unsafe { Semaphore::new(&self.word, &self.queue) }
    }

    /// Begins a wait.
    pub fn begin(&self) -> Entry {
        // SAFETY: as for `Cond::enqueue`.
        unsafe { self.semaphore().begin(None) }
    }

    /// Gives a permit.
    pub fn post(&self) {
        self.semaphore().post().expect("room for a permit");
    }

    /// Takes a permit. Returns whether there was one in time.
    pub fn wait(&self, until: Option<Deadline>) -> bool {
        self.semaphore().wait(until) == Ended::Acquired
    }

    /// Accesses the data; only the thread that has the permit may call this.
    pub fn visit(&self) -> u32 {
        self.data.visit()
    }

    /// The number of permits.
    pub fn value(&self) -> u32 {
        self.semaphore().value()
    }

    /// Destroys it, and frees its memory (but not the data).
    pub fn destroy(&self) {
        self.semaphore().destroy();
        self.word.tag(Field::Freed);
        self.queue.free();
    }
}
