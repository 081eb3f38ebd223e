//! # Succession: which waiter follows the holder
//!
//! A [`Succession`] is the choice that a release of the [culling queue](super::culling) makes; a [`Holder`] is what
//! that release knows. Write one for a new order of service. States, invariants and orderings are on the page of the
//! queue.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::node::state;
use crate::machine::{Handle, Machine, Word};
use crate::parts::queue::link::Link;
use crate::parts::queue::service::Service;
use crate::parts::wait;
use crate::parts::wait::left::LeftBehind;

/// A holder that releases: its node, and both queues as it has found them, or has changed them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holder {
    /// Its node, if it has kept one. The main queue begins behind it.
    pub node: Option<Handle>,
    /// The last node of the secondary queue. If there is one, the holder has kept its node.
    pub secondary: Option<Handle>,
    /// The last node of the main queue when the holder last looked. No waiter was behind that node then; the holder
    /// knows this without touching the node's line. (A read would fetch the line once, and the hand-off once more.)
    pub last: Option<Handle>,
}

impl Holder {
    /// A holder that has kept its node, with the secondary queue that came with the lock.
    pub(super) fn with<M: Machine>(node: Handle) -> Self {
        Self { node: Some(node), secondary: wait::handed(node.node::<M>()), last: None }
    }

    /// The waiter behind `waiter` in the main queue, as far as is known. Acquire: its node must be seen prepared.
    pub fn behind<M: Machine>(&self, waiter: Handle) -> Option<Link> {
        if Some(waiter) == self.last {
            return None;
        }
        Link::from_word(waiter.node::<M>().next.load(Acquire))
    }

    /// Gives back the nodes in the secondary queue that their threads have abandoned.
    #[cold]
    pub(super) fn sweep<M: Machine>(&mut self, last: Handle, left: LeftBehind<M>) {
        let mut here = Link::from_word(last.node::<M>().next.load(Relaxed));
        let (mut first, mut kept) = (0, None::<Handle>);
        while let Some(link) = here {
            let (handle, node) = (link.to(), link.to().node::<M>());
            here = if handle == last { None } else { Link::from_word(node.next.load(Relaxed)) };
            if node.state.load(Acquire) == state::ABANDONED {
                left.remove();
                M::give_node(handle);
                continue;
            }
            match kept {
                Some(before) => {
                    before.node::<M>().next.store(link.word(), Relaxed);
                    node.prev.store(before.word(), Relaxed);
                }
                None => first = link.word(),
            }
            kept = Some(handle);
        }
        if let Some(kept) = kept {
            kept.node::<M>().next.store(first, Relaxed);
        }
        self.secondary = kept;
    }
}

/// Which waiter follows the holder. Called in its release, when a thread waits.
///
/// # Safety
/// The functions do with nodes only what the invariants of the [culling queue](super::culling) allow a holder.
pub unsafe trait Succession: 'static {
    /// Whether the successor must run, if it is awake.
    type Service: Service;

    /// Whether threads that have joined since the release began matter. If so, the holder reads the tail again before
    /// it chooses, although the tail's line may have gone to a thread that joined.
    const SEES_LATECOMERS: bool = false;

    /// The NUMA node of a thread that is about to queue.
    fn arrive<M: Machine>() -> u32 {
        M::numa_node()
    }

    /// The NUMA node of the releaser.
    fn here<M: Machine>() -> u32 {
        M::numa_node()
    }

    /// Chooses the successor; `first` begins the main queue. May cull waiters, and take some back. The successor's link
    /// leads to the rest of the main queue (invariant 4).
    fn choose<M: Machine>(holder: &mut Holder, first: Link) -> Handle;

    /// The main queue is empty: takes waiters from the secondary queue, where `last` is the last. Returns the first of
    /// them, which will have the lock, and the last, whose link the caller writes.
    fn recall<M: Machine>(holder: &mut Holder, last: Handle) -> (Handle, Handle);
}
