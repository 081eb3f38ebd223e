//! # ShflLock that spins: a word in front, one queue of spinning waiters behind it
//!
//! A mutex whose waiters spin in a queue and reorder it. It is the blocking ShflLock without sleepers.
//!
//! **Problem.** A lock should cost one atomic operation without contention. It should keep its throughput on several
//! NUMA nodes, in a few bytes. Waiters need not sleep. **Idea.** Holding and waiting are decoupled. The holder owns a
//! test-and-set word, and releases it by a store. Waiters queue, and only the head of the queue contends for the word.
//! Waiters that have nothing else to do reorder the queue (*shuffling*). **Source.** Kashyap et al., SOSP'19, the
//! non-blocking lock; thesis defence, slides 41–57.
//!
//! **Use it** when there are never more threads than CPUs, and to see what shuffling does by itself. **Rather not**
//! when threads outnumber CPUs, or may be stopped: the [blocking ShflLock](super::shfl) has the same queue and copes
//! with both.
//!
//! ```text
//!   word ── 1 ─── held by a thread that is in no queue
//! head ──> [A:0] the only waiter of the queue that polls the word
//!              └──> [B:0] ──> [C:1] ──> [D:0] <── tail                 (node 0 or 1)
//!   shuffled:       [B:0] ──> [D:0] ──> [C:1]                          by A, or by B, while they spin
//! ```
//!
//! **Departures.**
//! 1. *Newcomers pass the queue, for a while.* A newcomer that finds the word free takes it, as in the paper
//!    (stealing). A head that has contended for `bound` µs sets RESERVED. From then on newcomers queue.
//! 2. The lock names its head, as the blocking one does, in 4 bytes more than on the slides. So a forked child can
//!    distinguish a head that does not exist there from one that does.
//! 3. Nodes come from a pool, not from the stack. A waiter may leave by time-out, and leaves its node behind. A queue
//!    full of such nodes admits no newcomer ([`LeftBehind`](crate::parts::wait::left::LeftBehind)).
//! 4. *A long wait is not all spinning*: after 10 ms a waiter naps between polls. Otherwise hundreds of spinners, or
//!    one with a higher priority than the holder, would keep the holder off its CPU. A hand-off to a waiter that naps
//!    is late by the rest of the nap.
//!
//! ## State: 12 bytes
//! | `word` | `head` | meaning |
//! |---|---|---|
//! | 0 | – | free |
//! | 1 | – | held |
//! | – | 0 | no thread contends as head |
//! | – | node | this node's thread is head and contends; newcomers may, too |
//! | – | node, RESERVED | the head contends alone |
//!
//! The queue and its invariants are the blocking lock's ([`front`](crate::parts::shuffle::front)). Of its flags only
//! the first is used, as RESERVED. [`shuffler`] says how the queue is reordered; the [policy](crate::parts::policy) is
//! chosen by `policy=`.
//!
//! ## The bound
//! Let a thread arrive when n others want the lock or hold it, each with sections of at most s. Let T be `bound=`, and
//! let d be 1 ms (for which a head polls before it looks at the clock), plus the length of a nap after a wait of 10 ms
//! (0.5 ms, and the time until a thread whose nap is over runs). Then the thread has the lock after at most
//! **(n + 2) · (s + T + d)**, if
//! - each thread runs all the time, except for its naps;
//! - it does not time out, and no thread tries for the lock (a try ignores RESERVED);
//! - later arrivals are not put before it: with `policy=none`, or on one NUMA node; with `policy=numa` on N nodes, add
//!   (N − 1) · `shuffles=` to n, as for the [blocking lock](super::shfl).
//!
//! *Why.* A waiter becomes head when the head before it acquires the lock; its clock starts then. It sets RESERVED when
//! it finds T over, at most d later. From then on newcomers queue, and only the head takes the word. It takes the word
//! when the section that runs at that time is over. (A newcomer that looked just before may have that section.) So one
//! head follows another after at most T, d, and the rest of a section. Two more terms are the section that runs when
//! the thread arrives, and its own. The claim `Bounded` of the simulator draws n and s.
//!
//! ## Invariants (beside those of `front`)
//! 1. A thread that changes `word` from 0 to 1 holds the lock, and only that thread changes it back.
//! 2. The head sets RESERVED for itself; it is cleared with the head's name. RESERVED prevents
//!    neither queueing nor a tried acquisition.
//! 3. After the releasing store the lock is not accessed.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS 0 -> 1 on `word` | Acquire | the releasing store | sees the last section |
//! | `word` store 0 | Release | that CAS | hands over this section |
//! | `head` load in `barge` | Relaxed | – | a newcomer that sees RESERVED late counts as one that came before it |
//!
//! **Cannot:** let the queue go on while its head does not run; sleep until it is woken; take the waiters of a
//! broadcast into its queue, because no waiter sleeps there.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::node::state;
use crate::machine::{Deadline, Handle, Machine, Patience, Pause, TimedOut, Word};
use crate::parts::counted::contended;
use crate::parts::policy::{Admission, Chosen};
use crate::parts::raw::RawLock;
use crate::parts::shuffle::front::{GRANTED as RESERVED, ShflQueue, named, naming, start_clock, waited};
use crate::parts::shuffle::turn::{Turn, WALK_EVERY, Waiter};
use crate::parts::shuffle::{batch, shuffler};
use crate::parts::wait::Spin;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// How long (µs) a waiter polls before its first nap is considered.
const POLLS: u32 = 1_000;
/// After this long (µs) it naps between polls …
const LONG: u32 = 10_000;
/// … for this long (µs) …
const NAP: u32 = 500;
/// … and polls for this long (µs).
const LOOK: u32 = 20;

