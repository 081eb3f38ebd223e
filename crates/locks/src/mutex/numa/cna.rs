//! # CNA: a compact NUMA-aware lock
//!
//! CNA is a queue lock that prefers waiters of the holder's NUMA node, in as little memory as `mcs`. **Use it** when
//! one lock is hot on a machine with several NUMA nodes, and each thread has a CPU. **Rather not** when there is only
//! one NUMA node (`cna` does the same as `mcs` there), or when threads outnumber CPUs.
//!
//! **Problem.** A first-come-first-served lock hands itself, and the data it protects, from NUMA node to NUMA node at
//! almost every release. Hierarchical locks avoid that with a lock for each NUMA node, and grow with the machine.
//! **Idea.** One queue word, as in MCS. The holder prefers waiters of its own NUMA node. It moves (*culls*) waiters of
//! other NUMA nodes that stand before its chosen successor into a **secondary queue**. The secondary queue comes back
//! now and then, and whenever the holder finds no waiter of its own NUMA node. **Source.** Dice & Kogan, *Compact
//! NUMA-Aware Locks*, EuroSys 2019: §4 (idea), §5 and figures 2–5 (code), §6 (optimizations).
//!
//! **Departures.** Those of [`queue::culling`](crate::parts::queue::culling). A holder keeps its node only if it has
//! waited, and only such a holder has a secondary queue. The node's state names the tail of the secondary queue, where
//! the paper's `spin` word names its head. There is no `secTail`, because the list is circular. The lock names the
//! holder's node, or the first waiter, so it takes two 4-byte words; the paper's takes one word.
//! 1. The holder's NUMA node ("my socket" in the paper) is the one on which the releaser runs now, not the one on which
//!    it queued.
//! 2. If the main queue is empty, the secondary queue becomes the main queue. Waiters that join at that very moment
//!    stand behind it. In the paper, the holder looks among them.
//!
//! ## The two queues, at hand-offs (§4, figure 1; `t4:0` waits on NUMA node 0)
//! ```text
//! holder  main queue, first to last        secondary queue     the holder's release
//! t1:0    t2:1 t3:1 t4:0 t5:0 t6:1         –                   finds t4; culls t2 and t3
//! t4:0    t5:0 t6:1 t1:0                   t2:1 t3:1           t5 is next, and of its node: nothing moves
//! t5:0    t6:1 t1:0                        t2:1 t3:1           finds t1; culls t6, which goes behind t3
//! t1:0    t7:1                             t2:1 t3:1 t6:1      finds none: the secondary queue comes back, before t7
//! t2:1    t3:1 t6:1 t7:1                   –
//! ```
//!
//! ## Choosing the successor
//! | secondary queue | draw (`threshold=`): stay on this NUMA node? | main queue | successor | moves |
//! |---|---|---|---|---|
//! | empty | `reduction` says "do not look" | any | its first | – |
//! | any | stay | first is local | its first | – |
//! | any | stay | first local one is at place n | that one | the n − 1 before it, to the end of the secondary queue |
//! | not empty | leave, or none is local | any | first of the secondary queue | the secondary queue, before the main queue |
//! | empty | leave, or none is local | any | its first | – |
//! | not empty | – | empty | first of the secondary queue | the secondary queue, which becomes the main queue |
//!
//! ## Options (§5, §6)
//! | `FLASHLOCK=cna:…` | default | meaning |
//! |---|---|---|
//! | `threshold=N` | 65536 | one hand-off in N, on average, ends the preference for the NUMA node (the paper's THRESHOLD + 1) |
//! | `countdown=0`, `1` | 0 | 0: a draw at each hand-off. 1: each thread draws a number, uniform with mean N, and counts its hand-offs down |
//! | `reduction=N` | 1 | while the secondary queue is empty, look for a local waiter at one hand-off in N (*shuffle reduction*; the paper's THRESHOLD2 + 1 was 256) |
//! | `refresh=N` | 1 | a thread asks on which node it runs at one contended acquisition in N; for machines where that is slow |
//!
//! The link also carries the number of the waiter's NUMA node (§6), so the scan need not read a local waiter's line. It
//! reads only the lines of the waiters that it passes over. This holds for NUMA nodes 0 to 13. For other ones, and for
//! waiters that a broadcast moved here, the scan reads the waiter's line.
//!
//! ## State, invariants and orderings
//! Those of [`queue::culling`](crate::parts::queue::culling). The scan follows links that may be written at that moment
//! (Acquire: the waiter that a link names must be seen prepared). It stops before a link that is 0, so that each waiter
//! that it moves has a successor (invariant 2 there). The scan's own stores are Relaxed: only the next holder reads
//! them, and the hand-off orders them. No checker can distinguish the links' Release and Acquire from Relaxed. [The
//! models](../models.md#what-neither-can-tell) say why they stay.
//!
//! **Cannot:** do what `mcs` cannot do, or bound a wait in time. A waiter of another NUMA node waits for `threshold=`
//! hand-offs on average, however long they take.

