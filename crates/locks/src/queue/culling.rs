//! # A queue whose holder sets waiters aside
//!
//! **Problem.** A strict queue serves whoever came first, wherever he runs and however many run already. Locks that
//! prefer some waiters must keep the others somewhere, lose none of them, and still be free only when nobody waits at
//! all. **Idea.** Two lists: the **main queue**, [MCS's](super::mcs), which all join; and waiters **set aside**, a list
//! that only the holder touches, in his release. *Who* is set aside, and who follows, is a [`Succession`]:
//! [`numa::cna`](crate::numa::cna) and [`malthusian::mcscr`](crate::malthusian::mcscr) are this lock with two
//! successions. **Sources.** Dice & Kogan, CNA, EuroSys'19, §4–5, and Dice, *Malthusian Locks*, EuroSys'17, §4: both
//! edit the MCS chain in the release and nowhere else.
//!
//! **Departures** from both: (1) Who waited holds the lock with his node, which the lock names; who did not wait has
//! none, and the lock names his successor, as in the variant K42. So a lock is 8 bytes, any thread may release it, and
//! an uncontended acquisition touches no node. (2) Who is aside is told with the lock, in the word that makes the
//! successor head, as in the papers; it stays there while he holds the lock. The list is circular and named by its
//! last, which names its first (as in the kernel's CNA series, v10): one handle, and nothing to scan. (3) A link
//! carries the NUMA node of the waiter that it names (CNA §6). (4) A waiter may leave by time-out. Its node stays; the
//! holder that hands the lock to it holds the lock *with that node* instead, and chooses anew. Nodes aside, which may
//! not be reached for long, are gone through now and then when there are many abandoned ones
//! ([`SWEEP_AT`](crate::wait::left::SWEEP_AT)); a queue full of them lets nobody join ([`LeftBehind`]). (5) A successor
//! that does not run may be passed over, if the lock's [`Service`] says so: that is (4), but for its node, which goes
//! back to its thread. (6) **A release waits for nobody.** MCS's waits for a successor that has swapped itself into
//! `tail` and not linked itself yet; if that one has lost its CPU, or the releaser has a higher priority, for long or
//! for ever. Here the releaser leaves a **note** where the link will be, and goes; who links himself does so by an
//! exchange, and finds it. The note says that the lock is his, or behind whom to link himself instead. The node in
//! which he has found it is his then, to be given back.
//!
//! ## State                                                            ## The queue, somebody being aside
//! ```text
//! | tail | front   | meaning                               |     tail ────────────────────────────────┐
//! |------|---------|---------------------------------------|                                          v
//! | 0    | 0       | free                                  |     front ─> [H] ──> [D] ──> [E] ──> [F] ──> 0
//! | HELD | 0       | held without a node, nobody waits     |               └ HEAD, C
//! | node | 0       | the same, the first is linking itself |                      └─────────────────┐
//! | node | D       | the same, D is first                  |                                        v
//! | H    | H, KEPT | held with H, who waits is aside       |               ┌──> [A] ──> [B] ──> [C] ──┐
//! | node | H, KEPT | held with H, the queue begins behind  |               └──────────────────────────┘
//! | node | GIVEN   | the first, who links himself, has it  |
//! ```
//! | in `next` of H, when somebody is behind H in the queue | he |
//! |---|---|
//! | 0 | has yet to link himself |
//! | link | has done so |
//! | GIVEN | has yet to link himself, and has the lock then; those aside are in `prev` |
//! | MOVED, L | has yet to link himself, and does so behind L |
//!
//! ## Invariants
//! 1. `front` is written by the holder, and by the one waiter that found `HELD` in `tail`; it is 0 when `tail` becomes
//!    HELD or 0. The list aside, all links and `prev` of nodes in it, and the upper part of the holder's own state are
//!    the holder's.
//! 2. A node is set aside only if its link is not 0: its successor has linked itself, and never writes that link again.
//!    For the same reason one into which a note was written is nobody's but his who finds that.
//! 3. `tail` is HELD only while the lock is held without a node, and then nobody is aside. So a release whose CAS
//!    (HELD -> 0) succeeds leaves nobody.
//! 4. A successor, once chosen, is in neither list but at the head of the rest of the main queue: its link leads to it,
//!    and is 0 iff it is the tail or its successor is linking itself.
//! 5. A node is given back by the holder, whose own it is or who found it ABANDONED, when he has handed the lock over,
//!    freed it, or holds it with another; or, with a note in it, by who finds that. By then it is named by no link.
//!    After LEAVING he does not give it back then, but makes it EVICTED: it is its thread's, which queues anew.
//! 6. After HEAD or GIVEN is stored, or `tail` set to 0, the releaser touches neither lock nor node, but for the wake
//!    of an address.
//! 7. In a forked child all of the parent's nodes come first, and those that the holder of that time reaches by a kept
//!    node are all dead, as that is: he forgets them with it. Nobody gives it back: a fork may have come between a
//!    hand-over and the store to `front`, which then names a node that serves elsewhere. Who joins behind a dead tail
//!    is first of a new queue, and writes `front`.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap(node)` | AcqRel | itself; `tail` CAS of the holder | publishes the node; sees the last section if it was free, and the 0 in the link it writes next |
//! | `tail` CAS HELD -> 0, H -> 0 | Release | `tail` swap/CAS of the next locker | hands over this section |
//! | `tail` CAS H -> C | Release | `tail.swap` | the link that the next joiner writes is 0 by then |
//! | link exchange / load | Release / Acquire | each other | the successor's node must be seen prepared |
//! | link 0 -> note / exchange | Release / Acquire | each other | hands over this section, the lists, and the node; the link behind which to go is 0 by then |
//! | `state` -> HEAD | AcqRel | `state` load in `wait::turn` | hands over this section, and the lists |
//! | links and `prev` aside, `front` of a kept node | Relaxed | – | the holder's alone, handed over with the lock |
//! | `tail` load before a choice | Relaxed | – | a hint: who has just joined may be overlooked until the next release |
//! | `state` -> LEAVING | Relaxed | – | what its thread wrote came with the link |
//! | `state` -> EVICTED | Release | `state` loads of its thread, Acquire | the holder has read and written its links for the last time |
//! | `state` load in `sweep` | Acquire | ABANDONED in `wait::turn`, Release | the leaver's last look comes before the node's next use |
//!
//! No checker can tell the links' orderings, nor the last row's, from Relaxed: [the
//! models](../models.md#what-neither-can-tell) argue for them.
//!
//! **Cannot:** what `mcs` cannot.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::cond::Chain;
use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::malthusian::loiter::Inner;
use crate::node::{Node, state};
use crate::queue::link::{GIVEN, Link, NO_LINK, handle_in, moved, moved_to};
use crate::queue::service::{Service, Turn};
use crate::queue::succession::{Holder, Succession};
use crate::raw::RawLock;
use crate::wait::left::{self, LeftBehind};
use crate::wait::{self, WaitPolicy};

