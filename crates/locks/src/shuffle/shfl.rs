//! # ShflLock: a word in front, one queue of spinning and sleeping waiters behind it
//!
//! **Problem.** A lock that costs one atomic when nobody contends, keeps its throughput on several NUMA nodes and with more
//! threads than CPUs, and needs no memory beyond a few bytes. **Idea.** Holder and waiters are decoupled: the holder owns a
//! test-and-set word; waiters queue, the head of the queue alone contends for the word, and waiters that have nothing to do
//! reorder the queue and wake sleepers early (*shuffling*). **Source.** Kashyap et al., SOSP'19; thesis defence, slides 33–69.
//! Succession is competitive, waiting is spin-then-park (Dice, *Malthusian Locks*, §5.1, 5.4).
//!
//! **Departures.**
//! 1. *The word speaks glibc's protocol* (0 free, 1 held, 2 held and somebody sleeps on this word), so that code which bypasses
//!    us and runs glibc's on the same mutex still excludes, sleeps and is woken. The head sleeps on the word; everybody else in
//!    his own node.
//! 2. *The lock names its head*, so that a releaser sees how long it has waited. After `bound` µs the releaser does not free
//!    the word but reserves it for the head (GRANTED). Only the releaser can decide that: a head that is not running
//!    cannot ask. A grant may be taken back by any waiter once it is stale: its taker may be frozen.
//! 3. *The holder never wakes anybody inside its section*: if the next head sleeps, that is noted (NOTIFY), and done by the
//!    release, after the word is free.
//! 4. *One arrival polls* before it queues, while others queue: a running thread is the cheapest successor (competitive
//!    succession, §5.4); one only, for more would fight over the line.
//! 5. *Every wait in the queue has a patience*: a waiter that has heard nothing for so long tries the word itself and, if it gets
//!    it, leaves its node behind. So a head that is frozen, or an unlock by glibc's code that told nobody, delays but never
//!    stops anyone.
//! 6. Nodes come from a pool, not the stack; a waiter may leave by time-out.
//!
//! ## State: 12 bytes
//! | `word` | meaning |
//! |---|---|
//! | 0 | free |
//! | 1 | held (or reserved: `head` has GRANTED) |
//! | 2 | the same, and somebody sleeps on the word: the head, or foreign code |
//!
//! `head` and `tail`: see [`front`](super::front).
//!
//! ## Invariants (beside those of `front`)
//! 1. Whoever changes `word` from 0, or clears GRANTED, holds the lock.
//! 2. A head sleeps only after it wrote 2, while the word holds 2; having slept, it acquires with 2 (others may sleep there).
//! 3. After the releasing exchange of `word`, or the CAS that sets GRANTED, the releaser touches only nodes and futex addresses.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS 0 -> 1, swap 2 on `word` | Acquire | `word.swap(0)` | sees the last section |
//! | `word.swap(0)` | Release | both | hands over this section |
//! | `head` CAS setting / clearing GRANTED | AcqRel | each other | hands over this section |
//! | `head` load in `unlock` | Relaxed | – | a head that joined just now is seen next time; it polls or sleeps with 2 |
//! | fence in `doze` / `grant` | SeqCst | each other | NAPPING-then-GRANTED? against GRANTED-then-NAPPING?: one sees the other |

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, TimedOut, Unparked, Word};
use crate::node::{Node, state};
use crate::policy::{Admission, SameNumaNode};
use crate::raw::RawLock;
use crate::shuffle::front::{ARRIVAL, GRANTED, NOTIFY, ShflQueue, named, naming, overdue, start_clock};
use crate::shuffle::shuffler;
use crate::wait::{SpinThenPark, WaitPolicy};

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEEPERS: u32 = 2;

/// A waiter that has heard nothing for so long (µs) tries for itself; doubles up to [`PATIENCE_MAX`].
const PATIENCE: u32 = 20_000;
const PATIENCE_MAX: u32 = 1_000_000;
/// A head that has waited this many bounds is handed the lock even if it sleeps.
const ASLEEP_FACTOR: u32 = 4;
/// The shuffler walks once in so many polls.
const WALK_EVERY: u32 = 32;

/// The blocking ShflLock: waiters wait by `W` and are grouped by `P`.
pub struct Shfl<W: WaitPolicy = SpinThenPark, P: Admission = SameNumaNode>(PhantomData<(W, P)>);

/// The two pieces of state of one lock.
struct Lock<'a, M: Machine> {
    word: &'a M::Word,
    queue: &'a ShflQueue<M>,
}

/// How a wait in the queue ended.
#[derive(Clone, Copy)]
enum Turn {
    /// First in the queue.
    Head,
    /// First in the queue, and the lock was won on the way.
    HeadHolding,
    /// The lock was won out of turn; the node stayed behind.
    Won,
    /// Gave up; the node stayed behind.
    TimedOut,
}

