//! # The culling queue: a queue whose holder may move waiters to a secondary queue
//!
//! The queue of `mcs`, `mcs-tp`, `cna`, `mcscr` and `mcscrn`. Take it for a lock that prefers some waiters to others
//! and keeps the others in a secondary queue.
//!
//! **Problem.** A strict queue serves the waiter that came first, wherever it runs and however many threads run
//! already. A lock that prefers some waiters must keep the others somewhere, lose none of them, and become free only
//! when no thread waits at all. **Idea.** There are two lists. All waiters join the **main queue**, which is
//! [MCS's](crate::mutex::queue::mcs). **Culled** waiters are in the **secondary queue** (`secondary` in the code),
//! which only the holder touches, during its release. A [`Succession`] decides *which* waiters are culled, and which
//! one follows. [`numa::cna`](crate::mutex::numa::cna) and [`malthusian::mcscr`](crate::mutex::malthusian::mcscr) are
//! this lock with two different successions. **Sources.** Dice & Kogan, CNA, EuroSys'19, §4–5, and Dice, *Malthusian
//! Locks*, EuroSys'17, §4. Both edit the MCS chain in the release and nowhere else.
//!
//! **Departures** from both papers:
//! 1. A holder that has waited keeps its node, which the lock names. A holder that has not waited has no node, and the
//!    lock names its successor, as in the variant K42. So a lock takes 8 bytes, any thread may release it, and an
//!    uncontended acquisition touches no node.
//! 2. The secondary queue is handed over with the lock, in the word that makes the successor the head, as in the
//!    papers. The word keeps it while the successor holds the lock. The secondary queue is circular and is named by its
//!    last node, which names the first (as in the kernel's CNA series, v10). So one handle is enough, and nothing is
//!    scanned.
//! 3. A link carries the NUMA node of the waiter that it names (CNA §6).
//! 4. A waiter may leave by time-out. Its node stays. The holder that would hand the lock to it holds the lock *with
//!    that node* instead, and chooses again. Releases may not reach the nodes in the secondary queue for a long time.
//!    So when many are abandoned ([`SWEEP_AT`](crate::parts::wait::left::SWEEP_AT)), a holder sweeps them now and then.
//!    A queue full of abandoned nodes lets no thread join ([`LeftBehind`]).
//! 5. A successor that does not run may be passed over, if the lock's [`Service`] says so. This works like departure 4,
//!    except that the node goes back to its thread.
//! 6. **A release waits for no thread.** In MCS it waits for a successor that has swapped itself into `tail` and has
//!    not linked itself yet. If that thread has lost its CPU, or the releaser has a higher priority, this takes long,
//!    or forever. Here the releaser leaves a **note** where the link will be, and goes on. The successor links itself
//!    by an exchange, and so finds the note. The note says that the lock is its own, or behind which node to link
//!    itself instead. The node that held the note belongs to the waiter that found it, which gives it back.
//!
//! ## State, and the two queues with culled waiters
//! ```text
//! | tail | front   | meaning                               |     tail ────────────────────────────────┐
//! |------|---------|---------------------------------------|                                          v
//! | 0    | 0       | free                                  |     front ─> [H] ──> [D] ──> [E] ──> [F] ──> 0
//! | HELD | 0       | held without a node, no waiter        |               └ HEAD, C
//! | node | 0       | the same, the first is linking itself |                      └─────────────────┐
//! | node | D       | the same, D is the first waiter       |                                        v
//! | H    | H, KEPT | held with H, all waiters are culled   |               ┌──> [A] ──> [B] ──> [C] ──┐
//! | node | H, KEPT | held with H, main queue begins behind |               └──────────────────────────┘
//! | node | GIVEN   | given to the first, not yet linked    |
//! ```
//! | in `next` of H, when a waiter is behind H in the main queue | that waiter |
//! |---|---|
//! | 0 | has yet to link itself |
//! | link | has linked itself |
//! | GIVEN | has yet to link itself, and then has the lock; the secondary queue is in `prev` |
//! | MOVED, L | has yet to link itself, and does so behind L |
//!
//! ## Invariants
//! 1. `front` is written only by the holder, and by the one waiter that found `HELD` in `tail`. It is 0 when `tail`
//!    becomes HELD or 0. The secondary queue, all links and `prev` of nodes in it, and the upper part of the holder's
//!    own state belong to the holder.
//! 2. A node is culled only if its link is not 0: its successor has linked itself, and never writes that link again.
//!    For the same reason, a node with a note in it belongs only to the waiter that finds the note.
//! 3. `tail` is HELD only while the lock is held without a node, and then no waiter is culled. So a release whose CAS
//!    (HELD -> 0) succeeds leaves no waiter behind.
//! 4. A successor, once chosen, is in neither list; it stands before the rest of the main queue. Its link leads to that
//!    rest, and is 0 iff the successor is the tail or the waiter behind it is linking itself.
//! 5. A holder gives back its own node, and a node that it found ABANDONED. It does so when it has handed the lock
//!    over, has freed it, or holds it with another node. A node with a note in it is given back by the waiter that
//!    finds the note. By then no link names the node. (A sweep gives back ABANDONED nodes of the secondary queue as it
//!    takes them out.) A node that was passed over (LEAVING) is not given back, but becomes EVICTED: it belongs to its
//!    thread, which queues again.
//! 6. After HEAD or GIVEN is stored, or `tail` set to 0, the releaser touches neither lock nor node, except that it
//!    wakes an address.
//! 7. In a forked child, all of the parent's nodes come before the child's. If the holder at the fork has kept a node,
//!    that node and the parent's nodes that it leads to are all dead here. The holder forgets that node, and with it
//!    the others. No thread gives it back: the fork may have come between a hand-off and the store to `front`, which
//!    then names a node that serves elsewhere. A waiter that joins behind a dead tail is the first of a new queue, and
//!    writes `front`.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap(node)` | AcqRel | itself; `tail` CAS of the holder | publishes the node; sees the last section if the lock was free, and the 0 in the link that it writes next |
//! | `tail` CAS HELD -> 0, H -> 0 | Release | `tail` swap/CAS of the next locker | hands over this section |
//! | `tail` CAS H -> C | Release | `tail.swap` | the link that the next joiner writes is 0 by then |
//! | link exchange / load | Release / Acquire | each other | the successor's node must be seen prepared |
//! | link 0 -> note / exchange | Release / Acquire | each other | hands over this section, both queues, and the node; the link of the node that a note names is 0 by then |
//! | `state` -> HEAD | AcqRel | `state` load in `wait::turn` | hands over this section, and both queues |
//! | links and `prev` in the secondary queue, `front` of a kept node | Relaxed | – | only the holder uses them; the hand-off orders them |
//! | `tail` load before a choice | Relaxed | – | a hint: a waiter that has just joined may be overlooked until the next release |
//! | `state` -> LEAVING | Relaxed | – | what its thread wrote came with the link |
//! | `state` -> EVICTED | Release | `state` loads of its thread, Acquire | the holder has read and written the node's links for the last time |
//! | `state` load in `sweep` | Acquire | ABANDONED in `wait::turn`, Release | the leaving waiter's last look comes before the node's next use |
//!
//! No checker can distinguish the links' orderings, or that of the last row, from Relaxed. [The
//! models](../models.md#what-neither-can-tell) say why they stay.
//!
//! **Cannot:** what `mcs` cannot.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::parts::adoption::Chain;
use crate::parts::counted::contended;
use crate::parts::queue::link::{GIVEN, Link, NO_LINK, handle_in, moved, moved_to};
use crate::parts::queue::service::{Service, Turn};
use crate::parts::queue::succession::{Holder, Succession};
use crate::parts::raw::{Inner, RawLock};
use crate::parts::wait::left::{self, LeftBehind};
use crate::parts::wait::{self, WaitPolicy};

