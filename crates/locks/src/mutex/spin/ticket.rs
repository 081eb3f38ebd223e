//! # Ticket: take a number, wait for it to be called
//!
//! `ticket` is a first-come-first-served spinlock: an arriving thread draws a number and waits until that number is
//! called. **Use it** when there are never more threads than CPUs, sections are short, and order matters.
//! **Rather not** when threads outnumber CPUs, or many acquisitions are timed or tried.
//!
//! **Problem.** A test-and-set lock serves its waiters in random order. **Idea.** Two counters: an arriving thread
//! draws the next number, and a releaser calls the next one. First come, first served, with two counters and without
//! nodes; release is a store. **Source.** Reed & Kanodia, CACM 22(2), 1979; as a lock with proportional back-off,
//! Mellor-Crummey & Scott, TOCS 9(1), 1991, algorithm 2. Dice (*Malthusian Locks*, §5.4) classes it as direct hand-off
//! with global spinning.
//!
//! **Departures.**
//! 1. Back-off. A waiter with n before it polls at intervals in proportion to n.
//!
//!    Once its spin budget is spent, it naps where CPUs are short
//!    ([`Waiting::crowded`](crate::machine::Waiting::crowded)). A nap is as long as n suggests, and the waiter looks
//!    once between naps. The next in line polls again, and yields. So threads do not stop each other, even if they
//!    outnumber CPUs, or if a waiter has a higher scheduling priority than the holder. A hand-off to a napping waiter
//!    is late by the rest of the nap.
//!
//!    Where CPUs are not short, a waiter goes on polling. In a long wait it sleeps for a tenth of the time: it may
//!    occupy the CPU of a holder with lower priority, and cannot detect that.
//! 2. A number that was drawn must be called and served, so a waiter that may give up draws none. A **timed
//!    acquisition** polls, and takes the lock only when it is free and no thread has a number. Cost: it lets every
//!    waiter without a deadline go first, so it may time out although the lock was free in between.
//! 3. In a forked child the numbers of threads that do not exist there are never served. The first thread that uses the
//!    lock in a process discards them ([`settle`]).
//!
//! ```text
//!     next = 9       an arriving thread draws 9
//!     8  7  6  5     wait, and look at `serving`: 8 less often than 5
//!     serving = 4    holds the lock, and calls 5 in its release
//! ```
//!
//! ## State
//! | `next` | `serving` | meaning |
//! |--------|-----------|---------|
//! | n | n | free (n = 0 at first: all-zero is free) |
//! | n + 1 + w | n | n is held, w wait |
//!
//! `epoch` is the machine's epoch in which the lock was last used, 0 before; see [`settle`].
//!
//! ## Invariants
//! 1. `serving` is written by the holder of that number only. `next` is written only by threads that draw, and by the
//!    thread that settles.
//! 2. No thread draws or calls in a process whose epoch is not in `epoch`.
//! 3. After the store to `serving` the releaser does not touch the lock.
//! 4. Counters wrap. `try_draw` first reads that s is served. Then it draws s by (next = s) -> (next = s + 1). If 2^32
//!    numbers were drawn in between, the CAS succeeds although s is not being served any more. So a thread that has
//!    drawn by CAS waits for its turn like any other.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `serving` load that finds our number | Acquire | `serving` store | sees the last section |
//! | `serving` store | Release | that load | hands over this section |
//! | `next` add, CAS | Relaxed | – | decide only which thread has which number; a section is handed over by `serving` |
//!
//! No checker can distinguish the orderings of `epoch` (in [`settle`]) from Relaxed: [the
//! models](../models.md#what-neither-can-tell) say why.
//!
//! **Cannot:** let a newcomer in while the next in line is not running. Cannot let waiters sleep until their number is
//! called: they nap, and poll. Cannot serve timed and tried acquisitions in turn: they succeed only if the lock is free
//! and no number is drawn meanwhile. Cannot take the waiters of a broadcast into its queue, because it has none.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::copied::copied;
use crate::machine::{Deadline, Machine, Patience, Pause, TimedOut, Word};
use crate::parts::counted::contended;
use crate::parts::raw::RawLock;
use crate::parts::settle::{settle, settle_soon};

