//! # MCS: a queue in which each thread waits on its own line
//!
//! **Problem.** With one word to spin on, every release invalidates every waiter's line: hand-over cost grows with the
//! number of waiters. **Idea.** Waiters form a list and each waits on a word in its own node; the holder hands the lock to its
//! successor and to nobody else. **Source.** Mellor-Crummey & Scott, TOCS 9(1), 1991, algorithm 5, in the variant known as K42
//! (Auslander et al., 2003), in which the holder keeps no node.
//!
//! **Use it** when waits must be in order, and each thread has a CPU of its own: throughput stays level however many wait. **Rather not** when threads outnumber CPUs (each hand-over may then wait for a time slice), or there are several NUMA nodes.
//!
//! **Departures.** (1) K42: on acquisition the successor's name moves from the node into the lock, and the node is free again.
//! So any thread may release (POSIX), an uncontended acquisition touches no node at all, and a thread needs one node however
//! many locks it holds. "Held, nobody waits" is the constant [`HELD`], not the lock's address, so a held lock may be moved.
//! (2) A waiter may sleep after its spin budget. (3) A waiter may leave by time-out; its node stays behind and the releaser that
//! reaches it skips it; a queue full of such nodes lets nobody join ([`LeftBehind`]).
//!
//! ## State                                                           ## The queue
//! ```text
//! | tail | next | meaning                                  |           tail ──────────────────────┐
//! |------|------|------------------------------------------|                                      v
//! | 0    | 0    | free                                     |           next ─> [B] ──next─> [C] ──> 0
//! | HELD | 0    | held, nobody waits                       |                   WAITING      PARKED
//! | node | 0    | held, the first waiter is linking itself |           (the holder, A, has no node any more)
//! | node | B    | held, B is next, the queue ends at node  |
//! ```
//!
//! ## Invariants
//! 1. `next` is written by the holder, and by the one waiter that found `HELD` in `tail`; it is 0 when `tail` becomes `HELD`.
//! 2. A node that has been linked changes state only by its own thread (WAITING -> PARKED, -> ABANDONED) and by the holder
//!    (-> HEAD). (One that came from a condition variable may be CLAIMED: its thread sleeps until it is HEAD.)
//! 3. A node is given back by its thread after HEAD, or by the holder after ABANDONED; never while reachable from `next`.
//! 4. After HEAD is stored, or `tail` set to 0, the releaser touches neither lock nor node, but for the wake of an address.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `tail.swap(node)` | AcqRel | itself, `tail` CAS in `unlock` | publishes the node; sees the last section if it was free |
//! | `tail` CAS HELD -> 0 | Release | `tail` swap/CAS of the next locker | hands over this section |
//! | `next.store` / `next.load` | Release / Acquire | each other | the successor's node must be seen prepared |
//! | `state` -> HEAD | Release | `state` load in `wait::turn` | hands over this section |
//!
//! No checker can tell the links' orderings, nor what a waiter that gives up says with Release, from Relaxed: [the models](../models.md#what-neither-can-tell) argue for them.
//!
//! **Cannot:** let a newcomer in while the first waiter is not running: a waiter that is stopped, or frozen in a signal handler,
//! stops everybody behind it. Cannot share its mutex with code that bypasses flashlock.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::cond::Chain;
use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, TimedOut, Word};
use crate::malthusian::loiter::Inner;
use crate::node::{Node, state};
use crate::queue::service::{Everybody, Service, Turn};
use crate::raw::RawLock;
use crate::wait::left::{self, LeftBehind};
use crate::wait::{self, SpinThenPark, WaitPolicy};

const FREE: u32 = 0;
/// Held, and nobody waits.
pub(crate) const HELD: u32 = Handle::RESERVED;

/// The MCS lock; waiters wait by policy `W`, and are served as `S` says.
pub struct Mcs<W: WaitPolicy = SpinThenPark, S: Service = Everybody>(PhantomData<(W, S)>);

/// The queue of an MCS lock: 8 bytes. The lock's word is not used.
#[repr(C)]
pub struct McsQueue<M: Machine> {
    /// The last waiter, [`HELD`], or 0.
    pub tail: M::Word,
    /// The holder's successor.
    pub next: M::Word,
}

/// The words of a queue, wherever they are: in a lock, or in a part of its [side block](crate::side).
pub(crate) struct Words<'a, M: Machine> {
    pub(crate) tail: &'a M::Word,
    pub(crate) next: &'a M::Word,
}

impl<M: Machine> Clone for Words<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Words<'_, M> {}

impl<M: Machine> McsQueue<M> {
    fn words(&self) -> Words<'_, M> {
        Words { tail: &self.tail, next: &self.next }
    }
}

/// What becomes of a lock that nobody waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    /// Free.
    Freed,
    /// Still held by who would have passed it on.
    Kept,
}

impl Alone {
    const fn tail(self) -> u32 {
        match self {
            Self::Freed => FREE,
            Self::Kept => HELD,
        }
    }
}

