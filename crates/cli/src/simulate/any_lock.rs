//! A lock of the catalogue whose type is forgotten: so simulation and workloads are compiled once, not once for each of some fifty
//! locks and ways of waiting.

use std::mem::offset_of;

use flashlock_locks::catalogue::LockId;
use flashlock_locks::for_each_lock;
use flashlock_locks::raw::RawLock;
use flashlock_native::settings::Choice;
use flashlock_sim::{Sim, Word};

/// The state of any lock, in place, and what to do with it.
#[repr(C)]
pub(super) struct AnyLock {
    word: Word,
    queue: [Word; 5],
    kind: &'static Kind,
}

// As everywhere, the queue begins where the word ends: simulated caches see that.
const _: () = assert!(offset_of!(AnyLock, queue) == 4);

/// The functions of one lock.
pub(super) struct Kind {
    lock: fn(&AnyLock),
    unlock: fn(&AnyLock),
}

impl Kind {
    const fn of<L: RawLock<Sim>>() -> Self {
        Self {
            lock: |any| L::lock(&any.word, any.queue_of::<L>()),
            unlock: |any| L::unlock(&any.word, any.queue_of::<L>()),
        }
    }
}

impl AnyLock {
    /// Free: all-zero state is, of every lock.
    pub(super) fn new(kind: &'static Kind) -> Self {
        use flashlock_locks::machine::Word as _;
        Self { word: Word::new(0), queue: std::array::from_fn(|_| Word::new(0)), kind }
    }

    fn queue_of<L: RawLock<Sim>>(&self) -> &L::Queue {
        const {
            assert!(size_of::<L::Queue>() <= size_of::<[Word; 5]>() && align_of::<L::Queue>() <= align_of::<Word>());
        }
        // SAFETY: the queue of a lock on `Word`s is made of words: it fits (checked above), and any bits are valid words. `kind` is
        // that of one lock, so the memory is seen as one type of queue only.
        unsafe { &*self.queue.as_ptr().cast() }
    }

    /// Waits until the calling thread holds it.
    pub(super) fn lock(&self) {
        (self.kind.lock)(self);
    }

    /// Lets another thread in.
    pub(super) fn unlock(&self) {
        (self.kind.unlock)(self);
    }
}

macro_rules! define_kinds {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The functions of that lock, waiting that way.
        pub(super) fn kind(choice: &Choice) -> &'static Kind {
            match choice.lock {
                $(LockId::$variant => {
                    const LIST: &[Kind] = &[$(Kind::of::<$type>()),+];
                    &LIST[choice.wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_lock!(define_kinds);
