//! # Where a thread runs
//!
//! [`node`] is asked on every contended acquisition, so it must be cheap. In order of preference: a machine with one NUMA node
//! answers 0; the kernel keeps the number in the thread's rseq area (0.3 ns) if it is new enough to say so; `rdpid` reads it
//! from a register that Linux sets (2 ns); else the kernel is asked.
//!
//! `FLASHLOCK_TOPOLOGY=NODESxCORESxSMT` lays threads round-robin over the nodes of a machine that does not exist, so that NUMA
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
static NODES: AtomicU32 = AtomicU32::new(1);
/// Offset of the rseq area from the thread pointer.
static RSEQ_AT: AtomicIsize = AtomicIsize::new(0);

/// The auxiliary vector's entry for how much of the rseq area the kernel fills.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
/// The rseq area's `node_id` ends here.
const RSEQ_NODE_END: libc::c_ulong = 24;

/// The calling thread's NUMA node.
#[inline]
pub fn node() -> u32 {
    match SOURCE.load(Acquire) {
        ONE_NODE => 0,
        VIRTUAL => thread::place() % NODES.load(Relaxed),
        RSEQ => rseq_node(),
        RDPID => rdpid_node(),
        _ => kernel_node(),
    }
}

/// How many NUMA nodes the locks believe in.
pub fn nodes() -> u32 {
    NODES.load(Relaxed)
}

/// Which way [`node`] goes, in words.
pub fn source() -> &'static str {
    match SOURCE.load(Relaxed) {
        ONE_NODE => "one node",
        VIRTUAL => "FLASHLOCK_TOPOLOGY (virtual, threads round-robin)",
        RSEQ => "rseq area",
        RDPID => "rdpid",
        _ => "getcpu",
    }
}

/// Settles which way [`node`] goes. Called once, outside lock paths; until then every thread is on node 0.
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
    if cfg!(target_arch = "x86_64") && filled >= RSEQ_NODE_END {
        // SAFETY: looks a symbol up; the name is a C string.
        let (at, size) = unsafe {
            (
                libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>(),
                libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>(),
            )
        };
        // SAFETY: glibc exports both as constants of these types; size 0 means that rseq was not registered.
        if !at.is_null() && !size.is_null() && unsafe { *size } > 0 {
            // SAFETY: as above.
            RSEQ_AT.store(unsafe { *at }, Relaxed);
            return RSEQ;
        }
    }
    if has_rdpid() { RDPID } else { KERNEL }
}

#[cfg(target_arch = "x86_64")]
fn rseq_node() -> u32 {
    let node: u32;
    // SAFETY: the thread's rseq area is registered with the kernel for the thread's life, and has a `node_id` at byte 20.
    unsafe {
        core::arch::asm!(
            "mov {node:e}, fs:[{at} + 20]",
            at = in(reg) RSEQ_AT.load(Relaxed),
            node = out(reg) node,
            options(nostack, readonly, preserves_flags),
        );
    }
    node
}

#[cfg(not(target_arch = "x86_64"))]
fn rseq_node() -> u32 {
    kernel_node()
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
fn rdpid_node() -> u32 {
    let value: u64;
    // SAFETY: used only where CPUID says that the instruction exists.
    unsafe { core::arch::asm!("rdpid {}", out(reg) value, options(nostack, nomem, preserves_flags)) };
    (value >> 12) as u32
}

#[cfg(not(target_arch = "x86_64"))]
fn rdpid_node() -> u32 {
    kernel_node()
}

fn kernel_node() -> u32 {
    let mut node = 0u32;
    // SAFETY: `node` is writable; the CPU is not asked for.
    unsafe { sys::syscall(libc::SYS_getcpu, [0, &raw mut node as usize, 0, 0, 0, 0]) };
    node
}

/// One more than the highest NUMA node that is online, from `/sys`, without allocating; 1 if it cannot be read.
fn online_nodes() -> u32 {
    let path = c"/sys/devices/system/node/online";
    let mut text = [0u8; 256];
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: the path is a C string, `text` is writable, and the descriptor is this function's.
    let read = unsafe {
        let fd = sys::syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0]);
        if fd < 0 {
            return 1;
        }
        let read = sys::syscall(libc::SYS_read, [fd as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        sys::syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
        read
    };
    last_number(&text[..read.max(0) as usize]).map_or(1, |highest| highest + 1)
}

/// The last number of a list like `0-3,7`.
fn last_number(text: &[u8]) -> Option<u32> {
    let digits = text.split(|byte| !byte.is_ascii_digit()).rfind(|part| !part.is_empty())?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(kernel_node(), 0);
            if has_rdpid() {
                assert_eq!(rdpid_node(), 0);
            }
        }
    }
}
