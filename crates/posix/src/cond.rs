//! # The semantics of `pthread_cond_*`, with mutexes on a lock `L`
//!
//! The condition variable functions that a program calls when its mutexes are of the lock `L`.
//!
//! | condition variable | mutex | served by |
//! |---|---|---|
//! | private | ours | our queue; a broadcast moves its waiters to the mutex's queue |
//! | private | glibc's (robust, PI, …) | our queue; glibc serves the mutex, and the wait returns its EOWNERDEAD |
//! | process-shared | glibc's | glibc |
//! | process-shared | ours | glibc's condition variable; see `cond_shared` |
//!
//! Waits are cancellation points. The mutex is held again when cleanup handlers run. A signal that the cancelled thread
//! has received is passed to another waiter.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;

use flashlock_locks::cond::deferral::{leave, take_back};
use flashlock_locks::cond::{CondQueue, Defer, Morph, Outcome};
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Deadline, Handle, Machine, Unparked, Word as _};
use flashlock_locks::parts::adoption::{Chain, pass_baton};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::sem::Slept;
use flashlock_native::Word32;
use libc::{EBUSY, EINVAL, EPERM, ETIMEDOUT, clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};

use crate::cancel;
use crate::cond_shared;
use crate::glibc;
use crate::kind::{Kind, checks_owner, decode, is_plain};
use crate::layout::{COND_MONOTONIC, COND_SHARED, Cond, Mutex};
use crate::mutex::{clock_of, deadline, is_mine, is_mine_to_glibc, lock, lock_woken, name_holder, own, unlock};
use core::sync::atomic::Ordering::Relaxed;

/// A wait in progress: everything needed to end it.
struct Waiting<'a, M: Machine<Word = Word32>> {
    queue: &'a CondQueue<M>,
    mutex: *mut pthread_mutex_t,
    me: Handle,
}

/// Moves waiters to the queues of mutexes on `L`.
struct ToQueue<L, M>(PhantomData<(L, M)>);

// SAFETY: the chain goes to the lock.
unsafe impl<L: RawLock<M>, M: Machine<Word = Word32>> Morph for ToQueue<L, M> {
    fn few(&self) -> u32 {
        L::FEW
    }

    fn adopt(&self, mutex: u64, chain: Chain) {
        // SAFETY: the waiters in the chain will acquire this mutex, so it exists.
        unsafe {
            let mutex = Mutex::at(mutex as *mut pthread_mutex_t);
            L::adopt(&mutex.word, mutex.queue::<L::Queue>(), chain);
        }
    }
}

/// Leaves wake-ups to the release of plain mutexes.
struct ToRelease<M>(PhantomData<M>);

// SAFETY: `mutex::unlock` signals the waiters that `take` returns. So does `cond_shared::wait`, before
// glibc releases the mutex.
unsafe impl<M: Machine<Word = Word32>> Defer for ToRelease<M> {
    fn defer(&self, mutex: u64, waiter: Handle) -> bool {
        // SAFETY: the waiter will acquire this mutex, so it exists.
        mutex != 0 && leave::<M>(unsafe { Mutex::at(mutex as *mut pthread_mutex_t) }, waiter)
    }

    fn recall(&self, mutex: u64, waiter: Handle) -> bool {
        // SAFETY: the same.
        take_back::<M>(unsafe { Mutex::at(mutex as *mut pthread_mutex_t) }, waiter)
    }
}

