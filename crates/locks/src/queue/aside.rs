//! # A queue whose holder sets waiters aside
//!
//! **Problem.** A strict queue serves whoever came first, wherever he runs and however many run already. Locks that prefer some
//! waiters must keep the others somewhere, lose none of them, and still be free only when nobody waits at all. **Idea.** Two
//! lists: the **main queue**, [MCS's](super::mcs), which all join; and waiters **set aside**, a list that only the holder
//! touches, in his release. *Who* is set aside, and who follows, is a [`Succession`]: [`numa::cna`](crate::numa::cna) and
//! [`malthusian::mcscr`](crate::malthusian::mcscr) are this lock with two successions. **Sources.** Dice & Kogan, CNA, EuroSys'19,
//! §4–5, and Dice, *Malthusian Locks*, EuroSys'17, §4: both edit the MCS chain in the release and nowhere else.
//!
//! **Departures** from both: (1) K42, as in `mcs`: the holder keeps no node. So the list that the papers keep in the holder's node
//! stands in the lock, and "held, nobody in the main queue" has two forms, without and with waiters aside. (2) The list is
//! circular and named by its last, which names its first (as in the kernel's CNA series, v10): one word, and nothing to scan.
//! (3) A link carries the NUMA node of the waiter that it names (CNA §6). (4) A waiter may leave by time-out. Its node stays; the
//! holder that hands the lock to it owns the lock *through that node* instead, and chooses anew. Nodes aside, which may not be
//! reached for long, are gone through now and then when there are many abandoned ones ([`SWEEP_AT`](crate::wait::left::SWEEP_AT)); a queue full of them lets
//! nobody join ([`LeftBehind`]).
//!
//! ## State                                                            ## The queue
//! ```text
//! | tail       | next | aside | meaning                           |     tail ──────────────────┐
//! |------------|------|-------|-----------------------------------|                            v
//! | 0          | 0    | 0     | free                              |     next ─> [D] ──> [E] ──> [F] ──> 0
//! | HELD       | 0    | 0     | held, nobody waits                |
//! | HELD_ASIDE | 0    | C     | held, all who wait are aside      |    aside ──────────────────┐
//! | node       | 0    | –     | held, the first is linking itself |                            v
//! | node       | D    | –     | held, D is first in the main queue|       ┌──> [A] ──> [B] ──> [C] ──┐
//! ```                                                                     └──────────────────────────┘
//! `left` counts the abandoned nodes in both lists.
//!
//! ## Invariants
//! 1. `next` is written by the holder, and by the one waiter that found `HELD` or `HELD_ASIDE` in `tail`; it is 0 when `tail`
//!    becomes one of them. `aside`, and all links and `prev` of nodes aside, are the holder's.
//! 2. A node is set aside only if its link is not 0: its successor has linked itself, and never writes that link again.
//! 3. `tail` is HELD_ASIDE only while `aside` is not 0, or names a thread that did not survive a fork, or was just emptied by
//!    the holder, who is releasing; it is HELD only while `aside` is 0. So a release whose CAS (HELD -> 0) succeeds leaves nobody.
//! 4. A successor, once chosen, is in neither list but at the head of the rest of the main queue: its link leads to it, and is 0 iff
//!    it is the tail or its successor is linking itself.
//! 5. A node is given back by its thread after HEAD, or by the holder after ABANDONED, and by then is named by no link.
//! 6. After HEAD is stored, or `tail` set to 0, the releaser touches neither lock nor node, but for the wake of an address.
//! 7. In a forked child nodes of the parent come first in `main`, and a list aside is all dead or all alive: whoever uses it
//!    looks at its last, and forgets it if that is dead.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap(node)` | AcqRel | itself; `tail` CAS of the holder | publishes the node; sees the last section if it was free, and the 0 in the link it writes next |
//! | `tail` CAS HELD -> 0 | Release | `tail` swap/CAS of the next locker | hands over this section |
//! | `tail` CAS node -> HELD, HELD_ASIDE -> node | Release | `tail.swap` | the link that the next joiner writes is 0 by then |
//! | link store / load | Release / Acquire | each other | the successor's node must be seen prepared |
//! | `state` -> HEAD | AcqRel | `state` load in `wait::turn` | hands over this section, and the lists |
//! | `aside`, links and `prev` aside | Relaxed | – | the holder's alone, handed over with the lock |
//! | `state` load in `sweep` | Acquire | ABANDONED in `wait::turn`, Release | the leaver's last look comes before the node's next use |
//!
//! **Cannot:** what `mcs` cannot.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::cond::Chain;
use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, TimedOut, Word};
use crate::malthusian::loiter::Inner;
use crate::node::state;
use crate::queue::link::{Link, handle_in};
use crate::raw::RawLock;
use crate::wait::left::LeftBehind;
use crate::wait::{self, WaitPolicy};

