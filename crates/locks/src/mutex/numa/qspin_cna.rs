//! # CNA in qspinlock
//!
//! This is the Linux kernel's four-byte queued spinlock with CNA's preference for waiters of the holder's NUMA node.
//! **Use it** when locks are so many that each byte counts, some of them are hot, the machine has several NUMA nodes,
//! and each thread has a CPU. **Rather not** when there is one NUMA node (it is the same as `qspin` then), or threads
//! outnumber CPUs.
//!
//! **Problem.** The kernel's lock serves waiters in the order of arrival, wherever they run. So the lock, and the data
//! that it protects, move from NUMA node to NUMA node at almost every hand-off. And the lock must stay in its four
//! bytes. **Idea.** While the head of the queue polls the word, it looks for a waiter of its own NUMA node, and culls
//! the waiters before that one into a **secondary queue**. The head's node names the secondary queue, which is handed
//! on with the *front* (the right to be next). Now and then, and when no such waiter is found, the secondary queue
//! comes back. **Source.** Kogan & Dice, *Add NUMA-awareness to qspinlock*, version 10 (April 2020): patch 3 (the two
//! queues, `scan` is `cna_order_queue`, `splice_tail`, `choose` is `cna_lock_handoff`; `cna_splice_head` is in
//! [`line`](crate::mutex::queue::qspin::line)), patch 4 (`flush=`), patch 5 (priority); and what the mailing-list
//! thread asked for after it: Long's time limit (`stay=`), his limit on the scan once the lock is free (`scan=`),
//! Kogan's incremental culling (`incremental=1`), which became version 11. `incremental=2` is the algorithm of our own
//! patch (`kernel/`).
//!
//! **Departures.** Those of [`qspin`](crate::mutex::queue::qspin).
//! 1. A link says where its waiter is, so that the scan reads only the lines of the waiters that it passes over (CNA
//!    paper, §6).
//! 2. The time limit complements the count; whichever is reached first applies.
//! 3. The preferred node travels with the front. Incremental culling depends on that. So a priority waiter of another
//!    node does not end the preference (as in version 11; in version 10 it did).
//! 4. Waiters may give up. A thread with the front that finds such a node goes on from there. The secondary queue is
//!    swept now and then.
//!
//! ## The two queues, at hand-offs (`t4:0` waits on node 0; `t1`, of node 0, polls the word)
//! ```text
//!  head  main queue                secondary queue   what the head does
//!  t1:0  t2:1 t3:1 t4:0 t5:1       –                 pre-scan: finds t4; culls t2 and t3 (splice-tail)
//!  t4:0  t5:1                      t2:1 t3:1         pre-scan: finds none; post-scan, with the lock held: from t5 on.
//!  t2:1  t3:1 t5:1                 –                 None: the secondary queue comes back, before t5 (splice-head)
//!
//!  node of the head:  prev ───────────────┐  the last of the secondary queue, which is a circle
//!                                         v
//!                     ┌──> [t2] ──> … ─> [t3] ──┐
//!                     └─────────────────────────┘
//! ```
//!
//! ## Choosing the next head
//! | the secondary queue … | main queue | next | moves |
//! |---|---|---|---|
//! | is empty, or has not yet had its `2^flush` hand-offs or `stay` µs | first is local, or a priority waiter | the first | – |
//! | the same | first such one is at place n | that one | the n − 1 before it, to the end of the secondary queue |
//! | the same, `incremental=1` | first is neither | the second | the first, to the end of the secondary queue |
//! | the same, `incremental=2` | first is neither, there is a second | the first that is left when the lock is free | those before, one by one while the lock is busy, at least one |
//! | is not empty | any, and its time has come, or none is local | first of the secondary queue | all of it, before the main queue |
//! | is empty | none is local | the first | – |
//! | is not empty | empty | first of the secondary queue | all of it: it becomes the main queue |
//!
//! ## Options
//! | `FLASHLOCK=qspin-cna:…` | default | meaning |
//! |---|---|---|
//! | `flush=N` | 16 | the secondary queue comes back after 2^N hand-offs (patch 4's threshold, 0 to 31) |
//! | `stay=US` | 10000 | it comes back after so many µs; 0: no such limit |
//! | `incremental=0`, `1`, `2` | 0 | 1: a head culls one waiter at most: each hand-off costs the same, however many wait. 2: it culls one, and more as long as the lock is busy, but none at the hand-off: the algorithm of our kernel patch (`kernel/README.md`), which has `stay=1000` and no `flush=` (31 here) |
//! | `scan=N` | no limit | a head that holds the lock looks at N more waiters, and the scan before that ends as soon as the lock is free (Long: four times the number of nodes) |
//! | `reduction=N` | 1 | while there is no secondary queue, one head in N looks, on average (*shuffle reduction*, CNA paper, §6; version 15 had 128) |
//! | `urgent=0`, `1` | 0 | 1: threads of real-time scheduling policies are priority waiters. Costs one system call for each thread. A waiter that a broadcast moved here is not a priority waiter |
//!
//! ## The bound
//! Let a thread queue when n others want the lock or hold it. Let s be the longest section, with the hand-off that
//! follows it (for a sleeper: until it runs). Let T be `stay=`, and let N be the number of NUMA nodes on which threads
//! wait. Then the thread has the lock after at most **(N − 1) · (T + 2 s) + (n + 1) · s**, if
//! - woken threads run, and no thread times out;
//! - `urgent=0`, and `incremental=0` or `2`.
//!
//! The count `flush=` ends a preference sooner. If `stay=0`, T is 2^`flush` · s. With `incremental=1` the limit is
//! **(n + 1) · (T + 3 s)**. With `urgent=1` there is no such limit for the others: priority waiters pass them.
//!
//! *Why.* Read the secondary queue and then the main queue as one list. It is always in the order of arrival: culling
//! moves the first of the main queue to the end of the secondary queue, and a flush joins the two. The front goes to
//! the first of this list, or to the first preferred waiter. The latter can pass others over only while there is a
//! secondary queue: that is a *phase*, with one preferred node. Each head looks once whether the phase is to end. So a
//! phase passes waiters over for at most T + 2 s. Then the first of the list has the lock, and prefers its own node.
//!
//! Within a phase, waiters of the preferred node are served in order. So a later arrival passes this thread only when
//! no earlier waiter of the later one's node is left. Then no later phase, until this thread is served, prefers that
//! node: each begins behind a waiter that came before this thread. So at most N − 1 phases let later arrivals pass. All
//! others that are served before it were there when it came. (With `incremental=1`, a head may be of any node, so each
//! waiter before it may begin such a phase.) This is the proof for our kernel patch (`kernel/README.md`). The simulator
//! checks the bound (claim `Bounded`) with random n and s; `the_kernels_bound_holds` also varies N, T and the kind of
//! culling.
//!
//! ## What the front carries, in its node
//! - `prev`: the last of the secondary queue, or 0.
//! - `passes`: the number of hand-offs since the secondary queue began. `since`: when it began, in µs.
//! - `check_at`: the preferred node, plus one. 0: the node on which the head itself is.
//!
//! All of these except `since` are 0 in a node that does not have the front. So where nothing is carried, nothing need
//! be written to that line, which its owner polls.
//!
//! ## State, invariants and orderings
//! Those of [`qspin`](crate::mutex::queue::qspin) and of [`line`](crate::mutex::queue::qspin::line): all of this
//! belongs to the front, and is handed over with it. So links among culled waiters are Relaxed. Links that the scan
//! follows may be written at that moment (Acquire). The scan stops before a link that is 0. So each waiter that it
//! moves has a successor, and no other thread writes its link. No checker can distinguish the links' Release and
//! Acquire from Relaxed: [the models](../models.md#what-neither-can-tell) say why they stay.
//!
//! **Cannot:** what `qspin` cannot.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::event::Event;
use crate::machine::node::{Node, URGENT, state};
use crate::machine::{Handle, Machine, REAL_TIME, Word};
use crate::mutex::queue::qspin::QspinLock;
use crate::mutex::queue::qspin::line::{Line, Succession};
use crate::mutex::queue::qspin::word::is_busy;
use crate::parts::policy::one_in;
use crate::parts::queue::link::Link;
use crate::parts::wait::SpinThenPark;

