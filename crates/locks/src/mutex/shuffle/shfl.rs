//! # ShflLock: a word in front, one queue of spinning and sleeping waiters behind it
//!
//! A blocking mutex for machines with several NUMA nodes: one waiter contends for a word, and the others wait in a
//! queue that waiters reorder. Take it when threads on many CPUs want the same lock.
//!
//! **Problem.** A lock should cost one atomic operation without contention. It should keep its throughput on several
//! NUMA nodes and with more threads than CPUs. And it should need only a few bytes. **Idea.** Holding and waiting are
//! decoupled. The holder owns a test-and-set word. Waiters queue, and only the head of the queue contends for the word.
//! Waiters that have nothing else to do reorder the queue and wake sleepers early (*shuffling*). **Source.** Kashyap et
//! al., SOSP'19; thesis defence, slides 33–69. Succession is competitive, and waiting is spin-then-park (Dice,
//! *Malthusian Locks*, §5.1, 5.4). A [policy](crate::parts::policy) decides how waiters are grouped: by NUMA node,
//! unless `policy=` says otherwise (`docs/policies.md`).
//!
//! **Use it** when the machine has several NUMA nodes and many CPUs, and each thread should have its turn soon.
//! **Rather not** on a machine with few CPUs, where [`flash` is faster](../choosing.md#real-programs).
//!
//! ```text
//!  word ── 1 ─── held by a thread that is in no queue  newcomer ──> takes the word if it is free; one of them polls it
//!  head ──> [A:0]  the only one in the queue that polls the word; then it sleeps on it
//!             └──> [B:0] ──> [C:1] ──> [D:0] ──> [E:1] <── tail   (node 0 or 1)
//!  shuffled:       [B:0] ──> [D:0] ──> [C:1] ──> [E:1]            by A, or by B, while they wait; D may be woken early
//! ```
//!
//! **Departures.**
//! 1. *The word follows glibc's protocol*: 0 is free, 1 is held, 2 is held and a thread sleeps on the word. So code
//!    that bypasses flashlock and runs glibc's functions on the same mutex still excludes other threads, sleeps, and is
//!    woken. The head sleeps on the word, every other waiter on its own node.
//! 2. *The lock names its head*, so that a releaser sees how long the head has waited. After `bound` µs the releaser
//!    does not free the word. It reserves the word for the head (GRANTED). Only the releaser can do that, because a
//!    head that is not running cannot ask. The head may be frozen. So a reservation that is not taken becomes stale,
//!    and then any waiter may revoke it. A head without a CPU cannot use the lock, which then stands still. Where CPUs
//!    are scarce, the releaser waits longer before it hands over: eight times the recent standstill, at most 100 ×
//!    `bound`; but never less than `bound`. A head that has queued for 50 ms is handed the lock after `bound`.
//! 3. *The holder wakes no thread inside its section*, except to hand the lock over. If the next head sleeps, the
//!    holder moves it to the word without waking it, and the thread that frees the word wakes it. A holder that took
//!    the lock out of turn wakes another sleeper when it releases (ROUSE).
//! 4. *One arrival polls* before it queues, while others queue: a running thread is the cheapest successor (competitive
//!    succession, §5.4). If several polled, they would take the line from each other.
//! 5. *A sleeper sleeps until it is woken.* A release wakes the head. The head may be frozen in a signal handler:
//!    - It froze while it slept. Then the kernel answers the release that the head did not sleep, and the release wakes
//!      another sleeper, which looks for the lock. If that one takes the lock, it leaves its node behind, and removes
//!      from the queue a head that does not run.
//!    - It froze while it was awake. So the thread that wakes it leaves a mark in the node of the waiter behind it.
//!      Waiters wake up by themselves, ever more seldom. One that finds such a mark looks for the lock, too
//!      ([`turn`]). If it gives up, it wakes another one.
//!
//!    As long as the head sleeps, no thread accesses the lock unless it was woken: a program may end while threads
//!    are blocked on a lock whose memory was freed.
//! 6. Nodes come from a pool, not from the stack. A waiter may leave by time-out, and leaves its node behind. A queue
//!    full of such nodes admits no newcomer ([`LeftBehind`](crate::parts::wait::left::LeftBehind)).
//!
//! ## State: 12 bytes
//! | `word` | meaning |
//! |---|---|
//! | 0 | free |
//! | 1 | held (or reserved: `head` has GRANTED) |
//! | 2 | held (or reserved), and a thread sleeps on the word: the head, or one that bypasses flashlock |
//!
//! `head` and `tail`: see [`front`](crate::parts::shuffle::front). The wait in the queue is in [`turn`],
//! that of the head in [`head`](super::head), the release in [`release`](super::release).
//!
//! [`turn`]: crate::parts::shuffle::turn
//!
//! ## The bound
//! Let a thread arrive when n others want the lock or hold it, each with sections of at most s. Let T be `bound=`, and
//! let d be the time from waking a thread until it runs, plus T/16. Then the thread has the lock after at most
//! **(n + 2) · (s + T + d) + 50 ms**, if
//! - it does not time out, and is not evicted (which needs at least 10 ms without running);
//! - later arrivals are not put before it: with `policy=none`, or on one NUMA node. With `policy=numa` on N nodes, add
//!   (N − 1) · `shuffles=` to n: a group takes the earlier waiters of its node before the later ones. From each other
//!   node, at most one group includes threads that came after this one;
//! - code that bypasses flashlock does not release the lock.
//!
//! *Why.* A waiter becomes head when the head before it acquires the lock. While the head sleeps, each release looks at
//! the clock. The first release after T hands the lock over. If sections are so short that sixteen end within T, that
//! release wakes the head instead; the head asks, and the next release hands the lock over. While the head polls, it
//! looks at the clock itself, and asks after T. So one head follows another after at most T + d and the rest of the
//! section that runs when T is over. Add two sections: the one under way when it arrives, and its own. During a
//! thread's first 50 ms in the queue, T may be longer (departure 2). After that, those before it have queued for as
//! long, so this adds 50 ms in all. The simulator checks the bound (claim `Bounded`) with random n and s; `cargo xtask
//! bound` measures it on real threads.
//!
//! ## Invariants (in addition to those of `front`)
//! 1. A thread that changes `word` from 0, or clears GRANTED, holds the lock.
//! 2. A head falls asleep only while the word holds 2. Either it wrote the 2, or a holder did and moved it there
//!    asleep. A head that slept there acquires with 2. (Others may, too.)
//! 3. After the releasing exchange of `word`, or the CAS that sets GRANTED, the releaser touches only nodes and futex
//!    addresses.
//! 4. If a thread sleeps on the word, the word is 2, or a wake-up is on its way.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS 0 -> 1, swap 2 on `word` | Acquire | `word.hand_back(0)` | sees the last section |
//! | `word.hand_back(0)`, an exchange | Release | both | hands over this section |
//! | `head` CAS setting / clearing GRANTED | AcqRel | each other | hands over this section |
//! | `head` load in `unlock` | Relaxed | – | a head that joined just now is seen next time; it polls or sleeps with 2 |
//! | `word` swap 2 in `doze`, swap 1 in `hand_over` | AcqRel | each other | the second of the two sees what went before the first |
//! | `word` swap 2 in `note_sleeper` | Relaxed | – | the holder's own: its release wakes |
//!
//! No checker can distinguish the orderings of `state`, and of the links that a walk writes, from Relaxed. [The
//! models](../models.md#what-neither-can-tell) say why they stay.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::event::Event;
use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::mutex::shuffle::sleeper::Sleeper;
use crate::mutex::shuffle::state::{FREE, Lock, try_take};
use crate::parts::adoption::Chain;
use crate::parts::counted::contended;
use crate::parts::policy::{Admission, Chosen};
use crate::parts::raw::RawLock;
use crate::parts::shuffle::front::{ARRIVAL, GRANTED, ShflQueue, named, naming, start_clock};
use crate::parts::shuffle::rouse::wake;
use crate::parts::shuffle::turn::{Contended, Turn};
use crate::parts::wait::{SpinThenPark, WaitPolicy};

