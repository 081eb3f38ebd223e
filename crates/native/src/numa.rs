//! # The NUMA node and CPU of a thread
//!
//! Lock paths call [`node`] on every contended acquisition, so it must be cheap. Its sources, in order of preference:
//!
//! - on a machine with one NUMA node, the answer is 0;
//! - the thread's rseq area (0.3 ns), if the kernel is new enough to keep the number there and say so;
//! - `rdpid`, which reads it from a register that Linux sets (2 ns);
//! - a system call.
//!
//! `FLASHLOCK_TOPOLOGY=NODESxCORESxSMT` imagines a machine: threads are assigned to its nodes round-robin. So NUMA
//! paths can be exercised on any computer.

use core::sync::atomic::{
    AtomicIsize, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{sys, thread};

const ONE_NODE: u32 = 0;
const VIRTUAL: u32 = 1;
const RSEQ: u32 = 2;
const RDPID: u32 = 3;
const KERNEL: u32 = 4;

static SOURCE: AtomicU32 = AtomicU32::new(ONE_NODE);
static CPU_SOURCE: AtomicU32 = AtomicU32::new(KERNEL);
static NODES: AtomicU32 = AtomicU32::new(1);
/// Offset of the rseq area from the thread pointer.
static RSEQ_AT: AtomicIsize = AtomicIsize::new(0);

/// The entry of the auxiliary vector that says how much of the rseq area the kernel fills.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
/// Offset of `cpu_id` in the rseq area.
const RSEQ_CPU: usize = 4;
/// Offset of `node_id` in it, in newer kernels …
const RSEQ_NODE: usize = 20;
/// … and its end.
const RSEQ_NODE_END: libc::c_ulong = 24;
/// Mask of the CPU's number in what `rdpid` reads …
const RDPID_CPU: u32 = (1 << RDPID_NODE) - 1;
/// … and the lowest bit of the node's number.
const RDPID_NODE: u32 = 12;

/// The calling thread's NUMA node.
#[inline]
pub fn node() -> u32 {
    match SOURCE.load(Acquire) {
        ONE_NODE => 0,
        VIRTUAL => thread::place() % NODES.load(Relaxed),
        RSEQ => rseq_word::<RSEQ_NODE>(),
        RDPID => rdpid() >> RDPID_NODE,
        _ => kernel().1,
    }
}

/// Whether the machine is imagined.
pub(crate) fn is_imagined() -> bool {
    SOURCE.load(Acquire) == VIRTUAL
}

/// The number of NUMA nodes that locks assume.
pub fn nodes() -> u32 {
    NODES.load(Relaxed)
}

/// The source that [`node`] uses, in words.
pub fn source() -> &'static str {
    match SOURCE.load(Relaxed) {
        ONE_NODE => "one node",
        VIRTUAL => "FLASHLOCK_TOPOLOGY (imagined nodes, assigned to threads in turn)",
        RSEQ => "rseq area",
        RDPID => "rdpid",
        _ => "getcpu",
    }
}

/// Selects the source for [`node`]. Call it once, outside lock paths. Before that every thread is on node 0.
pub fn prepare(virtual_nodes: Option<u32>) {
    if let Some(nodes) = virtual_nodes {
        NODES.store(nodes.max(1), Relaxed);
        SOURCE.store(VIRTUAL, Release);
        return;
    }
    let nodes = online_nodes();
    NODES.store(nodes, Relaxed);
    if nodes > 1 {
        SOURCE.store(best_source(), Release);
    }
}

fn best_source() -> u32 {
    // SAFETY: getauxval reads the process's own vector.
    let filled = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    if filled >= RSEQ_NODE_END && find_rseq() {
        return RSEQ;
    }
    if has_rdpid() { RDPID } else { KERNEL }
}

/// Whether the kernel fills the threads' rseq areas; if so, sets their offset.
fn find_rseq() -> bool {
    if cfg!(not(target_arch = "x86_64")) {
        return false;
    }
    // SAFETY: looks up symbols; the names are C strings.
    let (at, size) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>(),
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>(),
        )
    };
    // SAFETY: glibc exports both as constants of these types; size 0 means that rseq was not registered.
    let found = !at.is_null() && !size.is_null() && unsafe { *size } > 0;
    if found {
        // SAFETY: as above.
        RSEQ_AT.store(unsafe { *at }, Relaxed);
    }
    found
}