use core::sync::atomic::Ordering::Relaxed;

use crate::machine::event::Event;
use crate::machine::{Handle, Kept, Machine, Word};
use crate::parts::policy::one_in;
use crate::parts::queue::culling::CullingLock;
use crate::parts::queue::link::Link;
use crate::parts::queue::service::Everybody;
use crate::parts::queue::succession::{Holder, Succession};
use crate::parts::wait::SpinThenPark;

/// The CNA lock; waiters wait by policy `W`.
pub type Cna<W = SpinThenPark> = CullingLock<SameNode, W>;

/// A succession that prefers waiters of the holder's NUMA node.
pub struct SameNode;

// SAFETY: it moves waiters that have successors, and writes links of the secondary queue (invariants 1, 2 and 4).
unsafe impl Succession for SameNode {
    type Service = Everybody;

    fn arrive<M: Machine>() -> u32 {
        let refresh = M::tunables().refresh;
        if refresh <= 1 {
            return M::numa_node();
        }
        let left = Kept::NodeUses.get::<M>();
        if left == 0 {
            let node = M::numa_node();
            Kept::Node.set::<M>(node + 1);
            Kept::NodeUses.set::<M>(refresh - 1);
            return node;
        }
        Kept::NodeUses.set::<M>(left - 1);
        Self::here::<M>()
    }

    fn here<M: Machine>() -> u32 {
        if M::tunables().refresh <= 1 {
            return M::numa_node();
        }
        match Kept::Node.get::<M>() {
            0 => {
                let node = M::numa_node();
                Kept::Node.set::<M>(node + 1);
                node
            }
            known => known - 1,
        }
    }

    fn choose<M: Machine>(holder: &mut Holder, first: Link) -> Handle {
        if holder.secondary.is_none() && !one_in::<M>(M::tunables().reduction) {
            return first.to();
        }
        if keep_lock_local::<M>()
            && let Some(successor) = find_local::<M>(holder, first)
        {
            return successor;
        }
        match holder.secondary {
            Some(last) => {
                // The whole secondary queue before the main queue.
                let head = take_all::<M>(holder, last);
                last.node::<M>().next.store(first.word(), Relaxed);
                head
            }
            None => first.to(),
        }
    }

    fn recall<M: Machine>(holder: &mut Holder, last: Handle) -> (Handle, Handle) {
        (take_all::<M>(holder, last), last)
    }
}

/// Empties the secondary queue, whose last is `last`, and returns its first. The caller writes the last one's link.
fn take_all<M: Machine>(holder: &mut Holder, last: Handle) -> Handle {
    M::trace(Event::Alteration);
    holder.secondary = None;
    Link::from_word(last.node::<M>().next.load(Relaxed)).map_or(last, Link::to)
}

/// Whether to look for a successor on this node (figure 5's `keep_lock_local`).
fn keep_lock_local<M: Machine>() -> bool {
    let tunables = M::tunables();
    if tunables.countdown == 0 {
        return !one_in::<M>(tunables.threshold);
    }
    match Kept::HandOffs.get::<M>() {
        // No number drawn yet.
        0 => {
            Kept::HandOffs.set::<M>(draw::<M>(tunables.threshold));
            true
        }
        1 => {
            Kept::HandOffs.set::<M>(draw::<M>(tunables.threshold));
            false
        }
        left => {
            Kept::HandOffs.set::<M>(left - 1);
            true
        }
    }
}

/// A random number from 1 to 2 × `mean` − 1, uniformly distributed.
fn draw<M: Machine>(mean: u32) -> u32 {
    let range = 2 * u64::from(mean.max(1)) - 1;
    let number = 1 + ((u64::from(M::random()) * range) >> 32);
    number.min(u64::from(u32::MAX)) as u32
}

/// The first local waiter of the main queue. Culls the waiters before it (figure 5's `find_successor`).
fn find_local<M: Machine>(holder: &mut Holder, first: Link) -> Option<Handle> {
    let here = SameNode::here::<M>();
    if first.numa::<M>() == here {
        return Some(first.to());
    }
    let mut before = first.to();
    loop {
        let current = holder.behind::<M>(before)?;
        if current.numa::<M>() == here {
            cull::<M>(holder, first, before);
            return Some(current.to());
        }
        before = current.to();
    }
}

/// Culls `first … last`, which begin the main queue: moves them to the end of the secondary queue.
fn cull<M: Machine>(holder: &mut Holder, first: Link, last: Handle) {
    M::trace(Event::Alteration);
    let head = match holder.secondary {
        Some(end) => {
            let link = &end.node::<M>().next;
            let head = link.load(Relaxed);
            link.store(first.word(), Relaxed);
            head
        }
        None => first.word(),
    };
    last.node::<M>().next.store(head, Relaxed);
    holder.secondary = Some(last);
}
