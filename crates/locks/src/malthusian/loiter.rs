//! # LOITER: an outer word that arrivals may take, an inner lock to wait in
//!
//! **Problem.** A test-and-set lock is never handed to a thread that does not run, and is the fastest there is where
//! few contend; but nobody sleeps there, and nobody is served in turn. A queue lock is the opposite. **Idea.**
//! *Outer-inner with throttling*: who arrives polls the **outer** word for a while. Who does not get it enters the
//! **inner** lock, any lock; its one holder at a time, the **standby** thread, contends for the outer word again, and
//! who waits for the inner lock is passive. A standby thread that has waited for too long is impatient, and is handed
//! the outer lock. **Source.** Dice, *Malthusian Locks*, EuroSys 2017, appendix A.1.
//!
//! **Use it** when the lock is mostly free or contended by few, but now and then by many: it is fast for few, and lets
//! the many sleep. **Rather not** when threads may be stopped for long while they wait; `shfl` copes with that.
//!
//! **Departures.** (1) Where CPUs are short ([`Machine::crowded`]), one arrival polls at a time, for one spin budget,
//! as one polls who contends with a holder for his word: each polling thread has a CPU that the holder may need. (2)
//! The paper delays the wake-up of the standby thread, to see whether somebody takes the lock meanwhile. After the
//! release the memory of the lock may be freed, so here the word says how many arrivals poll: while any do, a release
//! leaves the standby thread asleep, for one of them is the successor, and wakes it in its turn. The last of them that
//! gives up takes the lock if it is free. (3) A slow-path holder releases the inner lock first, then the outer word:
//! the inner release may wake a thread, within the section. (4) In a forked child whoever first comes to the slow path
//! forgets those who waited ([`settle`](crate::settle)). (5) It has no `evict=`, as `mcscr` has: arrivals go past a
//! standby thread that does not run, until it has been granted the lock.
//!
//! ## State: the outer word
//! | bit | set by | cleared by | meaning |
//! |---|---|---|---|
//! | [`HELD`] | who acquires | the release | |
//! | [`SLOW`] | the standby thread as it acquires | its release | the holder has the inner lock, too |
//! | [`SLEEPS`] | the standby thread, before it sleeps on the word | it, or who wakes it | |
//! | [`IMPATIENT`] | the standby thread, after `bound=` µs | it, or the grant | the next release is to hand the lock over |
//! | [`GRANTED`] | the releaser, instead of freeing the word | the standby thread, which then holds the lock | |
//!
//! Above these, [`COUNT_BITS`] bits count the arrivals that poll. All changes are read-modify-writes, so none is lost:
//! the standby thread gets up by itself once, when it becomes impatient, and then sleeps until it is woken. (A release
//! by a plain store, as the paper's, would overwrite what a standby thread says at that moment; it would then have to
//! look again and again.)
//!
//! ```text
//!   arrivals ── poll ──┐                                     ACS: the holder, those outside, up to spinners= arrivals
//!                      ├──> [outer word] ──> section
//!   inner ──> standby ─┘                                     PS: those who wait for the inner lock
//!     └── [B] <── [C] <── [D]
//! ```
//!
//! ## The bound
//! The standby thread is handed the lock by the first release after `bound=` µs, and who waits for the inner lock
//! becomes the standby thread in turn, when the one before it releases. So with n waiters before it and sections of
//! length s, a thread waits for n + 1 times bound + 2 s at most, if threads that are woken run, and deadlines let
//! nobody in between.
//!
//! ## How far it restricts
//! Each arrival that finds no place to poll, or polls in vain, goes to the end of the inner queue, and brings its first
//! thread nearer to the word: if that happens often, all threads circulate. So up to `spinners=` arrivals (8) poll,
//! each for [`BUDGETS`] spin budgets, long enough for those that circulate to find each other; an arrival culls itself
//! only when [`TOO_OFTEN`] attempts have failed; and the standby thread is **timid**: while arrivals poll it does not
//! poll, but waits for a grant, or sleeps until a release finds none polling; it looks at the word once before it
//! sleeps, and each time it wakes up. Pauses between looks are random, within [`BACK_OFF`] steps, so that arrivals do
//! not pounce together.
//!
//! On a simulated SPARC T5 (`flashlock simulate randarray --machine sparc-t5 --threads 32`) it makes nine tenths of
//! MCSCR's operations, with a working set of 9 threads, where MCSCR's is 5 ([fidelity](../fidelity.md)); with
//! `spinners=4` all 32 threads circulate, and it makes half. Where nothing is done outside and sections are shorter
//! than a µs, eight who poll disturb the holder more than one: on two sockets of 18 cores `kvmap` with 4 or 18 threads
//! makes 0.8 of what one makes that polls as where CPUs are short, and 1.3 to 1.4 of MCSCR's operations.
//!
//! ## On several NUMA nodes
//! `loiter-cna` is NUMA-friendly where the lock is saturated: then the standby threads follow each other on a node, and
//! mostly the lock goes to them. The more who barge, the less it is: the word goes to whoever meets it free; nor does
//! `threshold=` bound how long it stays on a node. So the catalogue does not claim it. `flashlock simulate kvmap
//! --machine 2x18x2 --threads 36 --locks loiter,loiter-cna --external NS`:
//!
//! | `--external`, ns | acquisitions from another node: `loiter` | `loiter-cna` | its throughput / `loiter`'s |
//! |---|---|---|---|
//! | 0 | 0.18 | 0.01 | 1.5 |
//! | 1,000 | < 0.01 | 0.01 | 1.04 |
//! | 2,000 | 0.01 | 0.08 | 0.85 |
//! | 5,000 | 0.05 | 0.12 | 0.87 |
//!
//! ## Invariants
//! 1. Who changes the word from not HELD to HELD, or clears GRANTED, holds the lock.
//! 2. SLEEPS, IMPATIENT and GRANTED speak of the holder of the inner lock, of whom there is one.
//! 3. GRANTED is set by a compare-and-swap of a word that is IMPATIENT, and IMPATIENT cleared only by the standby's
//!    compare-and-swap, or that one: so a grant finds a standby thread that has not left.
//! 4. After the CAS that clears HELD, or sets GRANTED, the releaser does not touch the lock, but for the wake of an
//!    address. The inner lock is released before.
//! 5. If the standby thread sleeps on a free lock, SLEEPS is set and arrivals poll; or it is being woken.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS that sets HELD, or clears GRANTED | Acquire | both of the next | sees the last section |
//! | CAS that clears HELD, or sets GRANTED | Release | that CAS | hands over this section |
//! | flags, and the count | Relaxed | – | order nothing; read-modify-writes between a release and an acquisition hand it on |
//!
//! **Cannot:** let anybody pass a standby thread that does not run, but who gets the word as it arrives; nor take the
//! lock back from one that was granted it. Under `wait=park`, too, arrivals poll before they sleep. Cannot share its
//! mutex with code that bypasses flashlock.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::catalogue::OptionId;
use crate::event::Event;
use crate::machine::{Deadline, Machine, Patience, TimedOut, Word};
use crate::raw::RawLock;
use crate::settle::settle;
use crate::wait::{SpinThenPark, WaitPolicy};

