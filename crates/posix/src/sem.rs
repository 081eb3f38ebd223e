//! # The semantics of `sem_*`
//!
//! The semaphore functions that a program calls. Semaphores initialised here as private are ours; glibc serves all
//! others.
//!
//! ```text
//! sem_t (32 bytes)      ours                                      glibc's
//!  0                    the semaphore's word: the value, unless     value
//!                       a waiter is queued
//!  4                    [`MARK`]                                   waiters
//!  8                    0                                          0 private, else process-shared
//! 12                    0                                          –
//! 16                    the list, 12 bytes                         – (not initialised)
//! ```
//!
//! | semaphore | served by |
//! |---|---|
//! | initialised here as private | ours; the mark identifies it |
//! | process-shared, named | glibc |
//! | initialised by code that bypasses us | glibc |
//!
//! An unmarked semaphore is left to glibc in each call, so nothing else need be known about it. If the memory becomes a
//! semaphore that glibc initialises, glibc clears the mark: it counts waiters there. [`destroy`] clears it, too.
//!
//! Waits are cancellation points (`sem_wait` and `sem_timedwait` even if there is a permit). Like glibc's, they return
//! EINTR after a signal handler has run: they sleep in glibc's functions. Unlike with a mutex, an invalid `abstime` is
//! an error even if there is no need to wait, as in glibc.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Clock, Deadline, Handle, Machine};
use flashlock_locks::sem::{Ended, Entry, SemQueue, Semaphore, queue::MOST};
use flashlock_native::Word32;
use libc::{EAGAIN, EINTR, EINVAL, EOVERFLOW, ETIMEDOUT, clockid_t, sem_t, timespec};

use crate::cancel::{self, pthread_testcancel};
use crate::glibc;
use crate::mutex::{clock_of, deadline};

/// Marks a semaphore that [`init`] has initialised.
const MARK: u32 = 0x464c_5345;

/// Our view of a `sem_t`.
#[repr(C)]
struct Sem<M: Machine<Word = Word32>> {
    word: Word32,
    mark: AtomicU32,
    shared: AtomicU32,
    pad: AtomicU32,
    queue: SemQueue<M>,
    rest: AtomicU32,
}

const _: () = assert!(size_of::<Sem<flashlock_native::Native>>() == size_of::<sem_t>());
const _: () = assert!(offset_of!(Sem<flashlock_native::Native>, mark) == 4);
const _: () = assert!(offset_of!(Sem<flashlock_native::Native>, queue) == 16);

impl<M: Machine<Word = Word32>> Sem<M> {
    /// # Safety
    /// There is a `sem_t` at the address for as long as the reference is used.
    #[inline(always)]
    unsafe fn at<'a>(address: *mut sem_t) -> &'a Self {
        // SAFETY: callers guarantee the object. All fields are atomics, valid for any bytes.
        unsafe { &*address.cast::<Self>() }
    }

    /// The semaphore, if it is ours. Relaxed: the mark was written before any other thread could see the semaphore.
    #[inline(always)]
    fn ours(&self) -> Option<Semaphore<'_, M>> {
        // SAFETY: the mark says that they were made together; only this page touches them.
        (self.mark.load(Relaxed) == MARK).then(|| unsafe { Semaphore::new(&self.word, &self.queue) })
    }
}

/// Sets `errno` and returns -1.
#[cold]
fn fail(error: c_int) -> c_int {
    // SAFETY: `errno` is the calling thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Calls glibc's function, for a semaphore that is not ours.
#[cold]
unsafe fn left_to_glibc<M: Machine<Word = Word32>>(
    function: unsafe fn(*mut sem_t) -> c_int,
    address: *mut sem_t,
) -> c_int {
    M::trace(Event::GlibcSem);
    // SAFETY: callers guarantee it.
    unsafe { function(address) }
}

/// A wait in progress: everything needed to end it.
struct Waiting<'a, M: Machine<Word = Word32>> {
    semaphore: Semaphore<'a, M>,
    me: Handle,
}

