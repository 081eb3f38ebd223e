//! # flash: any running thread may take it; one waiter contends, the others sleep
//!
//! The default mutex: any running thread may take the free lock, one waiter contends for it, and the others sleep.
//!
//! **Problem.** On a few CPUs a lock loses time in three ways. It stands still while a thread wakes up. Its cache line
//! moves to another CPU although the last holder is about to take the lock again. And waiting threads take CPUs from
//! working ones. **Idea.** Any thread that finds the word free may take it. An arriving thread (an *arrival*) polls
//! briefly, then offers its CPU to others (`sched_yield`). It sleeps only when a sleep is cheap compared to the wait so
//! far. One of the threads that wait long is the *head*, and contends for the lock; all others sleep until it is their
//! turn to be the head. **Source.** This project. Competitive succession, spin-then-park and the standby thread: Dice,
//! *Malthusian Locks*, §5.1, 5.4 and A.1. The word: Drepper, *Futexes Are Tricky*, §5.
//!
//! **Use it** when you do not know which lock to use: it is the default. **Rather not** when many threads want a hot
//! lock and each should have it soon: if a hundred threads want it, each waits for about a hundred times `bound=`.
//! `shfl` lets more of them have a turn, and completes [0.50 to 1.01 times](../choosing.md#many-cpus) as many
//! operations on simulated machines.
//!
//! **Departures.** The nearest known lock is LOITER (Dice, A.1; [`loiter`](crate::mutex::malthusian::loiter)). Its
//! arrivals poll an outer word. A thread that polls in vain waits for an inner queue lock. The thread that has the
//! inner lock is the *standby thread*: the only waiter that contends for the word again. The head of `flash` does what
//! the standby thread does, with four differences:
//! 1. **No inner lock**, so no queue nodes. All other waiters sleep on one futex word (`calls`), and the kernel wakes
//!    them in the order of their arrival (threads with real-time priorities before others). A head that has had the
//!    lock wakes one of them in its release: it *calls* a sleeper, which becomes the next head.
//! 2. **A called sleeper may come late.** If it gets no CPU for `bound=`, another one is called, and the first of them
//!    that runs becomes the head. The others contend as well, as *extra* heads, which call no sleeper.
//! 3. **Naps.** A lock is *hot* while a waiter sees two acquisitions or more in one poll. The head then sleeps for 50
//!    to 400 µs at a time instead of polling. So the threads that take the lock in turn keep their CPUs, and the
//!    lock's cache line.
//! 4. **Measured waits.** Two measured costs set the waits. The cost of a sleep sets how long an arrival offers its
//!    CPU. The cost of moving the lock and its data to another CPU sets how long a waiter leaves a free lock to the
//!    thread that released it.
//!
//! ```text
//!   arrivals ── poll, then offer their CPU ──┐
//!                                            ├──> [word] ──> section ──> release
//!   head ────── poll, nap, offer, sleep ─────┘                             │
//!     ^                                                                    │ if the holder was the head
//!     └──────────── [D] [C] [B]  sleepers, on `calls` <──── call one ──────┘
//! ```
//!
//! ## State: 16 bytes
//! | word | holds |
//! |---|---|
//! | `word` | 0: free. 1: held. 2: held, and a thread may sleep on the word. 3: the same, written by the head before it sleeps there |
//! | `turn` | upper half: how often the lock was acquired. Lower half: when a head last got it, in units of 16 µs |
//! | `state` | whether there is a head, what it waits for, and how many threads sleep: [its bits](state) |
//! | `calls` | how often a sleeper was called. Sleepers sleep on this word. Its lowest eight bits are a hint: for how long a free lock is [left to its last holder](stay) |
//!
//! `word` follows glibc's protocol. glibc's code treats each value above 1 as a 2, and may write 2 over a 3: then the
//! head, which sleeps only while it finds 3, looks again.
//!
//! ## How a thread waits
//! | stage | for how long | where |
//! |---|---|---|
//! | polls, with pauses that grow while others get the lock | 5 µs | [`arrival`] |
//! | offers its CPU, and polls in between; not if the lock is hot | ten times what a sleep costs | [`arrival`] |
//! | becomes the head, if there is none: naps if the lock is hot, sleeps on the word if not | until it has the lock | [`head`] |
//! | sleeps, if there is a head | until it is called to be the head | [`sleeper`] |
//!
//! **After a signal.** A thread that a condition variable's signal has woken, and that finds the lock held, leaves out
//! the first two stages: it sleeps at once, as the head if there is none. (If the thread that signals holds the mutex,
//! the waiter is [woken later](crate::cond::fifo), and finds it free.) Polling could be in vain: the wake-up may have
//! preempted the holder. Offering the CPU would let the holder continue, but each hand-off then takes twice as many
//! context switches. (After a `sched_yield`, Linux seems to let every thread that the caller wakes preempt it.)
//!
//! Which figures decide, and where they come from, is in [`evidence`].
//!
//! **The second look.** Often the thread that released a hot lock takes it again before the lock's cache line has
//! reached another CPU. So a waiter that finds the word free looks again after a moment. It takes the lock only if no
//! thread has had it in between. If moving the data of the sections to another CPU takes longer than the last holder
//! usually stays away, the waiter looks again only after that time. See [`stay`].
//!
//! ## The bound
//! When a thread arrives, n others want the lock or hold it. A section takes at most s, and T is `bound=`. A thread
//! that was woken, or that offered its CPU, runs after at most d. The arriving thread polls and offers its CPU for at
//! most d'. It has the lock after at most **(n + 2) · (2 s + T + d) + d'**, if
//! - woken threads run, and the threads before it do not stop;
//! - none of the others has a real-time priority, unless it has one, too: the kernel wakes those first;
//! - it does not time out, and code that bypasses the lock does not release it.
//!
//! *Why.* A head that has waited for T asks for the lock, and the next release hands it over, no matter which others
//! want it. If it sleeps at that time, the first release after T hands the lock over unasked. When the head releases
//! the lock, it calls the sleeper that has slept longest. If that one has no CPU yet, another one is called after each
//! T. So sleepers wait for CPUs at the same time, not one after another. A called sleeper does not sleep again, unless
//! a broadcast has moved it here. A sleeper that gets up by itself, or by a signal, before its turn is not forgotten
//! ([`sleeper`]). The simulator checks the bound (claim `Bounded`) with random n and s; `cargo xtask bound` measures it
//! natively.
//!
//! If T is longer than half a second, a sleeping head is handed the lock, and another sleeper is called, after half a
//! second.
//!
//! ## Invariants
//! 1. A thread that changes `word` from 0, or clears `GRANT`, holds the lock.
//! 2. If a waiter is counted, `HEAD` is set. It is cleared only by a compare-and-swap that leaves no waiter counted.
//!    (This CAS may be the one by which the last sleeper leaves, or by which a forked child forgets its parent's
//!    waiters.)
//! 3. If `HEAD` is set without `PASS` and `TRANSIT`, some thread is in [`head`], and has the place of the head. An
//!    extra head has none, and passes none on.
//! 4. `PASS` is set by the holder and taken back by its release. So each section of a head that has the place calls one
//!    sleeper. Another is called only after a `bound=` in which no called sleeper ran.
//! 5. `TRANSIT` is set before `calls` changes. A sleeper reads `calls` before it is counted. So it cannot sleep through
//!    a call.
//! 6. A head sleeps on the word only after it wrote 3, then set `SLEEPS` in a state without `GRANT`. `GRANT` is set
//!    only in a state without `SLEEPS`. A release that took `SLEEPS` back, or finds a sleeper's mark on the word,
//!    writes 2 before the grant. After the grant it wakes all that sleep on the word. (With two heads, one that wakes
//!    up takes back the other's `SLEEPS`, too.)
//! 7. A head that was woken on the word acquires with 2, sleeps there again with 3, or leaves a 2: others may sleep
//!    there.
//! 8. After the exchange that frees `word`, or the CAS that sets `GRANT`, a releaser does not access the lock, and only
//!    wakes addresses.
//! 9. A sleeper that was not woken, and whose deadline has not come, reads the lock only if its memory is there. It
//!    writes the lock only if it has read all of this:
//!    - it is a lock of this process;
//!    - the number of calls is the same;
//!    - there are sleepers;
//!    - the head does not wait for a release.
//!
//!    A head that sleeps gets up only if it is woken, interrupted by a signal, or late. In the last two cases it goes
//!    on only if its memory is there, and looks like a lock of this process.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | CAS 0 -> held on `word` | Acquire | `word.hand_back(0)` | sees the last section |
//! | `word.hand_back(0)`, an exchange | Release | that CAS | hands over this section |
//! | `state` CAS that sets `GRANT` | Release | the next | hands over this section |
//! | `state` CAS that clears `GRANT` | Acquire | the one before | sees the last section; changes between the two are read-modify-writes |
//! | `state` CAS that sets `SLEEPS` | Release | the next | a release that sees it writes its 2 after the head's 3 |
//! | `state` CAS of a release that takes `SLEEPS` back | Acquire | the one before | the same |
//! | `calls.fetch_add` | AcqRel | `calls` load, Acquire | a thread that sees the call sees `TRANSIT` |
//! | other accesses of `state` | Relaxed | – | each is a compare-and-swap, and only the word's own value matters |
//! | `turn`, and the low bits of `calls` | Relaxed | – | hints, and the holder's own |
//!
//! ## What it reaches
//! `cargo xtask regret` compares it with locks that programs embed, [on 2 CPUs](../results/regret.md) of an Intel Xeon.
//! Over 70 combinations of section, work outside and threads it reaches 0.990 of the best lock's throughput (`shfl`
//! 0.885, nsync 0.872, glibc 0.854, `tbb::mutex` 0.784). Over 35 combinations that were held out during the design it
//! reaches 0.997. It reaches 0.86 of a physical bound that leaves out the cost of moving data. It is more than 5 %
//! behind the best in three combinations: one with 256 threads (0.86), and two with sections of 250 µs.
//!
//! The longest wait in 34 combinations with 256 threads (`cargo xtask regret --cells all --filter '256 threads'`) was
//! 0.88 times the bound with d = 0, on 2 CPUs of an AMD EPYC (2026-11-26). The figures above are those of an earlier
//! build, in which called sleepers could fall asleep again, behind all others. In the same 34 combinations, that
//! build's longest wait was 1.53 times that bound, and its throughput 1.02 times as high.
//!
//! ## What each mechanism is worth
//! `cargo xtask regret --ablation --rivals none --ms 100` builds the lock without each of them in turn, and compares
//! the builds over the same 70 combinations, on 2 CPUs of an Intel Xeon. The table shows throughput and CPU time per
//! section as multiples of the complete lock's (geometric mean), and the throughput of the combination that loses most:
//!
//! | without | throughput | worst | CPU time | why it stays |
//! |---|--:|--:|--:|---|
//! | naps of the head | 0.97 | 0.76 | 1.17 | |
//! | [`stay`] | 0.98 | 0.42 | 1.07 | |
//! | offers of the CPU | 0.99 | 0.73 | 0.99 | |
//! | the second look, where the lock does not stay | 1.00 | 0.77 | 1.01 | one line, many threads |
//! | pauses that grow while others get the lock | 1.00 | 0.93 | 1.00 | fewer transfers of the line; many CPUs |
//! | the end of a poll that has seen many acquisitions | 1.00 | 0.97 | 1.01 | CPU time with one line: 1.04 |
//! | offers that end sooner after a vain sleep | 1.00 | 0.97 | 1.01 | CPU time with sections of 250 µs: 1.05 |
//! | a releaser that offers its CPU to an overdue head | 1.00 | 0.97 | 0.99 | the longest wait: 1.6 times as long with a CPU hog |
//!
//! Two more gained nothing and were removed: a mark for locks that are never hot, and a head that polls more slowly
//! after a nap.
//!
//! **Cannot:** wake a head that naps. If the threads that made the lock hot leave it all at once, it stays free until
//! the nap ends, 0.4 ms at most, unless another thread arrives.

