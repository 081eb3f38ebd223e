//! # qspinlock: the kernel's lock in four bytes
//!
//! A queue lock in four bytes: the Linux kernel's queued spinlock, in a program. **Use it** when locks are so many that
//! each byte counts, and each thread has a CPU. **Rather not** when threads outnumber CPUs, or there are several NUMA
//! nodes ([`qspin-cna`](crate::mutex::numa::qspin_cna)).
//!
//! **Problem.** A queue lock hands over without contention on one line. But MCS needs a word for its tail, another for
//! its holder's node, and, when few threads contend, one atomic operation more than a test-and-set lock. The kernel has
//! a lock in every inode and every page: it may take four bytes. **Idea.** One word says three things. LOCKED: the lock
//! is held. PENDING: one waiter, without a node, is next. The tail: the end of an MCS queue of all other waiters, by
//! the number of a slot. The head of that queue polls the word. When it has acquired the lock, it makes the next waiter
//! the head, and gives up its node *before* its critical section. **Source.** Long & Zijlstra's `qspinlock.c` as of
//! Linux 5.6, as refactored by patch 2 of the CNA series, v10 (April 2020): a slow path with places where another
//! succession fits in. The succession of that series, patches 3 to 5, is
//! [`numa::qspin_cna`](crate::mutex::numa::qspin_cna); this one is [`Arrival`].
//!
//! ```text
//!   word:   │ LOCKED │ PENDING │ tail ──────────────────┐
//!               │         │                             v
//!               A         B       head: [C] ──> [D] ──> [E]
//!   A holds the lock, B polls for LOCKED to go, C for both to go; D and E wait, each on its own node
//! ```
//!
//! **Departures.**
//! 1. A slot is a node of the pool. All objects of a process that have the library in them share the pool. The kernel
//!    has four slots for each CPU, for nested interrupts, and knows which interrupts may nest.
//! 2. PENDING is set by a compare-and-exchange of the whole word, from LOCKED alone. No thread that sets it must take
//!    it back.
//! 3. Waiters may sleep: in the queue on their nodes, the head and the waiter that is PENDING on the word ([`wait`]).
//! 4. Waiters may give up. The waiter that is PENDING clears the bit. The head passes the front on. Other waiters leave
//!    their nodes behind, and the thread that reaches such a node gives it back. Abandoned nodes are counted by the
//!    lock's address ([`Memory::beside`](crate::machine::Memory::beside)), and newcomers stay out while there are 64 or
//!    more.
//! 5. No thread waits for a joiner that has not linked itself: the joiner inherits the front ([`mod@line`], invariant
//!    2).
//! 6. In a forked child, no thread waits for threads that do not exist there. Nodes say to which process they belong.
//!    Beside PENDING, a bit says whether that waiter's process has the first or the second epoch. In processes with
//!    later epochs all waiters queue.
//! 7. A release is an addition, not a byte store ([`word`]).
//! 8. A joiner exchanges the whole word, where the kernel exchanges the half with the tail. It puts the rest back
//!    (invariant 6). The kernel has a loop of compare-and-exchange for very many CPUs. It would be unfair here: a
//!    thread whose exchange fails would lose its place to each thread whose exchange succeeds.
//!
//! ## State                                         (tail, PENDING, LOCKED), as in the kernel
//! | word | meaning | next |
//! |---|---|---|
//! | (0,0,0) | free | (0,0,1) by a locker |
//! | (0,0,1) | held, no waiter | (0,0,0) by release, (0,1,1) by the first waiter, (n,0,1) by a waiter that looked too early or too late to be PENDING |
//! | (0,1,1) | held, one waiter, without a node | (0,1,0) by release, (n,1,1) by the second waiter |
//! | (n,1,1) | held, one waiter is next, then the queue | (n,1,0) by release |
//! | (\*,1,0) | released, and taken next by the waiter that is PENDING | (\*,0,1) |
//! | (n,0,1) | held, the head of the queue is next | (n,0,0) by release |
//! | (n,0,0) | released, and taken next by the head | (n,0,1), or, if it was the last, (0,0,1) |
//!
//! No thread takes a lock before waiters that are already there. The queue is drawn in [`mod@line`].
//!
//! ## Invariants (beside those of `line`)
//! 1. The thread that changes LOCKED from 0 to 1 holds the lock. If PENDING is set, only the waiter that is PENDING
//!    does so; if it is not set and there is a tail, only the head. (In a forked child any thread may, if these two are
//!    dead.)
//! 2. PENDING is set from (0,0,1) only. So of all waiters, at most the one that set it comes before the head.
//! 3. A thread that sleeps on the word has set SLEEPS before. The bit is cleared only by a change that leaves no thread
//!    asleep there, or by the thread that slept.
//! 4. After the addition that clears LOCKED, the releaser uses the word's address only.
//! 5. A release of a lock that no thread holds sets LOCKED. No other thread can hold the lock then. The release takes
//!    its LOCKED back by a second addition, which is a release, too.
//! 6. A joiner that overwrites the flags puts them back at once, before it does anything else. It is in the queue
//!    meanwhile, so that no thread becomes PENDING. Until the flags are back the lock is not free, or is about to be
//!    taken. If it was free, the joiner holds it, and releases it when the flags are back. If it is released meanwhile,
//!    the head may have it before the waiter that is PENDING, which waits for its bit to come back. If such a release
//!    missed a wake-up, the joiner does it.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `word` addition in `unlock` | Release | all exchanges that set LOCKED | hands over this section |
//! | `word` exchanges that set LOCKED | Acquire | the addition | sees the last section, whichever threads have joined since: a chain of read-modify-writes |
//! | `word` addition in `restore` | Release | the same exchanges | hands over the section before, which the joiner's exchange has seen. This repeats what the chain of read-modify-writes since that release does already |
//! | `word` swap, or exchange, in `join` | AcqRel | itself, and the exchange in `close` | publishes the node; sees the node before it, and the 0 in that node's link |
//! | `word` loads, and failed exchanges, before [`is_vacant`] | Acquire | the swap in `join` | to which process the last waiter belongs |
//! | `next` swap in `join`, `behind` | AcqRel | each other | one of the two sees the other; the node, and what the front carries |
//! | `next` load | Acquire | `next` swap in `join` | the node that the link names must be seen prepared |
//! | `state` swap to HEAD | AcqRel | `state` loads of the waiter, Acquire; its ABANDONED, Release | the head sees what the front carries; its last look at an abandoned node comes before the node's next use |
//! | `state` store of HEAD | Release | the same loads | the same, where the waiter stays (invariant 5 of `line`) |
//! | all else on `word` | Relaxed | – | says only which threads wait, or when to look |
//!
//! No checker can distinguish `restore`'s addition and the links' loads from Relaxed. [The
//! models](../models.md#what-neither-can-tell) say why they stay.
//!
//! **Cannot:** let a newcomer in while the waiter that is next does not run. Cannot let the waiter that is PENDING give
//! up while a joiner is stopped that has overwritten its bit. Cannot share its mutex with code that
//! bypasses flashlock.