/// Ends the wait of a cancelled thread, without losing a permit.
unsafe extern "C-unwind" fn cleanup<M: Machine<Word = Word32>>(arg: *mut c_void) {
    // SAFETY: `wait_slow` passes its own `Waiting`, whose frame is intact while this runs.
    let waiting = unsafe { &*arg.cast::<Waiting<'_, M>>() };
    cancel::awake(waiting.me);
    waiting.semaphore.cancel(waiting.me);
}

/// Waits, after no permit was found.
#[cold]
fn wait_slow<M: Machine<Word = Word32>>(semaphore: Semaphore<'_, M>, until: Option<Deadline>) -> c_int {
    // SAFETY: the handle goes to `wait_with`, or to `cancel` in `cleanup` if that does not return.
    let ended = match unsafe { semaphore.begin(until) } {
        Entry::Over(how) => how,
        Entry::Queued(me) => {
            let waiting = Waiting { semaphore, me };
            let arg = (&raw const waiting).cast_mut().cast::<c_void>();
            semaphore.wait_with(me, until, |word, expected| cancel::park(me, word, expected, until, cleanup::<M>, arg))
        }
    };
    match ended {
        Ended::Acquired => 0,
        Ended::TimedOut => fail(ETIMEDOUT),
        Ended::Interrupted => fail(EINTR),
    }
}

/// `sem_init`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn init<M: Machine<Word = Word32>>(
    address: *mut sem_t,
    shared: c_int,
    value: c_uint,
) -> c_int {
    if value > MOST {
        return fail(EINVAL);
    }
    let ours = shared == 0;
    // SAFETY: callers guarantee memory for a semaphore, which no thread uses yet.
    unsafe {
        if !ours {
            let result = glibc::sem_init(address, shared, value);
            if result == 0 {
                M::trace(Event::SemObject);
            }
            return result;
        }
        address.write_bytes(0, 1);
        let semaphore = Sem::<M>::at(address);
        semaphore.word.0.store(value, Relaxed);
        semaphore.mark.store(MARK, Relaxed);
    }
    0
}

/// `sem_wait`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn wait<M: Machine<Word = Word32>>(address: *mut sem_t) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let Some(semaphore) = Sem::<M>::at(address).ours() else {
            return left_to_glibc::<M>(glibc::sem_wait, address);
        };
        pthread_testcancel();
        if semaphore.try_wait() { 0 } else { wait_slow(semaphore, None) }
    }
}

/// `sem_trywait`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn trywait<M: Machine<Word = Word32>>(address: *mut sem_t) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let Some(semaphore) = Sem::<M>::at(address).ours() else {
            return left_to_glibc::<M>(glibc::sem_trywait, address);
        };
        if semaphore.try_wait() { 0 } else { fail(EAGAIN) }
    }
}

fn wait_until<M: Machine<Word = Word32>>(semaphore: Semaphore<'_, M>, until: Option<Deadline>) -> c_int {
    match until {
        None => fail(EINVAL),
        Some(_) if semaphore.try_wait() => 0,
        Some(_) => wait_slow(semaphore, until),
    }
}

/// `sem_timedwait`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn timedwait<M: Machine<Word = Word32>>(
    address: *mut sem_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let Some(semaphore) = Sem::<M>::at(address).ours() else {
            M::trace(Event::GlibcSem);
            return glibc::sem_timedwait(address, until);
        };
        let until = deadline(Clock::Realtime, until);
        if until.is_some() {
            pthread_testcancel();
        }
        wait_until(semaphore, until)
    }
}

/// `sem_clockwait`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn clockwait<M: Machine<Word = Word32>>(
    address: *mut sem_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let Some(semaphore) = Sem::<M>::at(address).ours() else {
            M::trace(Event::GlibcSem);
            return glibc::sem_clockwait(address, clock, until);
        };
        let Some(clock) = clock_of(clock) else { return fail(EINVAL) };
        wait_until(semaphore, deadline(clock, until))
    }
}

/// `sem_post`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn post<M: Machine<Word = Word32>>(address: *mut sem_t) -> c_int {
    // SAFETY: callers guarantee it. The semaphore may be freed once the permit is there; it is not accessed
    // afterwards.
    unsafe {
        let Some(semaphore) = Sem::<M>::at(address).ours() else {
            return left_to_glibc::<M>(glibc::sem_post, address);
        };
        if semaphore.post().is_ok() { 0 } else { fail(EOVERFLOW) }
    }
}

/// `sem_getvalue`: the permits; 0, and never less, if threads wait.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn getvalue<M: Machine<Word = Word32>>(address: *mut sem_t, value: *mut c_int) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let Some(semaphore) = Sem::<M>::at(address).ours() else {
            M::trace(Event::GlibcSem);
            return glibc::sem_getvalue(address, value);
        };
        *value = semaphore.value() as c_int;
    }
    0
}

/// `sem_destroy`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn destroy<M: Machine<Word = Word32>>(address: *mut sem_t) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let Some(semaphore) = Sem::<M>::at(address).ours() else {
            M::trace(Event::GlibcSem);
            return glibc::sem_destroy(address);
        };
        semaphore.destroy();
        Sem::<M>::at(address).mark.store(0, Relaxed);
    }
    0
}
