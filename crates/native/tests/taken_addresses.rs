//! A program that has mapped zeroed pages at every possible address of a registry, before the first lock.

use flashlock_native::{pool, registry, thread};

/// How often the thread has slept so far.
fn naps() -> i64 {
    // SAFETY: all-zero is a valid value, and it is writable.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// A start that waits for another thread sleeps more often than this.
const FEW_NAPS: i64 = 100;

#[test]
fn whoever_has_the_addresses_does_not_delay_the_start() {
    for (i, at) in registry::AT.into_iter().enumerate() {
        // Some mappings at the address, some around it, some larger than a registry.
        let (from, pages) = [(at, 1), (at - 4096, 3), (at, 1024), (at - 4096, 2)][i % 4];
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let prot = libc::PROT_READ | if i % 2 == 0 { libc::PROT_WRITE } else { 0 };
        // SAFETY: a fresh mapping, which replaces nothing.
        let mapped = unsafe { libc::mmap(from as *mut _, pages * 4096, prot, flags, -1, 0) };
        assert_eq!(mapped as usize, from);
    }
    let naps_during = |work: &dyn Fn()| {
        let before = naps();
        work();
        naps() - before
    };
    let start = naps_during(&|| assert!(!registry::is_shared(), "all addresses are taken"));
    assert!(start < FEW_NAPS, "{start} naps");
    // The bug that this would find: zeroed memory was taken for a registry that is being made, and waited for. Each
    // address was looked at a thousand times, with a nap in between.
    let waiting = || (0..4 * FEW_NAPS).for_each(|_| std::thread::sleep(core::time::Duration::from_millis(1)));
    assert!(naps_during(&waiting) >= FEW_NAPS, "waiting is not noticed");
    // SAFETY: it is given back at once.
    thread::give_node(unsafe { thread::take_node() });
    assert_eq!(pool::size(), 1);
}
