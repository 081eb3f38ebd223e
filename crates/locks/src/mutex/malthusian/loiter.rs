//! # LOITER: an outer word that arrivals may take, an inner lock to wait in
//!
//! LOITER is a test-and-set lock with a queue lock behind it: arriving threads poll the word for a while, and those
//! that fail wait in the queue. **Use it** when the lock is mostly free or contended by few, but now and then by many:
//! it is fast for few threads, and lets many sleep. **Rather not** when threads may be stopped for long while they
//! wait; `shfl` copes with that.
//!
//! **Problem.** A test-and-set lock is never handed to a thread that does not run, and it is the fastest lock where few
//! threads contend. But its waiters never sleep, and are not served in turn. A queue lock is the opposite. **Idea.**
//! *Outer-inner with throttling*: an arriving thread polls the **outer** word for a while. If it fails, it acquires the
//! **inner** lock, which may be any lock. The one holder of the inner lock is the **standby** thread, which contends
//! for the outer word again. The waiters of the inner lock are passive. A standby thread that has waited for too long
//! is impatient, and the next release hands it the outer lock. **Source.** Dice, *Malthusian Locks*, EuroSys 2017,
//! appendix A.1.
//!
//! **Departures.**
//! 1. Where CPUs are short ([`Waiting::crowded`](crate::machine::Waiting::crowded)), one arrival polls at a time. It
//!    polls for one spin budget, like a waiter that contends with the holder for its word. The reason is that each
//!    polling thread occupies a CPU that the holder may need.
//! 2. The paper delays the wake-up of the standby thread, to see whether another thread takes the lock meanwhile. Here
//!    the memory of the lock may be freed after the release, so the releaser cannot look again. Instead the word counts
//!    the polling arrivals. While there are any, a release leaves the standby thread asleep, because one of them is the
//!    successor, and will wake the standby thread in its own release. The last of them that gives up takes the lock if
//!    it is free.
//! 3. A slow-path holder releases the inner lock first, then the outer word: the inner release may wake a thread, and
//!    does so within the critical section.
//! 4. In a forked child, the first thread on the slow path forgets the parent's waiters
//!    ([`settle`](crate::parts::settle)).
//! 5. It has no `evict=`, which `mcscr` has: arrivals pass a standby thread that does not run, until it has been
//!    granted the lock.
//!
//! ## State: the outer word
//! | bit | set by | cleared by | meaning |
//! |---|---|---|---|
//! | [`HELD`] | the acquiring thread | the release | |
//! | [`SLOW`] | the standby thread as it acquires | its release | the holder has the inner lock, too |
//! | [`SLEEPS`] | the standby thread, before it sleeps on the word | it, or the thread that wakes it | |
//! | [`IMPATIENT`] | the standby thread, after `bound=` µs | it, or the grant | the next release is to hand the lock over |
//! | [`GRANTED`] | the releaser, instead of freeing the word | the standby thread, which then holds the lock | |
//!
//! Above these, [`COUNT_BITS`] bits count the polling arrivals. All changes are read-modify-writes, so none is lost. So
//! the standby thread wakes up by itself only once, when it becomes impatient, and then sleeps until it is woken. (The
//! paper's release is a plain store. It would overwrite a bit that the standby thread sets at that moment, and the
//! standby thread would have to look again and again.) When it gets up by itself, or by a signal, it does not know
//! whether the lock still exists: it asks the kernel first, and goes on only if what is there looks like its lock.
//!
//! ```text
//!   arrivals ── poll ──┐                                     ACS: holder, threads outside, up to spinners= arrivals
//!                      ├──> [outer word] ──> section
//!   inner ──> standby ─┘                                     PS: the waiters of the inner lock
//!     └── [B] <── [C] <── [D]
//! ```
//!
//! ## The bound
//! The first release after `bound=` µs hands the lock to the standby thread. A waiter of the inner lock becomes the
//! standby thread in turn, when the one before it releases. So with n waiters before it and sections of length s, a
//! thread waits for at most (n + 1) × (bound + 2 s), if woken threads run, and if no time-out lets another thread in
//! between.
//!
//! ## How far it restricts
//! An arrival that finds no place to poll, or polls in vain, goes to the end of the inner queue, and so brings the
//! first thread of that queue nearer to the word. If that happens often, all threads circulate. Four measures prevent
//! it:
//!
//! - Up to `spinners=` arrivals (8) poll, each for [`BUDGETS`] spin budgets. That is long enough for the circulating
//!   threads to find each other.
//! - An arrival gives up and queues only after [`TOO_OFTEN`] failed attempts.
//! - The standby thread is **timid**. While arrivals poll, it does not poll, but waits for a grant, or sleeps until a
//!   release finds no polling arrival. It looks at the word once before it sleeps, and each time it wakes up.
//! - Pauses between looks are random, within [`BACK_OFF`] steps, so that arrivals do not all try at the same moment.
//!
//! On a simulated SPARC T5 (`flashlock simulate randarray --machine sparc-t5 --threads 32`) it completes nine tenths of
//! MCSCR's operations, with a working set of 9 threads; MCSCR's is 5 ([fidelity](../fidelity.md)). With `spinners=4`
//! all 32 threads circulate, and it completes half. Where threads do nothing outside, and sections are shorter than 1
//! µs, eight polling arrivals disturb the holder more than one does. On two sockets of 18 cores, `kvmap` with 4 or 18
//! threads then completes 0.8 of the operations that it completes when a single arrival polls, as where CPUs are short.
//! That is 1.3 to 1.4 times MCSCR's operations.
//!
//! ## On several NUMA nodes
//! `loiter-cna` is NUMA-friendly where the lock is saturated: then successive standby threads run on one NUMA node, and
//! the lock mostly goes to them. The more threads barge, the less NUMA-friendly it is: any thread that finds the word
//! free takes it. Nor does `threshold=` bound how long the lock stays on a node. So the catalogue does not claim that
//! it prefers waiters of the holder's node. `flashlock simulate kvmap --machine 2x18x2 --threads 36 --locks
//! loiter,loiter-cna --external NS`:
//!
//! | `--external`, ns | acquisitions from another node: `loiter` | `loiter-cna` | its throughput / `loiter`'s |
//! |---|---|---|---|
//! | 0 | 0.18 | 0.01 | 1.5 |
//! | 1,000 | < 0.01 | 0.01 | 1.04 |
//! | 2,000 | 0.01 | 0.08 | 0.85 |
//! | 5,000 | 0.05 | 0.12 | 0.87 |
//!
//! ## Invariants
//! 1. The thread that changes the word from not HELD to HELD, or clears GRANTED, holds the lock.
//! 2. SLEEPS, IMPATIENT and GRANTED refer to the holder of the inner lock, of which there is one.
//! 3. GRANTED is set only by a compare-and-swap of a word that is IMPATIENT. IMPATIENT is cleared only by a
//!    compare-and-swap of the standby thread, or by the one that sets GRANTED. So a grant finds a standby thread that
//!    has not left.
//! 4. After the CAS that clears HELD, or sets GRANTED, the releaser does not touch the lock, except for the wake of an
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
//! **Cannot:** serve the waiters of the inner lock while the standby thread does not run; only arrivals can take the
//! word then. Cannot take the lock back from a standby thread that was granted it. Even under `wait=park`, arrivals
//! poll before they sleep. Cannot share its mutex with code that bypasses flashlock.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::{Deadline, Machine, Patience, Pause, TimedOut, Tunables, Word};
use crate::parts::counted::{park, wake};
use crate::parts::naps::{is_whole, stay_away};
use crate::parts::raw::{Inner, RawLock};
use crate::parts::settle::{settle, was_used_in};
use crate::parts::wait::{SpinThenPark, WaitPolicy};

