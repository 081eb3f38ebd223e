//! CNA and MCSCRN with one bug each: the release, or the succession, done wrong.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Handle, Machine, Patience, Word as _};
use flashlock_locks::mutex::malthusian::mcscrn::FewestAtHome;
use flashlock_locks::mutex::numa::Cna;
use flashlock_locks::mutex::numa::cna::SameNode;
use flashlock_locks::parts::queue::culling::{CullingLock, CullingQueue};
use flashlock_locks::parts::queue::link::{GIVEN, Link};
use flashlock_locks::parts::queue::succession::{Holder, Succession};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::Park;
use flashlock_model::arena::{handle_in, link_in};

type Sound = Cna<Park>;

/// CNA whose release, when the main queue is empty, has the bug `B`, one of the constants below.
pub(crate) struct MutantCulling<const B: u8>;
/// Nothing is wrong: the skeleton of the mutants must hold, where no waiter gives up.
pub(crate) const KEEPS: u8 = 0;
/// Frees the lock although waiters are culled.
pub(crate) const FREES: u8 = 1;
/// Makes the culled waiters the main queue by an exchange, not a CAS: a thread that joins just then is overwritten.
pub(crate) const SWAPS_TAIL: u8 = 2;
/// Hands over to a waiter that has given up.
pub(crate) const GRANTS_GONE: u8 = 3;
/// Does not wake the successor.
pub(crate) const WAKES_NONE: u8 = 4;

/// Takes the tail for the successor, and culls the first before that one's successor has linked itself.
pub(crate) const CULLS_UNLINKED: u8 = 5;

/// Frees the lock, because its only waiter has gone, and leaves `front` as it was.
pub(crate) const KEEPS_FRONT: u8 = 6;

/// Leaves the note for the joiner by a plain store: if the joiner has just linked itself, no node names it any more.
pub(crate) const GIVES_BY_STORE: u8 = 7;
/// Gives the node back in which the note is.
pub(crate) const KEEPS_NOTE: u8 = 8;

/// What the calling holder has.
fn holder_of<M: Machine>(queue: &CullingQueue<M>) -> Holder {
    // SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
    unsafe { queue.holder() }
}

impl<const B: u8> MutantCulling<B> {
    /// (held with my node, a thread joins) -> (a note in it). Whether that was the state.
    fn give<M: Machine>(queue: &CullingQueue<M>) -> bool {
        let Holder { node: Some(me), secondary, .. } = holder_of(queue) else { return false };
        let (node, tail) = (me.node::<M>(), queue.tail.load(Acquire));
        if tail == me.word() || node.next.load(Acquire) != 0 {
            return false;
        }
        node.prev.store(secondary.map_or(0, Handle::word), Relaxed);
        if B == GIVES_BY_STORE {
            node.next.store(GIVEN, Release);
            return true;
        }
        let given = node.next.compare_exchange(0, GIVEN, Release, Relaxed).is_ok();
        if given {
            M::give_node(me);
        }
        given
    }

    /// (tail = my node, culled) -> (tail = last of the culled ones), granted to the first. Whether that was the state.
    fn recall<M: Machine>(queue: &CullingQueue<M>) -> bool {
        let Holder { node: Some(me), secondary: Some(last), .. } = holder_of(queue) else { return false };
        if queue.tail.load(Acquire) != me.word() {
            return false;
        }
        if B == FREES {
            let kept = queue.front.swap(0, Relaxed);
            if queue.tail.compare_exchange(me.word(), 0, Release, Relaxed).is_ok() {
                M::give_node(me);
                return true;
            }
            queue.front.store(kept, Relaxed);
        }
        let link = &last.node::<M>().next;
        let first = link_in(link.load(Relaxed)).expect("a ring").to();
        link.store(0, Relaxed);
        if B == SWAPS_TAIL {
            queue.tail.swap(last.word(), AcqRel);
        } else if queue.tail.compare_exchange(me.word(), last.word(), Release, Relaxed).is_err() {
            let joined = M::spin_until(&me.node::<M>().next, Acquire, Patience::Forever, |link| link != 0);
            link.store(joined.expect("a joiner"), Relaxed);
        }
        M::give_node(me);
        Self::grant::<M>(first, state::HEAD);
        true
    }