/// The blocking ShflLock: waiters wait by `W` and are grouped by `P`.
pub struct Shfl<W: WaitPolicy = SpinThenPark, P: Admission = Chosen>(PhantomData<(W, P)>);

impl<W: WaitPolicy, P: Admission> Shfl<W, P> {
    /// A function of its own, as is [`Self::unlock_contended`], so that the uncontended pair needs no stack.
    #[cold]
    #[inline(never)]
    fn lock_contended<M: Machine>(word: &M::Word, queue: &ShflQueue<M>) {
        // Without a deadline it cannot time out.
        let _ = Self::lock_slow(&Lock { word, queue }, None);
    }

    #[cold]
    #[inline(never)]
    fn unlock_contended<M: Machine>(word: &M::Word, queue: &ShflQueue<M>, head: u32) {
        Lock { word, queue }.unlock_contended(head);
    }

    #[cold]
    fn lock_slow<M: Machine>(lock: &Lock<'_, M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        contended::<M>(|| Self::wait(lock, until))
    }

    /// Acquires a lock that was held.
    fn wait<M: Machine>(lock: &Lock<'_, M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        if W::SPINS && lock.arrive() {
            if named(lock.queue.head.load(Relaxed)).is_some() {
                M::trace(Event::Steal);
            }
            return Ok(());
        }
        let take = || try_take::<M>(lock.word) || Self::try_stale(lock);
        if let Some(ended) = lock.queue.left().keep_out(lock.word, until, take) {
            return ended;
        }
        // SAFETY: its life in the queue is that of invariants 1 to 5 of `front`.
        let me = unsafe { M::take_node() };
        let turn = Self::queue_up(lock, me, until);
        Self::finish(lock, me, turn, until)
    }

    /// Joins the queue and waits in it.
    fn queue_up<M: Machine>(lock: &Lock<'_, M>, me: Handle, until: Option<Deadline>) -> Turn {
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        // `join` publishes these, with the rest.
        node.role.store(lock.queue.marked(P::role::<M>()), Relaxed);
        node.queued_at.store(M::micros(), Relaxed);
        node.check_at.store(0, Relaxed);
        let behind = lock.queue.join_behind(me, me);
        if behind.is_some() {
            return lock.queue.wait_turn::<W, P>(me, behind, until, Sleeper { lock, revoked: None });
        }
        start_clock(node);
        node.state.store(state::HEAD, Relaxed); // No other thread changes it yet: `head` does not name it.
        lock.queue.set_head(naming(me));
        Turn::Head
    }

    /// From the end of the wait in the queue to the end of the acquisition.
    fn finish<M: Machine>(
        lock: &Lock<'_, M>,
        me: Handle,
        mut turn: Turn,
        until: Option<Deadline>,
    ) -> Result<(), TimedOut> {
        loop {
            let contended = match turn {
                Turn::Won => return Ok(()),
                Turn::TimedOut => Contended::TimedOut,
                Turn::Head => lock.contend::<W, P>(me, until, false),
                Turn::HeadHolding => lock.contend::<W, P>(me, until, true),
            };
            match contended {
                Contended::Won => return Ok(()),
                Contended::TimedOut => return Err(TimedOut),
                Contended::Evicted => turn = Self::queue_up(lock, me, until),
            }
        }
    }

    /// Takes a lock whose grant is stale: a grant that is never taken must not keep the lock held for ever.
    #[cold]
    fn try_stale<M: Machine>(lock: &Lock<'_, M>) -> bool {
        let revoked = lock.revoke_stale_grant();
        if revoked.is_some() {
            lock.evict_idle_head(revoked);
        }
        revoked.is_some()
    }
}

