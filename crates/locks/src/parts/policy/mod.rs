//! # Admission policies
//!
//! A policy decides which waiter in a ShflLock's queue is next, and next but one (ShflLocks, slides 39–40, 82:
//! *shuffling is generic*). The [shuffler] visits the waiters behind itself, one after another, and asks the policy
//! about each. The shuffler itself decides which links it may rewrite, when it must stop, and which waiter is the next
//! shuffler, and it loses no waiter. So a policy is one page, and touches no lock.
//!
//! | the shuffler asks | the default answer |
//! |---|---|
//! | [`role`](Admission::role): what must be known about a thread that queues? | nothing |
//! | [`walks`](Admission::walks): shall I walk now? | yes, whenever I have the role |
//! | [`finishes`](Admission::finishes): shall I go on although the lock is free? | no |
//! | [`place`](Admission::place): where does this waiter belong? | none: each policy must answer |
//! | [`wakes`](Admission::wakes): how many sleepers may I wake before their turn? | as many as the user sets (`ahead=`) |
//!
//! [`chosen`] lists the policies by the names that `policy=` takes. `docs/policies.md` shows how to write another one,
//! step by step.
//!
//! **Bounded, whatever the policy says.** A waiter that was put behind the shuffler is in its group. At `shuffles=`
//! members the group is closed: then no waiter is moved until the queue has reached a waiter in no group. So the first
//! waiter in no group is passed over at most that often, and the n-th at most n times as often. Nor can a policy break
//! the lock's own promises: the head is handed the lock after `bound=` µs, and each waiter whose patience is spent
//! tries for the lock itself.
//!
//! [shuffler]: crate::parts::shuffle::shuffler

pub mod arrival;
pub mod chosen;
pub mod levels;
pub mod llc;
pub mod numa;
pub mod priority;
pub mod restriction;
pub mod roles;

pub use arrival::{ArrivalOrder, Untouched};
pub use chosen::{Chosen, PolicyId};
pub use levels::NearestFirst;
pub use llc::SameCache;
pub use numa::SameNumaNode;
pub use priority::HighestFirst;
pub use restriction::FewAwake;
pub use roles::GroupByRole;

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::copied::copied;
use crate::machine::node::{Node, ROLE, state};
use crate::machine::{Machine, Word};

/// Where a waiter belongs, as its policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Directly behind the shuffler's group, as its next member.
    Next,
    /// The same, if the shuffler is the head (its last chance to choose, when it knows most) and no waiter is
    /// [`Place::Next`]. Then the waiter with the smallest number is taken, the first one if several have it, and the
    /// walk ends with it. No number is better than 0, so the walk ends there.
    Choice(u32),
    /// Where it stands.
    Stay,
}

/// A waiter as its policy sees it: what its node says, to look at. What the node says about its thread was written
/// before the node was published, hence Relaxed.
pub struct Waiter<'a, M: Machine>(pub(crate) &'a Node<M>);

copied!(Waiter<'_, M>);

impl<'a, M: Machine> Waiter<'a, M> {
    /// What [`Admission::role`] has answered to its thread: [`ROLE`] at most.
    #[inline]
    pub fn role(self) -> u32 {
        self.0.role.load(Relaxed) & ROLE
    }

    /// The NUMA node on which its thread queued.
    #[inline]
    pub fn numa(self) -> u32 {
        self.0.numa.load(Relaxed)
    }

    /// Whether it is awake. It may fall asleep at any time.
    #[inline]
    pub fn is_awake(self) -> bool {
        self.0.state.load(Relaxed) == state::WAITING
    }

    /// For how long it has been in the queue, in µs.
    #[inline]
    pub fn queued_for(self) -> u32 {
        M::micros().wrapping_sub(self.0.queued_at.load(Relaxed))
    }

    /// Its node, for tests that look at the queue.
    ///
    /// # Safety
    /// The caller changes nothing.
    pub unsafe fn node(self) -> &'a Node<M> {
        self.0
    }
}

/// Decides which waiter is next.
pub trait Admission: 'static {
    /// Whether it needs [`Division::Llc`](crate::machine::Division::Llc) and
    /// [`Special::distance`](crate::machine::Special::distance): a machine may want to find these out first.
    const ASKS_WHERE: bool = false;

    /// Where `waiter` belongs. Both are in the queue, `waiter` behind `shuffler`.
    fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place;

    /// Whether no other waiter may be moved past this one any more, whatever else the policy says.
    #[inline]
    fn insists<M: Machine>(_waiter: Waiter<'_, M>) -> bool {
        false
    }

    /// What the calling thread, which is about to queue, tells the policy of itself: the waiter's
    /// [`role`](Waiter::role).
    #[inline]
    fn role<M: Machine>() -> u32 {
        0
    }

    /// Whether the waiter that has the shuffler's role walks now; `at_front`: as the head.
    #[inline]
    fn walks<M: Machine>(_at_front: bool) -> bool {
        true
    }

    /// Whether a walk goes on to its end although the lock is free, or the shuffler has become head. The lock waits for
    /// it meanwhile.
    #[inline]
    fn finishes<M: Machine>() -> bool {
        false
    }

    /// How many sleepers one walk may wake ahead of their turn, if there are CPUs for them; `tuned` is the user's
    /// setting.
    #[inline]
    fn wakes<M: Machine>(_shuffler: Waiter<'_, M>, tuned: u32) -> u32 {
        tuned
    }
}

/// A Bernoulli trial: true once in `times` on average; never for 0, always for 1.
pub fn one_in<M: Machine>(times: u32) -> bool {
    // The high half of the product is uniform below `times`; no division.
    times != 0 && (u64::from(M::random()) * u64::from(times)) >> 32 == 0
}
