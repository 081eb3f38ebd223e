//! Stacks of loom's threads are used again.
//!
//! For each execution, loom makes its threads anew, some thirty thousand in a second. Each gets a stack that is mapped,
//! receives a guard page, and is unmapped at the end. The kernel's part in that, with the page faults of new stacks,
//! took as long as all that loom checks. So in this program the three calls go through the functions below, which keep
//! the stacks. All other mappings go to the kernel unchanged.

use std::cell::Cell;
use std::ptr;

use libc::{c_int, c_void, off_t, size_t};

/// How many a thread keeps: models have up to five threads.
const KEPT: usize = 16;

/// A mapping: where it begins, and its bytes. No bytes: there is none.
type Mapping = (usize, usize);

thread_local! {
    /// Stacks that are free.
    static FREE: [Cell<Mapping>; KEPT] = const { [const { Cell::new((0, 0)) }; KEPT] };
    /// A stack that has just been handed out again, and already has its guard page.
    static GUARDED: Cell<usize> = const { Cell::new(0) };
    /// The size of the stacks.
    static SIZE: Cell<usize> = const { Cell::new(0) };
}

/// Whether the arguments of `mmap` ask for a new stack.
fn is_stack(address: *mut c_void, flags: c_int) -> bool {
    address.is_null() && flags & libc::MAP_STACK != 0 && flags & libc::MAP_ANONYMOUS != 0
}

/// A free stack of that size.
fn take(size: usize) -> Option<usize> {
    SIZE.set(size);
    let found = FREE.with(|free| free.iter().find(|kept| kept.get().1 == size).map(|kept| kept.replace((0, 0))));
    found.map(|(address, _)| address)
}

/// Whether the mapping is kept for a next thread: it is a stack, and there is room.
fn keep(address: usize, size: usize) -> bool {
    size != 0
        && size == SIZE.get()
        && FREE.with(|free| free.iter().find(|kept| kept.get().1 == 0).map(|kept| kept.set((address, size))).is_some())
}

/// `mmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    if let Some(kept) = is_stack(address, flags).then(|| take(size)).flatten() {
        GUARDED.set(kept);
        return ptr::with_exposed_provenance_mut(kept);
    }
    // SAFETY: the caller's arguments, which are its affair.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, address, size, protection, flags, file, offset) };
    ptr::with_exposed_provenance_mut(mapped as usize)
}

/// `mprotect(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(address: *mut c_void, size: size_t, protection: c_int) -> c_int {
    if protection == libc::PROT_NONE && GUARDED.replace(0) == address.addr() && !address.is_null() {
        return 0;
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_mprotect, address, size, protection) as c_int }
}

/// `munmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, size: size_t) -> c_int {
    if keep(address.addr(), size) {
        return 0;
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_munmap, address, size) as c_int }
}

/// A stack that was kept is given out again with its guard page, and another size is not.
#[test]
fn are_used_again() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    let new = |size| {
        // SAFETY: a new mapping.
        unsafe { mmap(ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
    };
    let stack = new(1 << 16);
    // SAFETY: a mapping of this test's, its guard page, and its end.
    unsafe {
        assert_eq!(mprotect(stack, 4096, libc::PROT_NONE), 0);
        assert_eq!(munmap(stack, 1 << 16), 0);
    }
    let again = new(1 << 16);
    assert_eq!(again, stack);
    let other = new(1 << 17);
    assert_ne!(other, stack);
    // SAFETY: as above; nothing else is there.
    unsafe {
        assert_eq!(munmap(again, 1 << 16), 0, "the kernel takes what is of another size now");
        assert_eq!(munmap(other, 1 << 17), 0);
    }
}