const FREE: u32 = 0;
/// Somebody holds the lock.
pub const HELD: u32 = 1;
/// And the inner lock.
pub const SLOW: u32 = 2;
/// The standby thread sleeps on the word, or is about to.
pub const SLEEPS: u32 = 4;
/// It wants to be handed the lock.
pub const IMPATIENT: u32 = 8;
/// It is being handed the lock.
pub const GRANTED: u32 = 16;

/// One arrival that polls.
pub const ARRIVAL: u32 = 32;
/// How many bits count them.
pub const COUNT_BITS: u32 = 5;
/// Those bits.
const COUNT: u32 = ((1 << COUNT_BITS) - 1) * ARRIVAL;
const _: () = assert!(OptionId::Spinners.info().most * ARRIVAL <= COUNT && COUNT & (2 * GRANTED - 1) == 0);

/// For so many spin budgets an arrival polls at most.
const BUDGETS: u32 = 4;
/// After so many failed attempts on the word it stops: enough others circulate.
const TOO_OFTEN: u32 = 16;
/// It adds fewer steps than that, a random number of them, to the pause after each look that finds the word held.
const BACK_OFF: u32 = 4;
/// Budgets and failures where CPUs are short; and then one arrival polls at a time.
const BUDGETS_CROWDED: u32 = 1;
/// How long (µs) a standby thread that does not sleep polls at most before it looks at its deadline.
const LOOK: u32 = 1_000;
const TOO_OFTEN_CROWDED: u32 = 3;
/// A lock whose state is its queue alone, so that it can be inside another.
pub trait Inner<M: Machine>: RawLock<M> {
    /// Makes it free, as if nobody waited. For nobody but whoever settles in a forked child.
    fn forget(queue: &Self::Queue);
}

/// The LOITER transformation of lock `I`; the standby thread waits by policy `W`.
pub struct Loiter<I, W: WaitPolicy = SpinThenPark>(PhantomData<(I, W)>);