pub mod line;
pub mod wait;
pub mod word;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::parts::adoption::Chain;
use crate::parts::counted::{contended, wake};
use crate::parts::queue::link::Link;
use crate::parts::raw::RawLock;
use crate::parts::wait::{SpinThenPark, WaitPolicy, turn};
use line::{Joined, Line, Succession};
use wait::Pending;
use word::{FREE, LOCKED, SLEEPS, is_locked, is_vacant, pending_mark};

/// The kernel's lock; waiters wait by policy `W`.
pub type Qspin<W = SpinThenPark> = QspinLock<Arrival, W>;

/// The same with succession `S`.
pub struct QspinLock<S: Succession, W: WaitPolicy>(PhantomData<(S, W)>);

/// First come, first served.
pub struct Arrival;

// SAFETY: it changes nothing.
unsafe impl Succession for Arrival {
    type Order = ();

    fn unordered(_: Handle) {}
    fn arrive<M: Machine>(node: &Node<M>) -> Option<u32> {
        Some(node.numa.load(Relaxed))
    }
    fn begin<M: Machine>(_: &Node<M>) {}
    fn inherit<M: Machine>(_: &Node<M>, _: &Node<M>) {}
    fn order<M: Machine>(_: Line<'_, M>, _: Handle) {}
    fn secondary_ends<M: Machine>(_: &Node<M>) -> Option<(Link, Handle)> {
        None
    }
    fn choose<M: Machine>(_: Line<'_, M>, _: Handle, next: Link, _: ()) -> Link {
        next
    }
}

impl<S: Succession, W: WaitPolicy> QspinLock<S, W> {
    #[cold]
    fn lock_slow<M: Machine>(word: &M::Word, seen: u32, until: Option<Deadline>) -> Result<(), TimedOut> {
        contended::<M>(|| Self::wait(Line::<M> { word }, seen, until))
    }