const FREE: u32 = 0;
/// Held, and no thread waits.
pub const HELD: u32 = Handle::RESERVED;
/// Beside a handle in `front`: the handle names the holder's node, it is not a link.
const KEPT: u32 = NO_LINK;

/// The ends of the main queue: 8 bytes. The lock's word is not used.
#[repr(C)]
pub struct CullingQueue<M: Machine> {
    /// The last node of the main queue, [`HELD`], or 0.
    pub tail: M::Word,
    /// The link to the first waiter of the main queue, or the holder's node.
    pub front: M::Word,
}

crate::zeroed!(CullingQueue<M> { tail, front });

/// A lock on such a queue, with succession `S` and waiting policy `W`.
pub struct CullingLock<S: Succession, W: WaitPolicy>(PhantomData<(S, W)>);

/// Which thread has the lock after a release.
enum Next {
    /// This waiter, unless it has given up.
    Waiter(Handle),
    /// A waiter that has yet to link itself. The holder's node belongs to it, too.
    Joiner,
    /// None: the lock is free.
    Nobody,
}

/// What comes with a lock that was given to a waiter before it had linked itself.
struct Given {
    /// The last of the secondary queue.
    secondary: Option<Handle>,
    /// The NUMA node from which the lock comes, if that is known.
    numa: Option<u32>,
}