/// 0 -> 1
#[inline(always)]
fn try_take<M: Machine>(word: &M::Word) -> bool {
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
}

impl<M: Machine> Lock<'_, M> {
    /// Departure 4. Whether the lock was won.
    fn arrive(&self) -> bool {
        if self.queue.head.fetch_or(ARRIVAL, Relaxed) & ARRIVAL != 0 {
            return false;
        }
        let taken = |seen| seen == FREE && try_take::<M>(self.word);
        let won = M::spin_until(self.word, Relaxed, Patience::Budget, taken).is_some();
        self.queue.head.fetch_and(!ARRIVAL, Relaxed);
        won
    }

    /// (head = me, GRANTED) -> (head = me): the reservation is ours.
    fn take_grant(&self, me: Handle) -> bool {
        self.queue.head.load(Relaxed) & GRANTED != 0 && self.queue.change_head(naming(me) | GRANTED, naming(me))
    }

    /// Waits in the queue. Only who `may_leave` acts on his patience by leaving his node behind.
    fn wait_turn<W: WaitPolicy, P: Admission>(&self, me: Handle, until: Option<Deadline>, may_leave: bool) -> Turn {
        let node = me.node::<M>();
        let mut patience = PATIENCE;
        loop {
            let limit = M::sooner(patience, until);
            if W::SPINS && self.spin_in_queue::<W, P>(me, limit) {
                return Turn::Head;
            }
            match self.sleep_in_queue::<W>(node, limit) {
                state::HEAD => return Turn::Head,
                state::WAITING if W::PARKS => continue, // woken ahead of its turn: spin
                _ => {}
            }
            if self.claim_notice(me) {
                return Turn::Head;
            }
            let won = may_leave && (try_take::<M>(self.word) || self.revoke_stale_grant());
            if won || until.is_some_and(|deadline| M::expired(&deadline)) {
                return leave_node(node, won);
            }
            patience = (patience * 2).min(PATIENCE_MAX);
        }
    }

    /// Polls for the turn; shuffles if the role is passed to this waiter. Whether it is head.
    fn spin_in_queue<W: WaitPolicy, P: Admission>(&self, me: Handle, limit: Deadline) -> bool {
        let node = me.node::<M>();
        let patience = if W::PARKS { Patience::Budget } else { Patience::Until(limit) };
        let mut polls = 0u32;
        let is_head = |seen| {
            polls = polls.wrapping_add(1);
            if seen != state::HEAD && polls.is_multiple_of(WALK_EVERY) && shuffler::has_role(node) {
                shuffler::walk::<M, P>(me, || node.state.load(Relaxed) == state::HEAD);
            }
            seen == state::HEAD
        };
        M::spin_until(&node.state, Acquire, patience, is_head).is_some()
    }

    /// WAITING -> PARKED, and sleeps until the state changes or the limit has passed. The state then.
    fn sleep_in_queue<W: WaitPolicy>(&self, node: &Node<M>, limit: Deadline) -> u32 {
        if W::PARKS {
            // Fails if it is our turn, or if the node was adopted asleep; both show below.
            let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
        }
        while node.state.load(Acquire) == state::PARKED {
            M::trace(Event::Park);
            if M::park(&node.state, state::PARKED, Some(limit)) == Unparked::TimedOut {
                break;
            }
        }
        node.state.load(Acquire)
    }

    /// (head = me, NOTIFY) -> (head = me): the holder that was to tell us may have been released by code that tells nobody.
    fn claim_notice(&self, me: Handle) -> bool {
        let claimed = self.queue.change_head(naming(me) | NOTIFY, naming(me));
        if claimed {
            let node = me.node::<M>();
            start_clock(node);
            node.state.store(state::HEAD, Relaxed); // By our own thread, nobody else tells us any more.
        }
        claimed
    }

    /// (head = somebody, GRANTED) -> (head = somebody), if he has not taken it for two bounds.
    fn revoke_stale_grant(&self) -> bool {
        let head = self.queue.head.load(Acquire) & !ARRIVAL;
        let Some(taker) = named(head).filter(|_| head & GRANTED != 0) else { return false };
        let age = M::micros().wrapping_sub(taker.node::<M>().granted_at.load(Relaxed));
        age > 2 * M::tunables().bound_us && self.queue.change_head(head, head & !GRANTED)
    }

    /// Contends for the word as the head, until it is won (`holding`: it already is); then leaves the queue.
    fn contend<W: WaitPolicy, P: Admission>(
        &self,
        me: Handle,
        until: Option<Deadline>,
        holding: bool,
    ) -> Result<(), TimedOut> {
        shuffler::start_at_head(me.node::<M>());
        let mut taken = HELD;
        let mut won = holding || (W::SPINS && self.spin_as_head::<W, P>(me, until, taken));
        while !won {
            // Fails if the lock has just been granted: then it is taken below.
            if until.is_some_and(|deadline| M::expired(&deadline)) && self.queue.change_head(naming(me), 0) {
                if let Some(next) = self.queue.pass(me, false) {
                    wake::<M>(next);
                }
                return Err(TimedOut);
            }
            if W::PARKS {
                won = self.doze(me, until);
                taken = SLEEPERS; // Invariant 2.
            }
            won = won || self.spin_as_head::<W, P>(me, until, taken);
        }
        let told = self.queue.pass(me, true);
        debug_assert!(told.is_none(), "a sleeper is told by the release");
        Ok(())
    }

    /// Polls the word and the grant; 0 -> `taken`. Shuffles meanwhile.
    fn spin_as_head<W: WaitPolicy, P: Admission>(&self, me: Handle, until: Option<Deadline>, taken: u32) -> bool {
        let node = me.node::<M>();
        let mut polls = 0u32;
        let mut won = |seen| {
            polls = polls.wrapping_add(1);
            if seen == FREE {
                return self.word.compare_exchange(FREE, taken, Acquire, Relaxed).is_ok();
            }
            if polls.is_multiple_of(WALK_EVERY) && shuffler::has_role(node) {
                shuffler::walk::<M, P>(me, || self.word.load(Relaxed) == FREE);
            }
            self.take_grant(me)
        };
        if W::SPINS {
            M::spin_until(self.word, Relaxed, W::patience(until), won).is_some()
        } else {
            won(self.word.load(Relaxed))
        }
    }

    /// The head sleeps on the word, 1 -> 2, for as long as its wait is not overdue; then it must be awake to be handed the
    /// lock. Whether the lock was won.
    fn doze(&self, me: Handle, until: Option<Deadline>) -> bool {
        let node = me.node::<M>();
        node.state.store(state::NAPPING, Relaxed);
        let mut won = self.word.swap(SLEEPERS, Acquire) == FREE;
        // Pairs with the fence in `grant`: either we see the grant, or the releaser sees us napping and wakes us.
        M::full_fence();
        won = won || self.take_grant(me);
        if !won {
            let bound = M::tunables().bound_us;
            let waited = M::micros().wrapping_sub(node.since.load(Relaxed));
            let nap = if waited < bound { bound - waited } else { PATIENCE };
            M::trace(Event::Park);
            M::park(self.word, SLEEPERS, Some(M::sooner(nap, until)));
        }
        node.state.store(state::HEAD, Relaxed);
        won
    }

    /// Releases the lock while somebody waits. `head` is what the releaser saw, without ARRIVAL.
    #[cold]
    fn unlock_slow(&self, head: u32) {
        let Some(waiter) = named(head) else { return self.free(None) };
        let node = waiter.node::<M>();
        if !node.is_alive() {
            self.queue.bury(self.queue.head.load(Relaxed));
            return self.free(None);
        }
        if head & NOTIFY != 0 {
            let told = self.queue.change_head(head, naming(waiter)).then(|| self.queue.install(waiter, false));
            return self.free(told.flatten());
        }
        let bound = M::tunables().bound_us;
        if let Some(waited) = overdue(node, bound) {
            match node.state.load(Relaxed) {
                state::HEAD if self.grant(waiter, node, head) => return,
                state::NAPPING if waited / ASLEEP_FACTOR >= bound && self.grant(waiter, node, head) => return,
                _ => {}
            }
        }
        self.free(None);
    }

    /// (word, head) -> (word, head | GRANTED): hands the lock over instead of freeing it. Fails if the head has left.
    fn grant(&self, waiter: Handle, node: &Node<M>, head: u32) -> bool {
        let word: *const M::Word = self.word;
        node.granted_at.store(M::micros(), Relaxed);
        if head & GRANTED != 0 || !self.queue.change_head(naming(waiter), naming(waiter) | GRANTED) {
            return false;
        }
        M::trace(Event::Grant);
        // Invariant 3 from here on. Pairs with the fence in `doze`.
        M::full_fence();
        if node.state.load(Relaxed) == state::NAPPING {
            M::trace(Event::Wake);
            M::wake(word, u32::MAX);
        }
        true
    }

    /// -> 0; then wakes who sleeps on the word, and `told`, which was made head.
    #[inline]
    fn free(&self, told: Option<Handle>) {
        let word: *const M::Word = self.word;
        if self.word.swap(FREE, Release) == SLEEPERS {
            M::trace(Event::Wake);
            // All: the head, and foreign code, whose sleepers each count on being woken.
            M::wake(word, u32::MAX);
        }
        if let Some(next) = told {
            wake::<M>(next);
        }
    }
}