const FREE: u32 = 0;
/// Held, and nobody waits.
pub const HELD: u32 = Handle::RESERVED;
/// Held, and all who wait are aside.
pub const HELD_ASIDE: u32 = HELD | Handle::LIMIT;

/// The two lists: 16 bytes. The lock's word is not used.
#[repr(C)]
pub struct AsideQueue<M: Machine> {
    /// The last of the main queue, [`HELD`], [`HELD_ASIDE`], or 0.
    pub tail: M::Word,
    /// The link to the first of the main queue.
    pub next: M::Word,
    /// The last of those set aside, or 0. A succession may keep something of its own in the top four bits.
    pub aside: M::Word,
    /// Nodes of waiters that gave up.
    pub left: LeftBehind<M>,
}

/// Who follows the holder. Called in his release, when somebody waits.
pub trait Succession: 'static {
    /// The NUMA node of a thread that is about to queue.
    fn arrive<M: Machine>() -> u32 {
        M::numa_node()
    }

    /// The NUMA node of the releaser.
    fn here<M: Machine>() -> u32 {
        M::numa_node()
    }

    /// Chooses the successor; `first` begins the main queue and is alive. May set waiters aside, and take some back. The
    /// successor's link leads to what is left of the main queue (invariant 4).
    fn choose<M: Machine>(queue: &AsideQueue<M>, first: Link) -> Handle;

    /// The main queue is empty: takes waiters from aside, where `last` is the last and alive. The first of them, who will
    /// have the lock, and the last, whose link is written by the caller.
    fn recall<M: Machine>(queue: &AsideQueue<M>, last: Handle) -> (Handle, Handle);
}

/// A lock on such a queue, with succession `S` and waiting policy `W`.
pub struct AsideLock<S: Succession, W: WaitPolicy>(PhantomData<(S, W)>);

impl<M: Machine> AsideQueue<M> {
    /// The last of those set aside. In a forked child, forgets the dead (invariant 7).
    pub fn last_aside(&self) -> Option<Handle> {
        let last = handle_in(self.aside.load(Relaxed))?;
        if last.node::<M>().is_alive() {
            return Some(last);
        }
        self.aside.store(0, Relaxed);
        None
    }

    /// Whether anybody is aside.
    pub fn has_aside(&self) -> bool {
        handle_in(self.aside.load(Relaxed)).is_some()
    }

    /// Releases a lock that somebody waits for.
    #[cold]
    fn release<S: Succession>(&self) {
        if self.left.wants_sweep() {
            self.sweep();
        }
        while let Some(successor) = self.successor::<S>() {
            if wait::grant::<M>(successor, S::here::<M>) {
                return;
            }
            // It has given up: we hold the lock through its node, as if we had just acquired it (departure 4).
            self.left.remove();
            self.own(successor);
        }
    }