impl<M: Machine> CullingQueue<M> {
    /// Nodes of waiters that gave up, in both lists.
    pub fn left(&self) -> LeftBehind<M> {
        left::of(&self.tail)
    }

    /// 0 -> HELD
    #[inline(always)]
    fn try_take(&self) -> bool {
        self.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// What the calling holder has.
    ///
    /// # Safety
    /// The calling thread holds the lock, and does with what it is given what the invariants allow a holder.
    pub unsafe fn holder(&self) -> Holder {
        let front = self.front.load(Relaxed);
        let Some(node) = handle_in(front).filter(|_| front & NO_LINK == KEPT) else { return Holder::default() };
        if node.node::<M>().is_alive() {
            return Holder::with::<M>(node);
        }
        // A forked child (invariant 7). If the exchange fails, a waiter has joined since, and has written `front`.
        let _ = self.front.compare_exchange(front, 0, Relaxed, Relaxed);
        Holder::default()
    }

    /// Releases a lock that has waiters; `tail` is the value that was seen there.
    #[cold]
    fn release<S: Succession>(&self, tail: u32) {
        // SAFETY: this thread releases the lock (invariants 1 to 5).
        let mut holder = Holder { last: handle_in(tail), ..unsafe { self.holder() } };
        if let Some(last) = holder.secondary
            && self.left().wants_sweep()
        {
            holder.sweep::<M>(last, self.left());
        }
        let mut is_evicted = false; // Whether we hold it with the node of a waiter that was passed over.
        loop {
            let successor = match self.successor::<S>(&mut holder) {
                Next::Waiter(successor) => successor,
                Next::Joiner => return,
                Next::Nobody => break,
            };
            let evicts = S::Service::passes_over(successor.node::<M>());
            if !evicts {
                if wait::grant_with::<M>(successor, holder.secondary, S::here::<M>) {
                    break;
                }
                self.left().remove();
            }
            // It has given up, or does not run: we hold the lock with its node (departures 4 and 5).
            release_node::<M, S::Service>(holder.node.replace(successor), is_evicted);
            is_evicted = evicts;
        }
        release_node::<M, S::Service>(holder.node, is_evicted);
    }

    /// Chooses the successor. Or gives the lock to a waiter that is linking itself; or frees it, because no thread
    /// waits.
    fn successor<S: Succession>(&self, holder: &mut Holder) -> Next {
        loop {
            let link = holder.node.map_or(&self.front, |node| &node.node::<M>().next);
            let next = link.load(Acquire);
            if let Some(first) = Link::from_word(next) {
                if holder.node.is_some() || first.to().node::<M>().is_alive() {
                    if S::SEES_LATECOMERS {
                        holder.last = handle_in(self.tail.load(Relaxed)); // We do not access the node.
                    }
                    return Next::Waiter(S::choose::<M>(holder, first));
                }
                // A forked child. A waiter that has queued since found a dead tail, and links itself here.
                let _ = self.front.compare_exchange(next, 0, Relaxed, Relaxed);
                continue;
            }
            let tail = self.tail.load(Acquire);
            match handle_in(tail) {
                Some(last) if Some(last) == holder.node => {
                    if let Some(last) = holder.secondary {
                        return Next::Waiter(self.recall::<S>(holder, last));
                    }
                    self.front.store(0, Relaxed); // Invariant 1.
                }
                Some(last) if last.node::<M>().is_alive() => {
                    if let Some(node) = holder.node {
                        // Relaxed: published by the note.
                        node.node::<M>().prev.store(holder.secondary.map_or(0, Handle::word), Relaxed);
                    }
                    if link.compare_exchange(0, GIVEN, Release, Relaxed).is_ok() {
                        M::trace(Event::Given);
                        return Next::Joiner;
                    }
                    continue;
                }
                Some(_) => self.left().clear(),
                None => {}
            }
            // A lock that is already free stays free.
            if self.tail.compare_exchange(tail, FREE, Release, Relaxed).is_ok() {
                return Next::Nobody;
            }
        }
    }

    /// (tail = my node) -> (tail = last of the recalled waiters). A waiter that joins meanwhile stands behind them. If
    /// it has yet to link itself, it finds a note in my node, which then belongs to it.
    fn recall<S: Succession>(&self, holder: &mut Holder, last: Handle) -> Handle {
        let Some(me) = holder.node else { return last }; // Not reached: a secondary queue comes with a kept node.
        let (first, last) = S::recall::<M>(holder, last);
        let link = &last.node::<M>().next;
        link.store(0, Relaxed);
        if self.tail.compare_exchange(me.word(), last.word(), Release, Relaxed).is_err() {
            match me.node::<M>().next.compare_exchange(0, moved(last), Release, Acquire) {
                Ok(_) => holder.node = None,
                Err(joined) => link.store(joined, Relaxed),
            }
        }
        first
    }

    /// The lock is ours, with our node.
    ///
    /// We do not look at the node's link before the release, or move it into the lock: the waiter behind us is writing
    /// it now, and so has the line. The store here fetches the lock's own line during our section; the release needs
    /// it.
    fn keep_node(&self, me: Handle) {
        self.front.store(me.word() | KEPT, Relaxed);
    }

    /// Links `first` behind `previous`, which is what `tail` held. Behind a node whose thread did not survive a fork,
    /// `first` begins a new queue. If the lock was given to `first`, returns what came with it.
    fn link<S: Service>(&self, previous: u32, first: Link) -> Option<Given> {
        let mut before = handle_in(previous).filter(|previous| previous.node::<M>().is_alive());
        while let Some(node) = before {
            let found = node.node::<M>().next.swap(first.word(), AcqRel);
            if found == 0 {
                return None;
            }
            // A note: the node is ours (invariant 5).
            let (secondary, numa) = (node.node::<M>().prev.load(Relaxed), node.node::<M>().numa.load(Relaxed));
            release_node::<M, S>(Some(node), is_passed_over::<M>(node.node()));
            if found == GIVEN {
                return Some(Given { secondary: Handle::from_word(secondary), numa: Some(numa) });
            }
            before = moved_to(found);
        }
        // Acquire: for a note. Anything else that a forked child may find here counts as 0.
        (self.front.swap(first.word(), AcqRel) == GIVEN).then_some(Given { secondary: None, numa: None })
    }
}

/// Whether the lock is held with the node of a waiter that was passed over. Relaxed: the state came with the node, and
/// its thread can change it only from LEAVING to PARTING.
fn is_passed_over<M: Machine>(node: &Node<M>) -> bool {
    matches!(node.state.load(Relaxed), state::LEAVING | state::PARTING)
}

/// Gives back the node, if any, with which a releaser held the lock. The node of a waiter that was passed over goes
/// back to its thread.
fn release_node<M: Machine, S: Service>(node: Option<Handle>, is_evicted: bool) {
    match node {
        Some(node) if is_evicted => S::let_go::<M>(node.node()),
        Some(node) => M::give_node(node),
        None => {}
    }
}

/// Hands the lock, and the secondary queue `secondary`, to the first waiter of a chain, which is CLAIMED.
fn grant_claimed<M: Machine, S: Succession>(first: Handle, secondary: Option<Handle>) {
    let granted = wait::grant_with::<M>(first, secondary, S::here::<M>);
    debug_assert!(granted, "who is CLAIMED cannot give up");
}

impl<S: Succession, W: WaitPolicy> CullingLock<S, W> {
    #[cold]
    fn lock_slow<M: Machine>(queue: &CullingQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        contended::<M>(|| Self::wait(queue, until))
    }

