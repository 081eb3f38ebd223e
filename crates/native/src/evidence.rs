//! # Evidence: measured costs
//!
//! For locks that decide by evidence ([`flash`](flashlock_locks::mutex::flash)): the cost of a pause, of getting a
//! cache line that another CPU has written, and of sleeping. Each is measured where it happens anyway. The one
//! exception is the waker's cost of the wake-up call, which is a constant.
//!
//! **A line's transfer.** A polling waiter times each look. If the look shows that the lock was taken or released since
//! the last one, the line came from another CPU, and the look took as long as the transfer. A preemption or an
//! interrupt makes a look too long, never too short. So the estimate follows a shorter time quickly and a longer one
//! slowly.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::{Look, SLEEP_COST};

use crate::{clock, thread};

/// A waiter looks at the clock once in this many looks.
const CLOCK_EVERY: u32 = 8;
/// The estimate of the transfer (ticks) before any measurement.
const TRANSFER: u32 = 150;
/// No transfer takes longer (ticks); a look that took longer was interrupted.
const TRANSFER_MOST: u32 = 2_000;
/// Pauses per sample, and samples per measurement.
const PAUSES: u32 = 16;
const PAUSE_SAMPLES: u32 = 4;
/// Limits of the cost of a pause (ticks).
const PAUSE: core::ops::RangeInclusive<u32> = 4..=400;
/// The waker's cost of waking a thread (µs): the system call.
const WAKE_CALL: u32 = 8;
/// Limits of [`sleep_cost`] (µs).
const SLEEP: core::ops::RangeInclusive<u32> = 10..=100;

/// The cost of a pause (ticks); 0 while unknown.
static PAUSE_TICKS: AtomicU32 = AtomicU32::new(0);

/// [`Special::poll`](flashlock_locks::machine::Special::poll)
#[inline]
pub fn poll(word: &AtomicU32, beside: &AtomicU32, micros: u32, mut look: impl FnMut(u32, u32) -> Look) -> bool {
    let (begun, most) = (clock::now(), u64::from(micros) * 1_000);
    let mut looks = 0_u32;
    loop {
        let before = ticks();
        // Both loads together: if the line moved away in between, the next look would find it here, and changed.
        let seen = (word.load(Relaxed), beside.load(Relaxed));
        let took = ticks_after(seen).wrapping_sub(before);
        let next = look(seen.0, seen.1);
        if let Look::End { came: true } | Look::Again { came: true, .. } = next {
            thread::set_transfer(transfer_after(took));
        }
        match next {
            Look::End { .. } => return true,
            Look::Again { pause, .. } => {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(CLOCK_EVERY) && clock::since(begun) >= most {
                    return false;
                }
                for _ in 0..pause {
                    spin_loop();
                }
            }
        }
    }
}

/// The estimate of a line's transfer after one more look, which took `took` ticks.
fn transfer_after(took: u64) -> u32 {
    let estimate = match thread::transfer() {
        0 => TRANSFER,
        estimate => estimate,
    };
    follow(estimate, took.min(u64::from(TRANSFER_MOST)) as u32)
}

/// An estimate after one more measurement, which is more likely too long than too short.
fn follow(estimate: u32, took: u32) -> u32 {
    if took < estimate { estimate - (estimate - took) / 4 } else { estimate + (took - estimate) / 64 }
}

/// What `times` transfers of a line cost at present, in pauses.
pub fn transfer_cost(times: u32) -> u32 {
    let ticks = match thread::transfer() {
        0 => TRANSFER,
        ticks => ticks,
    };
    times * ticks / pause_ticks()
}

/// The calling thread's recent estimate of a line's transfer, in ticks; `None` if it has measured none.
pub fn transfer_ticks() -> Option<u32> {
    Some(thread::transfer()).filter(|ticks| *ticks > 0)
}

/// Time from a wake-up until the woken thread runs, in ns; `None` if no thread has been woken yet.
pub fn wake_ns() -> Option<u32> {
    Some(WAKE_NS.load(Relaxed)).filter(|ns| *ns > 0)
}

/// The cost of a pause, in ticks.
pub fn pause_ticks() -> u32 {
    match PAUSE_TICKS.load(Relaxed) {
        0 => measure_pause(),
        ticks => ticks,
    }
}

/// [`Special::steps`](flashlock_locks::machine::Special::steps)
pub fn steps() -> u32 {
    (ticks() / u64::from(pause_ticks())) as u32
}

#[cold]
fn measure_pause() -> u32 {
    let sample = || {
        let before = ticks();
        for _ in 0..PAUSES {
            spin_loop();
        }
        (ticks().wrapping_sub(before) / u64::from(PAUSES)).min(u64::from(*PAUSE.end())) as u32
    };
    let least = (0..PAUSE_SAMPLES).fold(*PAUSE.end(), |least, _| least.min(sample())).max(*PAUSE.start());
    PAUSE_TICKS.store(least, Relaxed);
    least
}

/// Time from a wake-up until the woken thread runs, in ns, if a CPU is idle; 0 while unknown.
static WAKE_NS: AtomicU32 = AtomicU32::new(0);

/// Notes that a woken thread runs, `ns` after the call that woke it. If it had to wait for a CPU, that is not a cost of
/// the sleep. So this estimate, too, follows a shorter time quickly and a longer one slowly.
pub fn note_woken(ns: u32) {
    let before = WAKE_NS.load(Relaxed);
    WAKE_NS.store(if before == 0 { ns.max(1) } else { follow(before, ns) }, Relaxed);
}

/// [`Special::sleep_cost`](flashlock_locks::machine::Special::sleep_cost)
pub fn sleep_cost() -> u32 {
    match WAKE_NS.load(Relaxed) / 1_000 {
        0 => SLEEP_COST,
        wake => (wake + WAKE_CALL).clamp(*SLEEP.start(), *SLEEP.end()),
    }
}

/// 0 if the counter must not be read.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    if !clock::has_counter() {
        return 0;
    }
    // SAFETY: every x86-64 CPU has RDTSC.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The counter after `seen` has been loaded.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks_after(seen: (u32, u32)) -> u64 {
    core::hint::black_box(seen);
    // SAFETY: SSE2 is part of x86-64.
    unsafe { core::arch::x86_64::_mm_lfence() };
    ticks()
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks_after(_seen: (u32, u32)) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_short_looks_quickly_and_long_ones_slowly() {
        let quick = (0..8).fold(400, |estimate, _| follow(estimate, 100));
        assert!((100..150).contains(&quick), "{quick}");
        assert!(follow(100, TRANSFER_MOST) < 140, "one interrupt hardly counts");
        let slow = (0..300).fold(100, |estimate, _| follow(estimate, 500));
        assert!((430..=500).contains(&slow), "{slow}");
    }

    #[test]
    fn a_pause_has_a_cost() {
        assert!(PAUSE.contains(&pause_ticks()) && transfer_cost(1) < TRANSFER_MOST);
    }
}