/// What is behind the outer word.
#[repr(C)]
pub struct LoiterQueue<M: Machine, Q> {
    /// The epoch of all who wait.
    pub epoch: M::Word,
    /// The inner lock's.
    pub inner: Q,
}

/// The two pieces of state of one lock.
struct Lock<'a, M: Machine, I: Inner<M>> {
    word: &'a M::Word,
    queue: &'a LoiterQueue<M, I::Queue>,
}

impl<M: Machine, I: Inner<M>> Lock<'_, M, I> {
    /// To be called before the slow paths. In a forked child only the holder is left.
    fn settle(&self) {
        settle::<M>(&self.queue.epoch, || {
            I::forget(&self.queue.inner);
            self.word.fetch_and(HELD, Relaxed);
        });
    }

    /// n arrivals -> n + 1, unless they are as many as may poll. Whether it was counted.
    fn join(&self, most: u32) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen & COUNT < most * ARRIVAL {
            match self.word.compare_exchange(seen, seen + ARRIVAL, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// n arrivals -> n - 1; and free -> HELD, for a release may have left the lock to it. Whether it was free. (If
    /// nobody is counted, a signal handler has forked while its thread polled: that is in a child now.)
    fn retire(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        loop {
            let free = seen & HELD == 0;
            let left = seen - if seen & COUNT == 0 { 0 } else { ARRIVAL };
            match self.word.compare_exchange(seen, left | HELD, Acquire, Relaxed) {
                Ok(_) => return free,
                Err(now) => seen = now,
            }
        }
    }

    /// Polls the word, unless enough others do. Whether it was won.
    fn arrive(&self) -> bool {
        let crowded = M::crowded();
        let most = M::tunables().spinners;
        if !self.join(if crowded { most.min(1) } else { most }) {
            return false;
        }
        let won = if crowded {
            self.poll(Patience::Contend, BUDGETS_CROWDED, TOO_OFTEN_CROWDED)
        } else {
            self.poll(Patience::Budget, BUDGETS, TOO_OFTEN)
        };
        self.retire() || won
    }

    /// Polls for so many budgets, as long as there are CPUs for that, and at most so many attempts fail. Whether the
    /// word was won.
    fn poll(&self, patience: Patience, budgets: u32, failures: u32) -> bool {
        let (mut won, mut failed) = (false, 0);
        for budget in 0..budgets {
            let ended = M::spin_until(self.word, Relaxed, patience, |seen| {
                if seen & HELD != 0 {
                    M::pause(M::random() % BACK_OFF);
                    return false;
                }
                won = self.word.compare_exchange(seen, seen | HELD, Acquire, Relaxed).is_ok();
                failed += u32::from(!won);
                won || failed >= failures
            });
            if ended.is_some() || (budget + 1 < budgets && M::crowded()) {
                break;
            }
        }
        won
    }

    /// For the standby thread. (free, or GRANTED) -> (HELD, SLOW)
    fn try_take(&self, seen: u32) -> bool {
        let is_mine = seen & HELD == 0 || seen & GRANTED != 0;
        is_mine && self.word.compare_exchange(seen, seen & COUNT | HELD | SLOW, Acquire, Relaxed).is_ok()
    }

    /// Contends for the word as the standby thread: timidly, for while arrivals poll it does not.
    fn stand_by<W: WaitPolicy>(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let (began, bound) = (M::micros(), M::tunables().bound_us);
        loop {
            // It says that it is impatient as soon as it is.
            let left = bound.saturating_sub(M::micros().wrapping_sub(began));
            let patience =
                if W::PARKS { Patience::Contend } else { Patience::Until(M::sooner(left.clamp(1, LOOK), until)) };
            let mut taken = false;
            M::spin_until(self.word, Relaxed, patience, |seen| {
                if seen & GRANTED == 0 && seen & COUNT != 0 {
                    return W::PARKS; // One that sleeps is woken, or looks again.
                }
                taken = self.try_take(seen);
                taken
            });
            if taken {
                return Ok(());
            }
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                return self.leave();
            }
            let left = bound.saturating_sub(M::micros().wrapping_sub(began));
            let wants = if W::PARKS { SLEEPS } else { 0 } | if left == 0 { IMPATIENT } else { 0 };
            let seen = self.word.load(Relaxed);
            if seen & HELD == 0 || seen & GRANTED != 0 {
                if self.try_take(seen) {
                    return Ok(());
                }
                continue;
            }
            let said = seen | wants;
            if self.word.compare_exchange(seen, said, Relaxed, Relaxed).is_ok() && W::PARKS {
                M::trace(Event::Park);
                M::park(self.word, said, if left == 0 { until } else { Some(M::sooner(left, until)) });
            }
        }
    }

    /// Takes back what the standby thread has said; or it has the lock after all.
    fn leave(&self) -> Result<(), TimedOut> {
        loop {
            let seen = self.word.load(Relaxed);
            if self.try_take(seen) {
                return Ok(());
            }
            let quiet = seen & !(SLEEPS | IMPATIENT);
            if seen & GRANTED == 0 && self.word.compare_exchange(seen, quiet, Relaxed, Relaxed).is_ok() {
                return Err(TimedOut);
            }
        }
    }

    #[cold]
    fn lock_slow<W: WaitPolicy>(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let stamp = M::stamp();
        self.settle();
        // The inner lock counts acquisitions, those that find it held as contended, and those that give up.
        if self.arrive() {
            M::trace(Event::Acquire);
            M::trace(Event::Contended);
        } else {
            self.enter(until)?;
            if let Err(timed_out) = self.stand_by::<W>(until) {
                M::trace(Event::TimedOut);
                I::unlock(self.word, &self.queue.inner);
                return Err(timed_out);
            }
        }
        M::waited(stamp);
        Ok(())
    }

    /// Acquires the inner lock.
    fn enter(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let inner = &self.queue.inner;
        if I::try_lock(self.word, inner) {
            M::trace(Event::Contended);
            return Ok(());
        }
        match until {
            Some(deadline) => I::lock_until(self.word, inner, deadline),
            None => {
                I::lock(self.word, inner);
                Ok(())
            }
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        self.settle();
        if self.word.load(Relaxed) & SLOW != 0 {
            self.word.fetch_and(!SLOW, Relaxed);
            I::unlock(self.word, &self.queue.inner); // Invariant 4.
        }
        let mut seen = self.word.load(Relaxed);
        loop {
            let left = match seen & COUNT {
                count if seen & IMPATIENT != 0 => count | HELD | SLOW | GRANTED,
                0 => 0,
                count => count | seen & SLEEPS, // One of them is the successor (departure 2).
            };
            match self.word.compare_exchange(seen, left, Release, Relaxed) {
                Ok(_) => {
                    if left & GRANTED != 0 {
                        M::trace(Event::Grant);
                    }
                    return self.wake_if(seen & !left & SLEEPS != 0);
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Wakes the standby thread.
    fn wake_if(&self, sleeps: bool) {
        if sleeps {
            M::trace(Event::Wake);
            M::wake(&raw const *self.word, 1);
        }
    }
}

/// 0 -> HELD
#[inline(always)]
fn try_take<M: Machine>(word: &M::Word) -> bool {
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
}

/// free -> HELD, whatever the standby thread has said.
fn try_barge<M: Machine>(word: &M::Word) -> bool {
    let seen = word.load(Relaxed);
    seen & HELD == 0 && word.compare_exchange(seen, seen | HELD, Acquire, Relaxed).is_ok()
}

impl<M: Machine, I: Inner<M>, W: WaitPolicy> RawLock<M> for Loiter<I, W> {
    type Queue = LoiterQueue<M, I::Queue>;

    fn new_queue() -> Self::Queue {
        LoiterQueue { epoch: M::Word::new(0), inner: I::new_queue() }
    }

    /// free -> HELD, whatever the standby thread has said.
    #[inline]
    fn try_lock(word: &M::Word, _: &Self::Queue) -> bool {
        let taken = try_take::<M>(word) || try_barge::<M>(word);
        if taken {
            M::trace(Event::Acquire);
        }
        taken
    }

    #[inline]
    fn lock(word: &M::Word, queue: &Self::Queue) {
        if try_take::<M>(word) {
            M::trace(Event::Acquire);
        } else {
            // Without a deadline it cannot time out.
            let _ = Lock::<M, I> { word, queue }.lock_slow::<W>(None);
        }
    }

    #[inline]
    fn lock_until(word: &M::Word, queue: &Self::Queue, until: Deadline) -> Result<(), TimedOut> {
        if try_take::<M>(word) {
            M::trace(Event::Acquire);
            return Ok(());
        }
        Lock::<M, I> { word, queue }.lock_slow::<W>(Some(until))
    }

    /// HELD -> 0, where nobody wants more. Of a free lock: nothing.
    #[inline]
    fn unlock(word: &M::Word, queue: &Self::Queue) {
        match word.compare_exchange(HELD, FREE, Release, Relaxed) {
            Err(seen) if seen & HELD != 0 => Lock::<M, I> { word, queue }.unlock_slow(),
            _ => {}
        }
    }

    fn is_locked(word: &M::Word, _: &Self::Queue) -> bool {
        word.load(Relaxed) & HELD != 0
    }
}