    /// The successor; or nobody waits, and the lock is free now.
    fn successor<S: Succession>(&self) -> Option<Handle> {
        loop {
            let next = self.next.load(Acquire);
            if let Some(first) = Link::from_word(next) {
                if first.to().node::<M>().is_alive() {
                    return Some(S::choose(self, first));
                }
                // A forked child. Whoever has queued since found a dead tail, and links itself here.
                let _ = self.next.compare_exchange(next, 0, Relaxed, Relaxed);
                continue;
            }
            let tail = self.tail.load(Acquire);
            match handle_in(tail) {
                Some(last) if last.node::<M>().is_alive() => {
                    await_link::<M>(&self.next);
                    continue;
                }
                Some(_) => {
                    self.aside.store(0, Relaxed); // Invariant 7: they are older than the dead tail.
                    self.left.clear();
                }
                None => {
                    if let Some(last) = self.last_aside() {
                        return Some(self.recall::<S>(last));
                    }
                }
            }
            // A lock that is free already stays so.
            if self.tail.compare_exchange(tail, FREE, Release, Relaxed).is_ok() {
                return None;
            }
        }
    }

    /// (HELD_ASIDE, aside) -> (tail = last of those recalled). Who joins meanwhile stands behind them.
    fn recall<S: Succession>(&self, last: Handle) -> Handle {
        let (first, last) = S::recall(self, last);
        let link = &last.node::<M>().next;
        link.store(0, Relaxed);
        if self.tail.compare_exchange(HELD_ASIDE, last.word(), Release, Relaxed).is_err() {
            link.store(await_link::<M>(&self.next), Relaxed);
        }
        first
    }

    /// (tail = me) -> HELD or HELD_ASIDE, or moves my link into the lock. Then the node is free.
    fn own(&self, me: Handle) {
        let node = me.node::<M>();
        let mut next = node.next.load(Acquire);
        // Before `tail` may become HELD, for then a waiter may write `next` (invariant 1).
        self.next.store(next, Relaxed);
        if next == 0 {
            let alone = if self.has_aside() { HELD_ASIDE } else { HELD };
            if self.tail.compare_exchange(me.word(), alone, Release, Relaxed).is_err() {
                next = await_link::<M>(&node.next);
                self.next.store(next, Relaxed);
            }
        }
        M::give_node(me);
    }

    /// Puts `first` behind `previous`, what `tail` held. Behind a node whose thread did not survive a fork it is the first of a
    /// new queue.
    fn link(&self, previous: u32, first: Link) {
        match handle_in(previous).map(Handle::node::<M>) {
            Some(node) if node.is_alive() => node.next.store(first.word(), Release),
            _ => self.next.store(first.word(), Release),
        }
    }