fn wake<M: Machine>(waiter: Handle) {
    M::trace(Event::Wake);
    M::wake(&waiter.node::<M>().state, 1);
}

/// WAITING | PARKED -> ABANDONED, unless the waiter has just become head.
fn leave_node<M: Machine>(node: &Node<M>, won: bool) -> Turn {
    loop {
        let seen = node.state.load(Acquire);
        if seen == state::HEAD {
            return if won { Turn::HeadHolding } else { Turn::Head };
        }
        if node.state.compare_exchange(seen, state::ABANDONED, AcqRel, Relaxed).is_ok() {
            return if won { Turn::Won } else { Turn::TimedOut };
        }
    }
}

impl<W: WaitPolicy, P: Admission> Shfl<W, P> {
    #[cold]
    fn lock_slow<M: Machine>(lock: &Lock<'_, M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        M::trace(Event::Contended);
        let stamp = M::stamp();
        if W::SPINS && lock.arrive() {
            if named(lock.queue.head.load(Relaxed)).is_some() {
                M::trace(Event::Steal);
            }
            M::waited(stamp);
            return Ok(());
        }
        let me = M::take_node();
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        let turn = if lock.queue.join(me, me) {
            lock.queue.set_head(naming(me));
            start_clock(node);
            node.state.store(state::HEAD, Relaxed); // Nobody else changes it: there was no queue to be told by.
            Turn::Head
        } else {
            lock.wait_turn::<W, P>(me, until, true)
        };
        Self::finish(lock, me, turn, until).inspect(|()| M::waited(stamp))
    }

