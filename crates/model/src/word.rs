//! # The word, and how to weaken it
//!
//! A word knows what it is for ([`Field`]), so that a test can say "every Acquire load of a node's state becomes Relaxed" and
//! run the production algorithm with that ordering bug in it. The algorithms stay as they are.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use flashlock_locks::cond::fifo::CondQueue;
use flashlock_locks::machine::{self, Handle};
use flashlock_locks::malthusian::lifo_cr::LifoQueue;
use flashlock_locks::malthusian::loiter::LoiterQueue;
use flashlock_locks::node::Node;
use flashlock_locks::numa::cohort::CohortQueue;
use flashlock_locks::numa::cohort::global::{McsRest, TicketWords};
use flashlock_locks::queue::aside::AsideQueue;
use flashlock_locks::queue::clh::ClhQueue;
use flashlock_locks::queue::mcs::McsQueue;
use flashlock_locks::rw::cst::CstRwState;
use flashlock_locks::rw::futex::FutexRwState;
use flashlock_locks::rw::shfl::ShflRwState;
use flashlock_locks::sem::SemQueue;
use flashlock_locks::shuffle::ShflQueue;
use flashlock_locks::side::Side;
use flashlock_locks::spin::ticket::TicketQueue;

use crate::Model;
use crate::checker::Checker;
use crate::world::World;

/// What a word is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Field {
    Untagged,
    /// A lock's word.
    LockWord,
    /// `McsQueue::tail`, `AsideQueue::tail`, `ClhQueue::tail`, `ShflQueue::tail`, `LifoQueue::top`.
    LockTail,
    /// `McsQueue::next`, `AsideQueue::front`.
    LockNext,
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
    /// `CohortQueue::home`.
    CohortHome,
    NodeState,
    NodeNext,
    NodeBatch,
    /// Everything else in a node.
    NodeOther,
    CondLock,
    CondHead,
    CondRefs,
    CondEpoch,
    /// `Semaphore::word`.
    SemWord,
    /// `SemQueue::head`, `tail`, `called`.
    SemList,
    SemEpoch,
    /// In memory that has been freed: any access is a failure.
    Freed,
}

/// An operation on a word. A failed compare-and-exchange is a [`Op::CasFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Load,
    Store,
    Swap,
    Cas,
    CasFailed,
    Add,
    Or,
    And,
}

/// An ordering bug: `op` on `field` is done with `to` instead of `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weaken {
    /// On which words.
    pub field: Field,
    /// In which operation.
    pub op: Op,
    /// Where the algorithm says this …
    pub from: Ordering,
    /// … the machine does that.
    pub to: Ordering,
}

/// A 32-bit atomic of the checker's.
pub struct Word<C: Checker> {
    pub(crate) raw: C::Atomic,
    field: AtomicU8,
    /// What the last write in the checker's order of events left: what the kernel sees.
    last: AtomicU32,
}

impl<C: Checker> Word<C> {
    /// Says what the word is for.
    pub fn tag(&self, field: Field) {
        self.field.store(field as u8, Ordering::Relaxed);
    }

    pub(crate) fn field(&self) -> u8 {
        self.field.load(Ordering::Relaxed)
    }

    pub(crate) fn is(&self, field: Field) -> bool {
        self.field.load(Ordering::Relaxed) == field as u8
    }

    fn order(&self, op: Op, order: Ordering) -> Ordering {
        World::<C>::current(|world| {
            let applies = |w: &&Weaken| self.is(w.field) && w.op == op && w.from == order;
            world.setup.weaken.iter().find(applies).map_or(order, |w| w.to)
        })
    }
}

impl<C: Checker> Word<C> {
    /// What the word holds, for a look that is no scheduling point and orders nothing: the kernel's, or an assertion's.
    pub fn peek(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }

    fn wrote(&self, value: u32) {
        self.last.store(value, Ordering::Relaxed);
    }

    /// Notes what was done, for who reads the trace of a failure. It was done just now: nothing has happened since.
    fn note<T: std::fmt::Debug>(&self, op: Op, with: u32, result: T) -> T {
        assert!(!self.is(Field::Freed), "{op:?} of a word in freed memory");
        World::<C>::current(|world| {
            world.note(|| format!("{} {op:?}({with:#x}) -> {result:x?}", world.name_of(self)));
            world.count_atomic(!matches!(op, Op::Load | Op::Store));
            world.step();
        });
        result
    }
}

impl<C: Checker> machine::Word for Word<C> {
    fn new(value: u32) -> Self {
        let (field, last) = (AtomicU8::new(Field::Untagged as u8), AtomicU32::new(value));
        Self { raw: C::Atomic::new(value), field, last }
    }

