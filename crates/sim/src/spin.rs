//! # Polling
//!
//! How a simulated thread waits for a word to change, by the rules of [`flashlock_locks::machine::polling`].
//!
//! On machines with `umwait`, a waiter that may rest (`wait=umwait`) uses that instruction after its first polls. On
//! other machines it polls.
//!
//! Polls that find nothing new are not simulated one by one. The thread looks when the line has changed, at the time of
//! its next poll. It also looks from time to time for the sake of its other duties between polls. A waiter that
//! publishes that it is running looks as often as a resting CPU does.

use std::sync::atomic::Ordering;

use flashlock_locks::machine::polling::{CROWD, Contention, QUICK_POLLS, REST, YIELD_AFTER, budget, next_pause, rest};
use flashlock_locks::machine::{Look, Manner, Patience, Word as _};

use crate::access::spend;
use crate::kernel::Kernel;
use crate::machine::Word;
use crate::simulation::{suspend, with};
use crate::thread::Use;
use crate::{Ps, ps, us};

/// Whether waiters have lately lost their CPUs, or there are at most two CPUs.
pub(crate) fn crowded(kernel: &mut Kernel) -> bool {
    kernel.shape.cpus <= 2 || kernel.preempted.is_some_and(|at| kernel.now - at < 1000 * CROWD)
}

impl Kernel {
    fn budget(&self) -> Ps {
        1000 * budget(self.woke.1 / 1000)
    }
}

fn pause() -> Ps {
    with(|kernel| ps(kernel.machine.latency_ns.pause))
}

fn now() -> Ps {
    with(|kernel| kernel.now)
}

/// [`Waiting::spin_until`](flashlock_locks::machine::Waiting::spin_until)
pub(crate) fn spin_until(
    word: &Word,
    order: Ordering,
    patience: Patience,
    done: impl FnMut(u32) -> bool,
) -> Option<u32> {
    wait(word, order, patience, done, How::Polls)
}

/// [`Special::poll_until`](flashlock_locks::machine::Special::poll_until)
pub(crate) fn poll_until(
    word: &Word,
    order: Ordering,
    patience: Patience,
    how: Manner<'_>,
    done: impl FnMut(u32) -> bool,
) -> Option<u32> {
    let how = match how {
        Manner::Scans => return scan_until(word, order, patience, done),
        Manner::Publishes(offers) => How::Publishes(offers),
        Manner::Rests if with(|kernel| kernel.machine.umwait.is_some()) => How::Rests,
        Manner::Rests => How::Polls,
    };
    wait(word, order, patience, done, how)
}

/// [`Manner::Scans`]. Looks that find nothing are not simulated one by one.
fn scan_until(word: &Word, order: Ordering, patience: Patience, mut done: impl FnMut(u32) -> bool) -> Option<u32> {
    let (start, pause, mut gap) = (now(), pause(), 1);
    let mut preempted_before = with(|kernel| kernel.me().involuntary);
    loop {
        with(|kernel| kernel.me().look.begin());
        let seen = word.load(order);
        let is_done = done(seen);
        with(|kernel| kernel.me().look.end());
        if is_done {
            return Some(seen);
        }
        if is_spent(patience, start, &mut preempted_before, How::Polls) {
            return None;
        }
        wait_for_any_change(word, pause * Ps::from(gap), start, patience);
        gap = next_pause(gap, &patience);
    }
}

/// What a waiter does between polls.
#[derive(Clone, Copy)]
enum How<'a> {
    Polls,
    /// Its CPU waits with [`Umwait`](crate::description::Umwait).
    Rests,
    /// It publishes that it is running, and by this function that it is not.
    Publishes(&'a dyn Fn()),
}

fn wait(
    word: &Word,
    order: Ordering,
    patience: Patience,
    mut done: impl FnMut(u32) -> bool,
    how: How<'_>,
) -> Option<u32> {
    if matches!(patience, Patience::Contend) {
        return contend(word, order, done);
    }
    for _ in 0..QUICK_POLLS {
        let seen = word.load(order);
        if done(seen) {
            return Some(seen);
        }
        spend(pause(), Use::Polling);
    }
    poll(word, order, patience, &mut done, how)
}

/// [`Special::poll`](flashlock_locks::machine::Special::poll). Each look is simulated, because the lock sets the
/// pauses.
pub(crate) fn poll_at_own_pace(
    word: &Word,
    beside: &Word,
    micros: u32,
    mut look: impl FnMut(u32, u32) -> Look,
) -> bool {
    let end = now() + us(micros.into());
    loop {
        match look(word.load(Ordering::Relaxed), beside.load(Ordering::Relaxed)) {
            Look::End { .. } => return true,
            Look::Again { .. } if now() >= end => return false,
            Look::Again { pause: steps, .. } => spend(pause() * Ps::from(steps), Use::Polling),
        }
    }
}