// SAFETY: invariants 1 to 4, and those of `front` and of the shuffler.
unsafe impl<M: Machine, W: WaitPolicy, P: Admission> RawLock<M> for Shfl<W, P> {
    type Queue = ShflQueue<M>;

    const GLIBC_WORD: bool = true;

    #[inline]
    unsafe fn try_acquire(word: &M::Word, queue: &ShflQueue<M>) -> bool {
        try_take::<M>(word) || (queue.head.load(Relaxed) & GRANTED != 0 && Self::try_stale(&Lock { word, queue }))
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, queue: &ShflQueue<M>, until: Option<&Deadline>) -> Result<(), TimedOut> {
        if try_take::<M>(word) {
            return Ok(());
        }
        if until.is_some() {
            return Self::lock_slow(&Lock { word, queue }, until.copied());
        }
        Self::lock_contended::<M>(word, queue);
        Ok(())
    }

    #[inline]
    unsafe fn release(word: &M::Word, queue: &ShflQueue<M>) {
        match queue.head.load(Relaxed) & !ARRIVAL {
            0 => Lock { word, queue }.free_unseen(),
            head => Self::unlock_contended::<M>(word, queue, head),
        }
    }

    unsafe fn is_locked(word: &M::Word, _: &ShflQueue<M>) -> bool {
        word.load(Relaxed) != FREE
    }

    /// The chain goes behind the tail. Its first waiter stays CLAIMED until it is linked, or HEAD. The queue is not
    /// accessed after that (invariant 2 of `parts/adoption`).
    ///
    /// The last waiter is woken, and goes on waiting here. So one of the waiters looks for the lock itself if the head
    /// is frozen. The last waiter may have left already: then the wake-up is in vain.
    unsafe fn take_over(_: &M::Word, queue: &ShflQueue<M>, chain: Chain) {
        let (first, last, now) = (chain.first(), chain.last(), M::micros());
        let queues = |node: &Node<M>| {
            node.queued_at.store(now, Relaxed);
            node.role.store(queue.marked(node.role.load(Relaxed)), Relaxed);
        };
        queues(first.node());
        chain.park_followers::<M>(queues);
        let claim = chain.claim_on_first::<M>();
        if !queue.join(first, last) {
            chain.park_first::<M>(claim);
        } else if let Some(head) = queue.install(first, None) {
            wake::<M>(head);
        }
        M::unpark(last.node::<M>());
    }

    unsafe fn acquire_adopted(word: &M::Word, queue: &ShflQueue<M>, me: Handle) {
        let lock = Lock { word, queue };
        let turn = lock.queue.wait_turn::<W, P>(me, None, None, Sleeper { lock: &lock, revoked: None });
        // Without a deadline it cannot time out.
        let _ = Self::finish(&lock, me, turn, None);
    }
}
