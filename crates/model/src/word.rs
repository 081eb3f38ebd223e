//! # The word, and how to weaken it
//!
//! In a model, all atomic words of the production algorithms are of this type. A word knows its purpose ([`Field`]). So
//! a test can say "every Acquire load of a node's state becomes Relaxed", and run the production algorithm with that
//! ordering bug. The algorithms stay unchanged.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use flashlock_locks::machine::{self, Word as _};

use crate::checker::Checker;
use crate::meddle::Instead;
use crate::world::World;

/// The purpose of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Field {
    Untagged,
    /// A lock's word.
    LockWord,
    /// `CullingQueue::tail`, `ClhQueue::tail`, `ShflQueue::tail`, `LifoQueue::top`.
    LockTail,
    /// `CullingQueue::front`.
    LockNext,
    /// `FlashQueue::turn`.
    LockTurn,
    /// `TicketQueue`.
    TicketNext,
    TicketServing,
    TicketEpoch,
    /// `ShflQueue::head`.
    LockHead,
    /// The counter of a readers-writer lock.
    RwCount,
    /// `FutexRwState::writers`.
    RwWriters,
    /// `CstRwState::side`, `CohortQueue::side`.
    RwSide,
    /// `Beside::Drain`.
    Drain,
    /// `CohortQueue::home`.
    CohortHome,
    NodeState,
    NodeNext,
    NodeBatch,
    /// All other words in a node.
    NodeOther,
    /// In side blocks.
    BlockState,
    BlockTail,
    BlockNext,
    BlockOther,
    CondLock,
    CondHead,
    CondRefs,
    CondEpoch,
    /// `Semaphore::word`.
    SemWord,
    /// `SemQueue::head`, `tail`.
    SemList,
    SemEpoch,
    /// `rcl`: the lock's word; a slot's `code` and `asleep`; a server's `sleep`, `turn` and `range`; its maps; a
    /// worker's `at`, and the word on which it sleeps. `RclWanted`: where an adaptive lock is to be.
    RclWord,
    RclCode,
    RclAsleep,
    RclSleep,
    RclQuiet,
    RclBell,
    RclTurn,
    RclRange,
    RclLive,
    RclBusy,
    RclAt,
    RclBed,
    RclWanted,
    /// In freed memory: any access is a failure.
    Freed,
}

/// An operation on a word, or a call that names one. A failed compare-and-exchange is [`Op::CasFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Load,
    Store,
    Swap,
    /// [`Op::Swap`] that writes this value.
    SwapTo(u32),
    Cas,
    /// [`Op::Cas`] that writes the handle of a node.
    CasToNode,
    CasFailed,
    Add,
    Or,
    And,
    /// A sleep on the word begins, or has ended.
    Park,
    Unparked,
    /// Threads that sleep on the word are woken.
    Wake,
}

impl Op {
    /// Whether `self` matches operation `op` that writes `value` (irrelevant for a read).
    fn means(self, op: Op, value: u32) -> bool {
        match self {
            Self::SwapTo(this) => op == Self::Swap && value == this,
            Self::CasToNode => op == Self::Cas && crate::arena::handle_in(value).is_some(),
            _ => self == op,
        }
    }
}

/// An ordering bug: `op` on `field` uses the ordering `to` instead of `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weaken {
    /// The words to which it applies.
    pub field: Field,
    /// The operation to which it applies.
    pub op: Op,
    /// If the algorithm says this …
    pub from: Ordering,
    /// … the machine does that.
    pub to: Ordering,
}

/// A 32-bit atomic of the checker.
pub struct Word<C: Checker> {
    pub(crate) raw: C::Atomic,
    field: AtomicU8,
    /// The value of the last write in the checker's order of events: what the kernel sees.
    last: AtomicU32,
}

impl<C: Checker> Word<C> {
    /// Sets the word's purpose.
    pub fn tag(&self, field: Field) {
        self.field.store(field as u8, Ordering::Relaxed);
    }

    pub(crate) fn field(&self) -> u8 {
        self.field.load(Ordering::Relaxed)
    }

    pub(crate) fn is(&self, field: Field) -> bool {
        self.field.load(Ordering::Relaxed) == field as u8
    }

    fn order(&self, op: Op, value: u32, order: Ordering) -> Ordering {
        World::<C>::current(|world| {
            let applies = |w: &&Weaken| self.is(w.field) && w.op.means(op, value) && w.from == order;
            world.setup.weaken.iter().find(applies).map_or(order, |w| w.to)
        })
    }
}

impl<C: Checker> Word<C> {
    /// The word's value, without a scheduling point or any ordering: for the kernel, or for an assertion.
    pub fn peek(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }

    fn wrote(&self, value: u32) {
        let before = self.last.swap(value, Ordering::Relaxed);
        if before != value && World::<C>::current(|world| world.setup.still) {
            World::<C>::get().kernel.end_naps();
        }
    }

    fn meddled(&self, op: Op, old: u32, new: u32) -> Instead {
        World::<C>::current(|world| world.meddle(self.field(), op, old, new))
    }

