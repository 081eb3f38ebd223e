//! # Polling
//!
//! How waiters poll a word, by the rules of [`flashlock_locks::machine::polling`]. If a waiter finds that it has not
//! been running for a while, another task wants its CPU. It stops polling at once, and lets other waiters know
//! ([`crowded`]). The budget, one context-switch round trip, is measured in place: a waker notes the time, and the
//! woken thread reads it.

use core::hint::spin_loop;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{self, Relaxed},
};

use flashlock_locks::machine::polling::{CROWD, Contention, QUICK_POLLS, YIELD_AFTER, budget, next_pause, rest};
use flashlock_locks::machine::{Manner, Patience};

use crate::{clock, evidence, sys, thread, umwait};

/// A waiter looks at the clock once in this many polls.
const CLOCK_EVERY: u32 = 2;
/// A waiter that did not look at the clock for this long was not running.
const PREEMPTED_NS: u64 = 100_000;
/// A wake-up that took longer than this waited for a CPU, and says nothing about a context switch.
const WAKE_MAX_NS: u64 = 200_000;

static LAST_PREEMPTED: AtomicU64 = AtomicU64::new(0);
static LAST_WAKE: AtomicU64 = AtomicU64::new(0);
/// Smoothed time from wake-up to running, in ns.
static WAKE_NS: AtomicU32 = AtomicU32::new(0);
/// Usable CPUs; 0 until they are counted.
static CPUS: AtomicU32 = AtomicU32::new(0);

/// For how long a waiter polls before it sleeps, in ns.
pub fn budget_ns() -> u64 {
    budget(u64::from(WAKE_NS.load(Relaxed)))
}

/// Notes that the calling thread is about to wake a waiter.
pub fn note_wake() {
    LAST_WAKE.store(clock::now(), Relaxed);
}

/// Notes that the calling thread has just been woken. (If another wake-up came between, the sample is too small; the
/// smoothing tolerates that.)
pub fn note_woken() {
    let took = clock::since(LAST_WAKE.load(Relaxed));
    if took < WAKE_MAX_NS {
        evidence::note_woken(took as u32);
        let before = WAKE_NS.load(Relaxed);
        WAKE_NS.store(before - before / 8 + took as u32 / 8, Relaxed);
    }
}

/// Counts the CPUs, and reads the clocks for the first time. Best called at load time: a program may give up the system
/// call later, and the counter's rate is known sooner. Without this, the first waiter counts the CPUs.
pub fn prepare() {
    count_cpus();
    clock::prepare();
}

#[cold]
fn count_cpus() -> u32 {
    let cpus = sys::usable_cpus();
    CPUS.store(cpus, Relaxed);
    cpus
}

/// Whether a waiter recently lost its CPU to another task, or there are too few CPUs for the holder, the waiter at the
/// head of the queue and one more thread to run at the same time.
pub fn crowded() -> bool {
    let cpus = match CPUS.load(Relaxed) {
        0 => count_cpus(),
        counted => counted,
    };
    cpus <= 2 || clock::since(LAST_PREEMPTED.load(Relaxed)) < CROWD
}

/// See [`Waiting::spin_until`](flashlock_locks::machine::Waiting::spin_until).
#[inline]
pub fn spin_until(word: &AtomicU32, order: Ordering, patience: Patience, done: impl FnMut(u32) -> bool) -> Option<u32> {
    if matches!(patience, Patience::Contend) {
        return contend(word, order, done);
    }
    spin(word, order, patience, done, || ())
}

/// Looks a few times in a row, then polls. Calls `offers` before it offers the CPU to others.
#[inline]
fn spin(
    word: &AtomicU32,
    order: Ordering,
    patience: Patience,
    mut done: impl FnMut(u32) -> bool,
    offers: impl FnMut(),
) -> Option<u32> {
    for _ in 0..QUICK_POLLS {
        let seen = word.load(order);
        if done(seen) {
            return Some(seen);
        }
        spin_loop();
    }
    poll(word, order, patience, &mut done, offers)
}

