//! # The queue behind the word
//!
//! The list of waiters behind the word of [`qspin`](super) and [`qspin-cna`](crate::mutex::numa::qspin_cna). It is
//! MCS's list. But its head does not hand on the lock. It hands on the **front**: the right to be next. So no holder of
//! the lock keeps a node. A [`Succession`] decides which waiter follows.
//!
//! ```text
//!   word: LOCKED | tail ───────────────────────────┐
//!                                                  v
//!   the holder: no node      [A] ──> [B] ──> … ──> [C] ──> 0
//!                            HEAD   WAITING     PARKED
//!                            polls the word
//! ```
//!
//! ## Invariants
//! 1. At most one node is HEAD, or the front belongs to the thread whose node has just been HEAD. Only that thread
//!    writes the links of nodes before the tail, and what the front carries ([`Succession`]).
//! 2. `next` of a node is exchanged by its successor (0 -> link), and by the thread that has the front and leaves (0 ->
//!    [`LEFT`]). The second of the two sees the first: a joiner that finds LEFT owns the node, what it carries, and the
//!    front. So no thread waits for a joiner that has not linked itself.
//! 3. A node is given back by the thread that passed the front on from it: its own thread, or, once it is ABANDONED,
//!    the thread that found it so. Or by the joiner that found LEFT. Then no link and no tail names it.
//! 4. After a thread has made a successor HEAD, it touches neither lock nor node, unless it holds the lock. It may
//!    still wake an address.
//! 5. Where waiters do not sleep, the link to a waiter that may give up, or that a condition variable has put to sleep,
//!    does not say where that waiter is.
//!
//! ## Orderings
//! Those of `next` and `state` in [`qspin`](super)'s table.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::copied::copied;
use crate::machine::event::Event;
use crate::machine::node::{LEFT, Node};
use crate::machine::{Handle, Machine, Word};
use crate::mutex::queue::qspin::word::{
    FLAGS, LOCKED, SLEEPS, has_pending, is_locked, is_vacant, tail, tail_word, with_tail,
};
use crate::parts::counted::wake;
use crate::parts::queue::link::Link;
use crate::parts::wait;
use crate::parts::wait::WaitPolicy;
use crate::parts::wait::left::{self, LeftBehind};

/// Which waiter follows the head. What a succession needs to know travels with the front, in the head's node, and is
/// written by the thread that has the front.
///
/// # Safety
/// The functions do with nodes only what invariants 1 to 4 of this page allow the thread that has the front.
pub unsafe trait Succession: 'static {
    /// What was learned of the queue while the head waited.
    type Order: Copy;

    /// Nothing is known yet to the thread that has the front in this node.
    fn unordered(front: Handle) -> Self::Order;

    /// A thread is about to queue with this node. Returns the NUMA node that its link shall say, if any.
    fn arrive<M: Machine>(node: &Node<M>) -> Option<u32>;

    /// Prepares a node that is not in the queue yet: it does not have the front, and carries nothing.
    fn begin<M: Machine>(node: &Node<M>);

    /// Moves what the front carries to `to`, whose thread has found that `from` left.
    fn inherit<M: Machine>(from: &Node<M>, to: &Node<M>);

    /// The head begins to wait for the word: it has time to reorder the queue.
    fn order<M: Machine>(line: Line<'_, M>, head: Handle) -> Self::Order;

    /// Whether the head goes on with that while it polls the word ([`Succession::reorder`]).
    fn goes_on<M: Machine>() -> bool {
        false
    }

    /// The head has found the lock busy once more. Makes one step, and returns whether it has changed the queue. If
    /// not, the head polls.
    fn reorder<M: Machine>(_head: Handle, _order: Self::Order) -> bool {
        false
    }

    /// The first and last waiters of the secondary queue, which becomes the queue when no waiter is behind `front`.
    fn secondary_ends<M: Machine>(front: &Node<M>) -> Option<(Link, Handle)>;

    /// Chooses the waiter that has the front after `front`, whose link is `next`, and gives it what the front carries.
    /// Its link leads to the rest.
    fn choose<M: Machine>(line: Line<'_, M>, front: Handle, next: Link, order: Self::Order) -> Link;
}

/// A lock's word, as threads that queue see it.
pub struct Line<'a, M: Machine> {
    /// The word.
    pub word: &'a M::Word,
}