/// Steps of a pause for each waiter ahead, and the longest pause.
const STEPS_EACH: u32 = 16;
const STEPS_MAX: u32 = 512;
/// A nap for each waiter ahead, and the longest nap (µs).
const NAP_EACH: u32 = 10;
const NAP_MAX: u32 = 1000;
/// How long (µs) the next in line polls before it naps. While it polls, it offers its CPU where others want it.
const NEXT_POLLS: u32 = 1000;
/// How long (µs) a waiter polls where CPUs are not short, before each nap of [`NAP_MAX`].
const LONG_POLLS: u32 = 10_000;

/// The ticket lock.
pub struct Ticket;

/// The lock's counters: 12 bytes. The lock's word is not used.
#[repr(C)]
pub struct TicketQueue<M: Machine> {
    /// The number that the next thread draws.
    pub next: M::Word,
    /// The number that has the lock; or, if no thread has drawn it yet, the number that will have it next.
    pub serving: M::Word,
    /// The epoch of the process that last used the lock.
    pub epoch: M::Word,
}

crate::zeroed!(TicketQueue<M> { next, serving, epoch });

/// The two counters, wherever they are: in a lock, or in a part of its [side block](crate::parts::side).
pub(crate) struct Numbers<'a, M: Machine> {
    pub(crate) next: &'a M::Word,
    pub(crate) serving: &'a M::Word,
}

copied!(Numbers<'_, M>);

impl<M: Machine> TicketQueue<M> {
    fn numbers(&self) -> Numbers<'_, M> {
        Numbers { next: &self.next, serving: &self.serving }
    }

    /// To be called before drawing and before calling (invariant 2). In a forked child, no number drawn so far will be
    /// served, except the holder's.
    #[inline]
    fn settle(&self) {
        settle::<M>(&self.epoch, || self.reset());
    }

    fn reset(&self) {
        self.numbers().reset(self.numbers().is_held());
    }
}

impl<M: Machine> Numbers<'_, M> {
    /// Forgets all numbers. If `held`, keeps that of the holder.
    pub(crate) fn reset(self, held: bool) {
        self.next.store(self.serving.load(Relaxed).wrapping_add(u32::from(held)), Relaxed);
    }

    pub(crate) fn is_held(self) -> bool {
        self.next.load(Relaxed) != self.serving.load(Relaxed)
    }

    /// (n, n) -> (n + 1, n)
    #[inline]
    pub(crate) fn try_draw(self) -> bool {
        let serving = self.serving.load(Acquire);
        if self.next.compare_exchange(serving, serving.wrapping_add(1), Relaxed, Relaxed).is_err() {
            return false;
        }
        if self.serving.load(Acquire) != serving {
            await_turn::<M>(self.serving, serving, STEPS_EACH); // Invariant 4.
        }
        true
    }

    /// Draws a number. Returns it, and whether it is being served.
    #[inline]
    pub(crate) fn draw(self) -> (u32, bool) {
        let mine = self.next.fetch_add(1, Relaxed);
        (mine, self.serving.load(Acquire) == mine)
    }

    /// Waits until the number is served.
    #[cold]
    pub(crate) fn await_turn(self, mine: u32) {
        await_turn::<M>(self.serving, mine, STEPS_EACH);
    }

    /// Polls until the deadline, and draws only a number that is being served (departure 2).
    pub(crate) fn poll(self, until: Deadline) -> Result<(), TimedOut> {
        poll::<M>(self.serving, until, || self.try_draw())
    }

    /// Calls the next number.
    #[inline]
    pub(crate) fn call(self) {
        // Relaxed: this is our own number. If we do not hold the lock, any value will do.
        let serving = self.serving.load(Relaxed);
        self.serving.store(serving.wrapping_add(1), Release);
    }

    /// Whether a thread has drawn a number after the holder's.
    #[inline]
    pub(crate) fn has_waiters(self) -> bool {
        self.next.load(Relaxed).wrapping_sub(self.serving.load(Relaxed)) > 1
    }
}