impl<M: Machine> Words<'_, M> {
    /// Nodes of waiters that gave up.
    fn left(self) -> &'static LeftBehind<M> {
        left::of(self.tail)
    }

    /// 0 -> HELD
    #[inline]
    pub(crate) fn try_lock(self) -> bool {
        self.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Waits for a lock that was found held.
    pub(crate) fn wait<W: WaitPolicy, S: Service>(self, until: Option<Deadline>) -> Result<(), TimedOut> {
        if let Some(ended) = self.left().keep_out(until, || self.try_lock()) {
            return ended;
        }
        let me = M::take_node();
        while let Some(turn) = self.queue_up::<W, S>(me, until) {
            if let Turn::TimedOut = turn {
                // The node is the queue's now (invariant 3).
                return Err(TimedOut);
            }
        }
        self.own(me);
        Ok(())
    }

    /// Queues, and waits; how that ended, if not with the lock.
    fn queue_up<W: WaitPolicy, S: Service>(self, me: Handle, until: Option<Deadline>) -> Option<Turn> {
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        S::arrive(node);
        let previous = self.tail.swap(me.word(), AcqRel);
        if previous == FREE {
            return None;
        }
        self.link(previous, me);
        match S::await_turn::<M, W>(node, until, self.left()) {
            Turn::Head => None,
            other => Some(other),
        }
    }

    /// HELD -> 0, or a hand-off. Of a free lock: nothing.
    #[inline]
    pub(crate) fn unlock<S: Service>(self) {
        match self.tail.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) | Err(FREE) => {}
            Err(_) => {
                self.hand_over::<S>(Alone::Freed);
            }
        }
    }

    /// Whether somebody waits for the lock, which is held.
    #[inline]
    pub(crate) fn has_waiters(self) -> bool {
        !matches!(self.tail.load(Relaxed), FREE | HELD)
    }

    /// A hand-off, if somebody waits. Whether there was one; if not, the lock is still held by the caller.
    #[inline]
    pub(crate) fn pass<S: Service>(self) -> bool {
        self.has_waiters() && self.hand_over::<S>(Alone::Kept)
    }

    fn hand_over<S: Service>(self, alone: Alone) -> bool {
        self.first_waiter(alone).is_some_and(|first| self.grant::<S>(first, alone))
    }

    /// Who is first in the queue of a lock that somebody waits for; or nobody does.
    #[cold]
    pub(crate) fn first_waiter(self, alone: Alone) -> Option<Handle> {
        // Not at the last in the queue before it must be: his line is his.
        let next = self.next.load(Acquire);
        if next != 0 {
            return Handle::from_word(next);
        }
        let tail = Handle::from_word(self.tail.load(Acquire));
        match tail.filter(|last| !last.node::<M>().is_alive()) {
            // In a forked child, where the waiter may have been about to link itself.
            Some(_) => self.bury(alone),
            None => Some(await_link::<M>(self.next)),
        }
    }

    /// Makes `first` the successor of `previous`, which is [`HELD`] or a node. Behind a node whose thread did not survive a fork
    /// it is the first of a new queue.
    fn link(self, previous: u32, first: Handle) {
        match Handle::from_word(previous).map(Handle::node::<M>) {
            Some(node) if node.is_alive() => node.next.store(first.word(), Release),
            _ => self.next.store(first.word(), Release),
        }
    }

    /// (tail = me) -> (tail = HELD), or moves the successor's name into the lock. Then the node is free (departure 1).
    fn own(self, me: Handle) {
        let node = me.node::<M>();
        let mut next = node.next.load(Acquire);
        // Before `tail` may become HELD, for then a waiter may write `next` (invariant 1).
        self.next.store(next, Relaxed);
        if next == 0 && self.tail.compare_exchange(me.word(), HELD, Release, Relaxed).is_err() {
            next = await_link::<M>(&node.next).word();
            self.next.store(next, Relaxed);
        }
        M::give_node(me);
    }

    /// Hands the lock to `next`, or to the first after it that has not given up and is not passed over; whether there was one.
    fn grant<S: Service>(self, mut next: Handle, alone: Alone) -> bool {
        loop {
            let node = next.node::<M>();
            let after = if !node.is_alive() {
                self.bury(alone)
            } else if S::passes_over(node) {
                let after = self.unlink(next, node, alone);
                S::let_go(node);
                after
            } else {
                if wait::grant::<M>(next, M::numa_node) {
                    return true;
                }
                self.skip(next, node, alone)
            };
            let Some(after) = after else { return false };
            next = after;
        }
    }

    /// In a forked child: forgets the waiters, whose threads do not exist here. The first waiter that has queued since, if any.
    #[cold]
    fn bury(self, alone: Alone) -> Option<Handle> {
        // A live waiter, which found a dead tail, may have linked itself here already.
        let next = self.next.load(Relaxed);
        if Handle::from_word(next).is_some_and(|first| !first.node::<M>().is_alive()) {
            let _ = self.next.compare_exchange(next, 0, Relaxed, Relaxed);
        }
        let tail = self.tail.load(Acquire);
        let all_dead = Handle::from_word(tail).is_none_or(|last| !last.node::<M>().is_alive());
        if all_dead {
            self.left().clear();
        }
        if all_dead && self.tail.compare_exchange(tail, alone.tail(), Release, Relaxed).is_ok() {
            return None;
        }
        Some(await_link::<M>(self.next))
    }

    /// The waiter behind `next`, which has given up; its node is given back.
    pub(crate) fn skip(self, next: Handle, node: &Node<M>, alone: Alone) -> Option<Handle> {
        self.left().remove();
        let after = self.unlink(next, node, alone);
        M::give_node(next);
        after
    }

    /// Takes `next`, the first, out of the queue. The waiter behind it; if there is none, (tail = next) -> free, or HELD.
    pub(crate) fn unlink(self, next: Handle, node: &Node<M>, alone: Alone) -> Option<Handle> {
        let after = node.next.load(Acquire);
        if after != 0 {
            return Handle::from_word(after);
        }
        self.next.store(0, Relaxed);
        if self.tail.compare_exchange(next.word(), alone.tail(), Release, Relaxed).is_ok() {
            return None;
        }
        Some(await_link::<M>(&node.next))
    }

    /// For nobody but whoever settles in a forked child: nobody waits, and the lock is free, or `held`. Relaxed: one thread alone touches
    /// the lock.
    pub(crate) fn reset(self, held: bool) {
        self.tail.store(if held { HELD } else { FREE }, Relaxed);
        self.next.store(0, Relaxed);
        self.left().clear();
    }
}