    /// Whether it did.
    fn cull_unlinked<M: Machine>(queue: &CullingQueue<M>) -> bool {
        let first = link_in(queue.front.load(Acquire));
        let (None, Some(first)) = (holder_of(queue).node, first) else { return false };
        let Some(tail) = handle_in(queue.tail.load(Acquire)).filter(|&tail| tail != first.to()) else {
            return false;
        };
        first.to().node::<M>().next.store(first.word(), Relaxed);
        Self::grant::<M>(tail, state::HEAD | first.to().word() << state::HANDED);
        true
    }

    /// The same, if the only waiter, in the main queue or culled, has given up. Whether it did.
    fn free_keeping_front<M: Machine>(queue: &CullingQueue<M>) -> bool {
        let holder = holder_of(queue);
        let waiter = match holder.node {
            Some(_) => holder.secondary,
            None => link_in(queue.front.load(Acquire)).map(Link::to),
        };
        let Some(waiter) = waiter.filter(|only| only.node::<M>().state.load(Acquire) == state::ABANDONED) else {
            return false;
        };
        let last = holder.node.unwrap_or(waiter);
        if queue.tail.compare_exchange(last.word(), 0, Release, Relaxed).is_err() {
            return false;
        }
        queue.left().remove();
        M::give_node(waiter);
        holder.node.into_iter().for_each(M::give_node);
        true
    }

    fn grant<M: Machine>(successor: Handle, notified: u32) {
        let before = successor.node::<M>().state.swap(notified, AcqRel);
        assert!(before != state::ABANDONED || B == GRANTS_GONE, "a skeleton for waiters that stay");
        if before == state::PARKED && B != WAKES_NONE {
            M::unpark(successor.node());
        }
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine, const B: u8> RawLock<M> for MutantCulling<B> {
    type Queue = CullingQueue<M>;

    flashlock_locks::same_as!(M, Sound: try_acquire acquire is_locked take_over acquire_adopted);

    unsafe fn release(word: &M::Word, queue: &Self::Queue) {
        let done = match B {
            CULLS_UNLINKED => Self::cull_unlinked(queue),
            KEEPS_FRONT => Self::free_keeping_front(queue),
            GIVES_BY_STORE | KEEPS_NOTE => Self::give(queue),
            _ => Self::recall(queue),
        };
        if !done {
            // SAFETY: the callers' promise.
            unsafe { <Sound as RawLock<M>>::release(word, queue) };
        }
    }
}

/// A lock with the succession `S`, which has a bug.
pub(crate) type Mutant<S> = CullingLock<S, Park>;

/// Takes back only the first of the culled waiters that should come, and forgets the others.
pub(crate) struct DropsTheRest<S = SameNode>(PhantomData<S>);
// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<S: Succession> Succession for DropsTheRest<S> {
    type Service = S::Service;

    fn choose<M: Machine>(holder: &mut Holder, first: Link) -> Handle {
        S::choose::<M>(holder, first)
    }
    fn recall<M: Machine>(holder: &mut Holder, last: Handle) -> (Handle, Handle) {
        let (first, _) = S::recall::<M>(holder, last);
        (first, first)
    }
}

/// MCSCRN that forgets the waiters that are still culled when another NUMA node becomes home.
pub(crate) struct ForgetsTheCulled;

impl ForgetsTheCulled {
    /// `home` was home before `successor` was chosen.
    fn forget<M: Machine>(holder: &mut Holder, home: u32, successor: Handle) {
        if successor.node::<M>().numa.load(Relaxed) != home {
            holder.secondary = None;
        }
    }

    fn home<M: Machine>(holder: &Holder) -> u32 {
        holder.node.map_or_else(M::numa_node, |node| node.node::<M>().numa.load(Relaxed))
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl Succession for ForgetsTheCulled {
    type Service = <FewestAtHome as Succession>::Service;

    fn choose<M: Machine>(holder: &mut Holder, first: Link) -> Handle {
        let home = Self::home::<M>(holder);
        let successor = FewestAtHome::choose::<M>(holder, first);
        Self::forget::<M>(holder, home, successor);
        successor
    }
    fn recall<M: Machine>(holder: &mut Holder, last: Handle) -> (Handle, Handle) {
        let home = Self::home::<M>(holder);
        let (first, last) = FewestAtHome::recall::<M>(holder, last);
        Self::forget::<M>(holder, home, first);
        (first, last)
    }
}