/// The spinning ShflLock: waiters are grouped by `P`.
pub struct ShflSpin<P: Admission = Chosen>(PhantomData<P>);

/// Between two rounds of polling, in a wait that began at `since`: naps, if the wait is long. Returns for how long (µs)
/// to poll next.
fn rest<M: Machine>(since: u32) -> u32 {
    if M::micros().wrapping_sub(since) < LONG {
        return POLLS;
    }
    M::pause(Pause::Nap(NAP));
    LOOK
}

/// A waiter that polls for its turn. It takes no lock before, and never sleeps until it is woken.
struct Poller<M> {
    since: u32,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Poller<M> {
    /// A wait that begins now.
    fn begin() -> Self {
        Self { since: M::micros(), machine: PhantomData }
    }
}

impl<M: Machine> Waiter for Poller<M> {
    /// Naps first, if the wait is long.
    fn look_after(&self, last: Option<u32>) -> u32 {
        last.map_or(POLLS, |_| rest::<M>(self.since))
    }

    fn take(&mut self, _: bool) -> bool {
        false
    }

    fn has_taken(&self) {}

    fn trusts(&self, _: Option<Handle>) -> bool {
        false
    }
}

/// The two pieces of state of one lock.
struct Lock<'a, M: Machine> {
    word: &'a M::Word,
    queue: &'a ShflQueue<M>,
}

/// 0 -> 1
#[inline(always)]
fn try_take<M: Machine>(word: &M::Word) -> bool {
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
}

impl<M: Machine> Lock<'_, M> {
    /// 0 -> 1, by a thread that is in no queue, unless the lock is reserved for the head.
    #[inline(always)]
    fn barge(&self) -> bool {
        self.queue.head.load(Relaxed) & RESERVED == 0 && try_take::<M>(self.word)
    }

    #[cold]
    fn lock_slow<P: Admission>(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        contended::<M>(|| {
            self.forget_the_dead();
            let ended = self.queue.left().keep_out(self.word, until, || self.barge());
            ended.unwrap_or_else(|| self.queue_up::<P>(until))
        })
    }

    /// In a forked child: forgets a head that does not exist there. It leads no queue and reserves nothing.
    fn forget_the_dead(&self) {
        let head = self.queue.head.load(Relaxed);
        if named(head).is_some_and(|waiter| !waiter.node::<M>().is_alive()) {
            self.queue.discard_dead_queue(head);
        }
    }

    /// Joins the queue, waits in it, and contends as its head.
    fn queue_up<P: Admission>(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        // SAFETY: its life in the queue is that of invariants 1 to 5 of `front`.
        let me = unsafe { M::take_node() };
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        node.role.store(self.queue.marked(P::role::<M>()), Relaxed); // `join` publishes it, with the rest.
        let behind = self.queue.join_behind(me, me);
        if behind.is_none() {
            start_clock(node);
            node.state.store(state::HEAD, Relaxed); // No other thread changes it yet: `head` does not name it.
            self.queue.set_head(naming(me));
        } else if let Turn::TimedOut = self.queue.wait_turn::<Spin, P>(me, behind, until, Poller::<M>::begin()) {
            return Err(TimedOut);
        }
        let won = self.contend::<P>(me, until);
        self.queue.pass_awake(me);
        won
    }

    /// Contends for the word as the head: for `bound` µs with newcomers, then alone.
    fn contend<P: Admission>(&self, me: Handle, until: Option<Deadline>) -> Result<(), TimedOut> {
        let (node, bound) = (me.node::<M>(), M::tunables().bound_us);
        batch::start_at_head(node);
        let (since, mut polls) = (M::micros(), POLLS.min(bound.max(LOOK)));
        while !self.poll_as_head::<P>(me, M::sooner(polls, until)) {
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                return Err(TimedOut);
            }
            if waited(node) >= bound {
                self.queue.set_head(naming(me) | RESERVED); // Invariant 2.
            }
            polls = rest::<M>(since);
        }
        Ok(())
    }

    /// Polls the word, 0 -> 1, and shuffles meanwhile.
    fn poll_as_head<P: Admission>(&self, me: Handle, limit: Deadline) -> bool {
        let node = me.node::<M>();
        let mut polls = 0u32;
        let attempt = |seen| {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(WALK_EVERY) && batch::has_role(node) {
                shuffler::walk::<M, P>(me, self.queue, || self.word.load(Relaxed) == FREE);
            }
            seen == FREE && try_take::<M>(self.word)
        };
        M::spin_until(self.word, Relaxed, Patience::Until(limit), attempt).is_some()
    }
}

// SAFETY: invariants 1 to 3, and those of `front` and of the shuffler.
unsafe impl<M: Machine, P: Admission> RawLock<M> for ShflSpin<P> {
    type Queue = ShflQueue<M>;

    #[inline]
    unsafe fn try_acquire(word: &M::Word, _: &ShflQueue<M>) -> bool {
        try_take::<M>(word)
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, queue: &ShflQueue<M>, until: Option<&Deadline>) -> Result<(), TimedOut> {
        let lock = Lock { word, queue };
        if lock.barge() { Ok(()) } else { lock.lock_slow::<P>(until.copied()) }
    }

    /// 1 -> 0
    #[inline]
    unsafe fn release(word: &M::Word, _: &ShflQueue<M>) {
        word.store(FREE, Release);
    }

    unsafe fn is_locked(word: &M::Word, _: &ShflQueue<M>) -> bool {
        word.load(Relaxed) != FREE
    }
}