/// CNA in qspinlock; waiters wait by policy `W`.
pub type QspinCna<W = SpinThenPark> = QspinLock<NodeFirst, W>;

/// A succession that prefers waiters of one NUMA node.
pub struct NodeFirst;

/// What the head has learned of the queue.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Up to this waiter, no waiter is preferred.
    NotUpTo(Handle),
    /// The head's link leads to a preferred waiter.
    Found,
    /// The secondary queue's time has come.
    Flush,
    /// This head does not look (`reduction=`). There is no secondary queue.
    AsItIs,
}

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The first waiter is preferred.
    Preferred,
    /// The first waiter was not preferred, and has been culled.
    Moved,
    /// There is no waiter, or none behind the first.
    Nobody,
}

/// `incremental=`: a head culls waiters one by one as long as the lock is busy.
const WHILE_BUSY: u32 = 2;

/// From this value on, `scan=` means no limit.
const NO_LIMIT: u32 = 1_000_000_000;

// SAFETY: it has the front, and moves waiters that have successors (invariants 1 and 2 of `line`).
unsafe impl Succession for NodeFirst {
    type Order = Order;

    fn unordered(front: Handle) -> Order {
        Order::NotUpTo(front)
    }

    fn arrive<M: Machine>(node: &Node<M>) -> Option<u32> {
        Self::begin(node);
        if M::tunables().urgent != 0 && M::priority() >= REAL_TIME {
            node.batch.store(URGENT, Relaxed);
            return None; // The link does not say where this waiter is, so a scan reads the node.
        }
        Some(node.numa.load(Relaxed))
    }

