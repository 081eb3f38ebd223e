//! # The shuffler
//!
//! The walk by which a waiter that would otherwise only burn cycles reorders the queue. It visits the waiters behind
//! itself, and moves those that its policy wants together directly behind its own group. It also wakes sleepers near
//! the front before their turn. **Source.** ShflLocks, slides 38–40 and 45–57; blocking, slides 59–69.
//!
//! ```text
//!   t1(0) t2(3) t3(0) t4(3)        t1 is the shuffler and of node 0
//!   t1(0) t3(0) t2(3) t4(3)        t3 was moved next to t1; t3 is now the shuffler
//! ```
//!
//! ## Invariants (slide 57)
//! 1. Only one waiter is a shuffler at a time.
//! 2. Shuffling starts from the head of the queue.
//! 3. The shuffler can pass its role to any of its successors.
//! 4. After passing the role, a waiter only spins.
//!
//! These invariants make the walk safe without a lock. The shuffler rewrites only links at and behind itself, of nodes
//! that already have successors: no joiner writes these. Only the front removes nodes, ahead of the shuffler or at it
//! (1 and 2). So the shuffler cannot move the tail. If a policy chooses the tail, the waiters before the tail join
//! anew, behind it. If the role is passed to a waiter that then gives up, the role is lost. The first head that is in
//! no group starts anew (2).
//!
//! The [policy](crate::parts::policy) decides which waiters are moved, and where. In the picture above it is the NUMA
//! node.
//!
//! **Bounded.** The size of the group is carried from shuffler to shuffler. At `max_shuffles`, no waiter shuffles until
//! the queue has reached a waiter in no group. So the first waiter in no group is passed over at most that often (and
//! by waiters that join at the very moment at which a tail is chosen).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::node::{Node, SHUFFLER, WALKING, state};
use crate::machine::{Handle, Machine, Word};
use crate::parts::policy::{Admission, Place, Waiter};
use crate::parts::shuffle::front::ShflQueue;
use crate::parts::wait::left::LeftBehind;

/// The shuffler and the waiters that were placed directly behind it.
struct Group {
    last: Handle,
    /// The place of `last` in the group, which is the number of members so far.
    size: u32,
    /// How many sleepers may still be woken.
    wakes: u32,
}

impl Group {
    /// before -> here -> x, last -> y ==> before -> x, last -> here -> y. `here` has a successor. Returns whether it
    /// was moved; it was not if it stood there already.
    fn take<M: Machine>(&mut self, before: Handle, here: Handle) -> bool {
        let (last, current) = (self.last.node::<M>(), here.node::<M>());
        let moved = before != self.last;
        if moved {
            before.node::<M>().next.store(current.next.load(Relaxed), Release);
            let second = last.next.load(Relaxed);
            current.next.store(second, Release);
            last.next.store(here.word(), Release);
            M::trace(Event::Shuffle);
        }
        self.admit::<M>(here);
        moved
    }

    /// The same for a `here` that has no successor yet: the waiters that it passes are put behind the tail.
    ///
    /// last -> y -> ... -> before -> here ==> last -> here -> ... -> y -> ... -> before
    fn take_tail<M: Machine>(&mut self, queue: &ShflQueue<M>, before: Handle, here: Handle) {
        let last = self.last.node::<M>();
        let first = Handle::from_word(last.next.load(Relaxed)).filter(|_| before != self.last);
        if let Some(first) = first {
            last.next.store(here.word(), Release);
            before.node::<M>().next.store(0, Relaxed); // Published by `join`.
            let alone = queue.join(first, before);
            debug_assert!(!alone, "the shuffler, at least, is before them");
            M::trace(Event::Shuffle);
        }
        self.admit::<M>(here);
    }

    /// Adds a member to the group. It stands behind `last`.
    fn admit<M: Machine>(&mut self, here: Handle) {
        let member = here.node::<M>();
        self.last = here;
        self.size += 1;
        member.batch.store(self.size, Relaxed);
        if self.wakes > 0 && wake_ahead(member) {
            self.wakes -= 1;
        }
    }
}