    /// From the end of the wait in the queue to the end of the acquisition.
    fn finish<M: Machine>(lock: &Lock<'_, M>, me: Handle, turn: Turn, until: Option<Deadline>) -> Result<(), TimedOut> {
        let result = match turn {
            Turn::Head => lock.contend::<W, P>(me, until, false),
            Turn::HeadHolding => lock.contend::<W, P>(me, until, true),
            Turn::Won => Ok(()),
            Turn::TimedOut => Err(TimedOut),
        };
        if result.is_err() {
            M::trace(Event::TimedOut);
        }
        result
    }
}

impl<M: Machine, W: WaitPolicy, P: Admission> RawLock<M> for Shfl<W, P> {
    type Queue = ShflQueue<M>;

    const ADOPTS: bool = true;
    const GLIBC_WORD: bool = true;

    fn new_queue() -> ShflQueue<M> {
        ShflQueue::new()
    }

    #[inline]
    fn try_lock(word: &M::Word, _: &ShflQueue<M>) -> bool {
        let taken = try_take::<M>(word);
        if taken {
            M::trace(Event::Acquire);
        }
        taken
    }

    #[inline]
    fn lock(word: &M::Word, queue: &ShflQueue<M>) {
        M::trace(Event::Acquire);
        if !try_take::<M>(word) {
            // Without a deadline it cannot time out.
            let _ = Self::lock_slow(&Lock { word, queue }, None);
        }
    }

    #[inline]
    fn lock_until(word: &M::Word, queue: &ShflQueue<M>, until: Deadline) -> Result<(), TimedOut> {
        if !try_take::<M>(word) {
            Self::lock_slow(&Lock { word, queue }, Some(until))?;
        }
        M::trace(Event::Acquire);
        Ok(())
    }

    #[inline]
    fn unlock(word: &M::Word, queue: &ShflQueue<M>) {
        let lock = Lock { word, queue };
        match queue.head.load(Relaxed) & !ARRIVAL {
            0 => lock.free(None),
            head => lock.unlock_slow(head),
        }
    }

    fn is_locked(word: &M::Word, _: &ShflQueue<M>) -> bool {
        word.load(Relaxed) != FREE
    }

    fn adopt(_: &M::Word, queue: &ShflQueue<M>, first: Handle, last: Handle) {
        if queue.join(first, last)
            && let Some(head) = queue.install(first, false)
        {
            wake::<M>(head);
        }
    }

    /// An adopted waiter never leaves out of turn: the broadcaster that put it here may still be at work on the queue, and
    /// counts on the mutex being in use until its last waiter has had it.
    fn lock_adopted(word: &M::Word, queue: &ShflQueue<M>, me: Handle) {
        M::trace(Event::Acquire);
        let lock = Lock { word, queue };
        let node = me.node::<M>();
        let turn = match lock.sleep_in_queue::<W>(node, M::sooner(PATIENCE, None)) {
            state::HEAD => Turn::Head,
            _ => lock.wait_turn::<W, P>(me, None, false),
        };
        // Without a deadline it cannot time out.
        let _ = Self::finish(&lock, me, turn, None);
    }
}