pub mod arrival;
pub mod evidence;
pub mod head;
pub mod release;
pub mod sleeper;
pub mod state;
pub mod stay;
pub mod turn;

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::parts::adoption::Chain;
use crate::parts::counted::{contended, wake};
use crate::parts::raw::RawLock;
use head::First;
use state::{HEAD, Lock, SLEEPER, TRANSIT, is_full};

/// No thread holds the lock.
pub(crate) const FREE: u32 = 0;
/// A thread holds it.
pub(crate) const HELD: u32 = 1;
/// The same, and a thread may sleep on the word.
pub(crate) const SLEEPERS: u32 = 2;
/// The same, and the head sleeps on the word, or is about to.
pub(crate) const AWAITED: u32 = 3;

/// The lock.
pub struct Flash;

/// The state beside the word.
#[repr(C)]
pub struct FlashQueue<M: Machine> {
    /// How often the lock was acquired; see [`turn`].
    pub turn: M::Word,
    /// What is known about the waiters; see [`state`].
    pub state: M::Word,
    /// How often a sleeper was called; see [`stay`].
    pub calls: M::Word,
}

crate::zeroed!(FlashQueue<M> { turn, state, calls });

impl Flash {
    /// A function of its own, so that the uncontended pair needs no stack.
    #[cold]
    #[inline(never)]
    fn lock_contended<M: Machine>(word: &M::Word, queue: &FlashQueue<M>) {
        // Without a deadline it cannot time out.
        let _ = Self::lock_slow(&Lock { word, queue }, None);
    }

