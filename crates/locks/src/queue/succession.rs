//! # Who follows the holder of a queue
//!
//! What a release of a [queue whose holder sets waiters aside](super::aside) knows, and the choice that it makes.
//! States, invariants and orderings are on the page of the queue.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::{Handle, Machine, Word};
use crate::node::state;
use crate::queue::link::Link;
use crate::queue::service::Service;
use crate::wait;
use crate::wait::left::LeftBehind;

/// Who releases a lock: what he found, and what he makes of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holder {
    /// His node, if he has kept it. The main queue begins behind it.
    pub node: Option<Handle>,
    /// The last of those set aside; if there is one, he has kept his node.
    pub aside: Option<Handle>,
    /// The last of the main queue when he last looked. Nobody was behind that one, and his line need not be touched to
    /// see it: it would be fetched for reading, and then once more to tell him that he has the lock.
    pub last: Option<Handle>,
}

impl Holder {
    /// Who holds the lock with a node that he has kept, and what he was told with it.
    pub(super) fn with<M: Machine>(node: Handle) -> Self {
        Self { node: Some(node), aside: wait::handed(node.node::<M>()), last: None }
    }

    /// The waiter behind `waiter` in the main queue, as far as is known. Acquire: his node must be seen prepared.
    pub fn behind<M: Machine>(&self, waiter: Handle) -> Option<Link> {
        if Some(waiter) == self.last {
            return None;
        }
        Link::from_word(waiter.node::<M>().next.load(Acquire))
    }

    /// Gives back the nodes aside whose threads have gone.
    #[cold]
    pub(super) fn sweep<M: Machine>(&mut self, last: Handle, left: &LeftBehind<M>) {
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
        self.aside = kept;
    }
}

/// Who follows the holder. Called in his release, when somebody waits.
pub trait Succession: 'static {
    /// Whether he must run, if he is awake.
    type Service: Service;

    /// Whether who has joined since the release began matters: then the holder looks at the tail again before he
    /// chooses, though its line may have gone to who joined.
    const SEES_LATECOMERS: bool = false;

    /// The NUMA node of a thread that is about to queue.
    fn arrive<M: Machine>() -> u32 {
        M::numa_node()
    }

    /// The NUMA node of the releaser.
    fn here<M: Machine>() -> u32 {
        M::numa_node()
    }

    /// Chooses the successor; `first` begins the main queue. May set waiters aside, and take some back. The
    /// successor's link leads to what is left of the main queue (invariant 4).
    fn choose<M: Machine>(holder: &mut Holder, first: Link) -> Handle;

    /// The main queue is empty: takes waiters from aside, where `last` is the last. The first of them, who will
    /// have the lock, and the last, whose link is written by the caller.
    fn recall<M: Machine>(holder: &mut Holder, last: Handle) -> (Handle, Handle);
}
