//! # Futex readers-writer lock: one counter, on which all waiters sleep
//!
//! The simplest readers-writer lock of the project: one counter and two flags. Take it as a baseline to compare others
//! with.
//!
//! **Problem.** A readers-writer lock for any number of threads should cost one atomic operation without contention,
//! and take a page of code. **Idea.** There is a counter of readers, and flags that say whether readers or writers
//! sleep. Readers enter whenever no writer holds the lock. Sleepers are woken when they may go on, and try again.
//! **Source.** Courtois, Heymans & Parnas, CACM 1971, problem 1; also problem 2, if the program prefers writers; the
//! futex as in Drepper, *Futexes Are Tricky*, 2011. glibc did the same before 2.25.
//!
//! **Use it** when you want to know what the simplest readers-writer lock does. **Rather not** when readers are many
//! (they all write one counter), or writers must not starve.
//!
//! **Departures.**
//! 1. One lock solves both of the paper's problems: readers look at `writers` only where the program prefers writers.
//! 2. The paper's semaphores are one word to sleep on; a thread that is woken tries again.
//!
//! ```text
//!   readers ──> R  R  R ──┐
//!                         ├──> count: 3 readers, WAITING ──> asleep on it: W  W       woken when the last reader goes
//!   writers ──> (0 -> W) ─┘
//! ```
//!
//! ## State: 8 bytes
//! | word | bits | meaning |
//! |---|---|---|
//! | `count` | 0 WRITER | held for writing |
//! | | 1 WAITING | a writer may sleep on `count` |
//! | | 2 ASLEEP | a reader may sleep on `count` |
//! | | 3… | readers |
//! | `writers` | | how many writers wait; read by readers that stay out because of waiting writers |
//!
//! ## Invariants
//! 1. Only the thread that has changed `count` from no WRITER and no readers to WRITER holds the lock for writing.
//! 2. A thread sleeps on `count` only after its flag was set, while `count` is as it was then.
//! 3. A thread that makes the lock free clears both flags, and wakes the threads that they stood for: all sleepers if
//!    readers sleep, else one writer. A writer that acquires after it has waited sets WAITING: others may still sleep,
//!    and must then be woken by its release.
//! 4. A writer that gives up first stops being counted in `writers`. Then it clears the flags, and wakes the threads
//!    that they stood for. A reader looks at `writers` after it has set its flag. So one of the two sees the other.
//! 5. After the release only the *address* of the word is used, for the wake-up.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `count` CAS that acquires | Acquire | the releases | sees the last section |
//! | `count` CAS that releases | Release | both | hands over this section |
//! | `count` or, by a reader; `count` and, by a writer that gives up | AcqRel | each other | invariant 4 |
//! | `count` or, by a writer; `writers` | Relaxed | – | order nothing, except by invariant 4 |
//!
//! **Cannot:** be fair. If readers are preferred, which is the default, they make writers starve; if writers are
//! preferred, readers starve.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::{Deadline, Machine, Unparked, Word};
use crate::parts::counted::{park, wake};
use crate::rw::{RawRwLock, Reader, Refusal, Writer};

const WRITER: u32 = 1;
const WAITING: u32 = 1 << 1;
const ASLEEP: u32 = 1 << 2;
const READER: u32 = 1 << 3;
const FULL: u32 = 1 << 31;

/// The futex readers-writer lock.
pub struct FutexRw;

/// The state of one lock.
#[repr(C)]
pub struct FutexRwState<M: Machine> {
    /// Readers and flags.
    pub count: M::Word,
    /// How many writers wait.
    pub writers: M::Word,
}

crate::zeroed!(FutexRwState<M> { count, writers });

impl<M: Machine> FutexRwState<M> {
    /// Whether a reader that treats writers in this way may come in.
    fn admits(&self, count: u32, how: Reader) -> bool {
        count & WRITER == 0 && (how != Reader::Behind || self.writers.load(Relaxed) == 0)
    }