    #[cold]
    fn lock_slow<M: Machine>(lock: &Lock<'_, M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        contended::<M>(|| {
            lock.settle();
            if head::is_late::<M>(until) {
                return if lock.take(state::Role::Arrival) { Ok(()) } else { Err(TimedOut) };
            }
            if lock.arrive(until) { Ok(()) } else { lock.queue_up(until, First::Polls) }
        })
    }

    #[cold]
    #[inline(never)]
    fn lock_woken_contended<M: Machine>(word: &M::Word, queue: &FlashQueue<M>) {
        let lock = Lock::<M> { word, queue };
        // Without a deadline it cannot time out.
        let _ = contended::<M>(|| {
            lock.settle();
            lock.queue_up(None, First::Sleeps)
        });
    }

    /// Takes a lock that was granted to a head that does not run, or that a forked child does not have.
    #[cold]
    #[inline(never)]
    fn try_granted<M: Machine>(word: &M::Word, queue: &FlashQueue<M>) -> bool {
        let lock = Lock { word, queue };
        lock.settle();
        try_take::<M>(word, queue) || lock.take_stale_grant()
    }

    #[cold]
    #[inline(never)]
    fn unlock_special<M: Machine>(word: &M::Word, queue: &FlashQueue<M>) {
        Lock { word, queue }.release_special();
    }

    #[cold]
    #[inline(never)]
    fn wake<M: Machine>(word: *const M::Word) {
        wake::<M>(word, 1);
    }
}