    /// (\*,\*,\*), as it was seen, to (\*,0,1) and ours.
    fn wait<M: Machine>(line: Line<'_, M>, seen: u32, until: Option<Deadline>) -> Result<(), TimedOut> {
        let seen = match pending_mark::<M>().map(|mark| line.try_pend(seen, mark)) {
            None => seen,
            Some(Err(seen)) => seen,
            Some(Ok(mark)) => match line.wait_pending::<W>(mark, until) {
                Pending::Won => return Ok(()),
                Pending::TimedOut => return Err(TimedOut),
                Pending::Lost => mark,
            },
        };
        if let Some(ended) = line.left().keep_out(line.word, until, || line.try_take()) {
            return ended;
        }
        // SAFETY: its life in the queue is that of invariants 1 to 4 of `line`.
        let me = unsafe { M::take_node() };
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        let said = S::arrive(node).filter(|_| W::PARKS || until.is_none()); // Invariant 5 of `line`.
        let link = said.map_or_else(|| Link::without_numa(me), |numa| Link::new(me, numa));
        match line.join::<S>(seen, link, me, true, W::PARKS) {
            Joined::Holding => {
                line.pass::<S, W>(me, S::unordered(me));
                return Ok(());
            }
            Joined::Head => {}
            // If it gives up, the node belongs to the queue (invariant 3 of `line`).
            Joined::Waiting => turn::<M, W>(node, until, line.left())?,
        }
        line.contend::<S, W>(me, until)
    }

    /// If a thread sleeps on the word, wakes it. If no thread held the lock, takes the addition back (invariant 5).
    #[cold]
    fn unlock_slow<M: Machine>(word: &M::Word, mut before: u32) {
        let address: *const M::Word = word;
        if !is_locked(before) {
            before = word.fetch_add(LOCKED, Release);
        }
        if before & SLEEPS != 0 {
            wake::<M>(address, u32::MAX);
        }
    }
}

// SAFETY: the invariants, here and in `line`; what `S` does is its promise.
unsafe impl<M: Machine, S: Succession, W: WaitPolicy> RawLock<M> for QspinLock<S, W> {
    type Queue = ();

    /// (0,0,0) -> (0,0,1)
    #[inline]
    unsafe fn try_acquire(word: &M::Word, _: &()) -> bool {
        match word.compare_exchange(FREE, LOCKED, Acquire, Relaxed) {
            Ok(_) => true,
            Err(seen) => !is_locked(seen) && Line::<M> { word }.try_take(),
        }
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, _: &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        match word.compare_exchange(FREE, LOCKED, Acquire, Relaxed) {
            Ok(_) => Ok(()),
            Err(seen) => Self::lock_slow::<M>(word, seen, until.copied()),
        }
    }

    /// (\*,\*,1) -> (\*,\*,0)
    #[inline]
    unsafe fn release(word: &M::Word, _: &()) {
        let before = word.fetch_add(LOCKED, Release);
        if before & (LOCKED | SLEEPS) != LOCKED {
            Self::unlock_slow::<M>(word, before);
        }
    }

    unsafe fn is_locked(word: &M::Word, _: &()) -> bool {
        !is_vacant::<M>(word.load(Acquire))
    }

    /// The chain goes behind the tail. If no waiter was there, the chain's first waiter is the head now. What links it,
    /// or makes it the head, is the last access (it stays CLAIMED until then: invariant 2 of `parts/adoption`).
    unsafe fn take_over(word: &M::Word, _: &(), chain: Chain) {
        let (line, first) = (Line::<M> { word }, chain.first());
        S::begin(first.node::<M>());
        chain.park_followers::<M>(S::begin);
        let link = Link::without_numa(first);
        if let Joined::Head = line.join::<S>(word.load(Relaxed), link, chain.last(), false, W::PARKS) {
            line.promote::<S, W>(link);
        }
    }

    unsafe fn acquire_adopted(word: &M::Word, _: &(), me: Handle) {
        let line = Line::<M> { word };
        // Without a deadline neither can time out.
        let _ = turn::<M, W>(me.node(), None, line.left());
        let _ = line.contend::<S, W>(me, None);
    }
}