/// One walk. The caller is the shuffler. Ends early when `stop` says that there is something better to do, unless the
/// policy [finishes](Admission::finishes).
pub fn walk<M: Machine, P: Admission>(me: Handle, queue: &ShflQueue<M>, stop: impl FnMut() -> bool) {
    let node = me.node::<M>();
    let at_front = node.state.load(Relaxed) == state::HEAD;
    let role = node.batch.load(Relaxed);
    // Pairs with `retire`: one of the two fails. Acquire: sees the links as the last shuffler left them.
    let walking = role | WALKING;
    if role & SHUFFLER == 0
        || !P::walks::<M>(at_front)
        || node.batch.compare_exchange(role, walking, Acquire, Relaxed).is_err()
    {
        return;
    }
    let wakes = if M::crowded() { 0 } else { P::wakes(Waiter(node), M::tunables().wake_ahead) };
    let mut group = Group { last: me, size: role & !SHUFFLER, wakes };
    let chosen = gather::<M, P>(me, at_front, &mut group, queue.left(), stop);
    if let Some((before, here)) = chosen.filter(|_| group.last == me) {
        if here.node::<M>().next.load(Acquire) == 0 {
            group.take_tail(queue, before, here);
        } else {
            group.take::<M>(before, here);
        }
    }
    // Release, where another thread may touch the links next: it must see them as they are.
    if group.last == me {
        node.batch.fetch_and(!WALKING, Release);
        return;
    }
    // Invariants 3 and 4. While this waiter walks, it cannot be evicted. So `last` is still behind it when it gets the
    // role: later it might be in another queue.
    node.batch.fetch_and(!SHUFFLER, Relaxed);
    group.last.node::<M>().batch.fetch_or(SHUFFLER, Release);
    node.batch.fetch_and(!WALKING, Release);
}

/// Visits the waiters behind the shuffler, and takes those into the group that belong there. Returns the waiter that
/// the head chooses if there are none, behind the node before it.
fn gather<M: Machine, P: Admission>(
    me: Handle,
    at_front: bool,
    group: &mut Group,
    left: LeftBehind<M>,
    mut stop: impl FnMut() -> bool,
) -> Option<(Handle, Handle)> {
    let limit = M::tunables().max_shuffles;
    let (mut best, mut chosen) = (None, None);
    let mut before = me;
    while group.size < limit && best != Some(0) && (P::finishes::<M>() || !stop()) {
        let Some(here) = Handle::from_word(before.node::<M>().next.load(Acquire)) else { break };
        let current = here.node::<M>();
        let behind = Handle::from_word(current.next.load(Acquire));
        // Acquire: its thread has finished with it.
        if current.state.load(Acquire) == state::ABANDONED {
            // before -> current -> behind   ==>   before -> behind
            let Some(behind) = behind else { break };
            before.node::<M>().next.store(behind.word(), Release);
            left.remove();
            M::give_node(here);
            continue;
        }
        let moved = match P::place(Waiter(me.node::<M>()), Waiter(current)) {
            // It has a successor, so it is not the tail, and its links are the shuffler's (invariant 4 of `front`).
            Place::Next if behind.is_some() => group.take::<M>(before, here),
            Place::Choice(rank) if at_front && best.is_none_or(|best| rank < best) => {
                (best, chosen) = (Some(rank), Some((before, here)));
                false
            }
            _ => false,
        };
        if !moved {
            if P::insists(Waiter(current)) {
                break;
            }
            before = here;
        }
    }
    chosen
}

/// PARKED -> WAITING, and wakes it: shuffled waiters spin.
fn wake_ahead<M: Machine>(node: &Node<M>) -> bool {
    let woken = node.state.compare_exchange(state::PARKED, state::WAITING, AcqRel, Relaxed).is_ok();
    if woken {
        M::trace(Event::WakeAhead);
        M::unpark(node);
    }
    woken
}