impl<M: Machine<Word = Word32>> Waiting<'_, M> {
    /// Acquires the mutex as the outcome of the wait requires, and ends what `wait_private` began.
    ///
    /// # Safety
    /// The mutex exists, and the waiter waits on this condition variable with it.
    unsafe fn reacquire<L: RawLock<M>>(&self, outcome: Outcome) -> c_int {
        // SAFETY: callers guarantee it.
        let result = unsafe { self.acquire::<L>(outcome) };
        // SAFETY: callers guarantee it; we hold the mutex, or glibc has refused it.
        unsafe { Mutex::at(self.mutex) }.end_wait();
        result
    }

    unsafe fn acquire<L: RawLock<M>>(&self, outcome: Outcome) -> c_int {
        match outcome {
            Outcome::Moved(me) => {
                // SAFETY: callers guarantee it.
                let mutex = unsafe { Mutex::at(self.mutex) };
                // SAFETY: the broadcast has moved this thread's node there (`Morph::adopt`).
                unsafe { L::lock_adopted(&mutex.word, mutex.queue::<L::Queue>(), me) };
                if is_plain(mutex.kind.load(Relaxed)) {
                    name_holder(mutex);
                } else {
                    own(mutex);
                }
                0
            }
            Outcome::Signaled(baton) => {
                // SAFETY: callers guarantee it.
                let result = unsafe { lock_woken::<L, M>(self.mutex) };
                pass_baton::<M>(baton);
                result
            }
            Outcome::TimedOut => {
                // SAFETY: callers guarantee it.
                unsafe { lock::<L, M>(self.mutex) }
            }
        }
    }
}

/// Ends the wait of a cancelled thread: with the mutex held, and without losing a signal.
unsafe extern "C-unwind" fn cleanup<L: RawLock<M>, M: Machine<Word = Word32>>(arg: *mut c_void) {
    // SAFETY: `wait_private` passes its own `Waiting`, whose frame is intact while this runs.
    let waiting = unsafe { &*arg.cast::<Waiting<'_, M>>() };
    cancel::awake(waiting.me);
    let outcome = waiting.queue.cancel(waiting.me);
    // SAFETY: POSIX: the mutex outlives the wait.
    unsafe { waiting.reacquire::<L>(outcome) };
}

/// The mutex address under which a waiter is queued. It is 0 if a broadcast must not move the waiter to the mutex's
/// queue: because glibc serves the mutex, or because the waiter keeps it locked (a recursive mutex that is held more
/// than once).
fn movable(mutex: &Mutex) -> u64 {
    match decode(mutex.kind.load(Relaxed)) {
        Kind::Glibc(_) => 0,
        Kind::Recursive if mutex.count.load(Relaxed) > 1 => 0,
        _ => core::ptr::from_ref(mutex) as u64,
    }
}

unsafe fn wait_private<L: RawLock<M>, M: Machine<Word = Word32>>(
    queue: &CondQueue<M>,
    mutex: *mut pthread_mutex_t,
    until: Option<Deadline>,
) -> c_int {
    // SAFETY: callers guarantee that the mutex exists.
    let object = unsafe { Mutex::at(mutex) };
    // Checked before queueing: a broadcast must not move a thread to the queue of a mutex for which it will not wait.
    // And glibc's code changes the number of users as the holder, without an atomic instruction.
    let kind = object.kind.load(Relaxed);
    let is_mine = if matches!(decode(kind), Kind::Glibc(_)) { is_mine_to_glibc(object) } else { is_mine(object) };
    if checks_owner(kind) && !is_mine {
        return EPERM;
    }
    object.begin_wait();
    // SAFETY: it goes to `cancel` or `wait_with` below, or to `cancel` in `cleanup` if that does not return. What comes
    // back goes to `reacquire`.
    let me = unsafe { queue.enqueue(movable(object)) };
    let waiting = Waiting { queue, mutex, me };
    // SAFETY: as above.
    let refused = unsafe { unlock::<L, M>(mutex) };
    if refused != 0 {
        object.end_wait();
        // A mutex of glibc's: the waiter is never moved, but a broadcast may have woken it. Then the broadcast must go
        // on.
        if let Outcome::Signaled(baton) = queue.cancel(me) {
            pass_baton::<M>(baton);
        }
        return refused;
    }
    let arg = (&raw const waiting).cast_mut().cast::<c_void>();
    let outcome =
        queue.wait_with(me, |word, expected| match cancel::park(me, word, expected, until, cleanup::<L, M>, arg) {
            Slept::TimedOut => Unparked::TimedOut,
            Slept::Woken | Slept::Interrupted => Unparked::Woken,
        });
    // SAFETY: as above.
    match unsafe { waiting.reacquire::<L>(outcome) } {
        0 if outcome == Outcome::TimedOut => ETIMEDOUT,
        result => result,
    }
}

/// `pthread_cond_init`: calls glibc's, which leaves our condition variable without waiters. Counts objects that will be
/// left to glibc.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn init<M: Machine<Word = Word32>>(
    cond: *mut pthread_cond_t,
    attr: *const pthread_condattr_t,
) -> c_int {
    // SAFETY: callers guarantee it; the object was just initialised.
    unsafe {
        let result = glibc::pthread_cond_init(cond, attr);
        if result == 0 && Cond::<M>::at(cond).flags() & COND_SHARED != 0 {
            M::trace(Event::SharedObject);
        }
        result
    }
}