    /// Changes the word's value, whatever it is, if `change` says so. Returns the value before.
    fn change(&self, change: fn(u32) -> Option<u32>) -> Result<u32, u32> {
        loop {
            let seen = self.raw.load(Ordering::Relaxed);
            let new = change(seen).ok_or(seen)?;
            if self.raw.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.wrote(new);
                return Ok(seen);
            }
        }
    }

    /// Records what was done, for the trace of a failure. It was done just now: nothing has happened since.
    fn note<T: std::fmt::Debug>(&self, op: Op, with: u32, result: T) -> T {
        assert!(!self.is(Field::Freed), "{op:?} of a word in freed memory");
        let stops = World::<C>::current(|world| {
            world.note(|| format!("{} {op:?}({with:#x}) -> {result:x?}", world.name_of(self)));
            world.count_atomic(!matches!(op, Op::Load | Op::Store));
            world.step();
            world.stops_here()
        });
        if stops {
            World::<C>::get().stop();
        }
        result
    }
}

impl<C: Checker> machine::Word for Word<C> {
    fn new(value: u32) -> Self {
        let (field, last) = (AtomicU8::new(Field::Untagged as u8), AtomicU32::new(value));
        Self { raw: C::Atomic::new(value), field, last }
    }

    fn load(&self, order: Ordering) -> u32 {
        let seen = self.raw.load(self.order(Op::Load, 0, order));
        self.note(Op::Load, 0, if let Instead::With(other) = self.meddled(Op::Load, 0, seen) { other } else { seen })
    }

    /// loom does not know that nothing comes between a read-modify-write and what it read: a plain store that races
    /// with one may seem to come before it. So where stores race, they are exchanges.
    fn store(&self, value: u32, order: Ordering) {
        let order = self.order(Op::Store, value, order);
        if let Instead::Nothing = self.meddled(Op::Store, 0, value) {
            return;
        }
        if C::EXCHANGES && [Field::NodeState, Field::LockWord, Field::RclWord].iter().any(|&field| self.is(field)) {
            self.raw.swap(value, order);
        } else {
            self.raw.store(value, order);
        }
        self.wrote(value);
        self.note(Op::Store, value, ());
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        if let Instead::Nothing = self.meddled(Op::Swap, 0, value) {
            return self.load(Ordering::Relaxed);
        }
        let before = self.raw.swap(value, self.order(Op::Swap, value, order));
        self.wrote(value);
        self.note(Op::Swap, value, before)
    }

    fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
        let (ok, err) = (self.order(Op::Cas, new, ok), self.order(Op::CasFailed, new, err));
        let new = match self.meddled(Op::Cas, current, new) {
            Instead::AsTold => new,
            Instead::With(other) => other,
            Instead::Nothing => current,
            Instead::Loosely(change) => {
                let result = self.change(change).map(|_| current);
                return self.note(Op::Cas, new, result);
            }
            Instead::InTwoSteps => {
                let seen = self.raw.load(err);
                if seen != current {
                    return self.note(Op::Cas, new, Err(seen));
                }
                self.raw.store(new, ok);
                self.wrote(new);
                return self.note(Op::Cas, new, Ok(current));
            }
        };
        let result = self.raw.compare_exchange(current, new, ok, err);
        if result.is_ok() {
            self.wrote(new);
        }
        self.note(Op::Cas, new, result)
    }

    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        let before = self.raw.fetch_add(value, self.order(Op::Add, value, order));
        self.wrote(before.wrapping_add(value));
        self.note(Op::Add, value, before)
    }

    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        if let Instead::Nothing = self.meddled(Op::Or, 0, value) {
            return self.load(Ordering::Relaxed);
        }
        let before = self.raw.fetch_or(value, self.order(Op::Or, value, order));
        self.wrote(before | value);
        self.note(Op::Or, value, before)
    }

    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        if let Instead::Nothing = self.meddled(Op::And, 0, value) {
            return self.load(Ordering::Relaxed);
        }
        let before = self.raw.fetch_and(value, self.order(Op::And, value, order));
        self.wrote(before & value);
        self.note(Op::And, value, before)
    }
}

/// Makes an atomic word from a newtype of a checker's `AtomicU32`.
macro_rules! raw_word {
    ($name:ident, $atomic:ty) => {
        /// The checker's `AtomicU32`.
        pub struct $name($atomic);

        impl flashlock_locks::machine::Word for $name {
            fn new(value: u32) -> Self {
                Self(<$atomic>::new(value))
            }
            fn load(&self, order: Ordering) -> u32 {
                self.0.load(order)
            }
            fn store(&self, value: u32, order: Ordering) {
                self.0.store(value, order);
            }
            fn swap(&self, value: u32, order: Ordering) -> u32 {
                self.0.swap(value, order)
            }
            fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
                self.0.compare_exchange(current, new, ok, err)
            }
            fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
                self.0.fetch_add(value, order)
            }
            fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
                self.0.fetch_or(value, order)
            }
            fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
                self.0.fetch_and(value, order)
            }
        }
    };
}
pub(crate) use raw_word;
