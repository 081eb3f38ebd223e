//! # Clocks
//!
//! Lock paths get the time from [`now`], in nanoseconds of `CLOCK_MONOTONIC`. A system call costs 100 ns or more.
//! libc's `clock_gettime` may be interposed by the program, which may then lock a mutex. So [`now`] uses the time stamp
//! counter where that is invariant.
//!
//! The counter's rate is measured along the way. The first reading of both clocks is remembered; another at least
//! [`SETTLE_NS`] later gives the rate. Until then `now` asks the kernel. That is accurate enough for intervals, but not
//! for points in time: deadlines are made from, and compared with, the kernel's clocks.
//!
//! A reading counts only if it was so short that the thread was not preempted during it ([`LONGEST_READING`]). A rate
//! counts only if a real counter can have it. If the counter is ever seen to disagree with the kernel's clock, it is
//! never used again. That happens after a suspend that reset it, or after a move to another host. The check is made
//! with each deadline on `CLOCK_MONOTONIC`, when the kernel's time is known anyway ([`still_agrees`]).

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use core::time::Duration;

use flashlock_locks::machine::{Clock, Deadline};

use crate::sys;

/// For how long the counter's rate is measured. With readings of a few hundred ticks the rate is known to some parts in
/// ten thousand; with the longest that count, to some parts in a thousand. It is not longer because until then each
/// look at the clock is a system call.
const SETTLE_NS: u64 = 4_000_000;
/// The longest reading that counts, in ticks. The system call between two looks at the counter takes hundreds of ticks,
/// or a few thousand on a slow virtual machine. Where it always takes longer, the kernel's clock stays in use.
const LONGEST_READING: u64 = 20_000;
/// Plausible rates, in 32.32 fixed point: counters run at 200 MHz to 20 GHz.
const RATES: core::ops::RangeInclusive<u64> = (1 << 32) / 20..=5 << 32;
/// How far the clocks may differ: a fixed time, for unlucky readings, plus a share (one part in so many) of the time
/// since the first reading. The share allows for the rate's error and for adjustments of the kernel's clock.
const APART_NS: u64 = 1_000_000;
const APART_SHARE: u64 = 64;
const NS_PER_SEC: u64 = 1_000_000_000;

static BASE_NS: AtomicU64 = AtomicU64::new(0);
static BASE_TICKS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per tick, in 32.32 fixed point. 0 while unknown; [`NO_COUNTER`] if no counter can be trusted.
static RATE: AtomicU64 = AtomicU64::new(0);
const NO_COUNTER: u64 = u64::MAX;

/// Both clocks at one moment.
#[derive(Clone, Copy)]
struct Reading {
    ns: u64,
    ticks: u64,
}

/// Nanoseconds. The clock may jump by a few microseconds, the error of a reading. When the counter is given up, it
/// jumps once, by any amount. [`since`] allows for both.
#[inline]
pub fn now() -> u64 {
    // Acquire pairs with the Release in `calibrate`: a thread that sees the rate also sees the bases.
    match RATE.load(Acquire) {
        0 => calibrate(),
        NO_COUNTER => kernel_now(libc::CLOCK_MONOTONIC),
        rate => counted(base(), ticks(), rate),
    }
}

/// How long ago (ns) [`now`] returned `begun`. `u64::MAX` if `begun` is well in the future: the counter was given up
/// since then. Treat every timed wait as over.
#[inline]
pub fn since(begun: u64) -> u64 {
    between(begun, now())
}

/// [`since`], at the time `now`.
#[inline]
pub fn between(begun: u64, now: u64) -> u64 {
    now.checked_sub(begun).unwrap_or_else(|| if begun - now <= APART_NS { 0 } else { u64::MAX })
}

/// Whether the process may read the counter. A program may have forbidden it (`PR_SET_TSC`) to itself and its children.
#[cfg(target_arch = "x86_64")]
fn may_read_counter() -> bool {
    let mut mode: libc::c_int = 0;
    let arguments = [libc::PR_GET_TSC as usize, &raw mut mode as usize, 0, 0, 0, 0];
    // SAFETY: the mode is writable.
    let answer = unsafe { sys::syscall(libc::SYS_prctl, arguments) };
    answer != 0 || mode != libc::PR_TSC_SIGSEGV
}

#[cfg(not(target_arch = "x86_64"))]
fn may_read_counter() -> bool {
    false
}

