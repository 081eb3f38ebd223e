//! # Waits on process-shared condition variables
//!
//! glibc serves these condition variables, whatever serves the mutex.
//!
//! | mutex | the wait |
//! |---|---|
//! | glibc's, or ours with a word that follows glibc's protocol | glibc's: its code releases and acquires the mutex |
//! | any other of ours | glibc's, with a *proxy*: a mutex of glibc's that stands for ours |
//!
//! glibc's code refuses a recursive or error-checking mutex if the owner's id is not the one that glibc has noted for
//! the thread. So such a mutex of ours needs a proxy wherever the two ids differ (`mutex::is_mine_to_glibc`).
//!
//! ## The proxy
//! **Problem.** The thread has released our mutex, and glibc has not registered it yet. A signal that comes now is lost
//! to it. And glibc would destroy the condition variable without waiting for it, and it would then access freed memory.
//! **Idea.** It holds the proxy meanwhile, and glibc's wait releases the proxy once it has registered the thread. All
//! threads of the process that use one condition variable use one proxy. So a thread that signals, broadcasts or
//! destroys waits until the proxy is free ([`await_registration`]). `std::condition_variable_any` of C++ works in the
//! same way.
//!
//! Only a thread of this process can hold our mutex, so in general such a thread signals. But it may have another
//! process signal, to which the proxy means nothing. So a wait ends after a *slice* at the latest, although no signal
//! has come, which POSIX allows. A slice is measured by the monotonic clock: the other clock may be set back.
//!
//! ## Invariants
//! 1. A thread waits for our mutex only while it does not hold a proxy. A thread may wait for a proxy while it holds
//!    our mutex.
//! 2. A thread that holds a proxy calls only the release of our mutex, which waits for nobody, and glibc's functions.
//! 3. In a forked child, threads that held a proxy may not exist. The first use there frees it (`parts::settle`), and
//!    wakes who sleeps on it.
//! 4. A signal handler does not wait for a proxy that its own thread may hold. While a thread is in a function that
//!    takes or releases one, glibc's word may say that it is held, and its owner not say by whom. So the thread notes
//!    that it is there (`thread::is_in_proxy`).
//!
//! ## Orderings
//! `await_registration` looks at the proxy with Acquire, which pairs with the release in glibc's unlock. A waiter that
//! must be seen has taken the proxy before it released our mutex, which the caller has held since. So the caller finds
//! the proxy held; or it finds what glibc stored when it released the proxy, and sees the waiter registered.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use flashlock_locks::cond::deferral::take;
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Clock, Deadline, Machine, Word as _};
use flashlock_locks::parts::adoption::signal_all;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::settle::settle;
use flashlock_native::{Word32, clock, holder, thread};
use libc::{EDEADLK, ETIMEDOUT, clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

use crate::cancel;
use crate::glibc;
use crate::kind::{Kind, decode};
use crate::layout::Mutex;
use crate::mutex::{lock, unlock};

/// How long a wait with a proxy lasts at most (µs).
const SLICE_US: u32 = 1_000_000;

/// How many proxies there are.
const PROXIES: usize = 64;

/// A mutex of glibc's, of the default kind: in a child of a signal handler, its thread, which has another id there, can
/// release it.
#[repr(align(64))]
struct Proxy {
    mutex: UnsafeCell<pthread_mutex_t>,
    /// See [`settle`].
    epoch: Word32,
}

// SAFETY: the mutex is accessed by glibc's functions and as an atomic word, except by `settle`, which keeps others out.
unsafe impl Sync for Proxy {}

static ALL: [Proxy; PROXIES] =
    [const { Proxy { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), epoch: Word32(AtomicU32::new(0)) } };
        PROXIES];

