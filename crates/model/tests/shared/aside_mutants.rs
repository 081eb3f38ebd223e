//! CNA with one bug each: its release, or its succession, done wrong.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::cond::Chain;
use flashlock_locks::machine::{Deadline, Handle, Machine, Patience, TimedOut, Word as _};
use flashlock_locks::node::state;
use flashlock_locks::numa::Cna;
use flashlock_locks::numa::cna::SameNode;
use flashlock_locks::queue::aside::{AsideLock, AsideQueue, HELD_ASIDE, Succession};
use flashlock_locks::queue::link::Link;
use flashlock_locks::raw::RawLock;
use flashlock_locks::wait::Park;

type Sound = Cna<Park>;

/// CNA whose release, when the main queue is empty, has the bug `B`, one of the constants below.
pub(crate) struct MutantAside<const B: u8>;
/// Nothing is wrong: the skeleton of the mutants must hold, where nobody gives up.
pub(crate) const KEEPS: u8 = 0;
/// Frees the lock although waiters are aside.
pub(crate) const FREES: u8 = 1;
/// Makes those aside the main queue by an exchange, not a CAS: whoever joins just then is overwritten.
pub(crate) const SWAPS_TAIL: u8 = 2;
/// Hands over to one who has given up.
pub(crate) const GRANTS_GONE: u8 = 3;
/// Does not wake the successor.
pub(crate) const WAKES_NONE: u8 = 4;

impl<const B: u8> MutantAside<B> {
    /// (HELD_ASIDE, aside) -> (tail = last of those aside), granted to the first. Whether that was the state.
    fn recall<M: Machine>(queue: &AsideQueue<M>) -> bool {
        if queue.tail.load(Acquire) != HELD_ASIDE {
            return false;
        }
        if B == FREES && queue.tail.compare_exchange(HELD_ASIDE, 0, Release, Relaxed).is_ok() {
            return true;
        }
        let last = queue.last_aside().expect("somebody is aside");
        let link = &last.node::<M>().next;
        let first = Link::from_word(link.load(Relaxed)).expect("a ring").to();
        queue.aside.store(0, Relaxed);
        link.store(0, Relaxed);
        if B == SWAPS_TAIL {
            queue.tail.swap(last.word(), AcqRel);
        } else if queue.tail.compare_exchange(HELD_ASIDE, last.word(), Release, Relaxed).is_err() {
            let joined = M::spin_until(&queue.next, Acquire, Patience::Forever, |link| link != 0);
            link.store(joined.expect("a joiner"), Relaxed);
        }
        let before = first.node::<M>().state.swap(state::HEAD, AcqRel);
        assert!(before != state::ABANDONED || B == GRANTS_GONE, "a skeleton for waiters that stay");
        if before == state::PARKED && B != WAKES_NONE {
            M::unpark(first.node());
        }
        true
    }
}

impl<M: Machine, const B: u8> RawLock<M> for MutantAside<B> {
    type Queue = AsideQueue<M>;

    fn new_queue() -> Self::Queue {
        <Sound as RawLock<M>>::new_queue()
    }
    fn try_lock(word: &M::Word, queue: &Self::Queue) -> bool {
        <Sound as RawLock<M>>::try_lock(word, queue)
    }
    fn lock(word: &M::Word, queue: &Self::Queue) {
        <Sound as RawLock<M>>::lock(word, queue);
    }
    fn lock_until(word: &M::Word, queue: &Self::Queue, until: Deadline) -> Result<(), TimedOut> {
        <Sound as RawLock<M>>::lock_until(word, queue, until)
    }
    fn unlock(word: &M::Word, queue: &Self::Queue) {
        if !Self::recall(queue) {
            <Sound as RawLock<M>>::unlock(word, queue);
        }
    }
    fn is_locked(word: &M::Word, queue: &Self::Queue) -> bool {
        <Sound as RawLock<M>>::is_locked(word, queue)
    }
    fn adopt(word: &M::Word, queue: &Self::Queue, chain: Chain) {
        <Sound as RawLock<M>>::adopt(word, queue, chain);
    }
    fn lock_adopted(word: &M::Word, queue: &Self::Queue, me: Handle) {
        <Sound as RawLock<M>>::lock_adopted(word, queue, me);
    }
}

/// A lock with the succession `S`, which has a bug.
pub(crate) type Mutant<S> = AsideLock<S, Park>;

/// Takes only the first of those aside back, and forgets the others.
pub(crate) struct DropsTheRest;
impl Succession for DropsTheRest {
    fn choose<M: Machine>(queue: &AsideQueue<M>, first: Link) -> Handle {
        SameNode::choose(queue, first)
    }
    fn recall<M: Machine>(queue: &AsideQueue<M>, last: Handle) -> (Handle, Handle) {
        let (first, _) = SameNode::recall(queue, last);
        (first, first)
    }
}

/// Takes the tail for the successor, and sets the first aside before that one's successor has linked itself.
pub(crate) struct SetsUnlinkedAside;
impl Succession for SetsUnlinkedAside {
    fn choose<M: Machine>(queue: &AsideQueue<M>, first: Link) -> Handle {
        let tail = Handle::from_word(queue.tail.load(Acquire)).expect("somebody waits");
        if tail == first.to() || queue.has_aside() {
            return SameNode::choose(queue, first);
        }
        first.to().node::<M>().next.store(first.word(), Relaxed);
        queue.aside.store(first.to().word(), Relaxed);
        tail
    }
    fn recall<M: Machine>(queue: &AsideQueue<M>, last: Handle) -> (Handle, Handle) {
        SameNode::recall(queue, last)
    }
}