    fn load(&self, order: Ordering) -> u32 {
        self.note(Op::Load, 0, self.raw.load(self.order(Op::Load, order)))
    }

    /// loom does not know that nothing comes between a read-modify-write and what it read: a plain store that races one may
    /// seem to come before it. Where stores race, they are exchanges.
    fn store(&self, value: u32, order: Ordering) {
        let order = self.order(Op::Store, order);
        if C::EXCHANGES && (self.is(Field::NodeState) || self.is(Field::LockWord)) {
            self.raw.swap(value, order);
        } else {
            self.raw.store(value, order);
        }
        self.wrote(value);
        self.note(Op::Store, value, ());
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        let before = self.raw.swap(value, self.order(Op::Swap, order));
        self.wrote(value);
        self.note(Op::Swap, value, before)
    }

    fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
        let (ok, err) = (self.order(Op::Cas, ok), self.order(Op::CasFailed, err));
        let result = self.raw.compare_exchange(current, new, ok, err);
        if result.is_ok() {
            self.wrote(new);
        }
        self.note(Op::Cas, new, result)
    }

    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        let before = self.raw.fetch_add(value, self.order(Op::Add, order));
        self.wrote(before.wrapping_add(value));
        self.note(Op::Add, value, before)
    }

    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        let before = self.raw.fetch_or(value, self.order(Op::Or, order));
        self.wrote(before | value);
        self.note(Op::Or, value, before)
    }

    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        let before = self.raw.fetch_and(value, self.order(Op::And, order));
        self.wrote(before & value);
        self.note(Op::And, value, before)
    }
}

/// State whose words can be told what they are for.
pub trait Tag {
    /// Tells them.
    fn tag(&self) {}
    /// Its memory has been freed: who touches it now is caught.
    fn free(&self) {}
    /// The nodes that are its memory, too.
    fn beside(&self) -> Vec<Handle> {
        Vec::new()
    }
}

impl Tag for () {}

impl<C: Checker> Tag for Node<Model<C>> {
    fn tag(&self) {
        self.state.tag(Field::NodeState);
        self.next.tag(Field::NodeNext);
        self.batch.tag(Field::NodeBatch);
        let [low, high] = &self.mutex;
        for word in [&self.prev, &self.numa, &self.epoch, &self.since, &self.passes, &self.granted_at, low, high] {
            word.tag(Field::NodeOther);
        }
    }

    fn free(&self) {
        let [low, high] = &self.mutex;
        let links = [&self.state, &self.next, &self.prev, &self.role, &self.since, &self.passes];
        for word in [&self.check_at, &self.granted_at, low, high].into_iter().chain(links) {
            machine::Word::fetch_add(&word.raw, 0, Ordering::Relaxed); // So that the checker knows that it matters who comes first.
            word.tag(Field::Freed);
        }
    }
}

impl<C: Checker> Tag for McsQueue<Model<C>> {
    fn tag(&self) {
        self.tail.tag(Field::LockTail);
        self.next.tag(Field::LockNext);
    }

    fn free(&self) {
        self.tail.tag(Field::Freed);
        self.next.tag(Field::Freed);
    }
}

impl<C: Checker> Tag for AsideQueue<Model<C>> {
    fn tag(&self) {
        self.tail.tag(Field::LockTail);
        self.front.tag(Field::LockNext);
    }

    fn free(&self) {
        [&self.tail, &self.front].iter().for_each(|word| word.tag(Field::Freed));
    }
}

impl<C: Checker> Tag for ClhQueue<Model<C>> {
    fn tag(&self) {
        self.tail.tag(Field::LockTail);
    }

    fn free(&self) {
        [&self.tail, &self.owner, &self.epoch].iter().for_each(|word| word.tag(Field::Freed));
    }
}

impl<C: Checker, Q: Tag> Tag for LoiterQueue<Model<C>, Q> {
    fn tag(&self) {
        self.inner.tag();
    }

    fn free(&self) {
        self.epoch.tag(Field::Freed);
        self.inner.free();
    }
}

impl<C: Checker> Tag for LifoQueue<Model<C>> {
    fn tag(&self) {
        self.top.tag(Field::LockTail);
    }

    fn free(&self) {
        self.top.tag(Field::Freed);
    }
}

impl<C: Checker> Tag for TicketQueue<Model<C>> {
    fn tag(&self) {
        self.next.tag(Field::TicketNext);
        self.serving.tag(Field::TicketServing);
        self.epoch.tag(Field::TicketEpoch);
    }