/// 0 -> 1
#[inline(always)]
fn try_take<M: Machine>(word: &M::Word, queue: &FlashQueue<M>) -> bool {
    let taken = word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
    if taken {
        turn::count::<M>(&queue.turn);
    }
    taken
}

// SAFETY: it has no nodes; those of a broadcast are moved as `adoption` says (1 to 3).
unsafe impl<M: Machine> RawLock<M> for Flash {
    type Queue = FlashQueue<M>;

    const GLIBC_WORD: bool = true;

    // To move a waiter to `calls` and to call it there takes two calls of the kernel, and the waiters go one after
    // another. So 64 threads that wait for each other take half as long if all are woken. Their release takes 0.4 ms.
    const FEW: u32 = 64;

    #[inline]
    unsafe fn try_acquire(word: &M::Word, queue: &FlashQueue<M>) -> bool {
        try_take::<M>(word, queue)
            || (queue.state.load(Relaxed) & state::GRANT != 0 && Self::try_granted::<M>(word, queue))
    }

    #[inline]
    unsafe fn acquire(word: &M::Word, queue: &FlashQueue<M>, until: Option<&Deadline>) -> Result<(), TimedOut> {
        if try_take::<M>(word, queue) {
            return Ok(());
        }
        if until.is_some() {
            return Self::lock_slow(&Lock { word, queue }, until.copied());
        }
        Self::lock_contended::<M>(word, queue);
        Ok(())
    }