impl Proxy {
    /// The proxy for a condition variable. Only the place in its page counts: the process may have mapped the page
    /// twice.
    fn of<M: Machine<Word = Word32>>(cond: *mut pthread_cond_t) -> &'static Self {
        let proxy = &ALL[(cond.addr() % 4096 / align_of::<pthread_cond_t>()) % PROXIES];
        settle::<M>(&proxy.epoch, || {
            // SAFETY: no other thread uses it until this returns (`settle`); invariant 3.
            unsafe { proxy.mutex.get().write(libc::PTHREAD_MUTEX_INITIALIZER) };
            M::wake(proxy.word(), u32::MAX);
        });
        proxy
    }

    /// glibc's word.
    fn word(&self) -> *const Word32 {
        self.mutex.get().cast()
    }

    /// Whether a thread holds it.
    fn is_held(&self) -> bool {
        // SAFETY: glibc's word is at byte 0, and changes by atomic instructions (`layout`).
        unsafe { (*self.word()).load(Acquire) != 0 }
    }
}

/// Returns once every thread of this process is registered with glibc that has released its mutex to wait on this
/// process-shared condition variable, as far as the caller must know of it.
///
/// # Safety
/// The condition variable exists.
pub(crate) unsafe fn await_registration<M: Machine<Word = Word32>>(cond: *mut pthread_cond_t) {
    let proxy = Proxy::of::<M>(cond);
    // A handler goes on (invariant 4): what it has interrupted need not be registered.
    if proxy.is_held() && !thread::is_in_proxy() {
        thread::set_in_proxy(true);
        // SAFETY: a static mutex; this releases what it has acquired.
        unsafe {
            glibc::pthread_mutex_lock(proxy.mutex.get());
            glibc::pthread_mutex_unlock(proxy.mutex.get());
        }
        thread::set_in_proxy(false);
    }
}

/// A wait in glibc's code, and the program's mutex.
struct Wait<L, M> {
    cond: *mut pthread_cond_t,
    /// What glibc releases and acquires again.
    given: *mut pthread_mutex_t,
    until: Option<(clockid_t, *const timespec)>,
    /// The program's. It is `given` itself, or `given` is its proxy.
    mutex: *mut pthread_mutex_t,
    lock: PhantomData<(L, M)>,
}

impl<L: RawLock<M>, M: Machine<Word = Word32>> Wait<L, M> {
    fn new(
        cond: *mut pthread_cond_t,
        given: *mut pthread_mutex_t,
        until: Option<(clockid_t, *const timespec)>,
        mutex: *mut pthread_mutex_t,
    ) -> Self {
        Self { cond, given, until, mutex, lock: PhantomData }
    }

    /// Waits, and ends the wait, also if the thread is cancelled.
    ///
    /// # Safety
    /// The objects exist, and the calling thread holds `given`.
    unsafe fn run(&mut self) -> c_int {
        let arg = (&raw mut *self).cast::<c_void>();
        // SAFETY: the callers' promise; `self` outlives the call, and a cancelled thread's clean-up.
        unsafe {
            let result = cancel::call(Self::call, Self::end, arg);
            Self::end(arg);
            result
        }
    }

    unsafe extern "C-unwind" fn call(arg: *mut c_void) -> c_int {
        // SAFETY: `run` passes its own `Wait`.
        let Self { cond, given, until, .. } = unsafe { &*arg.cast::<Self>() };
        // SAFETY: callers guarantee it.
        unsafe {
            match *until {
                None => glibc::pthread_cond_wait(*cond, *given),
                Some((clock, until)) => glibc::pthread_cond_clockwait(*cond, *given, clock, until),
            }
        }
    }

    /// glibc has acquired `given` again.
    unsafe extern "C-unwind" fn end(arg: *mut c_void) {
        // SAFETY: as above; POSIX: the mutex outlives the wait.
        unsafe {
            let Self { given, mutex, .. } = &*arg.cast::<Self>();
            if given != mutex {
                glibc::pthread_mutex_unlock(*given); // Invariant 1.
                thread::set_in_proxy(false);
                lock::<L, M>(*mutex);
            }
            Mutex::at(*mutex).end_wait();
        }
    }
}

/// When a wait with a proxy ends at the latest: at its deadline, or after a slice if that is sooner.
fn end_of_slice(until: Option<Deadline>) -> Deadline {
    match until {
        Some(until) if clock::sooner(SLICE_US, Some(until)) == until => until,
        _ => clock::sooner(SLICE_US, None),
    }
}