/// Polls `word`, by `take`, until `take` succeeds or the deadline has passed.
pub(crate) fn poll<M: Machine>(word: &M::Word, until: Deadline, take: impl Fn() -> bool) -> Result<(), TimedOut> {
    while M::spin_until(word, Relaxed, Patience::Budget, |_| take()).is_none() {
        if M::expired(&until) {
            return Err(TimedOut);
        }
        M::pause(Pause::Nap(NAP_EACH));
    }
    Ok(())
}

/// Waits until `word` holds `mine`. Proportional: between two polls, a waiter pauses for `steps` for each waiter ahead
/// of it.
pub(crate) fn await_turn<M: Machine>(word: &M::Word, mine: u32, steps: u32) {
    let ahead = |serving: u32| mine.wrapping_sub(serving);
    let done = |serving| {
        let others = ahead(serving).saturating_sub(1);
        M::pause(Pause::Steps(others.saturating_mul(steps).min(STEPS_MAX)));
        ahead(serving) == 0
    };
    let mut patience = Patience::Budget;
    // The nap of the next in line. It grows while that waiter polls in vain: a holder that it outranks gets no more of
    // the CPU than these naps.
    let mut nap = NAP_EACH;
    while M::spin_until(word, Acquire, patience, done).is_none() {
        // If each thread has a CPU, none needs to sleep. A waiter that finds that it had to wait for a CPU yields. But
        // a yield gives nothing to a holder of lower priority that needs this very CPU. Only sleep helps it, so the
        // waiter sleeps now and then.
        if !M::crowded() {
            if matches!(patience, Patience::Until(_)) {
                M::pause(Pause::Nap(NAP_MAX));
            }
            patience = Patience::Until(M::sooner(LONG_POLLS, None));
            continue;
        }
        // A waiter that is far from its turn does not poll again: many polling waiters would leave no CPU to the
        // threads whose turn it is.
        loop {
            let ahead = ahead(word.load(Relaxed));
            M::pause(Pause::Nap(match ahead {
                0 => 1,
                1 => nap,
                more => more.saturating_mul(NAP_EACH).min(NAP_MAX),
            }));
            if ahead <= 1 {
                nap = (2 * nap).min(NAP_MAX);
                patience = Patience::Until(M::sooner(NEXT_POLLS, None));
                break;
            }
        }
    }
}

impl Ticket {
    #[cold]
    fn wait<M: Machine>(numbers: Numbers<'_, M>, mine: u32) -> Result<(), TimedOut> {
        contended::<M>(|| {
            numbers.await_turn(mine);
            Ok(())
        })
    }
}

// SAFETY: it has no nodes.
unsafe impl<M: Machine> RawLock<M> for Ticket {
    type Queue = TicketQueue<M>;

    #[inline]
    unsafe fn try_acquire(_: &M::Word, queue: &TicketQueue<M>) -> bool {
        settle_soon::<M>(&queue.epoch, || queue.reset()) && queue.numbers().try_draw()
    }

    /// With a deadline, polls, and draws only a number that is being served (departure 2).
    #[inline(always)]
    unsafe fn acquire(_: &M::Word, queue: &TicketQueue<M>, until: Option<&Deadline>) -> Result<(), TimedOut> {
        queue.settle();
        let numbers = queue.numbers();
        if let Some(&until) = until {
            return if numbers.try_draw() { Ok(()) } else { contended::<M>(|| numbers.poll(until)) };
        }
        let (mine, served) = numbers.draw();
        if served { Ok(()) } else { Self::wait::<M>(numbers, mine) }
    }

    /// Calls the next number. Does nothing if the lock is free.
    #[inline]
    unsafe fn release(_: &M::Word, queue: &TicketQueue<M>) {
        queue.settle();
        if queue.numbers().is_held() {
            queue.numbers().call();
        }
    }

    unsafe fn is_locked(_: &M::Word, queue: &TicketQueue<M>) -> bool {
        queue.numbers().is_held()
    }
}