/// Waits for a successor that has swapped itself into `tail` to link itself.
fn await_link<M: Machine>(next: &M::Word) -> Handle {
    loop {
        let seen = M::spin_until(next, Acquire, Patience::Forever, |n| n != 0);
        if let Some(handle) = seen.and_then(Handle::from_word) {
            return handle;
        }
    }
}

impl<W: WaitPolicy, S: Service> Mcs<W, S> {
    #[cold]
    fn lock_slow<M: Machine>(queue: &McsQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        M::trace(Event::Contended);
        let stamp = M::stamp();
        let ended = queue.words().wait::<W, S>(until);
        ended.map(|_| M::waited(stamp)).inspect_err(|_| M::trace(Event::TimedOut))
    }
}

impl<M: Machine, W: WaitPolicy, S: Service> RawLock<M> for Mcs<W, S> {
    type Queue = McsQueue<M>;

    fn new_queue() -> McsQueue<M> {
        McsQueue { tail: M::Word::new(FREE), next: M::Word::new(0) }
    }

    /// 0 -> HELD
    #[inline]
    fn try_lock(_: &M::Word, queue: &McsQueue<M>) -> bool {
        let taken = queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        if taken {
            M::trace(Event::Acquire);
        }
        taken
    }

    #[inline]
    fn lock(_: &M::Word, queue: &McsQueue<M>) {
        M::trace(Event::Acquire);
        if queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            // Without a deadline it cannot time out.
            let _ = Self::lock_slow(queue, None);
        }
    }

    #[inline]
    fn lock_until(_: &M::Word, queue: &McsQueue<M>, until: Deadline) -> Result<(), TimedOut> {
        if queue.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            Self::lock_slow(queue, Some(until))?;
        }
        M::trace(Event::Acquire);
        Ok(())
    }

    /// HELD -> 0, or a hand-off. Of a free lock: nothing.
    #[inline]
    fn unlock(_: &M::Word, queue: &McsQueue<M>) {
        queue.words().unlock::<S>();
    }

    fn is_locked(_: &M::Word, queue: &McsQueue<M>) -> bool {
        queue.tail.load(Relaxed) != FREE
    }

    /// The chain goes behind the tail; if the lock was free, its first waiter owns it now. The store that links him, or grants
    /// him the lock, is the last access (he stays CLAIMED until then: invariant 2 of `cond/chain`).
    fn adopt(_: &M::Word, queue: &McsQueue<M>, chain: Chain) {
        chain.park_followers::<M>(|_| ());
        match queue.tail.swap(chain.last().word(), AcqRel) {
            FREE => _ = queue.words().grant::<S>(chain.first(), Alone::Freed),
            previous => queue.words().link(previous, chain.first()),
        }
    }

    /// Who was moved here sleeps, or has slept: nobody passes him over.
    fn lock_adopted(_: &M::Word, queue: &McsQueue<M>, me: Handle) {
        M::trace(Event::Acquire);
        // Without a deadline it cannot time out.
        let _ = wait::turn::<M, W>(me.node(), None, queue.words().left());
        queue.words().own(me);
    }
}

impl<M: Machine, W: WaitPolicy, S: Service> Inner<M> for Mcs<W, S> {
    fn forget(queue: &McsQueue<M>) {
        queue.words().reset(false);
    }
}