/// Finds out whether the counter may be read, and makes the first reading. To be called at load time.
pub fn prepare() {
    if !may_read_counter() {
        RATE.store(NO_COUNTER, Relaxed);
    }
    now();
}

/// Whether the counter can be used, as far as is known.
#[inline(always)]
pub(crate) fn has_counter() -> bool {
    RATE.load(Relaxed) != NO_COUNTER
}

/// The counter's value in `ns` nanoseconds. Approximate while the rate is unknown: most counters tick once per ns, some
/// up to five times.
#[inline]
pub fn counter_after(ns: u64) -> u64 {
    // Relaxed: nothing else is read on the strength of it.
    let ahead = match RATE.load(Relaxed) {
        0 | NO_COUNTER => ns,
        rate => (ns << 32) / rate,
    };
    ticks().wrapping_add(ahead)
}

/// Nanoseconds per tick of the counter. `None` if no counter can be trusted, or if the rate stays unknown. The first
/// call takes 20 ms.
pub fn ns_per_tick() -> Option<f64> {
    /// In units of [`SETTLE_NS`]: preempted readings are repeated.
    const PATIENCE: u64 = 50;
    let begun = kernel_now(libc::CLOCK_MONOTONIC);
    loop {
        match RATE.load(Relaxed) {
            NO_COUNTER => return None,
            0 if since(begun) > PATIENCE * SETTLE_NS => return None,
            0 => sys::nap(1_000),
            rate => return Some(rate as f64 / (1_u64 << 32) as f64),
        }
    }
}

/// The first reading.
fn base() -> Reading {
    Reading { ns: BASE_NS.load(Relaxed), ticks: BASE_TICKS.load(Relaxed) }
}

/// The time at which the counter shows `ticks`.
fn counted(base: Reading, ticks: u64, rate: u64) -> u64 {
    let passed = (u128::from(ticks.wrapping_sub(base.ticks)) * u128::from(rate)) >> 32;
    base.ns.wrapping_add(passed as u64)
}

/// The kernel's time. Used while the rate is unknown.
///
/// Races are harmless. The bases are written once, by the thread that wins `BASE_NS`. A rate is computed only by a
/// thread that sees both: `BASE_TICKS` is 0 until it is written, and it is written after `BASE_NS`.
#[cold]
fn calibrate() -> u64 {
    // Asked once only: in a virtual machine the hypervisor handles CPUID, which takes many µs.
    if BASE_TICKS.load(Relaxed) == 0 && !counter_is_invariant() {
        RATE.store(NO_COUNTER, Relaxed);
        return kernel_now(libc::CLOCK_MONOTONIC);
    }
    let before = ticks();
    let ns = kernel_now(libc::CLOCK_MONOTONIC);
    let Some(reading) = reading(before, ns, ticks()) else { return ns };
    // Acquire pairs with the Release of `BASE_TICKS` below.
    let ticks = BASE_TICKS.load(Acquire);
    if ticks == 0 {
        if BASE_NS.compare_exchange(0, reading.ns, Relaxed, Relaxed).is_ok() {
            BASE_TICKS.store(reading.ticks, Release);
        }
    } else if let Some(rate) = rate(base(), reading) {
        // If it fails, another thread has set a rate or `NO_COUNTER`. Release pairs with the Acquire in `now`.
        let _ = RATE.compare_exchange(0, rate, Release, Relaxed);
    }
    ns
}

/// A reading made between two looks at the counter; `None` if it took too long. Discards readings in which the
/// counter went back: the second look was on another CPU, whose counter lags.
fn reading(before: u64, ns: u64, after: u64) -> Option<Reading> {
    let took = after.checked_sub(before).filter(|took| *took <= LONGEST_READING)?;
    Some(Reading { ns, ticks: before + took / 2 })
}

/// The rate between two readings. `None` if they are too close; [`NO_COUNTER`] if no real counter has that rate.
fn rate(base: Reading, now: Reading) -> Option<u64> {
    let passed = now.ns.checked_sub(base.ns).filter(|passed| *passed >= SETTLE_NS)?;
    let ticks = now.ticks.checked_sub(base.ticks).filter(|ticks| *ticks > 0);
    let rate = ticks.and_then(|ticks| u64::try_from((u128::from(passed) << 32) / u128::from(ticks)).ok());
    Some(rate.filter(|rate| RATES.contains(rate)).unwrap_or(NO_COUNTER))
}

