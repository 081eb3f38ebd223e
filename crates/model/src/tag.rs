//! # The purpose of each word in a lock's state
//!
//! When a lock is created, [`Tag::tag`] marks each of its words with its purpose, so that tests can name them. When the
//! lock's memory is freed, [`Tag::free`] marks the words so that any further access fails.

use std::sync::atomic::Ordering;

use flashlock_locks::cond::fifo::CondQueue;
use flashlock_locks::machine;
use flashlock_locks::machine::block::{Block, Name};
use flashlock_locks::machine::node::Node;
use flashlock_locks::mutex::flash::FlashQueue;
use flashlock_locks::mutex::malthusian::lifo_cr::LifoQueue;
use flashlock_locks::mutex::malthusian::loiter::LoiterQueue;
use flashlock_locks::mutex::numa::cohort::CohortQueue;
use flashlock_locks::mutex::numa::cohort::global::{McsRest, TicketWords};
use flashlock_locks::mutex::queue::clh::ClhQueue;
use flashlock_locks::mutex::spin::ticket::TicketQueue;
use flashlock_locks::parts::queue::culling::CullingQueue;
use flashlock_locks::parts::shuffle::ShflQueue;
use flashlock_locks::parts::side::Side;
use flashlock_locks::rw::cst::CstRwState;
use flashlock_locks::rw::futex::FutexRwState;
use flashlock_locks::rw::shfl::ShflRwState;
use flashlock_locks::sem::SemQueue;

use crate::Model;
use crate::arena::name_in;
use crate::checker::Checker;
use crate::word::{Field, Word};

/// State whose words can be marked with their purpose.
pub trait Tag {
    /// Marks the words.
    fn tag(&self) {}
    /// Marks its memory as freed: any further access is detected.
    fn free(&self) {}
    /// The blocks that also belong to it.
    fn beside(&self) -> Vec<Name> {
        Vec::new()
    }
}

impl Tag for () {}

/// A word beside the lock's word.
impl<C: Checker> Tag for Word<C> {
    fn free(&self) {
        self.tag(Field::Freed);
    }
}

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
}

impl<C: Checker> Tag for Block<Model<C>> {
    fn tag(&self) {
        self.words().for_each(|word| word.tag(Field::BlockOther));
        self.tail.tag(Field::BlockTail);
        self.next.tag(Field::BlockNext);
        self.state.tag(Field::BlockState);
    }

    fn free(&self) {
        for word in self.words() {
            // This tells the checker that the order of accesses matters.
            machine::Word::fetch_add(&word.raw, 0, Ordering::Relaxed);
            word.tag(Field::Freed);
        }
    }
}

impl<C: Checker> Tag for CullingQueue<Model<C>> {
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

impl<C: Checker> Tag for FlashQueue<Model<C>> {
    fn tag(&self) {
        self.turn.tag(Field::LockTurn);
        self.state.tag(Field::LockTail);
        self.calls.tag(Field::LockNext);
    }

    fn free(&self) {
        [&self.turn, &self.state, &self.calls].iter().for_each(|word| word.tag(Field::Freed));
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

    fn beside(&self) -> Vec<Name> {
        let first = name_in(self.side.peek());
        let board = first.and_then(|first| name_in(first.block::<Model<C>>().board.peek()));
        let mut blocks = Vec::new();
        for block in [first, board] {
            Side::<Model<C>>::each_block(block, &mut |block| blocks.push(block));
        }
        blocks
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
        [&self.side, &self.heat].iter().for_each(|word| word.tag(Field::Freed));
    }
}

/// The words of a condition variable: lock, head, tail, refs, epoch, deferred.
pub fn cond_words<C: Checker>(queue: &CondQueue<Model<C>>) -> &[Word<C>; 6] {
    const { assert!(size_of::<CondQueue<Model<C>>>() == 6 * size_of::<Word<C>>()) };
    // SAFETY: `CondQueue` is `repr(C)` and consists of exactly these six words.
    unsafe { &*std::ptr::from_ref(queue).cast() }
}

impl<C: Checker> Tag for CondQueue<Model<C>> {
    fn tag(&self) {
        let [lock, head, _, refs, epoch, _] = cond_words(self);
        lock.tag(Field::CondLock);
        head.tag(Field::CondHead);
        refs.tag(Field::CondRefs);
        epoch.tag(Field::CondEpoch);
    }

    fn free(&self) {
        cond_words(self).iter().for_each(|word| word.tag(Field::Freed));
    }
}

/// The words of a semaphore's list: head, tail, epoch.
pub fn sem_words<C: Checker>(queue: &SemQueue<Model<C>>) -> &[Word<C>; 3] {
    const { assert!(size_of::<SemQueue<Model<C>>>() == 3 * size_of::<Word<C>>()) };
    // SAFETY: `SemQueue` is `repr(C)` and consists of exactly these three words.
    unsafe { &*std::ptr::from_ref(queue).cast() }
}

impl<C: Checker> Tag for SemQueue<Model<C>> {
    fn tag(&self) {
        let [head, tail, epoch] = sem_words(self);
        [head, tail].iter().for_each(|word| word.tag(Field::SemList));
        epoch.tag(Field::SemEpoch);
    }

    fn free(&self) {
        sem_words(self).iter().for_each(|word| word.tag(Field::Freed));
    }
}
