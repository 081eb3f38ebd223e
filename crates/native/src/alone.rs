//! # A process with one thread leaves the lock prefix out
//!
//! **Problem.** An atomic read-modify-write costs some 20 cycles, also where nobody can come between its read and its
//! write. glibc does without in a process that has one thread, so a program with one thread would pay several times
//! as much for its mutexes under us. **Idea.** glibc says whether it has one: `__libc_single_threaded`, since 2.32.
//! The words of locks ([`Word32`](crate::Word32)) look at it before each read-modify-write, and execute the same
//! instruction without the `lock` prefix. So it holds for every lock, and for the state that a lock is left in it
//! makes no difference which of the two was executed: a second thread may come between lock and unlock, and go.
//!
//! ## Why that is right
//! 1. A read-modify-write that is *one instruction* is not divided by an interrupt, so neither by a signal handler,
//!    whatever it does: takes and gives back locks, posts a semaphore, forks. Only another processor could come
//!    between, and only another thread of the process is on one.
//! 2. Another thread begins with a call of `pthread_create`, which writes the flag first, and is ordered before all
//!    that the new thread does. The thread that calls it is not between the look at the flag and the instruction
//!    then, unless a signal handler calls it, which POSIX forbids.
//! 3. The flag may become true again when the other threads have ended *and* were joined (no glibc does so up to
//!    2.36): what they wrote is seen then.
//! 4. [`hand_back`] alone is two instructions, a load and a store. Its caller holds the lock, so that a handler in
//!    between can at most mark the word as one that somebody sleeps on. One that gave up before the handler returned
//!    does not matter. One that sleeps still is another thread, so the flag says so after the store.
//!
//! ## Who is not counted
//! Threads made by a raw `clone` are unknown to glibc, whose own mutexes have the same limit; so have objects that
//! are private by their kind in memory that processes share. Spinlocks, whose memory says nothing of who shares it,
//! are always atomic
//! ([`Word::compare_exchange_between_processes`](flashlock_locks::machine::Word::compare_exchange_between_processes)).
//!
//! Elsewhere than on x86-64 such instructions do not exist, and nobody is alone.

use core::ffi::c_void;
use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32,
    Ordering::{Relaxed, Release},
};

/// What is pointed to as long as it is not known: not alone.
static UNKNOWN: AtomicU8 = AtomicU8::new(0);
/// glibc's flag, or [`UNKNOWN`].
static FLAG: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const UNKNOWN).cast_mut());

/// Whether the process certainly has one thread.
///
/// Relaxed: the flag was written by this thread, or before it began (see above). By hand, for two reasons: the
/// compiler would look up in a table where [`FLAG`] is, which is at a fixed distance; and it would load the byte to
/// compare it.
#[inline(always)]
pub fn is_alone() -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads `FLAG`, which only ever points to `UNKNOWN` or to glibc's flag, a byte that lives as long as glibc;
    // and reads that.
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

/// Asks glibc where its flag is. Called at load time; until then nobody is alone, and where glibc has none.
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

/// The instructions without the prefix. Each is a compiler's barrier, too.
#[cfg(target_arch = "x86_64")]
mod instructions {
    use core::arch::asm;

    use super::*;

    /// `current -> new`; the error is what the word holds instead.
    #[inline(always)]
    pub(crate) fn compare_exchange(word: &AtomicU32, current: u32, new: u32) -> Result<u32, u32> {
        let seen: u32;
        // SAFETY: the word is readable and writable. Nobody else is on a processor (`is_alone`), so this is as good as
        // an atomic.
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

    /// Adds, and returns what the word held.
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

/// `f` of what the word holds; what it held. (An exchange has the prefix even without it.)
#[inline(always)]
pub(crate) fn fetch_update(word: &AtomicU32, f: impl Fn(u32) -> u32) -> u32 {
    let mut seen = word.load(Relaxed);
    loop {
        match compare_exchange(word, seen, f(seen)) {
            Ok(before) => return before,
            Err(now) => seen = now, // A signal handler.
        }
    }
}

/// Writes `free`; whether the word held more than `held`, or may have (4 above). Two instructions, because the next
/// acquisition would have to wait for what a single one reads.
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

    /// The tests' own process has more threads than one.
    #[test]
    fn whoever_has_company_is_not_alone() {
        prepare();
        std::thread::spawn(|| assert!(!is_alone())).join().unwrap();
        assert!(!is_alone());
        let word = AtomicU32::new(1);
        assert!(hand_back(&word, 0, 2), "with company, somebody may sleep");
    }
}
