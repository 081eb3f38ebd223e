//! # LIFO-CR: last come, first served
//!
//! LIFO-CR serves the waiter that came last, so that few threads circulate through the lock and the others sleep. **Use
//! it** when you would use `mcscr`: it does the same with less state. **Rather not** when each wait must be short.
//!
//! **Problem.** As in [`mcscr`](super::mcscr): threads beyond those that keep a lock busy cost caches and CPUs, and
//! make nothing faster. **Idea.** Waiters stand in a **stack**. A circulating thread comes back to the top, and is
//! served from there. Deeper waiters are passive, without having been culled. Now and then the eldest waiter, at the
//! bottom, is served, for long-term fairness. **Source.** Dice, *Malthusian Locks*, EuroSys 2017, appendix A.2.
//!
//! **Departures.**
//! 1. A waiter may leave by time-out. Its node stays in the stack. The holder that pops the node gives it back. When
//!    there are many such nodes, the holder sweeps the stack ([`SWEEP_AT`](crate::parts::wait::left::SWEEP_AT)). A
//!    stack full of them lets no thread join ([`LeftBehind`]).
//! 2. The waiters of a broadcast are pushed as a block, with the one that waited longest on top.
//! 3. It has no `evict=`, which `mcscr` has: the top waiter came last, and is the likeliest to run.
//!
//! ## State, and the stack
//! ```text
//! | top  | meaning                             |               top ──> [D] ──> [C] ──> [A] ──> 0
//! |------|-------------------------------------|                       newest          eldest
//! | 0    | free                                |                       polls   asleep  asleep
//! | HELD | held, no thread waits               |
//! | node | held, this waiter came last         |               (the holder, B, has no node)
//! ```
//!
//! ## The release
//! | trial (`eldest=`) | stack | `top` | successor |
//! |---|---|---|---|
//! | – | empty | HELD -> 0 | none: the lock is free |
//! | no | A alone | A -> HELD | A |
//! | no | D on C | D -> C | D |
//! | no | a waiter, E, was pushed on D while the releaser took D | stays E | the waiter below E, unlinked there: no loop, so constant time |
//! | yes | D … A | stays D | A, from the bottom: a walk, once in `eldest=` (1,000) releases |
//!
//! ## Invariants
//! 1. Only the holder takes nodes out of the stack, or writes the link of a node in it; other threads only push. So a
//!    link that the holder has read does not change. And a push whose CAS finds `top` as it was read is correct,
//!    whatever happened in between.
//! 2. The state of a node in the stack is changed only by its own thread (WAITING -> PARKED, -> ABANDONED). The holder
//!    changes it once the node is out of the stack (-> HEAD).
//! 3. A node is given back by its thread after HEAD, or by the holder after ABANDONED; never while it is in the stack.
//! 4. After HEAD is stored, or `top` set to 0, the releaser touches neither lock nor node, except for the wake of an
//!    address.
//! 5. In a forked child the nodes of the parent are the deepest: the first dead node ends the stack.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `top` CAS that pushes | Release | `top` load and CAS of the holder, Acquire | publishes the node and its link; later pushes and pops are read-modify-writes, so a thread that sees them sees this push, too |
//! | `top` CAS 0 -> HELD | Acquire | `top` CAS HELD -> 0, Release | sees the last section |
//! | `state` -> HEAD | AcqRel | `state` load in `wait::turn` | hands over this section, and the stack |
//! | links in the stack | Relaxed | – | written before the push, or by a holder before its hand-off |
//! | `state` load in `sweep` | Acquire | ABANDONED in `wait::turn`, Release | the leaving waiter's last look comes before the node's next use |
//!
//! No checker can distinguish the last from Relaxed: [the models](../models.md#what-neither-can-tell) argue for it.
//!
//! **Cannot:** what [`mcs`](crate::mutex::queue::mcs) cannot, with one exception: a joining thread need not link
//! itself, so no release waits for a thread that was stopped in between. Cannot bound a wait in time: the eldest of n
//! waiters waits for 1,000 releases on average.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::node::state;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::parts::adoption::Chain;
use crate::parts::counted::contended;
use crate::parts::policy::one_in;
use crate::parts::raw::RawLock;
use crate::parts::wait::left::{self, LeftBehind};
use crate::parts::wait::{self, SpinThenPark, WaitPolicy};