    /// Acquires a lock that was held.
    fn wait<M: Machine>(queue: &CullingQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        if let Some(ended) = queue.left().keep_out(&queue.tail, until, || queue.try_take()) {
            return ended;
        }
        // SAFETY: its life in the queue is that of invariants 1 to 6.
        let me = unsafe { M::take_node() };
        while let Some(turn) = Self::queue_up(queue, me, until) {
            if let Turn::TimedOut = turn {
                return Err(TimedOut); // The node is the queue's now (invariant 5).
            }
        }
        queue.keep_node(me);
        Ok(())
    }

    /// Queues, and waits. `None` if the lock is ours; otherwise how the wait ended.
    fn queue_up<M: Machine>(queue: &CullingQueue<M>, me: Handle, until: Option<Deadline>) -> Option<Turn> {
        let (node, numa) = (me.node::<M>(), S::arrive::<M>());
        node.prepare_on(numa, state::WAITING);
        S::Service::arrive(node);
        let previous = queue.tail.swap(me.word(), AcqRel);
        if previous == FREE {
            return None;
        }
        if let Some(given) = queue.link::<S::Service>(previous, Link::new(me, numa)) {
            wait::hand_off(|| given.numa.unwrap_or(numa), node).count::<M>();
            wait::take_given(node, given.secondary);
            return None;
        }
        match S::Service::await_turn::<M, W>(node, until, queue.left()) {
            Turn::Head => None,
            other => Some(other),
        }
    }
}

// SAFETY: invariants 1 to 7; what `S` does is its promise.
unsafe impl<M: Machine, S: Succession, W: WaitPolicy> RawLock<M> for CullingLock<S, W> {
    type Queue = CullingQueue<M>;