copied!(Line<'_, M>);

/// How joining ended.
pub enum Joined {
    /// The lock was vacant, and is ours; the node has the front.
    Holding,
    /// First in the queue.
    Head,
    /// Behind another waiter.
    Waiting,
}

/// What is behind a node that has the front.
enum Behind {
    /// A waiter that has linked itself.
    Waiter(Link),
    /// No waiter. The secondary queue is the queue now, which begins with this one.
    Secondary(Link),
    /// No waiter. The queue is empty.
    Nobody,
    /// A waiter that has not linked itself. The front, the node, and what it carries belong to that waiter.
    Joiner,
}

impl<M: Machine> Line<'_, M> {
    /// Nodes left behind by waiters that gave up on this lock.
    pub fn left(self) -> LeftBehind<M> {
        left::of(self.word)
    }

    /// vacant -> LOCKED. Returns whether it was vacant.
    pub fn try_take(self) -> bool {
        let mut seen = self.word.load(Acquire);
        while is_vacant::<M>(seen) {
            match self.word.compare_exchange(seen, LOCKED, Acquire, Acquire) {
                Ok(_) => {
                    if tail(seen).is_some() {
                        self.left().clear(); // A forked child: the queue belonged to threads that do not exist.
                    }
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// (tail) -> (last), and links `first` behind the waiter that was last. `seen` is what the word held a moment ago.
    /// `parks`: whether waiters of this lock sleep.
    ///
    /// Exchanges the whole word. That cannot fail, however many threads join at the same time, and has two side
    /// effects. If the lock was free, we take it; we give it back unless `take` is set and no thread was before us. And
    /// the flags are lost; we put them back. If there are flags, we usually see them before, and join by a
    /// compare-and-exchange.
    pub fn join<S: Succession>(self, seen: u32, first: Link, last: Handle, take: bool, parks: bool) -> Joined {
        let seen = if seen & FLAGS & !LOCKED == 0 {
            let seen = self.word.swap(LOCKED | last.word(), AcqRel);
            if take && is_vacant::<M>(seen) {
                return Joined::Holding;
            }
            self.restore(seen, parks);
            seen
        } else {
            self.join_politely(seen, last)
        };
        let node = first.to().node::<M>();
        let Some(previous) = tail(seen) else { return Joined::Head };
        let before = previous.node::<M>();
        if !before.is_alive() {
            // A forked child: the queue up to here belongs to threads that do not exist.
            self.left().clear();
            return Joined::Head;
        }
        if before.next.swap(first.word(), AcqRel) != LEFT {
            return Joined::Waiting;
        }
        S::inherit(before, node); // Invariant 2.
        M::give_node(previous);
        Joined::Head
    }

    /// (flags, tail) -> (flags, last). Returns what the word held.
    fn join_politely(self, mut seen: u32, last: Handle) -> u32 {
        while let Err(now) = self.word.compare_exchange(seen, with_tail::<M>(seen, last.word()), AcqRel, Relaxed) {
            seen = now;
        }
        seen
    }

    /// Puts back the flags that an exchange has overwritten, and releases what it has taken. Invariant 6 of `qspin`.
    fn restore(self, overwritten: u32, parks: bool) {
        let address: *const M::Word = self.word;
        let mut lost = with_tail::<M>(overwritten, tail_word(overwritten)) & FLAGS & !LOCKED;
        if has_pending::<M>(overwritten) && parks {
            // The PENDING waiter may have set SLEEPS meanwhile. The head, which did not see PENDING, may have taken
            // that bit for its own.
            lost |= SLEEPS;
        }
        let mut now = overwritten;
        if lost != 0 {
            now = self.word.fetch_or(lost, Relaxed);
        }
        if !is_locked(overwritten) {
            now = self.word.fetch_add(LOCKED, Release).wrapping_add(LOCKED);
        }
        // A release in between has not seen that a thread sleeps.
        if (lost | now) & SLEEPS != 0 && !is_locked(now) {
            wake::<M>(address, u32::MAX);
        }
    }

    /// Passes the front on, from a node that has it and is ours.
    pub fn pass<S: Succession, W: WaitPolicy>(self, mut front: Handle, mut order: S::Order) {
        loop {
            let next = match self.behind::<S>(front) {
                Behind::Waiter(next) => S::choose(self, front, next, order),
                Behind::Secondary(first) => first,
                Behind::Nobody => return M::give_node(front),
                Behind::Joiner => return,
            };
            M::give_node(front);
            if Self::grant::<W>(next) {
                return;
            }
            // That waiter has given up, and we have the front through its node.
            self.left().remove();
            (front, order) = (next.to(), S::unordered(next.to()));
        }
    }

    /// What is behind a node that has the front. If no waiter is: (tail = front) -> (tail = 0), or to the last of the
    /// secondary queue.
    fn behind<S: Succession>(self, front: Handle) -> Behind {
        let next = &front.node::<M>().next;
        if let Some(link) = Link::from_word(next.load(Acquire)) {
            return Behind::Waiter(link);
        }
        let mut seen = self.word.load(Relaxed);
        while tail(seen) == Some(front) {
            match self.close::<S>(front, seen, with_tail::<M>) {
                Ok(closed) => return closed,
                Err(now) => seen = now,
            }
        }
        let Some(link) = Link::from_word(next.swap(LEFT, AcqRel)) else { return Behind::Joiner }; // Invariant 2.
        next.store(link.word(), Relaxed); // Only we read it.
        Behind::Waiter(link)
    }

    /// (seen) -> (new(seen, 0)). If there is a secondary queue, its last waiter is the new tail instead of 0.
    ///
    /// This is the kernel's speculative break (`cna_splice_head`). The secondary queue is a circle. It is opened before
    /// the exchange that makes its last waiter the tail, because a thread that joins after that writes that link. If
    /// the exchange fails, the circle is closed again. AcqRel: acquires the lock, where `new` takes it; and a joiner
    /// sees the 0 in the link that it exchanges next.
    fn close<S: Succession>(self, front: Handle, seen: u32, new: fn(u32, u32) -> u32) -> Result<Behind, u32> {
        let Some((first, last)) = S::secondary_ends(front.node::<M>()) else {
            self.word.compare_exchange(seen, new(seen, 0), AcqRel, Relaxed)?;
            return Ok(Behind::Nobody);
        };
        let link = &last.node::<M>().next;
        let circle = link.load(Relaxed);
        link.store(0, Relaxed);
        if let Err(now) = self.word.compare_exchange(seen, new(seen, last.word()), AcqRel, Relaxed) {
            link.store(circle, Relaxed);
            return Err(now);
        }
        M::trace(Event::Alteration);
        Ok(Behind::Secondary(first))
    }

    /// (head = me, seen) -> LOCKED, and passes the front on. The error is what the word holds instead of `seen`.
    pub fn acquire<S: Succession, W: WaitPolicy>(self, me: Handle, seen: u32, order: S::Order) -> Result<(), u32> {
        if tail(seen) != Some(me) {
            self.word.compare_exchange(seen, LOCKED | tail_word(seen), Acquire, Relaxed)?;
            self.pass::<S, W>(me, order);
            return Ok(());
        }
        let behind = self.close::<S>(me, seen, locked_with_tail)?;
        M::give_node(me);
        if let Behind::Secondary(first) = behind {
            self.promote::<S, W>(first);
        }
        Ok(())
    }

    /// Makes a waiter the head, or, if it has given up, the one behind it.
    pub fn promote<S: Succession, W: WaitPolicy>(self, next: Link) {
        if !Self::grant::<W>(next) {
            self.left().remove();
            self.pass::<S, W>(next.to(), S::unordered(next.to()));
        }
    }

    /// Gives the front to a waiter. Returns whether the waiter was still there.
    ///
    /// Usually by an exchange, which says whether the waiter was still there, and whether it sleeps. The caller, which
    /// is about to enter its section, has to wait for the result. Where waiters do not sleep, a waiter whose link says
    /// where it is has promised to stay (invariant 5). It is made the head by a store, as in the kernel.
    fn grant<W: WaitPolicy>(next: Link) -> bool {
        if W::PARKS || next.numa_hint().is_none() {
            return wait::grant::<M>(next.to(), M::numa_node);
        }
        wait::grant_patient::<M>(next.to(), M::numa_node);
        true
    }
}

/// What the head makes of the word when it acquires: no waiter is PENDING, and only the head itself may have set
/// SLEEPS.
fn locked_with_tail(_: u32, last: u32) -> u32 {
    LOCKED | last
}