const FREE: u32 = 0;
/// Held, and no thread waits.
pub const HELD: u32 = Handle::RESERVED;

/// The LIFO-CR lock; waiters wait by policy `W`.
pub struct LifoCr<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

/// The stack: 4 bytes. The lock's word is not used.
#[repr(C)]
pub struct LifoQueue<M: Machine> {
    /// The waiter that came last, [`HELD`], or 0.
    pub top: M::Word,
}

crate::zeroed!(LifoQueue<M> { top });

impl<M: Machine> LifoQueue<M> {
    /// Nodes of waiters that gave up.
    pub fn left(&self) -> LeftBehind<M> {
        left::of(&self.top)
    }

    /// 0 -> HELD
    #[inline(always)]
    fn try_take(&self) -> bool {
        self.top.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// The waiter below this one in the stack.
    fn below(waiter: Handle) -> Option<Handle> {
        let below = Handle::from_word(waiter.node::<M>().next.load(Relaxed))?;
        below.node::<M>().is_alive().then_some(below) // Invariant 5.
    }

    /// (top = seen) -> (top = first); `last` stands on what was there.
    fn try_push(&self, seen: u32, first: Handle, last: Handle) -> bool {
        let below = if seen == HELD { 0 } else { seen };
        last.node::<M>().next.store(below, Relaxed);
        self.top.compare_exchange(seen, first.word(), Release, Relaxed).is_ok()
    }

    /// Hands the lock to a waiter, or frees it.
    #[cold]
    fn release(&self) {
        if self.left().wants_sweep() {
            self.sweep();
        }
        while let Some(successor) = self.successor() {
            if wait::grant::<M>(successor, M::numa_node) {
                return;
            }
            self.left().remove();
            M::give_node(successor); // Invariant 3: it has given up, and is out of the stack.
        }
    }

    /// Takes the successor out of the stack. If there is none, frees the lock.
    fn successor(&self) -> Option<Handle> {
        loop {
            let seen = self.top.load(Acquire);
            let Some(top) = Handle::from_word(seen) else {
                // A lock that is free already stays free.
                if seen == FREE || self.top.compare_exchange(HELD, FREE, Release, Relaxed).is_ok() {
                    return None;
                }
                continue;
            };
            if !top.node::<M>().is_alive() {
                self.left().clear();
                let _ = self.top.compare_exchange(seen, HELD, Relaxed, Relaxed);
                continue;
            }
            if one_in::<M>(M::tunables().eldest)
                && let Some(eldest) = Self::take_eldest(top)
            {
                return Some(eldest);
            }
            return Some(self.pop(top));
        }
    }

    /// Takes `top`, or, if a waiter was pushed on it meanwhile, the waiter below that one.
    fn pop(&self, top: Handle) -> Handle {
        let rest = Self::below(top).map_or(HELD, Handle::word);
        match self.top.compare_exchange(top.word(), rest, Acquire, Acquire) {
            Ok(_) => top,
            Err(newer) => Handle::from_word(newer).and_then(Self::take_below).unwrap_or(top),
        }
    }

    /// above -> x -> y   ==>   above -> y; x
    fn take_below(above: Handle) -> Option<Handle> {
        let taken = Self::below(above)?;
        let rest = Self::below(taken).map_or(0, Handle::word);
        above.node::<M>().next.store(rest, Relaxed);
        Some(taken)
    }

    /// Takes the waiter at the bottom, unless that is `top` itself.
    fn take_eldest(top: Handle) -> Option<Handle> {
        let mut above = top;
        let mut below = Self::below(above)?;
        while let Some(deeper) = Self::below(below) {
            (above, below) = (below, deeper);
        }
        M::trace(Event::Eldest);
        above.node::<M>().next.store(0, Relaxed);
        Some(below)
    }

    /// Gives back the nodes below the top whose threads have left.
    #[cold]
    fn sweep(&self) {
        let Some(mut above) = Handle::from_word(self.top.load(Acquire)).filter(|top| top.node::<M>().is_alive()) else {
            return;
        };
        while let Some(here) = Self::below(above) {
            if here.node::<M>().state.load(Acquire) == state::ABANDONED {
                Self::take_below(above);
                self.left().remove();
                M::give_node(here);
            } else {
                above = here;
            }
        }
    }
}

impl<W: WaitPolicy> LifoCr<W> {
    #[cold]
    fn lock_slow<M: Machine>(queue: &LifoQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        contended::<M>(|| Self::wait(queue, until))
    }