const FREE: u32 = 0;
/// The lock is held.
pub const HELD: u32 = 1;
/// The holder has the inner lock, too.
pub const SLOW: u32 = 2;
/// The standby thread sleeps on the word, or is about to.
pub const SLEEPS: u32 = 4;
/// The standby thread wants to be handed the lock.
pub const IMPATIENT: u32 = 8;
/// The standby thread is being handed the lock.
pub const GRANTED: u32 = 16;

/// One polling arrival.
pub const ARRIVAL: u32 = 32;
/// The number of bits that count polling arrivals.
pub const COUNT_BITS: u32 = 5;
/// These bits.
const COUNT: u32 = ((1 << COUNT_BITS) - 1) * ARRIVAL;
const _: () = assert!(Tunables::MOST.spinners * ARRIVAL <= COUNT && COUNT & (2 * GRANTED - 1) == 0);
/// No word of this lock is higher.
const HIGHEST: u32 = COUNT | (2 * GRANTED - 1);

/// How many spin budgets an arrival polls at most.
const BUDGETS: u32 = 4;
/// After so many failed attempts on the word an arrival stops polling: enough other threads circulate.
const TOO_OFTEN: u32 = 16;
/// After each look that finds the word held, an arrival pauses for a random number of steps below this.
const BACK_OFF: u32 = 4;
/// [`BUDGETS`] where CPUs are short. Then one arrival polls at a time.
const BUDGETS_CROWDED: u32 = 1;
/// How long (µs) a standby thread that never sleeps polls at most before it checks its deadline.
const LOOK: u32 = 1_000;
/// [`TOO_OFTEN`] where CPUs are short.
const TOO_OFTEN_CROWDED: u32 = 3;