    fn begin<M: Machine>(node: &Node<M>) {
        node.prev.store(0, Relaxed);
        node.passes.store(0, Relaxed);
        node.check_at.store(0, Relaxed);
    }

    fn inherit<M: Machine>(from: &Node<M>, to: &Node<M>) {
        if secondary(from).is_some() {
            carry(from, to, None);
        }
    }

    /// The pre-scan.
    fn order<M: Machine>(line: Line<'_, M>, head: Handle) -> Order {
        if must_flush(head.node::<M>()) {
            return Order::Flush;
        }
        // Draws no random number unless it matters, so that runs without this option do not change.
        let reduction = M::tunables().reduction;
        if reduction != 1 && secondary(head.node::<M>()).is_none() && !one_in::<M>(reduction) {
            return Order::AsItIs;
        }
        if Self::goes_on::<M>() {
            set_aside_first::<M>(head);
            return Order::NotUpTo(head);
        }
        look(line, head, head, while_busy)
    }

    fn goes_on<M: Machine>() -> bool {
        M::tunables().incremental == WHILE_BUSY
    }

    fn reorder<M: Machine>(head: Handle, order: Order) -> bool {
        Self::goes_on::<M>() && matches!(order, Order::NotUpTo(_)) && set_aside_first::<M>(head) == Step::Moved
    }

    fn secondary_ends<M: Machine>(front: &Node<M>) -> Option<(Link, Handle)> {
        let last = secondary(front)?;
        let first = Link::from_word(last.node::<M>().next.load(Relaxed));
        Some((first.unwrap_or_else(|| Link::without_numa(last)), last))
    }