    /// Acquires a lock that was held.
    fn wait<M: Machine>(queue: &LifoQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        if let Some(ended) = queue.left().keep_out(&queue.top, until, || queue.try_take()) {
            return ended;
        }
        // SAFETY: its life in the stack is that of invariants 1 to 4.
        let me = unsafe { M::take_node() };
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        loop {
            let seen = queue.top.load(Relaxed);
            if seen == FREE {
                if queue.try_take() {
                    break;
                }
            } else if queue.try_push(seen, me, me) {
                // If it gives up, the node belongs to the stack (invariant 3).
                wait::turn::<M, W>(node, until, queue.left())?;
                break;
            }
        }
        M::give_node(me);
        Ok(())
    }
}

// SAFETY: invariants 1 to 5.
unsafe impl<M: Machine, W: WaitPolicy> RawLock<M> for LifoCr<W> {
    type Queue = LifoQueue<M>;

    #[inline]
    unsafe fn try_acquire(_: &M::Word, queue: &LifoQueue<M>) -> bool {
        queue.try_take()
    }

    #[inline]
    unsafe fn acquire(_: &M::Word, queue: &LifoQueue<M>, until: Option<&Deadline>) -> Result<(), TimedOut> {
        if queue.try_take() { Ok(()) } else { Self::lock_slow(queue, until.copied()) }
    }

    /// HELD -> 0, or a hand-off. Does nothing if the lock is free.
    #[inline]
    unsafe fn release(_: &M::Word, queue: &LifoQueue<M>) {
        match queue.top.compare_exchange(HELD, FREE, Release, Relaxed) {
            Ok(_) | Err(FREE) => {}
            Err(_) => queue.release(),
        }
    }

    unsafe fn is_locked(_: &M::Word, queue: &LifoQueue<M>) -> bool {
        queue.top.load(Relaxed) != FREE
    }

    /// The chain goes on top. If the lock was free, the chain's first waiter owns it now. The last access is the CAS
    /// that pushes that waiter, or its grant. (It stays CLAIMED until then: invariant 2 of `parts/adoption`.)
    unsafe fn take_over(_: &M::Word, queue: &LifoQueue<M>, chain: Chain) {
        let (first, last) = (chain.first(), chain.last());
        chain.park_followers::<M>(|_| ());
        loop {
            let seen = queue.top.load(Relaxed);
            if seen != FREE {
                if queue.try_push(seen, first, last) {
                    return;
                }
                continue;
            }
            // AcqRel: sees the last section, which the grant hands on, and publishes the followers.
            let rest = LifoQueue::<M>::below(first).map_or(HELD, Handle::word);
            if queue.top.compare_exchange(FREE, rest, AcqRel, Relaxed).is_ok() {
                let granted = wait::grant::<M>(first, M::numa_node);
                debug_assert!(granted, "who is CLAIMED cannot give up");
                return;
            }
        }
    }

    unsafe fn acquire_adopted(_: &M::Word, queue: &LifoQueue<M>, me: Handle) {
        // Without a deadline it cannot time out.
        let _ = wait::turn::<M, W>(me.node(), None, queue.left());
        M::give_node(me);
    }
}
