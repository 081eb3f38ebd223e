//! # UMONITOR and UMWAIT
//!
//! x86's way to wait for a change of a cache line without polling it (Intel's manual, volume 2: WAITPKG; in Tremont,
//! Alder Lake, Sapphire Rapids and later). UMONITOR arms the CPU with the line of an address; UMWAIT then rests until
//! the line is written, an interrupt comes, a point of the time stamp counter is reached, or the limit that the system
//! sets (`/sys/devices/system/cpu/umwait_control/max_time`). It may also return for no reason. The thread stays on its
//! CPU: only other hardware threads of the core, and power, gain by it.
//!
//! **No change is missed.** UMONITOR is ordered as a load, so the look at the word that follows it sees what was
//! written before the line was watched, and whatever is written after that look ends the rest.
//!
//! **How deep.** C0.1, the lighter of the two states: the way out of it is part of each hand-over, and waiters who are
//! served within the spin budget (5 to 50 µs) are not at rest for long enough that C0.2 would pay. Who waits for longer
//! sleeps in the kernel, which knows deeper states.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Whether this CPU has the instructions: [`UNKNOWN`] until somebody asks.
static PRESENT: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const ABSENT: u32 = 1;
const THERE: u32 = 2;

/// UMWAIT's operand for C0.1.
pub const LIGHT: u32 = 1;

/// Whether this CPU has the instructions. (Under a hypervisor the question takes a microsecond or more: it is asked
/// once.)
#[inline]
pub fn is_there() -> bool {
    match PRESENT.load(Relaxed) {
        UNKNOWN => ask(),
        seen => seen == THERE,
    }
}

/// Relaxed, like the load: whoever asks finds the same.
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

/// Rests until the word's line changes or the counter stands at `until`, if the word still holds `seen`; it may return
/// earlier.
///
/// # Safety
/// The CPU has the instructions ([`is_there`]).
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn rest(word: &AtomicU32, seen: u32, until: u64) {
    // SAFETY: the caller's; the address is that of a word that lives. It is an address to watch: nothing is accessed.
    // (Not `nomem`: the look at the word must stay behind it.)
    unsafe {
        core::arch::asm!("umonitor {word}", word = in(reg) word.as_ptr(), options(nostack, preserves_flags));
    }
    // Relaxed: only decides whether to rest; who returns looks again.
    if word.load(Relaxed) != seen {
        return;
    }
    // SAFETY: the caller's; it changes no register, but the carry flag.
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