    fn choose<M: Machine>(line: Line<'_, M>, front: Handle, next: Link, mut order: Order) -> Link {
        let node = front.node::<M>();
        if line.left().wants_sweep() {
            sweep(line, node);
        }
        if let Order::NotUpTo(last) = order {
            order = if Self::goes_on::<M>() {
                settle::<M>(front)
            } else {
                look(line, front, last, so_many) // The post-scan.
            };
        }
        if let Order::Found = order {
            // Not `next`: a scan may have moved that waiter.
            let found = Link::from_word(node.next.load(Relaxed)).unwrap_or(next);
            carry(node, found.to().node::<M>(), found.numa_hint());
            return found;
        }
        // Not earlier: this reads the line of the last waiter of the secondary queue, which is far away.
        // Without a secondary queue it carries nothing, as when it queued.
        let Some((first, last)) = Self::secondary_ends(node) else { return next };
        M::trace(Event::Alteration);
        last.node::<M>().next.store(next.word(), Relaxed);
        first
    }
}

/// The last waiter of the secondary queue.
fn secondary<M: Machine>(front: &Node<M>) -> Option<Handle> {
    Handle::from_word(front.prev.load(Relaxed))
}

/// The preferred NUMA node.
fn home<M: Machine>(front: &Node<M>) -> u32 {
    match front.check_at.load(Relaxed) {
        0 => front.numa.load(Relaxed),
        home => home - 1,
    }
}

/// Hands on what the front carries, with one hand-off more, when the preference continues. `numa` is what the link of
/// `to` says. What the waiter wrote itself before it queued ([`Succession::begin`]) is not written again: it polls that
/// line until it becomes the head.
fn carry<M: Machine>(from: &Node<M>, to: &Node<M>, numa: Option<u32>) {
    if secondary(from).is_some() {
        to.prev.store(from.prev.load(Relaxed), Relaxed);
        to.passes.store(from.passes.load(Relaxed).wrapping_add(1), Relaxed);
        to.since.store(from.since.load(Relaxed), Relaxed);
    }
    let home = home(from);
    if numa != Some(home) {
        to.check_at.store(home + 1, Relaxed);
    }
}

/// Whether the secondary queue has been there for as many hand-offs, or as long, as it may.
fn must_flush<M: Machine>(head: &Node<M>) -> bool {
    let tunables = M::tunables();
    secondary(head).is_some()
        && (head.passes.load(Relaxed) >= 1 << tunables.flush
            || (tunables.stay_us != 0 && M::micros().wrapping_sub(head.since.load(Relaxed)) >= tunables.stay_us))
}

/// Looks behind `from` for a preferred waiter; with `incremental=`, makes one step instead.
fn look<M: Machine>(line: Line<'_, M>, front: Handle, from: Handle, on: fn(Line<'_, M>, u32) -> bool) -> Order {
    if M::tunables().incremental != 0 { step::<M>(front) } else { scan(line, front, from, on) }
}

/// Whether the pre-scan goes on.
fn while_busy<M: Machine>(line: Line<'_, M>, _: u32) -> bool {
    M::tunables().scan >= NO_LIMIT || is_busy::<M>(line.word.load(Relaxed))
}

/// Whether the post-scan goes on after it has looked at `seen` waiters.
fn so_many<M: Machine>(_: Line<'_, M>, seen: u32) -> bool {
    let limit = M::tunables().scan;
    limit >= NO_LIMIT || seen < limit
}

/// Looks behind `from` for a preferred waiter, as long as `on` permits after the number of waiters looked at. If it
/// finds one, it culls the waiters before that one.
fn scan<M: Machine>(line: Line<'_, M>, front: Handle, from: Handle, on: fn(Line<'_, M>, u32) -> bool) -> Order {
    let home = home(front.node::<M>());
    let (mut last, mut seen) = (from, 0);
    while on(line, seen) {
        let Some(link) = Link::from_word(last.node::<M>().next.load(Acquire)) else { break };
        if is_preferred::<M>(link, home) {
            if last != front {
                splice_tail::<M>(front, last);
            }
            return Order::Found;
        }
        (last, seen) = (link.to(), seen + 1);
    }
    Order::NotUpTo(last)
}

