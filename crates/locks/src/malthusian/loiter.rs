//! # LOITER: an outer word to barge for, an inner lock to wait in
//!
//! **Problem.** A test-and-set lock is never handed to a thread that does not run, and is the fastest there is where few contend;
//! but nobody sleeps there, and nobody is served in turn. A queue lock is the opposite. **Idea.** *Outer-inner with throttling*: who
//! arrives polls the **outer** word for a while. Who does not get it enters the **inner** lock, any lock; its one holder at a time, the
//! **standby** thread, contends for the outer word again, and who waits for the inner lock is passive. A standby thread that has waited for too
//! long is impatient, and is handed the outer lock. **Source.** Dice, *Malthusian Locks*, EuroSys 2017, appendix A.1.
//!
//! **Use it** when the lock is mostly free or contended by few, but now and then by many: it is fast for few, and lets the many sleep. **Rather not** when threads may be stopped for long while they wait; `shfl` copes with that.
//!
//! **Departures.** (1) At most one arrival polls at a time, as far as the word says; the paper leaves the cap open. One whose
//! compare-and-swap fails [`TOO_OFTEN`] culls itself. It polls for the spin budget, as everybody; not at random times, as the
//! paper's many do so as not to go in step: it is alone. See *How far it restricts*. (2) The paper delays the wake-up of the standby thread, to see whether somebody takes the lock meanwhile. After the release the
//! memory of the lock may be freed, so here the releaser looks *before*: while an arrival polls, that one is the successor, and will wake
//! the standby thread in its turn. (3) A slow-path holder releases the inner lock first, then the outer word: the inner
//! release may wake a thread, within the section. (4) In a forked child whoever first comes to the slow path forgets those who waited ([`settle`]).
//!
//! ## State: the outer word
//! | bit | set by | cleared by | meaning |
//! |---|---|---|---|
//! | [`HELD`] | who acquires | the release | |
//! | [`SLOW`] | the standby thread as it acquires | its release | the holder has the inner lock, too |
//! | [`SLEEPS`] | the standby thread, before it sleeps on the word | it, or who wakes it | |
//! | [`IMPATIENT`] | the standby thread, after `bound=` µs | it, or the grant | the next release is to hand the lock over |
//! | [`GRANTED`] | the releaser, instead of freeing the word | the standby thread, which then holds the lock | |
//! | [`SPINS`] | an arrival that polls | it; any release | |
//!
//! ```text
//!   arrivals ── poll ──┐                                     ACS: the holder, those outside, one arrival
//!                      ├──> [outer word] ──> section
//!   inner ──> standby ─┘                                     PS: those who wait for the inner lock
//!     └── [B] <── [C] <── [D]
//! ```
//!
//! ## The release without a fence
//! Where nobody has the slow path's attention, the release is a plain store. A flag that the standby thread sets at that very moment may be
//! overwritten: so it never sleeps for longer than [`POLL`] µs before it looks again, and says again what it wants. There is one such thread for
//! each lock, so one timer. A store never *sets* a flag that was not there when it was decided on, and never [`IMPATIENT`].
//!
//! ## How far it restricts
//! Less than [`mcscr`](super::mcscr). Each moment with a second arrival sends a thread to the end of the inner queue, each without any brings its first
//! back: with one arrival, which polls for the spin budget, that happens so often that all threads circulate. On a simulated SPARC T5 (`flashlock simulate
//! randarray --machine sparc-t5 --threads 32`) it makes 0.32 of MCSCR's operations, with a working set of 32 threads, where MCSCR's is 5. It takes all three of
//! the paper's knobs to change that: with up to 16 arrivals, which poll for 50 µs and do not mind failed attempts, it makes 0.86, with a working set of
//! 14. (Eight arrivals for 20 µs make 0.79; 16 for the budget 0.41, four for 50 µs 0.58, one for 20 µs 0.35; 16 that go after three failures 0.51.) These are not the
//! defaults: where CPUs are short, each polling arrival has one that the holder may need.
//!
//! ## Invariants
//! 1. Who changes the word from not HELD to HELD, or clears GRANTED, holds the lock.
//! 2. SLEEPS, IMPATIENT and GRANTED speak of the holder of the inner lock, of whom there is one.
//! 3. GRANTED is set by a compare-and-swap of a word that is IMPATIENT, and IMPATIENT cleared only by the standby's compare-and-swap, or
//!    that one: so a grant finds a standby thread that has not left.
//! 4. After the store, or the swap that sets GRANTED, the releaser does not touch the lock, but for the wake of an address. The
//!    inner lock is released before.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS that sets HELD, or clears GRANTED | Acquire | both of the next | sees the last section |
//! | word store in `unlock` | Release | that CAS | hands over this section |
//! | CAS that sets GRANTED | Release | the same | the same |
//! | flags set and cleared while the word is HELD | Relaxed | – | hints; lost ones are set again |
//!
//! **Cannot:** let anybody pass a standby thread that does not run, but who gets the word as it arrives; nor take the lock back from one that was
//! granted it. Cannot share its mutex with code that bypasses flashlock.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

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
/// An arrival polls the word.
pub const SPINS: u32 = 32;