/// Polls with [`Patience::Contend`].
fn contend(word: &AtomicU32, order: Ordering, mut done: impl FnMut(u32) -> bool) -> Option<u32> {
    let begun = clock::now();
    let learned = thread::contention();
    let away = learned.stay_away(begun);
    while away.is_some_and(|away| clock::since(begun) < away) {
        spin_loop();
    }
    let seen = word.load(order);
    if done(seen) {
        thread::set_contention(Contention::found_free(away, clock::now()));
        return Some(seen);
    }
    let won = poll(word, order, Patience::Contend, &mut done, || ());
    thread::set_contention(learned.had_to_poll(away, won.is_some().then(clock::now)));
    won
}

/// Polls until the patience runs out.
#[inline]
fn poll(
    word: &AtomicU32,
    order: Ordering,
    patience: Patience,
    done: &mut impl FnMut(u32) -> bool,
    mut offers: impl FnMut(),
) -> Option<u32> {
    let mut wait = Wait::begin(patience);
    let (mut gap, mut polls) = (1u32, 0u32);
    loop {
        for _ in 0..gap {
            spin_loop();
        }
        let seen = word.load(order);
        if done(seen) {
            return Some(seen);
        }
        gap = next_pause(gap, &patience);
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(CLOCK_EVERY) {
            wait.look(&mut offers)?;
        }
    }
}

/// See [`Special::poll_until`](flashlock_locks::machine::Special::poll_until).
#[inline]
pub fn poll_until(
    word: &AtomicU32,
    order: Ordering,
    patience: Patience,
    how: Manner<'_>,
    done: impl FnMut(u32) -> bool,
) -> Option<u32> {
    match how {
        Manner::Publishes(offers) => spin(word, order, patience, done, offers),
        // SAFETY: checked.
        Manner::Rests if umwait::is_there() && !matches!(patience, Patience::Contend) => unsafe {
            watch(word, order, patience, done)
        },
        Manner::Rests | Manner::Scans => spin_until(word, order, patience, done),
    }
}

/// Rests, and looks again when the line has changed, until the patience runs out.
///
/// # Safety
/// The CPU has [`umwait`]'s instructions.
pub unsafe fn watch(
    word: &AtomicU32,
    order: Ordering,
    patience: Patience,
    mut done: impl FnMut(u32) -> bool,
) -> Option<u32> {
    for _ in 0..QUICK_POLLS {
        let seen = word.load(order);
        if done(seen) {
            return Some(seen);
        }
        spin_loop();
    }
    let mut wait = Wait::begin(patience);
    loop {
        let seen = word.load(order);
        if done(seen) {
            return Some(seen);
        }
        let waited = wait.look(|| ())?;
        let left =
            if matches!(patience, Patience::Budget) { (budget_ns() + 1).saturating_sub(waited) } else { u64::MAX };
        // SAFETY: callers guarantee the instructions.
        unsafe { umwait::rest(word, seen, clock::counter_after(rest(waited).min(left))) };
    }
}

/// A polling wait, measured by the clock.
struct Wait {
    patience: Patience,
    start: u64,
    /// When the clock was last looked at.
    last: u64,
}

impl Wait {
    #[inline]
    fn begin(patience: Patience) -> Self {
        let start = clock::now();
        Self { patience, start, last: start }
    }

    /// How long the wait has lasted, in ns; `None` if the patience has run out. If the wait has been long, yields the
    /// CPU to other threads; calls `offers` first.
    #[inline]
    fn look(&mut self, mut offers: impl FnMut()) -> Option<u64> {
        let now = clock::now();
        let waited = clock::between(self.start, now);
        let preempted = clock::between(self.last, now) > PREEMPTED_NS;
        self.last = now;
        if preempted {
            LAST_PREEMPTED.store(now, Relaxed);
        }
        match self.patience {
            Patience::Budget | Patience::Contend if preempted || waited > budget_ns() => return None,
            Patience::Until(deadline) if clock::expired(&deadline) => return None,
            Patience::Forever | Patience::Until(_) if preempted || waited > YIELD_AFTER => {
                offers();
                sys::yield_now();
            }
            _ => {}
        }
        Some(waited)
    }
}