/// One step. After it, the first waiter is to have the front, whichever node it is on, unless it waits alone and is not
/// preferred.
fn step<M: Machine>(front: Handle) -> Order {
    match set_aside_first::<M>(front) {
        Step::Preferred | Step::Moved => Order::Found,
        Step::Nobody => Order::NotUpTo(front),
    }
}

/// Culls the first waiter, if it is not preferred and there is a second.
fn set_aside_first<M: Machine>(front: Handle) -> Step {
    let node = front.node::<M>();
    let Some(first) = Link::from_word(node.next.load(Acquire)) else { return Step::Nobody };
    if is_preferred::<M>(first, home(node)) {
        return Step::Preferred;
    }
    if first.to().node::<M>().next.load(Acquire) == 0 {
        return Step::Nobody;
    }
    splice_tail::<M>(front, first.to());
    Step::Moved
}

/// The kernel patch's choice at the hand-off, at which no waiter is culled any more. The first waiter has the front,
/// and the preference continues, unless that waiter is alone and not preferred. Then the secondary queue comes back.
fn settle<M: Machine>(front: Handle) -> Order {
    let node = front.node::<M>();
    if secondary(node).is_none() {
        return Order::NotUpTo(front);
    }
    let Some(first) = Link::from_word(node.next.load(Acquire)) else { return Order::NotUpTo(front) };
    if is_preferred::<M>(first, home(node)) || first.to().node::<M>().next.load(Acquire) != 0 {
        Order::Found
    } else {
        Order::NotUpTo(front)
    }
}

/// Whether the scan ends here: at a waiter of this node, or at one that is never culled. Relaxed: written before the
/// link that names it.
fn is_preferred<M: Machine>(link: Link, home: u32) -> bool {
    link.numa_hint().map_or_else(
        || {
            let node = link.to().node::<M>();
            node.numa.load(Relaxed) == home || node.batch.load(Relaxed) & URGENT != 0
        },
        |numa| numa == home,
    )
}

/// Culls the waiters behind `front`, up to `last`: moves them to the end of the secondary queue.
fn splice_tail<M: Machine>(front: Handle, last: Handle) {
    M::trace(Event::Alteration);
    let (node, link) = (front.node::<M>(), &last.node::<M>().next);
    let first = node.next.load(Relaxed);
    node.next.store(link.load(Relaxed), Relaxed);
    match secondary(node) {
        Some(end) => {
            let end = &end.node::<M>().next;
            link.store(end.load(Relaxed), Relaxed);
            end.store(first, Relaxed);
        }
        None => {
            link.store(first, Relaxed);
            node.passes.store(0, Relaxed);
            node.since.store(M::micros(), Relaxed);
        }
    }
    node.prev.store(last.word(), Relaxed);
}

/// Gives back the nodes of the secondary queue whose threads have left.
#[cold]
fn sweep<M: Machine>(line: Line<'_, M>, front: &Node<M>) {
    let Some(end) = secondary(front) else { return };
    let mut here = Link::from_word(end.node::<M>().next.load(Relaxed));
    let (mut first, mut kept) = (0, None::<Handle>);
    while let Some(link) = here {
        let node = link.to().node::<M>();
        here = if link.to() == end { None } else { Link::from_word(node.next.load(Relaxed)) };
        // Acquire: the leaving waiter's last look comes before the node's next use.
        if node.state.load(Acquire) == state::ABANDONED {
            line.left().remove();
            M::give_node(link.to());
            continue;
        }
        match kept {
            Some(before) => before.node::<M>().next.store(link.word(), Relaxed),
            None => first = link.word(),
        }
        kept = Some(link.to());
    }
    if let Some(kept) = kept {
        kept.node::<M>().next.store(first, Relaxed);
    }
    front.prev.store(kept.map_or(0, Handle::word), Relaxed);
}