    #[inline]
    unsafe fn try_acquire(_: &M::Word, queue: &CullingQueue<M>) -> bool {
        queue.try_take()
    }

    #[inline]
    unsafe fn acquire(_: &M::Word, queue: &CullingQueue<M>, until: Option<&Deadline>) -> Result<(), TimedOut> {
        if queue.try_take() { Ok(()) } else { Self::lock_slow(queue, until.copied()) }
    }

    /// HELD -> 0, or a hand-off. Does nothing if the lock is free.
    #[inline]
    unsafe fn release(_: &M::Word, queue: &CullingQueue<M>) {
        match queue.tail.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) | Err(FREE) => {}
            Err(tail) => queue.release::<S>(tail),
        }
    }

    unsafe fn is_locked(_: &M::Word, queue: &CullingQueue<M>) -> bool {
        queue.tail.load(Relaxed) != FREE
    }

    /// The chain goes behind the tail. If the lock was free, the chain's first waiter owns it now. The store that links
    /// that waiter, or grants it the lock, is the last access (it stays CLAIMED until then: invariant 2 of
    /// `parts/adoption`).
    unsafe fn take_over(_: &M::Word, queue: &CullingQueue<M>, chain: Chain) {
        let first = chain.first();
        chain.park_followers::<M>(|_| ());
        match queue.tail.swap(chain.last().word(), AcqRel) {
            FREE => grant_claimed::<M, S>(first, None),
            previous => {
                let link = Link::new(first, first.node::<M>().numa.load(Relaxed));
                if let Some(given) = queue.link::<S::Service>(previous, link) {
                    grant_claimed::<M, S>(first, given.secondary);
                }
            }
        }
    }

    /// A waiter that was moved here sleeps, or has slept, so it is never passed over.
    unsafe fn acquire_adopted(_: &M::Word, queue: &CullingQueue<M>, me: Handle) {
        // Without a deadline it cannot time out.
        let _ = wait::turn::<M, W>(me.node(), None, queue.left());
        queue.keep_node(me);
    }
}

// SAFETY: no word names a node afterwards.
unsafe impl<M: Machine, S: Succession, W: WaitPolicy> Inner<M> for CullingLock<S, W> {
    /// Relaxed: only one thread touches the lock.
    unsafe fn forget(queue: &CullingQueue<M>) {
        queue.tail.store(FREE, Relaxed);
        queue.front.store(0, Relaxed);
        queue.left().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_name_nobody() {
        for word in [FREE, HELD] {
            assert_eq!((handle_in(word), Link::from_word(word)), (None, None));
        }
    }
}