    /// Gives back the nodes aside whose threads have gone.
    #[cold]
    fn sweep(&self) {
        let Some(last) = self.last_aside() else { return };
        let mut here = Link::from_word(last.node::<M>().next.load(Relaxed));
        let (mut first, mut kept) = (0, None::<Handle>);
        while let Some(link) = here {
            let (handle, node) = (link.to(), link.to().node::<M>());
            here = if handle == last { None } else { Link::from_word(node.next.load(Relaxed)) };
            if node.state.load(Acquire) == state::ABANDONED {
                self.left.remove();
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
        let spare = self.aside.load(Relaxed) & !(Handle::LIMIT - 1);
        self.aside.store(kept.map_or(0, Handle::word) | spare, Relaxed);
    }
}

/// Waits for somebody who has swapped himself into `tail` to link himself.
fn await_link<M: Machine>(next: &M::Word) -> u32 {
    loop {
        if let Some(link) = M::spin_until(next, Acquire, Patience::Forever, |link| link != 0) {
            return link;
        }
    }
}

impl<S: Succession, W: WaitPolicy> AsideLock<S, W> {
    #[cold]
    fn lock_slow<M: Machine>(queue: &AsideQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        M::trace(Event::Contended);
        let stamp = M::stamp();
        let take = || queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        if let Some(ended) = queue.left.keep_out(until, take) {
            return ended.inspect(|()| M::waited(stamp)).inspect_err(|_| M::trace(Event::TimedOut));
        }
        let me = M::take_node();
        let (node, numa) = (me.node::<M>(), S::arrive::<M>());
        node.prepare_on(numa, state::WAITING);
        let previous = queue.tail.swap(me.word(), AcqRel);
        if previous != FREE {
            queue.link(previous, Link::new(me, numa));
            if let Err(timed_out) = wait::turn::<M, W>(node, until, &queue.left) {
                // The node is the queue's now (invariant 5).
                M::trace(Event::TimedOut);
                return Err(timed_out);
            }
        }
        queue.own(me);
        M::waited(stamp);
        Ok(())
    }
}

impl<M: Machine, S: Succession, W: WaitPolicy> RawLock<M> for AsideLock<S, W> {
    type Queue = AsideQueue<M>;

    fn new_queue() -> AsideQueue<M> {
        let zero = || M::Word::new(0);
        AsideQueue { tail: zero(), next: zero(), aside: zero(), left: LeftBehind::new() }
    }

    /// 0 -> HELD
    #[inline]
    fn try_lock(_: &M::Word, queue: &AsideQueue<M>) -> bool {
        let taken = queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        if taken {
            M::trace(Event::Acquire);
        }
        taken
    }

    #[inline]
    fn lock(_: &M::Word, queue: &AsideQueue<M>) {
        M::trace(Event::Acquire);
        if queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            // Without a deadline it cannot time out.
            let _ = Self::lock_slow(queue, None);
        }
    }

    #[inline]
    fn lock_until(_: &M::Word, queue: &AsideQueue<M>, until: Deadline) -> Result<(), TimedOut> {
        if queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            Self::lock_slow(queue, Some(until))?;
        }
        M::trace(Event::Acquire);
        Ok(())
    }

    /// HELD -> 0, or a hand-off. Of a free lock: nothing.
    #[inline]
    fn unlock(_: &M::Word, queue: &AsideQueue<M>) {
        match queue.tail.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) | Err(FREE) => {}
            Err(_) => queue.release::<S>(),
        }
    }

    fn is_locked(_: &M::Word, queue: &AsideQueue<M>) -> bool {
        queue.tail.load(Relaxed) != FREE
    }

    /// The chain goes behind the tail; if the lock was free, its first waiter owns it now. The store that links him, or grants
    /// him the lock, is the last access (he stays CLAIMED until then: invariant 2 of `cond/chain`).
    fn adopt(_: &M::Word, queue: &AsideQueue<M>, chain: Chain) {
        let first = chain.first();
        chain.park_followers::<M>(|_| ());
        match queue.tail.swap(chain.last().word(), AcqRel) {
            FREE => {
                let granted = wait::grant::<M>(first, S::here::<M>);
                debug_assert!(granted, "who is CLAIMED cannot give up");
            }
            previous => queue.link(previous, Link::new(first, first.node::<M>().numa.load(Relaxed))),
        }
    }

    fn lock_adopted(_: &M::Word, queue: &AsideQueue<M>, me: Handle) {
        M::trace(Event::Acquire);
        // Without a deadline it cannot time out.
        let _ = wait::turn::<M, W>(me.node(), None, &queue.left);
        queue.own(me);
    }
}

impl<M: Machine, S: Succession, W: WaitPolicy> Inner<M> for AsideLock<S, W> {
    /// Relaxed: one thread alone touches the lock.
    fn forget(queue: &AsideQueue<M>) {
        for word in [&queue.tail, &queue.next, &queue.aside] {
            word.store(0, Relaxed);
        }
        queue.left.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_name_nobody() {
        for word in [FREE, HELD, HELD_ASIDE] {
            assert_eq!((handle_in(word), Link::from_word(word)), (None, None));
        }
    }
}