fn contend(word: &Word, order: Ordering, mut done: impl FnMut(u32) -> bool) -> Option<u32> {
    let learned = with(|kernel| kernel.me().contention);
    let away = learned.stay_away(now() / 1000);
    spend(1000 * away.unwrap_or(0), Use::Polling);
    let seen = word.load(order);
    if done(seen) {
        with(|kernel| kernel.me().contention = Contention::found_free(away, kernel.now / 1000));
        return Some(seen);
    }
    let won = poll(word, order, Patience::Contend, &mut done, How::Polls);
    with(|kernel| kernel.me().contention = learned.had_to_poll(away, won.is_some().then_some(kernel.now / 1000)));
    won
}

/// Polls until the patience is spent.
fn poll(
    word: &Word,
    order: Ordering,
    patience: Patience,
    done: &mut impl FnMut(u32) -> bool,
    how: How<'_>,
) -> Option<u32> {
    let (start, pause) = (now(), pause());
    let mut gap = 1;
    let mut seen = word.peek();
    let mut preempted_before = with(|kernel| kernel.me().involuntary);
    loop {
        wait_for_change(word, seen, pause * Ps::from(gap), start, patience, how);
        seen = word.load(order);
        if done(seen) {
            return Some(seen);
        }
        gap = next_pause(gap, &patience);
        if is_spent(patience, start, &mut preempted_before, how) {
            return None;
        }
    }
}

/// Whether the polling thread's patience is spent. If not, it may yield its CPU.
fn is_spent(patience: Patience, start: Ps, preempted_before: &mut u64, how: How<'_>) -> bool {
    let (now, preemptions) = with(|kernel| (kernel.now, kernel.me().involuntary));
    let waited = now - start;
    let preempted = std::mem::replace(preempted_before, preemptions) != preemptions;
    match patience {
        Patience::Budget | Patience::Contend => preempted || waited > with(|kernel| kernel.budget()),
        Patience::Until(deadline) if with(|kernel| kernel.expired(&deadline)) => true,
        Patience::Forever | Patience::Until(_) => {
            if preempted || waited > 1000 * YIELD_AFTER {
                if let How::Publishes(offers) = how {
                    offers();
                }
                if with(Kernel::offer) {
                    suspend();
                }
            }
            false
        }
    }
}

/// When a polling thread looks even if nothing has changed: after a quarter of the time that it has waited, but after
/// at most `longest`.
fn next_look(kernel: &Kernel, gap: Ps, start: Ps, patience: Patience, longest: Ps) -> Ps {
    let now = kernel.now;
    let look = now + gap.max(((now - start) / 4).min(longest));
    if matches!(patience, Patience::Contend) { now + gap } else { look.min(end(kernel, gap, start, patience)) }
}

/// When its patience is spent, but not before the next poll.
fn end(kernel: &Kernel, gap: Ps, start: Ps, patience: Patience) -> Ps {
    let end = match patience {
        Patience::Forever | Patience::Contend => Ps::MAX,
        Patience::Budget => start + kernel.budget() + 1,
        Patience::Until(deadline) => kernel.deadline(&deadline),
    };
    end.max(kernel.now + gap)
}

/// Waits until a line changes that the last look has loaded, or until the thread looks anyway. `gap`: the time between
/// two looks.
fn wait_for_any_change(word: &Word, gap: Ps, start: Ps, patience: Patience) {
    let can = with(|kernel| {
        let can = kernel.can_watch();
        if can {
            let line = kernel.arena.line(word.address()).expect("words that are polled lie in simulated memory");
            let every = kernel.me().look.takes + gap;
            // Only a change ends the wait; a waiter without a deadline yields its CPU from time to time.
            let look = match patience {
                Patience::Forever => kernel.now + 1000 * YIELD_AFTER,
                _ => next_look(kernel, gap, start, patience, Ps::MAX),
            };
            kernel.poll(line, kernel.now + gap, every, look);
            kernel.watch();
        }
        can
    });
    if can { suspend() } else { spend(gap, Use::Polling) }
}

/// Waits until the word's line changes and the next poll sees it, or until the thread looks anyway. `seen`: the value
/// of the word at the last look.
fn wait_for_change(word: &Word, seen: u32, gap: Ps, start: Ps, patience: Patience, how: How<'_>) {
    if word.peek() != seen {
        return spend(gap, Use::Polling);
    }
    with(|kernel| {
        let line = kernel.arena.line(word.address()).expect("words that are polled lie in simulated memory");
        let now = kernel.now;
        let longest = if matches!(how, How::Publishes(_)) { 1000 * *REST.end() } else { Ps::MAX };
        let look = next_look(kernel, gap, start, patience, longest);
        match kernel.machine.umwait.filter(|_| matches!(how, How::Rests)) {
            // It rests only after one more look, because the change could come before that.
            Some(wait) => {
                let longest = us(wait.max_us).min(1000 * rest((now - start) / 1000));
                // Nothing else ends the rest, however short it is.
                let until = (now + gap + longest).min(end(kernel, gap, start, patience));
                kernel.poll(line, now + gap, 0, until);
            }
            _ => kernel.poll(line, now + gap, gap, look),
        }
    });
    suspend();
}