/// `pthread_cond_wait`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn wait<L: RawLock<M>, M: Machine<Word = Word32>>(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let object = Cond::<M>::at(cond);
        if object.flags() & COND_SHARED != 0 {
            return cond_shared::wait::<L, M>(cond, mutex, None);
        }
        wait_private::<L, M>(&object.queue, mutex, None)
    }
}

/// `pthread_cond_timedwait`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn timedwait<L: RawLock<M>, M: Machine<Word = Word32>>(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let monotonic = Cond::<M>::at(cond).flags() & COND_MONOTONIC != 0;
        let clock = if monotonic { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME };
        clockwait::<L, M>(cond, mutex, clock, until)
    }
}

/// `pthread_cond_clockwait`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn clockwait<L: RawLock<M>, M: Machine<Word = Word32>>(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    let Some(known) = clock_of(clock) else { return EINVAL };
    // SAFETY: callers guarantee it.
    unsafe {
        let Some(end) = deadline(known, until) else { return EINVAL };
        let object = Cond::<M>::at(cond);
        if object.flags() & COND_SHARED != 0 {
            return cond_shared::wait::<L, M>(cond, mutex, Some((clock, until, end)));
        }
        wait_private::<L, M>(&object.queue, mutex, Some(end))
    }
}

/// `pthread_cond_signal`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn signal<M: Machine<Word = Word32>>(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let object = Cond::<M>::at(cond);
        if object.flags() & COND_SHARED != 0 {
            M::trace(Event::GlibcShared);
            cond_shared::await_registration::<M>(cond);
            return glibc::pthread_cond_signal(cond);
        }
        object.queue.signal(&ToRelease::<M>(PhantomData));
    }
    0
}

/// `pthread_cond_broadcast`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn broadcast<L: RawLock<M>, M: Machine<Word = Word32>>(
    cond: *mut pthread_cond_t,
) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let object = Cond::<M>::at(cond);
        if object.flags() & COND_SHARED != 0 {
            M::trace(Event::GlibcShared);
            cond_shared::await_registration::<M>(cond);
            return glibc::pthread_cond_broadcast(cond);
        }
        object.queue.broadcast(&ToQueue::<L, M>(PhantomData), &ToRelease::<M>(PhantomData));
    }
    0
}

/// `pthread_cond_destroy`
///
/// # Safety
/// As for the C function.
pub unsafe extern "C-unwind" fn destroy<M: Machine<Word = Word32>>(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: callers guarantee it.
    unsafe {
        let object = Cond::<M>::at(cond);
        if object.flags() & COND_SHARED != 0 {
            M::trace(Event::GlibcShared);
            cond_shared::await_registration::<M>(cond);
            return glibc::pthread_cond_destroy(cond);
        }
        if object.queue.destroy(&ToRelease::<M>(PhantomData)).is_err() { EBUSY } else { 0 }
    }
}