const FREE: u32 = 0;
/// Held, and nobody waits.
pub const HELD: u32 = Handle::RESERVED;
/// Beside a handle in `front`: the holder's node, not a link.
const KEPT: u32 = NO_LINK;

/// The two lists: 8 bytes. The lock's word is not used.
#[repr(C)]
pub struct CullingQueue<M: Machine> {
    /// The last of the main queue, [`HELD`], or 0.
    pub tail: M::Word,
    /// The link to the first of the main queue; or the holder's node.
    pub front: M::Word,
}

/// A lock on such a queue, with succession `S` and waiting policy `W`.
pub struct CullingLock<S: Succession, W: WaitPolicy>(PhantomData<(S, W)>);

/// Who has the lock after a release.
enum Next {
    /// He, if he has not given up.
    Waiter(Handle),
    /// Who has yet to link himself. The holder's node is his, too.
    Joiner,
    /// Nobody.
    Nobody,
}

/// What came with a lock that was given to who linked himself.
struct Given {
    /// The last of those aside.
    aside: Option<Handle>,
    /// The NUMA node from which it comes, if that is known.
    numa: Option<u32>,
}

impl<M: Machine> CullingQueue<M> {
    /// Nodes of waiters that gave up, in both lists.
    pub fn left(&self) -> &'static LeftBehind<M> {
        left::of(&self.tail)
    }

    /// Who holds the lock, for himself.
    pub fn holder(&self) -> Holder {
        let front = self.front.load(Relaxed);
        let Some(node) = handle_in(front).filter(|_| front & NO_LINK == KEPT) else { return Holder::default() };
        if node.node::<M>().is_alive() {
            return Holder::with::<M>(node);
        }
        // A forked child (invariant 7). Fails if somebody has joined since, and `front` is his.
        let _ = self.front.compare_exchange(front, 0, Relaxed, Relaxed);
        Holder::default()
    }

    /// Releases a lock that somebody waits for; `tail` is what was seen there.
    #[cold]
    fn release<S: Succession>(&self, tail: u32) {
        let mut holder = Holder { last: handle_in(tail), ..self.holder() };
        if let Some(last) = holder.aside
            && self.left().wants_sweep()
        {
            holder.sweep::<M>(last, self.left());
        }
        let mut is_evicted = false; // Whether he holds it with the node of one that was passed over.
        loop {
            let successor = match self.successor::<S>(&mut holder) {
                Next::Waiter(successor) => successor,
                Next::Joiner => return,
                Next::Nobody => break,
            };
            let evicts = S::Service::passes_over(successor.node::<M>());
            if !evicts {
                if wait::grant_with::<M>(successor, holder.aside, S::here::<M>) {
                    break;
                }
                self.left().remove();
            }
            // It has given up, or does not run: we hold the lock with its node (departures 4 and 5).
            part_with::<M, S::Service>(holder.node.replace(successor), is_evicted);
            is_evicted = evicts;
        }
        part_with::<M, S::Service>(holder.node, is_evicted);
    }

    /// Chooses the successor; or the lock is who joins', or nobody waits, and it is free now.
    fn successor<S: Succession>(&self, holder: &mut Holder) -> Next {
        loop {
            let link = holder.node.map_or(&self.front, |node| &node.node::<M>().next);
            let next = link.load(Acquire);
            if let Some(first) = Link::from_word(next) {
                if holder.node.is_some() || first.to().node::<M>().is_alive() {
                    if S::SEES_LATECOMERS {
                        holder.last = handle_in(self.tail.load(Relaxed)); // Whom it names we do not follow.
                    }
                    return Next::Waiter(S::choose::<M>(holder, first));
                }
                // A forked child. Whoever has queued since found a dead tail, and links itself here.
                let _ = self.front.compare_exchange(next, 0, Relaxed, Relaxed);
                continue;
            }
            let tail = self.tail.load(Acquire);
            match handle_in(tail) {
                Some(last) if Some(last) == holder.node => {
                    if let Some(last) = holder.aside {
                        return Next::Waiter(self.recall::<S>(holder, last));
                    }
                    self.front.store(0, Relaxed); // Invariant 1.
                }
                Some(last) if last.node::<M>().is_alive() => {
                    if let Some(node) = holder.node {
                        // Relaxed: published by the note.
                        node.node::<M>().prev.store(holder.aside.map_or(0, Handle::word), Relaxed);
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
            // A lock that is free already stays so.
            if self.tail.compare_exchange(tail, FREE, Release, Relaxed).is_ok() {
                return Next::Nobody;
            }
        }
    }

    /// (tail = my node) -> (tail = last of those recalled). Who joins meanwhile stands behind them; if he has yet to
    /// link himself, he finds a note in my node, which is his then.
    fn recall<S: Succession>(&self, holder: &mut Holder, last: Handle) -> Handle {
        let Some(me) = holder.node else { return last }; // Not reached: who has somebody aside has kept his node.
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
    /// Its link is not looked at, nor moved into the lock, before the release: whoever is behind us is just writing it,
    /// and so has the line. That store brings the lock's own line here while we are in our section; the release needs
    /// it.
    fn own(&self, me: Handle) {
        self.front.store(me.word() | KEPT, Relaxed);
    }

    /// Puts `first` behind `previous`, what `tail` held. Behind a node whose thread did not survive a fork it is the
    /// first of a new queue. If the lock was given to it, what came with that.
    fn link<S: Service>(&self, previous: u32, first: Link) -> Option<Given> {
        let mut before = handle_in(previous).filter(|previous| previous.node::<M>().is_alive());
        while let Some(node) = before {
            let found = node.node::<M>().next.swap(first.word(), AcqRel);
            if found == 0 {
                return None;
            }
            // A note: the node is ours (invariant 5).
            let (aside, numa) = (node.node::<M>().prev.load(Relaxed), node.node::<M>().numa.load(Relaxed));
            part_with::<M, S>(Some(node), is_passed_over::<M>(node.node()));
            if found == GIVEN {
                return Some(Given { aside: Handle::from_word(aside), numa: Some(numa) });
            }
            before = moved_to(found);
        }
        // Acquire for a note. What a forked child may find here beside it is as if it were 0.
        (self.front.swap(first.word(), AcqRel) == GIVEN).then_some(Given { aside: None, numa: None })
    }
}

/// Whether a node that a lock is held with is one whose thread was passed over. Relaxed: its state came with the node;
/// its thread may fall asleep.
fn is_passed_over<M: Machine>(node: &Node<M>) -> bool {
    matches!(node.state.load(Relaxed), state::LEAVING | state::PARTING)
}

/// Gives back the node that a releaser held the lock with, if any; one that was passed over to its thread.
fn part_with<M: Machine, S: Service>(node: Option<Handle>, is_evicted: bool) {
    match node {
        Some(node) if is_evicted => S::let_go::<M>(node.node()),
        Some(node) => M::give_node(node),
        None => {}
    }
}

/// The lock is the first waiter's of a chain, who is CLAIMED, and `aside` goes with it.
fn grant_claimed<M: Machine, S: Succession>(first: Handle, aside: Option<Handle>) {
    let granted = wait::grant_with::<M>(first, aside, S::here::<M>);
    debug_assert!(granted, "who is CLAIMED cannot give up");
}

impl<S: Succession, W: WaitPolicy> CullingLock<S, W> {
    #[cold]
    fn lock_slow<M: Machine>(queue: &CullingQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        M::trace(Event::Contended);
        let stamp = M::stamp();
        let take = || queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        if let Some(ended) = queue.left().keep_out(until, take) {
            return ended.inspect(|()| M::waited(stamp)).inspect_err(|_| M::trace(Event::TimedOut));
        }
        let me = M::take_node();
        while let Some(turn) = Self::queue_up(queue, me, until) {
            if let Turn::TimedOut = turn {
                // The node is the queue's now (invariant 5).
                M::trace(Event::TimedOut);
                return Err(TimedOut);
            }
        }
        queue.own(me);
        M::waited(stamp);
        Ok(())
    }

    /// Queues, and waits; how that ended, if not with the lock.
    fn queue_up<M: Machine>(queue: &CullingQueue<M>, me: Handle, until: Option<Deadline>) -> Option<Turn> {
        let (node, numa) = (me.node::<M>(), S::arrive::<M>());
        node.prepare_on(numa, state::WAITING);
        S::Service::arrive(node);
        let previous = queue.tail.swap(me.word(), AcqRel);
        if previous == FREE {
            return None;
        }
        if let Some(given) = queue.link::<S::Service>(previous, Link::new(me, numa)) {
            let hand_off = wait::hand_off(|| given.numa.unwrap_or(numa), node);
            hand_off.into_iter().for_each(M::trace);
            wait::take_given(node, given.aside);
            return None;
        }
        match S::Service::await_turn::<M, W>(node, until, queue.left()) {
            Turn::Head => None,
            other => Some(other),
        }
    }
}

impl<M: Machine, S: Succession, W: WaitPolicy> RawLock<M> for CullingLock<S, W> {
    type Queue = CullingQueue<M>;

    fn new_queue() -> CullingQueue<M> {
        let zero = || M::Word::new(0);
        CullingQueue { tail: zero(), front: zero() }
    }

    /// 0 -> HELD
    #[inline]
    fn try_lock(_: &M::Word, queue: &CullingQueue<M>) -> bool {
        let taken = queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        if taken {
            M::trace(Event::Acquire);
        }
        taken
    }

    #[inline]
    fn lock(_: &M::Word, queue: &CullingQueue<M>) {
        M::trace(Event::Acquire);
        if queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            // Without a deadline it cannot time out.
            let _ = Self::lock_slow(queue, None);
        }
    }

    #[inline]
    fn lock_until(_: &M::Word, queue: &CullingQueue<M>, until: Deadline) -> Result<(), TimedOut> {
        if queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            Self::lock_slow(queue, Some(until))?;
        }
        M::trace(Event::Acquire);
        Ok(())
    }

    /// HELD -> 0, or a hand-off. Of a free lock: nothing.
    #[inline]
    fn unlock(_: &M::Word, queue: &CullingQueue<M>) {
        match queue.tail.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) | Err(FREE) => {}
            Err(tail) => queue.release::<S>(tail),
        }
    }

    fn is_locked(_: &M::Word, queue: &CullingQueue<M>) -> bool {
        queue.tail.load(Relaxed) != FREE
    }

    /// The chain goes behind the tail; if the lock was free, its first waiter owns it now. The store that links him, or
    /// grants him the lock, is the last access (he stays CLAIMED until then: invariant 2 of `cond/chain`).
    fn adopt(_: &M::Word, queue: &CullingQueue<M>, chain: Chain) {
        let first = chain.first();
        chain.park_followers::<M>(|_| ());
        match queue.tail.swap(chain.last().word(), AcqRel) {
            FREE => grant_claimed::<M, S>(first, None),
            previous => {
                let link = Link::new(first, first.node::<M>().numa.load(Relaxed));
                if let Some(given) = queue.link::<S::Service>(previous, link) {
                    grant_claimed::<M, S>(first, given.aside);
                }
            }
        }
    }

    /// Who was moved here sleeps, or has slept: nobody passes him over.
    fn lock_adopted(_: &M::Word, queue: &CullingQueue<M>, me: Handle) {
        M::trace(Event::Acquire);
        // Without a deadline it cannot time out.
        let _ = wait::turn::<M, W>(me.node(), None, queue.left());
        queue.own(me);
    }
}

impl<M: Machine, S: Succession, W: WaitPolicy> Inner<M> for CullingLock<S, W> {
    /// Relaxed: one thread alone touches the lock.
    fn forget(queue: &CullingQueue<M>) {
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