/// Whether the counter still agrees with the kernel's clock, as measured from `base`.
fn still_agrees(base: Reading, kernel_ns: u64, counted_ns: u64) -> bool {
    counted_ns.abs_diff(kernel_ns) <= APART_NS + kernel_ns.saturating_sub(base.ns) / APART_SHARE
}

/// Checks whether the counter can still be trusted. If it seems not, checks once more: the thread may have been
/// preempted after it asked the kernel.
#[inline]
fn compare(kernel_ns: u64) {
    let rate = RATE.load(Acquire);
    if rate == 0 || rate == NO_COUNTER || still_agrees(base(), kernel_ns, counted(base(), ticks(), rate)) {
        return;
    }
    let before = ticks();
    let ns = kernel_now(libc::CLOCK_MONOTONIC);
    let Some(again) = reading(before, ns, ticks()) else { return };
    if !still_agrees(base(), again.ns, counted(base(), again.ticks, rate)) {
        RATE.store(NO_COUNTER, Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has RDTSC.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
fn counter_is_invariant() -> bool {
    let leaf = core::arch::x86_64::__cpuid(0x8000_0000);
    leaf.eax >= 0x8000_0007 && core::arch::x86_64::__cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_invariant() -> bool {
    false
}

fn kernel_time(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    unsafe { sys::syscall(libc::SYS_clock_gettime, [clock as usize, &raw mut time as usize, 0, 0, 0, 0]) };
    time
}

fn kernel_now(clock: libc::clockid_t) -> u64 {
    let time = kernel_time(clock);
    time.tv_sec as u64 * NS_PER_SEC + time.tv_nsec as u64
}

/// Whether the deadline has passed.
pub fn expired(deadline: &Deadline) -> bool {
    let clock = match deadline.clock {
        Clock::Realtime => libc::CLOCK_REALTIME,
        Clock::Monotonic => libc::CLOCK_MONOTONIC,
    };
    let now = kernel_time(clock);
    (now.tv_sec, now.tv_nsec) >= (deadline.sec, libc::c_long::from(deadline.nsec))
}

/// [`now`] in microseconds; wraps.
#[inline]
pub fn micros() -> u32 {
    (now() / 1000) as u32
}

/// The deadline after `time` from now on the monotonic clock; centuries at most.
pub fn after(time: Duration) -> Deadline {
    after_on(Clock::Monotonic, time)
}

fn after_on(clock: Clock, time: Duration) -> Deadline {
    let now = match clock {
        Clock::Realtime => kernel_now(libc::CLOCK_REALTIME),
        Clock::Monotonic => {
            let now = kernel_now(libc::CLOCK_MONOTONIC);
            compare(now);
            now
        }
    };
    let at = now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    Deadline { clock, sec: (at / NS_PER_SEC) as i64, nsec: (at % NS_PER_SEC) as u32 }
}

/// The deadline `micros` microseconds from now, or `other` if that is sooner. It is on `other`'s clock: if that clock
/// is set forward, the kernel ends a wait for either of them.
pub fn sooner(micros: u32, other: Option<Deadline>) -> Deadline {
    let clock = other.map_or(Clock::Monotonic, |other| other.clock);
    let soon = after_on(clock, Duration::from_micros(u64::from(micros)));
    other.filter(|other| (other.sec, other.nsec) < (soon.sec, soon.nsec)).unwrap_or(soon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_runs_at_the_kernels_rate() {
        // Until the counter is in use, if there is one: a preempted reading is repeated.
        let begun = std::time::Instant::now();
        while RATE.load(Relaxed) == 0 && begun.elapsed() < std::time::Duration::from_secs(600) {
            now();
        }
        assert_ne!(RATE.load(Relaxed), 0, "not calibrated in ten minutes");
        // Each lies between two readings of the kernel's clock, because this thread may be preempted anywhere.
        let read = || [kernel_now(libc::CLOCK_MONOTONIC), now(), kernel_now(libc::CLOCK_MONOTONIC)];
        let begin = read();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let end = read();
        let tick = ns_per_tick();
        assert!(RATE.load(Relaxed) == NO_COUNTER || tick.is_some_and(|ns| (0.05..=5.0).contains(&ns)), "{tick:?}");
        let (least, here, most) = (end[0] - begin[2], end[1] - begin[1], end[2] - begin[0]);
        assert!(least / 2 < here && here / 2 < most, "{least} {here} {most}");
    }

    const BASE: Reading = Reading { ns: 7_000, ticks: 1_000 };

    #[test]
    fn a_reading_with_a_preemption_in_it_does_not_count() {
        let read = reading(1_000, 5, 1_600).unwrap();
        assert_eq!((read.ns, read.ticks), (5, 1_300));
        assert!(reading(1_000, 5, 1_000 + LONGEST_READING).is_some());
        assert!(reading(1_000, 5, 1_001 + LONGEST_READING).is_none());
        assert!(reading(1_000, 5, 999).is_none());
        assert!(reading(0, 5, u64::MAX).is_none());
    }

    #[test]
    fn a_rate_is_told_by_distant_readings_and_must_be_plausible() {
        let after = |ns, ticks| rate(BASE, Reading { ns: BASE.ns + ns, ticks: BASE.ticks + ticks });
        assert_eq!(after(SETTLE_NS - 1, 2 * SETTLE_NS), None);
        assert_eq!(after(SETTLE_NS, 2 * SETTLE_NS), Some(1 << 31));
        assert_eq!(after(SETTLE_NS, 4 * SETTLE_NS), Some(1 << 30));
        for (ns, ticks) in [(SETTLE_NS, 0), (SETTLE_NS, SETTLE_NS / 6), (SETTLE_NS, 21 * SETTLE_NS), (u64::MAX / 2, 1)]
        {
            assert_eq!(after(ns, ticks), Some(NO_COUNTER), "{ticks} ticks in {ns} ns");
        }
        assert_eq!(rate(BASE, Reading { ns: BASE.ns + SETTLE_NS, ticks: 0 }), Some(NO_COUNTER));
        assert_eq!(rate(BASE, Reading { ns: 0, ticks: 2_000 }), None);
    }

    #[test]
    fn a_counter_that_leaves_the_kernels_clock_is_distrusted() {
        const HOUR: u64 = 3_600 * NS_PER_SEC;
        let now = BASE.ns + HOUR;
        assert!(still_agrees(BASE, now, now + HOUR / 100) && still_agrees(BASE, now, now - HOUR / 100));
        assert!(!still_agrees(BASE, now, now + HOUR / 50) && !still_agrees(BASE, now, now - HOUR / 50));
        assert!(
            still_agrees(BASE, BASE.ns, BASE.ns + APART_NS) && !still_agrees(BASE, BASE.ns, BASE.ns + 2 * APART_NS)
        );
        // The counter was reset.
        assert!(!still_agrees(BASE, now, counted(BASE, 0, 1 << 31)));
    }

    #[test]
    fn a_time_in_the_future_was_long_ago() {
        assert_eq!((between(7, 7), between(7, 9)), (0, 2));
        assert_eq!(between(APART_NS, 0), 0, "a reading's error");
        assert_eq!(between(APART_NS + 1, 0), u64::MAX, "the counter was given up");
    }

    #[test]
    fn a_deadline_is_on_the_kernels_clock_and_never_wraps() {
        let later = |time| {
            let Deadline { sec, nsec, .. } = after(time);
            sec as u64 * NS_PER_SEC + u64::from(nsec)
        };
        let before = kernel_now(libc::CLOCK_MONOTONIC);
        let (now, soon) = (later(Duration::ZERO), later(Duration::from_secs(5)));
        let behind = kernel_now(libc::CLOCK_MONOTONIC);
        assert!((before..=behind).contains(&now) && (before..=behind).contains(&(soon - 5 * NS_PER_SEC)));
        for far in [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_secs(u64::MAX / 2)] {
            assert!(!expired(&after(far)), "{far:?}");
        }
    }

    #[test]
    fn the_sooner_deadline_wins_on_either_clock() {
        for clock in [Clock::Realtime, Clock::Monotonic] {
            for nsec in [0, 999_999_999] {
                for sec in [i64::MIN, i64::MIN + 1, i64::MIN / 4, -1, 0] {
                    let past = Deadline { clock, sec, nsec };
                    assert_eq!(sooner(u32::MAX, Some(past)), past);
                    assert!(expired(&past), "{past:?}");
                }
                for sec in [i64::MAX, i64::MAX - 1, i64::MAX / 4, 1 << 40] {
                    let far = Deadline { clock, sec, nsec };
                    let soon = sooner(0, Some(far));
                    assert!(soon != far && soon.clock == clock && expired(&soon), "{far:?}");
                    assert!(!expired(&far), "{far:?}");
                }
            }
        }
    }
}
