//! # MCS: a queue in which each thread waits on its own line
//!
//! A queue lock that serves threads in the order in which they came, and whose hand-off costs the same however many
//! threads wait. **Use it** when waits must be in order, and each thread has a CPU of its own: throughput stays level
//! however many threads wait. **Rather not** when threads outnumber CPUs (each hand-off may then wait for a time
//! slice), or on several NUMA nodes.
//!
//! **Problem.** With one word to spin on, every release invalidates every waiter's line: the cost of a hand-off grows
//! with the number of waiters. **Idea.** Waiters form a list, and each waits on a word in its own node. The holder
//! hands the lock to its successor, and touches no other waiter's line. **Source.** Mellor-Crummey & Scott, TOCS 9(1),
//! 1991, algorithm 5.
//!
//! **Departures.** Those of the [culling queue](crate::parts::queue::culling), without culling.
//! 1. A holder that has waited keeps its node, which the lock names. A holder that has not waited has none, as in the
//!    variant K42 (Auslander et al., 2003). So any thread may release (POSIX), and an uncontended acquisition touches
//!    no node. A thread needs one node for each lock that it holds and has waited for. In K42 the holder gives its node
//!    back as soon as it has acquired the lock. But then the holder reads the node's link just when the successor
//!    writes it, and the line travels once more at each hand-off.
//! 2. A waiter may sleep after its spin budget.
//! 3. A waiter may leave by time-out. Its node stays behind. The releaser that finds such a node takes it over. A queue
//!    full of such nodes lets no thread join ([`LeftBehind`](crate::parts::wait::left::LeftBehind)).
//!
//! ## State, and the queue
//! ```text
//! | tail | front   | meaning                                |           tail ────────────────────────────────┐
//! |------|---------|----------------------------------------|                                                v
//! | 0    | 0       | free                                   |           front ─> [A] ──next─> [B] ──next─> [C] ──> 0
//! | HELD | 0       | held without a node, no waiter         |                    HEAD         WAITING      PARKED
//! | node | 0       | the same, the first is linking itself  |
//! | node | B       | the same, B is the first waiter        |           (held without a node: front ─> [B])
//! | A    | A, KEPT | held with A, no waiter                 |
//! | node | A, KEPT | held with A, the queue begins behind A |
//! ```
//!
//! ## Invariants
//! Those of the [culling queue](crate::parts::queue::culling), with no waiter culled:
//! 1. Only two threads write `front`: the holder of A, and the one waiter that finds HELD in `tail`.
//! 2. The state of a queued node is changed by its own thread (WAITING -> PARKED, -> ABANDONED) and by the holder (->
//!    HEAD). The holder gives its own node back when it has handed the lock over.
//! 3. After HEAD is stored, or `tail` set to 0, the releaser touches neither lock nor node, except that it wakes an
//!    address.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap(node)` | AcqRel | itself; `tail` CAS of the holder | publishes the node; sees the last section if it was free |
//! | `tail` CAS HELD -> 0, A -> 0 | Release | `tail` swap/CAS of the next locker | hands over this section |
//! | link store / load | Release / Acquire | each other | the successor's node must be seen prepared |
//! | `state` -> HEAD | AcqRel | `state` load in `wait::turn` | hands over this section; takes the node of a waiter that has given up |
//!
//! No checker can distinguish the links' orderings, or the Release with which a waiter gives up, from Relaxed. [The
//! models](../models.md#what-neither-can-tell) say why they stay.
//!
//! **Cannot:** let a newcomer in while the first waiter is not running: a waiter that is stopped, or frozen in a signal
//! handler, stops every thread behind it. Nor can it share its mutex with code that bypasses flashlock.

use core::marker::PhantomData;

use crate::machine::{Handle, Machine};
use crate::parts::queue::culling::CullingLock;
use crate::parts::queue::link::Link;
use crate::parts::queue::service::{Everybody, Service};
use crate::parts::queue::succession::{Holder, Succession};
use crate::parts::wait::SpinThenPark;

/// The MCS lock; waiters wait by policy `W`, and are served as `S` says.
pub type Mcs<W = SpinThenPark, S = Everybody> = CullingLock<InOrder<S>, W>;

/// First come, first served, except for waiters that the service `S` passes over.
pub struct InOrder<S: Service>(PhantomData<S>);

// SAFETY: it changes nothing.
unsafe impl<S: Service> Succession for InOrder<S> {
    type Service = S;

    fn choose<M: Machine>(_: &mut Holder, first: Link) -> Handle {
        first.to()
    }

    /// Not reached: no waiter is ever culled.
    fn recall<M: Machine>(_: &mut Holder, last: Handle) -> (Handle, Handle) {
        (last, last)
    }
}