    #[inline]
    unsafe fn acquire_woken(word: &M::Word, queue: &FlashQueue<M>) {
        if !try_take::<M>(word, queue) {
            Self::lock_woken_contended::<M>(word, queue);
        }
    }

    #[inline]
    unsafe fn release(word: &M::Word, queue: &FlashQueue<M>) {
        // Relaxed: the holder's own, and the value by which this release decides. A head that asks later is seen by the
        // next release. Nothing is stored before the exchange: otherwise a line that others poll would travel twice.
        let state = queue.state.load(Relaxed);
        if release::is_special(state, queue.turn.load(Relaxed)) {
            return Self::unlock_special::<M>(word, queue);
        }
        let address: *const M::Word = word;
        if word.hand_back(FREE, HELD, core::sync::atomic::Ordering::Release) {
            Self::wake::<M>(address);
        }
    }

    unsafe fn is_locked(word: &M::Word, _: &FlashQueue<M>) -> bool {
        word.load(Relaxed) != FREE
    }

    /// The waiters of a broadcast become sleepers, and are called one after another. Each is counted before it is
    /// moved.
    ///
    /// The first is not moved but woken. It sleeps again, behind the others, with a timer. The ones that were moved
    /// asleep have no timer, so they could not notice a head that does not run. The first also takes the place of the
    /// head if that is free: a call that came before they were moved has woken none of them. So if there was no head,
    /// the second is woken, too. A single waiter need not be moved.
    unsafe fn take_over(word: &M::Word, queue: &FlashQueue<M>, chain: Chain) {
        let lock = Lock::<M> { word, queue };
        lock.settle();
        let waiters = chain.count::<M>();
        if waiters == 1 || is_full(lock.state(), waiters) {
            return chain.hand_over_hand::<M>();
        }
        let calls: *const M::Word = &raw const queue.calls;
        let claim = chain.claim_on_first::<M>();
        let mut wakes_second = !lock.enlist();
        chain.park_followers::<M>(|follower| {
            lock.enlist();
            if core::mem::take(&mut wakes_second) {
                M::unpark(follower);
            } else {
                M::requeue(follower, calls);
            }
        });
        // It may have slept since before it was claimed. If it sleeps again as one that is claimed, the next line wakes
        // it.
        M::unpark(chain.first().node::<M>());
        chain.park_first::<M>(claim);
    }

    unsafe fn acquire_adopted(word: &M::Word, queue: &FlashQueue<M>, me: Handle) {
        M::give_node(me);
        // Without a deadline it cannot time out.
        let _ = Lock { word, queue }.sleep_on();
    }
}

impl<M: Machine> Lock<'_, M> {
    /// Counts one more sleeper, which is about to be moved here. It gets the place of the head if there is none.
    /// Returns whether there was one.
    fn enlist(&self) -> bool {
        let place = |seen| if seen & HEAD == 0 { HEAD | TRANSIT } else { 0 };
        let before = self.update(|seen| (seen | place(seen)) + SLEEPER);
        if before & HEAD == 0 {
            self.call();
        }
        before & HEAD != 0
    }
}
