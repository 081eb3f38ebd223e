//! # UMONITOR and UMWAIT
//!
//! x86 instructions to wait for a change of a cache line without polling it; a waiter uses them with `wait=umwait`.
//! (Intel's manual, volume 2: WAITPKG; in Tremont, Alder Lake, Sapphire Rapids and later.) UMONITOR arms the CPU with
//! the line of an address. UMWAIT then rests until the line is written, an interrupt arrives, the time stamp counter
//! reaches a given value, or the system's limit is reached (`/sys/devices/system/cpu/umwait_control/max_time`). It may
//! also return for no reason. The thread keeps its CPU: only the core's other hardware threads and the power
//! consumption benefit.
//!
//! **No change is missed.** UMONITOR is ordered as a load. So the load of the word after it sees what was written
//! before the line was watched, and any write after that load ends the rest.
//!
//! **How deep.** C0.1, the lighter of the two states. Leaving it is part of each hand-off. A waiter that is served
//! within the spin budget (5 to 50 µs) does not rest long enough for C0.2 to pay. A waiter that waits longer sleeps in
//! the kernel, which has deeper states.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Whether this CPU has the instructions; [`UNKNOWN`] until the first query.
static PRESENT: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const ABSENT: u32 = 1;
const THERE: u32 = 2;

/// UMWAIT's operand for C0.1.
pub const LIGHT: u32 = 1;

/// Whether this CPU has the instructions. (The CPU is asked only once: under a hypervisor that takes a microsecond or
/// more.)
#[inline]
pub fn is_there() -> bool {
    match PRESENT.load(Relaxed) {
        UNKNOWN => ask(),
        seen => seen == THERE,
    }
}

/// Relaxed, like the load: every thread that asks gets the same answer.
#[cold]
fn ask() -> bool {
    let there = cpu_says();
    PRESENT.store(if there { THERE } else { ABSENT }, Relaxed);
    there
}

/// CPUID leaf 7, ECX bit 5.
#[cfg(target_arch = "x86_64")]
fn cpu_says() -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & (1 << 5) != 0
}

/// If the word still holds `seen`, rests until the word's line changes or the counter reaches `until`. It may return
/// earlier.
///
/// # Safety
/// The CPU has the instructions ([`is_there`]).
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn rest(word: &AtomicU32, seen: u32, until: u64) {
    // SAFETY: callers guarantee the instructions; the address is that of a live word. It is only watched: nothing
    // is accessed. (Not `nomem`: the load of the word must stay after it.)
    unsafe {
        core::arch::asm!("umonitor {word}", word = in(reg) word.as_ptr(), options(nostack, preserves_flags));
    }
    // Relaxed: it only decides whether to rest; the caller looks again.
    if word.load(Relaxed) != seen {
        return;
    }
    // SAFETY: callers guarantee the instructions; it changes no register except the carry flag.
    unsafe {
        core::arch::asm!("umwait {light:e}", light = in(reg) LIGHT,
            in("edx") (until >> 32) as u32, in("eax") until as u32, options(nostack));
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_says() -> bool {
    false
}

/// # Safety
/// Not to be called: there are no such instructions.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn rest(_: &AtomicU32, _: u32, _: u64) {}
