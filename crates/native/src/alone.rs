//! # Locks without the `lock` prefix in a process with one thread
//!
//! Locks use this on x86-64: while the process has one thread, their instructions have no `lock` prefix.
//!
//! **Problem.** An atomic read-modify-write costs some 20 cycles, even where nothing can come between its read and its
//! write. glibc avoids that cost in a process with one thread. So a single-threaded program would pay several times as
//! much for its mutexes under flashlock. **Idea.** glibc tells whether there is one thread: `__libc_single_threaded`,
//! since 2.32. The words of locks ([`Word32`](crate::Word32)) check it before each read-modify-write, and if so execute
//! the same instruction without the `lock` prefix. This works for every lock. Both forms leave the lock in the same
//! state, so a second thread may start, and end, between lock and unlock.
//!
//! ## Why that is right
//! 1. A read-modify-write that is *one instruction* is not divided by an interrupt, and so not by a signal handler,
//!    whatever the handler does: lock and unlock, post a semaphore, fork. Only another processor could come between,
//!    and only another thread of the process runs on one.
//! 2. Another thread starts with a call of `pthread_create`. That call writes the flag first, and is ordered before
//!    everything that the new thread does. At that time the calling thread is not between its check of the flag and the
//!    instruction, unless a signal handler makes the call, which POSIX forbids.
//! 3. The flag may become true again when the other threads have ended *and* were joined (no glibc up to 2.36 does so).
//!    Then this thread sees what they wrote.
//! 4. Only [`hand_back`] is two instructions, a load and a store. Its caller holds the lock. So a handler that runs in
//!    between can at most mark the word to say that a thread sleeps on it. If that thread gave up before the handler
//!    returned, the mark does not matter. If it still sleeps, it is another thread, so the flag says so after the
//!    store.
//!
//! ## What is not covered
//! glibc does not know of threads made by a raw `clone`; its own mutexes have the same limit. The same holds for
//! objects that are process-private by their type, but in memory that processes share. Spinlocks are always atomic,
//! because nothing says whether their memory is shared
//! ([`Word::compare_exchange_between_processes`](flashlock_locks::machine::Word::compare_exchange_between_processes)).
//!
//! Such instructions exist only on x86-64. Elsewhere a process never counts as alone.

use core::ffi::c_void;
use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32,
    Ordering::{Relaxed, Release},
};

/// The flag's target while glibc's flag is unknown: not alone.
static UNKNOWN: AtomicU8 = AtomicU8::new(0);
/// glibc's flag, or [`UNKNOWN`].
static FLAG: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const UNKNOWN).cast_mut());

/// Whether the process certainly has only one thread.
///
/// Relaxed: the flag was written by this thread, or before it started (see above). Written in assembly for two reasons:
/// the compiler would look up the address of [`FLAG`] in a table, although it is at a fixed distance; and it would load
/// the byte before comparing it.
#[inline(always)]
pub fn is_alone() -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads `FLAG`, which only ever points to `UNKNOWN` or to glibc's flag, a byte that lives as long as glibc;
    // then reads that byte.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + {flag}]",
            "cmp byte ptr [{at}], 0",
            "je {company}",
            at = out(reg) _,
            flag = sym FLAG,
            company = label { return false },
            options(nostack, readonly),
        );
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Asks glibc where its flag is. Call it at load time. Before that, and if glibc has no flag, no process counts as
/// alone.
pub fn prepare() {
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    // SAFETY: the name ends in NUL.
    let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    if !found.is_null() {
        FLAG.store(found.cast(), Relaxed);
    }
}

/// The instructions without the prefix. Each is also a compiler barrier.
#[cfg(target_arch = "x86_64")]
mod instructions {
    use core::arch::asm;

    use super::*;

    /// `current -> new`; the error is the value that the word holds instead.
    #[inline(always)]
    pub(crate) fn compare_exchange(word: &AtomicU32, current: u32, new: u32) -> Result<u32, u32> {
        let seen: u32;
        // SAFETY: the word is readable and writable. No other thread runs (`is_alone`), so this is as good as an
        // atomic.
        unsafe {
            asm!(
                "cmpxchg dword ptr [{word}], {new:e}",
                word = in(reg) word.as_ptr(),
                new = in(reg) new,
                inout("eax") current => seen,
                options(nostack),
            );
        }
        if seen == current { Ok(seen) } else { Err(seen) }
    }

    /// Adds `value`; returns what the word held before.
    #[inline(always)]
    pub(crate) fn fetch_add(word: &AtomicU32, value: u32) -> u32 {
        let seen: u32;
        // SAFETY: as above.
        unsafe {
            asm!(
                "xadd dword ptr [{word}], {value:e}",
                word = in(reg) word.as_ptr(),
                value = inout(reg) value => seen,
                options(nostack),
            );
        }
        seen
    }
}

/// Never called.
#[cfg(not(target_arch = "x86_64"))]
mod instructions {
    use core::sync::atomic::Ordering::{AcqRel, Acquire};

    use super::*;

    pub(crate) fn compare_exchange(word: &AtomicU32, current: u32, new: u32) -> Result<u32, u32> {
        word.compare_exchange(current, new, AcqRel, Acquire)
    }

    pub(crate) fn fetch_add(word: &AtomicU32, value: u32) -> u32 {
        word.fetch_add(value, AcqRel)
    }
}

pub(crate) use instructions::{compare_exchange, fetch_add};

/// Replaces what the word holds by `f` of it; returns what it held. (An exchange is locked even without the prefix.)
#[inline(always)]
pub(crate) fn fetch_update(word: &AtomicU32, f: impl Fn(u32) -> u32) -> u32 {
    let mut seen = word.load(Relaxed);
    loop {
        match compare_exchange(word, seen, f(seen)) {
            Ok(before) => return before,
            Err(now) => seen = now, // A signal handler changed it.
        }
    }
}

/// Writes `free`. Returns whether the word held more than `held`, or may have (4 above). Two instructions, because the
/// next acquisition would have to wait for the read of a single one.
#[inline(always)]
pub(crate) fn hand_back(word: &AtomicU32, free: u32, held: u32) -> bool {
    let seen = word.load(Relaxed);
    word.store(free, Release);
    seen > held || !is_alone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_do_what_the_atomic_ones_do() {
        let word = AtomicU32::new(5);
        assert_eq!((compare_exchange(&word, 5, 7), word.load(Relaxed)), (Ok(5), 7));
        assert_eq!((compare_exchange(&word, 5, 9), word.load(Relaxed)), (Err(7), 7));
        assert_eq!((fetch_add(&word, u32::MAX), word.load(Relaxed)), (7, 6));
        assert_eq!((fetch_update(&word, |seen| seen | 9), word.load(Relaxed)), (6, 15));
    }

    /// The test process has more than one thread.
    #[test]
    fn whoever_has_company_is_not_alone() {
        prepare();
        std::thread::spawn(|| assert!(!is_alone())).join().unwrap();
        assert!(!is_alone());
        let word = AtomicU32::new(1);
        assert!(hand_back(&word, 0, 2), "with company, somebody may sleep");
    }
}