/// The CPU that the calling thread runs on. Call [`prepare_cpu`] first.
pub(crate) fn cpu() -> u32 {
    cheap_cpu().unwrap_or_else(|| kernel().0)
}

/// Like [`cpu`], if that needs no system call.
#[inline]
pub(crate) fn cheap_cpu() -> Option<u32> {
    match CPU_SOURCE.load(Acquire) {
        RSEQ => Some(rseq_word::<RSEQ_CPU>()),
        RDPID => Some(rdpid() & RDPID_CPU),
        _ => None,
    }
}

/// Selects the source for [`cpu`].
pub(crate) fn prepare_cpu() {
    let source = match find_rseq() {
        true => RSEQ,
        false if has_rdpid() => RDPID,
        false => KERNEL,
    };
    CPU_SOURCE.store(source, Release);
}

/// A word of the thread's rseq area.
#[cfg(target_arch = "x86_64")]
#[inline]
fn rseq_word<const OFFSET: usize>() -> u32 {
    let word: u32;
    // SAFETY: the thread's rseq area is registered with the kernel for the thread's life; it has at least 32 bytes.
    unsafe {
        core::arch::asm!(
            "mov {word:e}, fs:[{at} + {offset}]",
            at = in(reg) RSEQ_AT.load(Relaxed),
            offset = const OFFSET,
            word = out(reg) word,
            options(nostack, readonly, preserves_flags),
        );
    }
    word
}

#[cfg(not(target_arch = "x86_64"))]
fn rseq_word<const OFFSET: usize>() -> u32 {
    unreachable!("no rseq area was found")
}

#[cfg(target_arch = "x86_64")]
fn has_rdpid() -> bool {
    core::arch::x86_64::__cpuid(0).eax >= 7 && core::arch::x86_64::__cpuid_count(7, 0).ecx & (1 << 22) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_rdpid() -> bool {
    false
}

/// Linux keeps `node << 12 | cpu` in the register that `rdpid` reads.
#[cfg(target_arch = "x86_64")]
fn rdpid() -> u32 {
    let value: u64;
    // SAFETY: used only if CPUID says that the instruction exists.
    unsafe { core::arch::asm!("rdpid {}", out(reg) value, options(nostack, nomem, preserves_flags)) };
    value as u32
}

#[cfg(not(target_arch = "x86_64"))]
fn rdpid() -> u32 {
    unreachable!("there is no such instruction")
}

/// The CPU and the NUMA node, by system call.
fn kernel() -> (u32, u32) {
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: both are writable.
    unsafe { sys::syscall(libc::SYS_getcpu, [&raw mut cpu as usize, &raw mut node as usize, 0, 0, 0, 0]) };
    (cpu, node)
}

/// One plus the highest online NUMA node, from `/sys`, without allocating; 1 if it cannot be read.
fn online_nodes() -> u32 {
    let mut text = [0; 256];
    let text = sys::read(c"/sys/devices/system/node/online", &mut text);
    last_number(text).map_or(1, |highest| highest + 1)
}

/// The last number of a list like `0-3,7`.
pub(crate) fn last_number(text: &[u8]) -> Option<u32> {
    let digits = text.split(|byte| !byte.is_ascii_digit()).rfind(|part| !part.is_empty())?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_know_the_cpu() {
        let here = |cpu: fn() -> u32| (0..1000).any(|_| kernel().0 == cpu());
        prepare_cpu();
        assert!(here(cpu), "never the kernel's answer");
        if has_rdpid() {
            assert!(here(|| rdpid() & RDPID_CPU));
        }
    }

    #[test]
    fn the_highest_node_is_the_last_in_the_list() {
        assert_eq!(last_number(b"0\n"), Some(0));
        assert_eq!(last_number(b"0-3\n"), Some(3));
        assert_eq!(last_number(b"0-3,7\n"), Some(7));
        assert_eq!(last_number(b"\n"), None);
    }

    #[test]
    fn all_ways_agree_on_this_machine() {
        if nodes() == 1 && online_nodes() == 1 {
            assert_eq!(kernel().1, 0);
            if has_rdpid() {
                assert_eq!(rdpid() >> RDPID_NODE, 0);
            }
        }
    }
}