/// After so many failed attempts on the word an arrival stops polling: enough others circulate.
const TOO_OFTEN: u32 = 3;
/// How long (µs) the standby thread sleeps at most before it looks at the word again.
pub const POLL: u32 = 1_000;

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
    /// The epoch of those who wait.
    pub epoch: M::Word,
    /// The inner lock's.
    pub inner: Q,
}

/// The two pieces of state of one lock.
struct Lock<'a, M: Machine, I: Inner<M>> {
    word: &'a M::Word,
    queue: &'a LoiterQueue<M, I::Queue>,
}

/// How polling as an arrival went.
#[derive(PartialEq, Eq)]
enum Polled {
    Won,
    Lost,
}

impl<M: Machine, I: Inner<M>> Lock<'_, M, I> {
    /// To be called before the slow paths. In a forked child only the holder is left.
    fn settle(&self) {
        settle::<M>(&self.queue.epoch, || {
            I::forget(&self.queue.inner);
            self.word.fetch_and(HELD, Relaxed);
        });
    }

    /// Polls the word, if nobody else does.
    fn arrive(&self) -> Polled {
        if self.word.fetch_or(SPINS, Relaxed) & SPINS != 0 {
            return Polled::Lost;
        }
        let (mut polled, mut failures) = (Polled::Lost, 0);
        M::spin_until(self.word, Relaxed, Patience::Contend, |seen| {
            if seen & HELD != 0 {
                return false;
            }
            if self.word.compare_exchange(seen, (seen | HELD) & !SPINS, Acquire, Relaxed).is_ok() {
                polled = Polled::Won;
                return true;
            }
            failures += 1;
            failures >= TOO_OFTEN
        });
        if polled == Polled::Lost {
            self.word.fetch_and(!SPINS, Relaxed);
        }
        polled
    }

    /// For the standby thread. (free, or GRANTED) -> (HELD, SLOW)
    fn try_take(&self, seen: u32) -> bool {
        let is_mine = seen & HELD == 0 || seen & GRANTED != 0;
        is_mine && self.word.compare_exchange(seen, HELD | SLOW | (seen & SPINS), Acquire, Relaxed).is_ok()
    }

    /// Contends for the word as the standby thread.
    fn stand_by<W: WaitPolicy>(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let began = M::micros();
        loop {
            let patience = if W::PARKS { Patience::Contend } else { Patience::Until(M::sooner(POLL, until)) };
            if M::spin_until(self.word, Relaxed, patience, |seen| self.try_take(seen)).is_some() {
                return Ok(());
            }
            if until.is_some_and(|deadline| M::expired(&deadline)) {
                return self.leave();
            }
            let is_impatient = M::micros().wrapping_sub(began) >= M::tunables().bound_us;
            let wants = if W::PARKS { SLEEPS } else { 0 } | if is_impatient { IMPATIENT } else { 0 };
            let seen = self.word.load(Relaxed);
            if seen & HELD == 0 || seen & GRANTED != 0 {
                continue;
            }
            let said = seen & !SPINS | wants;
            if self.word.compare_exchange(seen, said, Relaxed, Relaxed).is_ok() && W::PARKS {
                M::trace(Event::Park);
                M::park(self.word, said, Some(M::sooner(POLL, until)));
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
        if self.arrive() == Polled::Won {
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
        while seen & IMPATIENT != 0 {
            let granted = HELD | SLOW | GRANTED | (seen & SPINS);
            match self.word.compare_exchange(seen, granted, Release, Relaxed) {
                Ok(_) => {
                    M::trace(Event::Grant);
                    return self.wake_if(seen & SLEEPS != 0);
                }
                Err(now) => seen = now,
            }
        }
        // While an arrival polls, he is the successor (departure 2).
        let keeps = if seen & SPINS != 0 { seen & SLEEPS } else { 0 };
        self.word.store(keeps, Release);
        self.wake_if(seen & SLEEPS != 0 && keeps == 0);
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

impl<M: Machine, I: Inner<M>, W: WaitPolicy> RawLock<M> for Loiter<I, W> {
    type Queue = LoiterQueue<M, I::Queue>;

    fn new_queue() -> Self::Queue {
        LoiterQueue { epoch: M::Word::new(0), inner: I::new_queue() }
    }

    /// free -> HELD, whatever the standby thread has said.
    #[inline]
    fn try_lock(word: &M::Word, _: &Self::Queue) -> bool {
        let taken = try_take::<M>(word) || {
            let seen = word.load(Relaxed);
            seen & HELD == 0 && word.compare_exchange(seen, seen | HELD, Acquire, Relaxed).is_ok()
        };
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

    /// HELD -> 0 by a plain store, where nobody wants more. Of a free lock: nothing.
    #[inline]
    fn unlock(word: &M::Word, queue: &Self::Queue) {
        match word.load(Relaxed) {
            HELD => word.store(FREE, Release),
            seen if seen & HELD == 0 => {}
            _ => Lock::<M, I> { word, queue }.unlock_slow(),
        }
    }

    fn is_locked(word: &M::Word, _: &Self::Queue) -> bool {
        word.load(Relaxed) & HELD != 0
    }
}