    fn free(&self) {
        [&self.next, &self.serving, &self.epoch].iter().for_each(|word| word.tag(Field::Freed));
    }
}

impl<C: Checker> Tag for TicketWords<Model<C>> {
    fn tag(&self) {
        self.next.tag(Field::TicketNext);
        self.serving.tag(Field::TicketServing);
    }

    fn free(&self) {
        [&self.next, &self.serving].iter().for_each(|word| word.tag(Field::Freed));
    }
}

impl<C: Checker> Tag for McsRest<Model<C>> {
    fn tag(&self) {
        self.next.tag(Field::LockNext);
    }

    fn free(&self) {
        self.next.tag(Field::Freed);
    }
}

impl<C: Checker, S: Tag> Tag for CohortQueue<Model<C>, S> {
    fn tag(&self) {
        self.side.tag(Field::RwSide);
        self.home.tag(Field::CohortHome);
        self.epoch.tag(Field::TicketEpoch);
        self.global.tag();
    }

    fn free(&self) {
        [&self.side, &self.home, &self.epoch].iter().for_each(|word| word.tag(Field::Freed));
        self.global.free();
    }

    fn beside(&self) -> Vec<Handle> {
        let index = Handle::from_word(self.side.peek());
        let board = index.and_then(|index| Handle::from_word(index.node::<Model<C>>().role.peek()));
        let mut nodes = Vec::new();
        for block in [index, board] {
            Side::<Model<C>>::each_node(block, &mut |node| nodes.push(node));
        }
        nodes
    }
}

impl<C: Checker> Tag for ShflQueue<Model<C>> {
    fn tag(&self) {
        self.tail.tag(Field::LockTail);
        self.head.tag(Field::LockHead);
    }

    fn free(&self) {
        self.tail.tag(Field::Freed);
        self.head.tag(Field::Freed);
    }
}

impl<C: Checker> Tag for ShflRwState<Model<C>> {
    fn tag(&self) {
        self.count.tag(Field::RwCount);
        self.queue.tag();
    }

    fn free(&self) {
        self.count.tag(Field::Freed);
        self.queue.free();
    }
}

impl<C: Checker> Tag for FutexRwState<Model<C>> {
    fn tag(&self) {
        self.count.tag(Field::RwCount);
        self.writers.tag(Field::RwWriters);
    }

    fn free(&self) {
        [&self.count, &self.writers].iter().for_each(|word| word.tag(Field::Freed));
    }
}

impl<C: Checker> Tag for CstRwState<Model<C>> {
    fn tag(&self) {
        self.base.tag();
        self.side.tag(Field::RwSide);
    }

    fn free(&self) {
        self.base.free();
        [&self.side, &self.met].iter().for_each(|word| word.tag(Field::Freed));
    }
}

/// The words of a condition variable: lock, head, tail, refs, epoch.
pub fn cond_words<C: Checker>(queue: &CondQueue<Model<C>>) -> &[Word<C>; 5] {
    const { assert!(size_of::<CondQueue<Model<C>>>() == 5 * size_of::<Word<C>>()) };
    // SAFETY: `CondQueue` is `repr(C)` and made of just these five words.
    unsafe { &*std::ptr::from_ref(queue).cast() }
}

impl<C: Checker> Tag for CondQueue<Model<C>> {
    fn tag(&self) {
        let [lock, head, _, refs, epoch] = cond_words(self);
        lock.tag(Field::CondLock);
        head.tag(Field::CondHead);
        refs.tag(Field::CondRefs);
        epoch.tag(Field::CondEpoch);
    }

    fn free(&self) {
        cond_words(self).iter().for_each(|word| word.tag(Field::Freed));
    }
}

/// The words of a semaphore's list: head, tail, epoch, called.
pub fn sem_words<C: Checker>(queue: &SemQueue<Model<C>>) -> &[Word<C>; 4] {
    const { assert!(size_of::<SemQueue<Model<C>>>() == 4 * size_of::<Word<C>>()) };
    // SAFETY: `SemQueue` is `repr(C)` and made of just these four words.
    unsafe { &*std::ptr::from_ref(queue).cast() }
}

impl<C: Checker> Tag for SemQueue<Model<C>> {
    fn tag(&self) {
        let [head, tail, epoch, called] = sem_words(self);
        [head, tail, called].iter().for_each(|word| word.tag(Field::SemList));
        epoch.tag(Field::SemEpoch);
    }

    fn free(&self) {
        sem_words(self).iter().for_each(|word| word.tag(Field::Freed));
    }
}

/// Makes a newtype of a checker's `AtomicU32` an atomic word.
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