/// How the wait of a standby thread ended without the lock.
enum Left {
    /// The deadline has passed.
    TimedOut,
    /// The lock is gone, and the deadline has passed.
    Gone,
}

/// The LOITER transformation of lock `I`; the standby thread waits by policy `W`.
pub struct Loiter<I, W: WaitPolicy = SpinThenPark>(PhantomData<(I, W)>);

/// The state beside the outer word.
#[repr(C)]
pub struct LoiterQueue<M: Machine, Q> {
    /// The epoch of the process that last used the slow paths.
    pub epoch: M::Word,
    /// The inner lock's state.
    pub inner: Q,
}

crate::zeroed!(LoiterQueue<M, Q> { epoch, inner });

/// The state of one lock: its word and its queue. Made only by the functions of `RawLock` below, whose callers keep its
/// contract. So the contract holds for the inner lock, too: its state is `inner`, and it does not use the word.
struct Lock<'a, M: Machine, I: Inner<M>> {
    word: &'a M::Word,
    queue: &'a LoiterQueue<M, I::Queue>,
}

impl<M: Machine, I: Inner<M>> Lock<'_, M, I> {
    /// To be called before the slow paths. In a forked child only the holder is left.
    fn settle(&self) {
        settle::<M>(&self.queue.epoch, || {
            // SAFETY: no other thread is left, and `inner` is this lock's own (see `Lock`).
            unsafe { I::forget(&self.queue.inner) };
            self.word.fetch_and(HELD, Relaxed);
        });
    }

    /// n arrivals -> n + 1, if fewer than `most` poll. Returns whether it was counted.
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

    /// n arrivals -> n - 1, and free -> HELD, because a release may have left the lock to this arrival. Returns whether
    /// the lock was free. (If the count is 0, the thread polled when a signal handler forked, and is in the child now.)
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

    /// Polls the word, unless enough other arrivals do. Returns whether it won the word.
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

    /// Polls for so many budgets, as long as CPUs are not short, and until so many attempts have failed. Returns
    /// whether it won the word.
    fn poll(&self, patience: Patience, budgets: u32, failures: u32) -> bool {
        let (mut won, mut failed) = (false, 0);
        for budget in 0..budgets {
            let ended = M::spin_until(self.word, Relaxed, patience, |seen| {
                if seen & HELD != 0 {
                    M::pause(Pause::Steps(M::random() % BACK_OFF));
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

    /// For the standby thread: (free, or GRANTED) -> (HELD, SLOW).
    fn try_take(&self, seen: u32) -> bool {
        let is_mine = seen & HELD == 0 || seen & GRANTED != 0;
        is_mine && self.word.compare_exchange(seen, seen & COUNT | HELD | SLOW, Acquire, Relaxed).is_ok()
    }

    /// Contends for the word as the standby thread. It is timid: while arrivals poll, it does not contend.
    fn stand_by<W: WaitPolicy>(&self, until: Option<Deadline>) -> Result<(), Left> {
        let (began, bound) = (M::micros(), M::tunables().bound_us);
        loop {
            // Polls no longer than until it becomes impatient, so that it sets IMPATIENT at once.
            let left = bound.saturating_sub(M::micros().wrapping_sub(began));
            let patience =
                if W::PARKS { Patience::Contend } else { Patience::Until(M::sooner(left.clamp(1, LOOK), until)) };
            let mut taken = false;
            M::spin_until(self.word, Relaxed, patience, |seen| {
                if seen & GRANTED == 0 && seen & COUNT != 0 {
                    return W::PARKS; // A waiter that sleeps is woken; one that cannot sleep looks again.
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
                let process = M::epoch();
                let alarm = if left == 0 { until } else { Some(M::sooner(left, until)) };
                if !park::<M>(self.word, said, alarm).is_by_others() && !self.was_of(process) {
                    stay_away::<M>(until);
                    return Err(Left::Gone);
                }
            }
        }
    }

    /// Whether the lock is there, and was last used by that process, or by the child that a handler has forked. Reads
    /// only.
    fn was_of(&self, process: u32) -> bool {
        let epoch = &self.queue.epoch;
        is_whole::<M>(self.word, epoch) && self.word.load(Relaxed) <= HIGHEST && was_used_in::<M>(epoch, process)
    }

    /// Clears the flags of the standby thread, or acquires the lock after all if it can be had.
    fn leave(&self) -> Result<(), Left> {
        loop {
            let seen = self.word.load(Relaxed);
            if self.try_take(seen) {
                return Ok(());
            }
            let quiet = seen & !(SLEEPS | IMPATIENT);
            if seen & GRANTED == 0 && self.word.compare_exchange(seen, quiet, Relaxed, Relaxed).is_ok() {
                return Err(Left::TimedOut);
            }
        }
    }

    #[cold]
    fn lock_slow<W: WaitPolicy>(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let stamp = M::stamp();
        self.settle();
        // The inner lock counts its own time-outs. It counts an acquisition as contended if it finds the lock held.
        if self.arrive() {
            M::trace(Event::Contended);
        } else {
            self.enter(until)?;
            if let Err(left) = self.stand_by::<W>(until) {
                M::trace(Event::TimedOut);
                if let Left::TimedOut = left {
                    // SAFETY: `enter` has acquired it for this thread (see `Lock`).
                    unsafe { I::release(self.word, &self.queue.inner) };
                }
                return Err(TimedOut);
            }
        }
        M::waited(stamp);
        Ok(())
    }

    fn enter(&self, until: Option<Deadline>) -> Result<(), TimedOut> {
        let inner = &self.queue.inner;
        // SAFETY: see `Lock`.
        unsafe {
            if I::try_acquire(self.word, inner) {
                M::trace(Event::Contended);
                return Ok(());
            }
            I::acquire(self.word, inner, until.as_ref())
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        self.settle();
        if self.word.load(Relaxed) & SLOW != 0 {
            self.word.fetch_and(!SLOW, Relaxed);
            // SAFETY: SLOW says that the holder came from the inner lock and still holds it (invariant 4).
            unsafe { I::release(self.word, &self.queue.inner) };
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

    fn wake_if(&self, sleeps: bool) {
        if sleeps {
            wake::<M>(&raw const *self.word, 1);
        }
    }
}

/// 0 -> HELD
#[inline(always)]
fn try_take<M: Machine>(word: &M::Word) -> bool {
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
}

/// free -> HELD, whatever flags the standby thread has set. Arrivals and the standby thread change a free word, too: it
/// fails only if the word is held.
fn try_barge<M: Machine>(word: &M::Word) -> bool {
    let mut seen = word.load(Relaxed);
    while seen & HELD == 0 {
        match word.compare_exchange(seen, seen | HELD, Acquire, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

// SAFETY: nodes are the inner lock's, which is called as the contract says (invariant 2).
unsafe impl<M: Machine, I: Inner<M>, W: WaitPolicy> RawLock<M> for Loiter<I, W> {
    type Queue = LoiterQueue<M, I::Queue>;

    /// free -> HELD, whatever flags the standby thread has set.
    #[inline]
    unsafe fn try_acquire(word: &M::Word, _: &Self::Queue) -> bool {
        try_take::<M>(word) || try_barge::<M>(word)
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, queue: &Self::Queue, until: Option<&Deadline>) -> Result<(), TimedOut> {
        if try_take::<M>(word) { Ok(()) } else { Lock::<M, I> { word, queue }.lock_slow::<W>(until.copied()) }
    }

    /// HELD -> 0, if no other bit is set. Does nothing if the lock is free.
    #[inline]
    unsafe fn release(word: &M::Word, queue: &Self::Queue) {
        match word.compare_exchange(HELD, FREE, Release, Relaxed) {
            Err(seen) if seen & HELD != 0 => Lock::<M, I> { word, queue }.unlock_slow(),
            _ => {}
        }
    }

    unsafe fn is_locked(word: &M::Word, _: &Self::Queue) -> bool {
        word.load(Relaxed) & HELD != 0
    }
}