    /// (readers) -> (readers + 1)
    fn admit_reader(&self, how: Reader) -> Result<(), Refusal> {
        let mut seen = self.count.load(Relaxed);
        loop {
            if !self.admits(seen, how) {
                return Err(Refusal::Busy);
            } else if seen >= FULL {
                return Err(Refusal::Overflow);
            }
            match self.count.compare_exchange(seen, seen + READER, Acquire, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// (no readers, flags) -> (WRITER, flags and `flag`)
    fn admit_writer(&self, flag: u32) -> bool {
        let mut seen = self.count.load(Relaxed);
        while is_free(seen) {
            match self.count.compare_exchange(seen, seen | WRITER | flag, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// (holders, flags) -> (one holder less, flags), or (free, no flags), and wakes the threads that the flags stood
    /// for (invariant 3).
    #[inline]
    fn release(&self, mut seen: u32) {
        let address: *const M::Word = &raw const self.count;
        loop {
            let left = if seen & WRITER != 0 { seen & !WRITER } else { seen.wrapping_sub(READER) };
            let new = if is_free(left) { 0 } else { left };
            match self.count.compare_exchange(seen, new, Release, Relaxed) {
                Ok(_) if left != new => return wake_waiters::<M>(address, left),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    #[cold]
    fn read_slow(&self, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        M::trace(Event::RwContended);
        loop {
            match self.admit_reader(how) {
                Err(Refusal::Busy) => {}
                ended => return ended,
            }
            let seen = self.count.fetch_or(ASLEEP, AcqRel) | ASLEEP;
            if self.admits(seen, how) {
                continue;
            }
            if park::<M>(&self.count, seen, until) == Unparked::TimedOut {
                return self.admit_reader(how).map_err(|_| Refusal::TimedOut);
            }
        }
    }

    #[cold]
    fn write_slow(&self, until: Option<Deadline>) -> Result<(), Refusal> {
        M::trace(Event::RwContended);
        self.writers.fetch_add(1, Relaxed);
        let mut late = false;
        while !self.admit_writer(WAITING) {
            let seen = self.count.fetch_or(WAITING, Relaxed) | WAITING;
            if late {
                self.stop_waiting();
                return Err(Refusal::TimedOut);
            }
            if !is_free(seen) {
                late = park::<M>(&self.count, seen, until) == Unparked::TimedOut;
            }
        }
        self.writers.fetch_add(1u32.wrapping_neg(), Relaxed);
        Ok(())
    }

    /// A writer gives up: readers that stay out because of it must not stay out for ever. Other waiting writers set
    /// their flag again.
    fn stop_waiting(&self) {
        self.writers.fetch_add(1u32.wrapping_neg(), Relaxed);
        let seen = self.count.fetch_and(!(WAITING | ASLEEP), AcqRel);
        wake_waiters::<M>(&raw const self.count, seen | ASLEEP);
    }
}

/// Whether no thread holds the lock.
fn is_free(count: u32) -> bool {
    count & WRITER == 0 && count < READER
}

/// Wakes the threads that the flags stood for.
#[cold]
fn wake_waiters<M: Machine>(address: *const M::Word, flags: u32) {
    wake::<M>(address, if flags & ASLEEP != 0 { u32::MAX } else { 1 });
}

// SAFETY: invariant 1, and a CAS that adds a reader finds no WRITER. It has no nodes.
unsafe impl<M: Machine> RawRwLock<M> for FutexRw {
    type State = FutexRwState<M>;

    const MOST_READERS: u32 = (FULL - READER) / READER;

    /// (no writer, and none waits) -> (readers + 1)
    #[inline]
    unsafe fn acquire_fast(state: &FutexRwState<M>) -> bool {
        let seen = state.count.load(Relaxed);
        let free = seen & (WRITER | WAITING) == 0 && seen < FULL;
        free && state.count.compare_exchange(seen, seen + READER, Acquire, Relaxed).is_ok()
    }

    unsafe fn acquire_read(state: &FutexRwState<M>, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        match state.admit_reader(how) {
            Err(Refusal::Busy) => state.read_slow(how, until),
            ended => ended,
        }
    }

    unsafe fn try_acquire_read(state: &FutexRwState<M>, how: Reader) -> Result<(), Refusal> {
        state.admit_reader(how)
    }

    #[inline]
    unsafe fn acquire_write(state: &FutexRwState<M>, _: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        match state.count.compare_exchange(0, WRITER, Acquire, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => state.write_slow(until),
        }
    }

    unsafe fn try_acquire_write(state: &FutexRwState<M>) -> bool {
        state.admit_writer(0)
    }

    #[inline]
    unsafe fn release(state: &FutexRwState<M>) {
        let seen = state.count.load(Relaxed);
        if !is_free(seen) {
            state.release(seen);
        }
    }

    unsafe fn is_written(state: &FutexRwState<M>) -> bool {
        state.count.load(Relaxed) & WRITER != 0
    }

    unsafe fn is_held(state: &FutexRwState<M>) -> bool {
        !is_free(state.count.load(Relaxed))
    }
}
