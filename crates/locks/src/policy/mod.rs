//! # Admission policies
//!
//! Who follows whom in a ShflLock's queue (ShflLocks, slides 39–40, 82: *shuffling is generic*). The [shuffler] visits
//! the waiters behind itself, one after the other, and asks the policy what it has to ask; which links it may rewrite,
//! when it must stop, who is the shuffler next and that nobody is lost are its own business. So a policy is a page, and
//! touches no lock.
//!
//! | the shuffler asks | a policy that says nothing |
//! |---|---|
//! | [`role`](Admission::role): what is to be known of a thread that queues? | nothing |
//! | [`walks`](Admission::walks): shall I walk now? | whenever I have the role |
//! | [`finishes`](Admission::finishes): shall I go on though the lock is free? | no |
//! | [`place`](Admission::place): where does this waiter belong? | (each must) |
//! | [`wakes`](Admission::wakes): how many sleepers may I wake before their turn? | as many as the user says |
//!
//! The policies, by the names that `policy=` takes, are in [`chosen`]; `docs/policies.md` writes another one, step by
//! step.
//!
//! **Bounded, whatever the policy says.** Who was put behind the shuffler is of its group, and at `shuffles=` members
//! the group is closed: then nobody is moved until the queue has reached a waiter of no group. So the first one of no
//! group is passed over so often at most, and the n-th n times as often. Nor can a policy keep anybody from what the
//! lock itself promises: the head is handed the lock after `bound=` µs, and each waiter whose patience is at an end
//! tries for itself.
//!
//! [shuffler]: crate::shuffle::shuffler

pub mod arrival;
pub mod chosen;
pub mod levels;
pub mod llc;
pub mod numa;
pub mod priority;
pub mod restriction;
pub mod roles;

#[cfg(test)]
pub(crate) mod bench;

pub use arrival::{ArrivalOrder, Untouched};
pub use chosen::Chosen;
pub use levels::NearestFirst;
pub use llc::SameCache;
pub use numa::SameNumaNode;
pub use priority::HighestFirst;
pub use restriction::FewAwake;
pub use roles::RolesApart;

use crate::machine::Machine;
use crate::node::Node;

/// Where a waiter belongs, as its policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Directly behind the shuffler's group, as its next member.
    Next,
    /// The same, if the shuffler is the head (the last moment to choose, when the most is known) and nobody is
    /// [`Place::Next`]: then the one with the smallest number is taken, of equals the first, and the walk ends with it.
    /// 0 cannot be bettered.
    Choice(u32),
    /// Where it is.
    Stay,
}

/// Decides who follows whom.
pub trait Admission: 'static {
    /// Where `waiter` belongs. Both are in the queue, `waiter` behind `shuffler`; what a node says of its thread was
    /// written before the node was published, and may be read Relaxed.
    fn place<M: Machine>(shuffler: &Node<M>, waiter: &Node<M>) -> Place;

    /// What the calling thread, which is about to queue, writes into its node's [`role`](Node::role), for `place` to
    /// read.
    #[inline]
    fn role<M: Machine>() -> u32 {
        0
    }

    /// Whether who has the shuffler's role walks now; `at_front`: as the head.
    #[inline]
    fn walks<M: Machine>(_at_front: bool) -> bool {
        true
    }

    /// Whether a walk goes on to its end though the lock is free, or the shuffler has become head: the lock waits for
    /// it meanwhile.
    #[inline]
    fn finishes<M: Machine>() -> bool {
        false
    }

    /// How many sleepers one walk may wake ahead of their turn, where there are CPUs for them; `tuned` is what the user
    /// says.
    #[inline]
    fn wakes<M: Machine>(_shuffler: &Node<M>, tuned: u32) -> u32 {
        tuned
    }
}

/// A Bernoulli trial: true once in `times` on average; never for 0, always for 1.
pub fn one_in<M: Machine>(times: u32) -> bool {
    // The high half of the product is uniform below `times`; no division.
    times != 0 && (u64::from(M::random()) * u64::from(times)) >> 32 == 0
}
