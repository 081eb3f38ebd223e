//! # Polling
//!
//! By the native machine's rules, whose constants these are (`flashlock-native`, `spin.rs`): the pauses between polls grow; who
//! contends for a hot word stays away first, for a time that it learns; patience ends with the budget, or when a waiter finds
//! that it had not been running.
//!
//! What polling finds unchanged is not simulated poll by poll: the thread looks when the line has changed, at the poll that would have
//! come next, and otherwise now and then, for the sake of what it does between polls.

use std::sync::atomic::Ordering;

use flashlock_locks::machine::{Patience, Word as _};

use crate::kernel::Kernel;
use crate::machine::{Word, spend};
use crate::simulation::{suspend, with};
use crate::thread::Use;
use crate::{Ps, ps};

const QUICK_POLLS: u32 = 4;
const MAX_GAP: u32 = 64;
const YIELD_AFTER: Ps = 1_000_000_000;
const CROWD: Ps = 10_000_000_000;
const HOT: Ps = 2_000_000;
const STAY_AWAY: std::ops::RangeInclusive<Ps> = 200_000..=6_000_000;
const BUDGET: std::ops::RangeInclusive<Ps> = 5_000_000..=50_000_000;

/// Whether waiters have lately lost their CPUs, or there are two CPUs or fewer.
pub(crate) fn crowded(kernel: &mut Kernel) -> bool {
    kernel.shape.cpus <= 2 || kernel.preempted.is_some_and(|at| kernel.now - at < CROWD)
}

fn budget() -> Ps {
    with(|kernel| kernel.woke.1.clamp(*BUDGET.start(), *BUDGET.end()))
}

fn pause() -> Ps {
    with(|kernel| ps(kernel.machine.latency_ns.pause))
}

fn now() -> Ps {
    with(|kernel| kernel.now)
}

/// [`Machine::spin_until`](flashlock_locks::machine::Machine::spin_until)
pub(crate) fn spin_until(
    word: &Word,
    order: Ordering,
    patience: Patience,
    mut done: impl FnMut(u32) -> bool,
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
    poll(word, order, patience, &mut done)
}

fn contend(word: &Word, order: Ordering, mut done: impl FnMut(u32) -> bool) -> Option<u32> {
    let begun = now();
    let (learned, last_won) = with(|kernel| kernel.me().away);
    let hot = begun - last_won < HOT + 4 * learned;
    let away = if hot { learned } else { 0 };
    spend(away, Use::Polling);
    let seen = word.load(order);
    if done(seen) {
        let learned = if hot { (2 * away).clamp(*STAY_AWAY.start(), *STAY_AWAY.end()) } else { 0 };
        with(|kernel| kernel.me().away = (learned, kernel.now));
        return Some(seen);
    }
    let won = poll(word, order, Patience::Budget, &mut done);
    with(|kernel| {
        let at = if won.is_some() { kernel.now } else { last_won };
        kernel.me().away = (away / 2, at);
    });
    won
}

/// Polls until the patience is spent.
fn poll(word: &Word, order: Ordering, patience: Patience, done: &mut impl FnMut(u32) -> bool) -> Option<u32> {
    let (start, pause) = (now(), pause());
    let mut gap = 1;
    let mut seen = word.peek();
    let mut preempted_before = with(|kernel| kernel.me().involuntary);
    loop {
        wait_for_change(word, seen, pause * Ps::from(gap), start, patience);
        seen = word.load(order);
        if done(seen) {
            return Some(seen);
        }
        gap = (gap * 2).min(MAX_GAP);
        let (now, preemptions) = with(|kernel| (kernel.now, kernel.me().involuntary));
        let waited = now - start;
        let preempted = std::mem::replace(&mut preempted_before, preemptions) != preemptions;
        match patience {
            Patience::Budget | Patience::Contend if preempted || waited > budget() => return None,
            Patience::Until(deadline) if with(|kernel| kernel.expired(&deadline)) => return None,
            Patience::Forever | Patience::Until(_) if preempted || waited > YIELD_AFTER => {
                if with(Kernel::offer) {
                    suspend();
                }
            }
            _ => {}
        }
    }
}

/// Until the word's line changes, seen from the first poll after that on; or until the thread looks anyway. `seen`: what the word
/// held when it looked last.
fn wait_for_change(word: &Word, seen: u32, gap: Ps, start: Ps, patience: Patience) {
    if word.peek() != seen {
        return spend(gap, Use::Polling);
    }
    with(|kernel| {
        let line = kernel.arena.line(word.address()).expect("words that are polled lie in simulated memory");
        let now = kernel.now;
        let look = now + gap.max((now - start) / 4);
        let look = match patience {
            Patience::Contend => now + gap,
            Patience::Forever => look,
            Patience::Budget => look.min((start + kernel.woke.1.clamp(*BUDGET.start(), *BUDGET.end()) + 1).max(now + gap)),
            Patience::Until(deadline) => look.min(kernel.deadline(&deadline).max(now + gap)),
        };
        kernel.poll(line, now + gap, gap, look);
    });
    suspend();
}
