//! # Clocks
//!
//! Lock paths ask for the time by [`now`], in nanoseconds of `CLOCK_MONOTONIC`. A system call costs 100 ns or more, and
//! libc's `clock_gettime` may be interposed by the program (and may then lock a mutex), so the time stamp counter is used where
//! it is invariant. Its rate is measured on the side: the first reading remembers both clocks, and a reading at least
//! [`SETTLE_NS`] later computes the rate, to a few parts in ten thousand. That is good enough for intervals, and not for
//! points in time: deadlines are made from, and compared with, the kernel's clocks.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flashlock_locks::machine::{Clock, Deadline};

use crate::sys;

/// How long the counter's rate is measured.
const SETTLE_NS: u64 = 5_000_000;
const NS_PER_SEC: u64 = 1_000_000_000;

static BASE_NS: AtomicU64 = AtomicU64::new(0);
static BASE_TICKS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per tick, 32.32 fixed point; 0 while it is not known; [`NO_COUNTER`] if there is no counter to trust.
static RATE: AtomicU64 = AtomicU64::new(0);
const NO_COUNTER: u64 = u64::MAX;

/// Nanoseconds of a clock that never jumps.
#[inline]
pub fn now() -> u64 {
    match RATE.load(Relaxed) {
        0 => calibrate(),
        NO_COUNTER => kernel_now(libc::CLOCK_MONOTONIC),
        rate => {
            let ticks = ticks().wrapping_sub(BASE_TICKS.load(Relaxed));
            BASE_NS.load(Relaxed) + ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
        }
    }
}

/// The kernel's time, which is also used as long as the rate is not known.
///
/// Races are harmless: the bases are written once, by the thread that wins `BASE_NS`, before anybody can compute a rate that
/// is not discarded (`BASE_TICKS` is 0 until then).
#[cold]
fn calibrate() -> u64 {
    if !counter_is_invariant() {
        RATE.store(NO_COUNTER, Relaxed);
        return kernel_now(libc::CLOCK_MONOTONIC);
    }
    let ticks = ticks();
    let now = kernel_now(libc::CLOCK_MONOTONIC);
    let (base_ns, base_ticks) = (BASE_NS.load(Relaxed), BASE_TICKS.load(Relaxed));
    if base_ns == 0 {
        if BASE_NS.compare_exchange(0, now, Relaxed, Relaxed).is_ok() {
            BASE_TICKS.store(ticks, Relaxed);
        }
    } else if base_ticks != 0 && now > base_ns + SETTLE_NS && ticks > base_ticks {
        let rate = (u128::from(now - base_ns) << 32) / u128::from(ticks - base_ticks);
        RATE.store((rate as u64).clamp(1, NO_COUNTER - 1), Relaxed);
    }
    now
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

/// The point of the monotonic clock so many microseconds from now, or `other` if that comes first.
pub fn sooner(micros: u32, other: Option<Deadline>) -> Deadline {
    let at = kernel_now(libc::CLOCK_MONOTONIC) + u64::from(micros) * 1000;
    let soon = Deadline { clock: Clock::Monotonic, sec: (at / NS_PER_SEC) as i64, nsec: (at % NS_PER_SEC) as u32 };
    let Some(other) = other else { return soon };
    let other_is_sooner = match other.clock {
        Clock::Monotonic => (other.sec, other.nsec) < (soon.sec, soon.nsec),
        Clock::Realtime => {
            let now = kernel_time(libc::CLOCK_REALTIME);
            // In 128 bits: any second that POSIX allows is a point in the past or in the future, however far.
            let left = (i128::from(other.sec) - i128::from(now.tv_sec)) * i128::from(NS_PER_SEC)
                + (i128::from(other.nsec) - i128::from(now.tv_nsec));
            left < i128::from(micros) * 1000
        }
    };
    if other_is_sooner { other } else { soon }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_runs_at_the_kernels_rate() {
        now();
        std::thread::sleep(std::time::Duration::from_millis(20));
        now();
        let (here, kernel) = (now(), kernel_now(libc::CLOCK_MONOTONIC));
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (here, kernel) = (now() - here, kernel_now(libc::CLOCK_MONOTONIC) - kernel);
        assert!(here / 2 < kernel && kernel / 2 < here, "{here} {kernel}");
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
                    assert!(soon != far && soon.clock == Clock::Monotonic && expired(&soon), "{far:?}");
                    assert!(!expired(&far), "{far:?}");
                }
            }
        }
    }
}