/// Whether glibc's code can release and acquire the mutex.
fn is_fit_for_glibc<L: RawLock<M>, M: Machine<Word = Word32>>(kind: Kind) -> bool {
    match kind {
        Kind::Glibc(_) => true,
        Kind::Plain => L::GLIBC_WORD,
        Kind::Recursive | Kind::Checking => L::GLIBC_WORD && holder::id() == thread::id(),
    }
}

/// `pthread_cond_wait`, and `pthread_cond_clockwait` if there is a deadline: the same time, as C and we have it.
///
/// # Safety
/// As for the C functions.
pub(crate) unsafe fn wait<L: RawLock<M>, M: Machine<Word = Word32>>(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Option<(clockid_t, *const timespec, Deadline)>,
) -> c_int {
    M::trace(Event::GlibcShared);
    // SAFETY: callers guarantee it. In a plain mutex only `cond` leaves a waiter, which is woken here.
    unsafe {
        let object = Mutex::at(mutex);
        let kind = decode(object.kind.load(Relaxed));
        if !is_fit_for_glibc::<L, M>(kind) {
            return wait_with_proxy::<L, M>(cond, mutex, until.map(|(.., until)| until));
        }
        if matches!(kind, Kind::Plain) {
            object.owner.store(0, Relaxed); // From here on, no signal leaves a waiter to this release.
            if let Some(waiter) = take::<M>(object) {
                signal_all::<M>(waiter);
            }
        }
        object.begin_wait();
        Wait::<L, M>::new(cond, mutex, until.map(|(clock, until, _)| (clock, until)), mutex).run()
    }
}

/// [`wait`], with a proxy.
unsafe fn wait_with_proxy<L: RawLock<M>, M: Machine<Word = Word32>>(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Option<Deadline>,
) -> c_int {
    let end = end_of_slice(until);
    let proxy = Proxy::of::<M>(cond);
    if thread::is_in_proxy() && proxy.is_held() {
        return EDEADLK; // This is a signal handler, which has interrupted a wait of its own thread (invariant 4).
    }
    let (proxy, was_in) = (proxy.mutex.get(), thread::set_in_proxy(true));
    // SAFETY: callers guarantee the objects; the proxy is a static mutex.
    unsafe {
        glibc::pthread_mutex_lock(proxy);
        Mutex::at(mutex).begin_wait();
        let refused = unlock::<L, M>(mutex);
        if refused != 0 {
            Mutex::at(mutex).end_wait();
            glibc::pthread_mutex_unlock(proxy);
            thread::set_in_proxy(was_in);
            return refused;
        }
        let clock = if end.clock == Clock::Realtime { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
        let time = timespec { tv_sec: end.sec, tv_nsec: end.nsec.into() };
        let result = Wait::<L, M>::new(cond, proxy, Some((clock, &raw const time)), mutex).run();
        thread::set_in_proxy(was_in);
        if result == ETIMEDOUT && until != Some(end) { 0 } else { result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_deadline_is_on_another_clock_than_the_monotonic_one() {
        assert_eq!(end_of_slice(None).clock, Clock::Monotonic);
        for clock in [Clock::Realtime, Clock::Monotonic] {
            let past = Deadline { clock, sec: 1, nsec: 0 };
            assert_eq!(end_of_slice(Some(past)), past);
            for sec in [1 << 40, i64::MAX] {
                let slice = end_of_slice(Some(Deadline { clock, sec, nsec: 0 }));
                assert!(slice.clock == Clock::Monotonic && slice.sec < sec);
            }
        }
    }

    #[test]
    fn one_condition_variable_has_one_proxy() {
        let at = |address: usize| {
            core::ptr::from_ref(Proxy::of::<flashlock_native::Native>(core::ptr::without_provenance_mut(address)))
        };
        assert_eq!(at(0x7000_1230), at(0x5000_4230));
        assert_ne!(at(0x7000_1230), at(0x7000_1260));
    }
}
