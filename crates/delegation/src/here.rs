//! # The calling thread
//!
//! Which client number the calling thread has at which server, and whether it is a servicing thread; also which locks'
//! sections it is running, nested. A thread takes a number with its first request to a server, keeps it, and gives it
//! back when it ends: in a destructor of thread-specific data, which the C library calls after those of thread-local
//! values. Code that runs even later (other such destructors) takes a number for each request. Only a thread that has
//! its first section in the last round of these destructors (glibc has four) does not give its number back.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use flashlock_locks::closure::rcl::{Roster, Server};
use flashlock_native::sys;

use crate::Machine;
use crate::adapt::meter::{EVERY, Sampler};
use crate::host::Host;
use crate::threads;

/// The calling thread.
pub(crate) struct Here;

/// A client number at a server.
#[derive(Clone, Copy)]
struct Lease {
    server: u32,
    client: u32,
}

/// All client numbers of a thread.
type Leases = RefCell<Vec<Lease>>;

thread_local! {
    /// Never dropped: see `give_back`.
    static LEASES: ManuallyDrop<Leases> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    /// Whether the thread has given its numbers back.
    static ENDS: Cell<bool> = const { Cell::new(false) };
    static THREAD: Thread = const {
        Thread {
            last: Cell::new(None),
            worker: Cell::new(None),
            inside: Cell::new(std::ptr::null()),
            sampler: Sampler::new(),
            until_timed: Cell::new(0),
        }
    };
}

/// What each section needs to know of the thread. In a shared library each thread-local value is found by a call, so
/// all are in one value.
pub(crate) struct Thread {
    /// The lease that was used last.
    last: Cell<Option<Lease>>,
    worker: Cell<Option<(u32, u32)>>,
    /// The innermost section that the thread runs.
    inside: Cell<*const Frame>,
    pub(crate) sampler: Sampler,
    /// See [`is_to_be_timed`].
    until_timed: Cell<u32>,
}

/// Calls `act` with the calling thread's values.
#[inline]
pub(crate) fn thread<R>(act: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(act)
}

/// Whether the calling thread's next request, of a lock that is not adaptive, is the one in [`EVERY`] whose wait is
/// timed. Threads begin somewhere between: otherwise those that end after a few requests would all be timed, or none.
#[inline]
pub(crate) fn is_to_be_timed() -> bool {
    thread(|Thread { until_timed, .. }| {
        let left = until_timed.get();
        let is_now = left == 1;
        until_timed.set(match left {
            0 => begin(),
            1 => EVERY,
            _ => left - 1,
        });
        is_now
    })
}

#[cold]
fn begin() -> u32 {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    /// Prime to [`EVERY`], so that threads that start one after the other begin far from each other.
    const STEP: u32 = 97;
    1 + THREADS.fetch_add(STEP, Relaxed) % EVERY
}

/// A section that is being run. It is on the stack of the thread that runs it.
struct Frame {
    lock: *const (),
    outer: *const Frame,
}

/// While it is there, the thread is inside a section.
struct Inside<'a> {
    thread: &'a Thread,
    outer: *const Frame,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.thread.inside.set(self.outer);
    }
}

/// Runs a section of the lock at this address.
#[inline]
pub(crate) fn inside<R>(lock: *const (), work: impl FnOnce(&Sampler) -> R) -> R {
    thread(|thread| {
        let outer = thread.inside.get();
        let frame = Frame { lock, outer };
        thread.inside.set(&raw const frame);
        let _inside = Inside { thread, outer };
        work(&thread.sampler)
    })
}

/// Whether the calling thread runs a section of the lock at this address.
#[inline]
pub(crate) fn is_inside(lock: *const ()) -> bool {
    let mut at = thread(|thread| thread.inside.get());
    // SAFETY: a frame is in the list as long as it is on this thread's stack.
    while let Some(frame) = unsafe { at.as_ref() } {
        if frame.lock == lock {
            return true;
        }
        at = frame.outer;
    }
    false
}

/// Makes the calling thread that worker while `act` runs.
pub(crate) fn as_worker(server: u32, worker: u32, act: impl FnOnce()) {
    let set = |worker| thread(|thread| thread.worker.set(worker));
    set(Some((server, worker)));
    act();
    set(None);
}

/// The destructor of the key.
unsafe extern "C" fn give_back(_: *mut libc::c_void) {
    ENDS.set(true);
    thread(|thread| thread.last.set(None));
    for lease in LEASES.with(|leases| leases.take()) {
        Host::of(lease.server).core.leave(lease.client);
    }
}

/// Has [`give_back`] called when the calling thread ends. Returns whether that is so: the process may have no key left.
fn ends_with_giving_back() -> bool {
    /// The key, plus one.
    static KEY: AtomicU32 = AtomicU32::new(0);
    let mut key = KEY.load(Acquire);
    if key == 0 {
        let mut made = 0;
        // SAFETY: the key is writable; the destructor may be called in any thread.
        if unsafe { libc::pthread_key_create(&raw mut made, Some(give_back)) } != 0 {
            return false;
        }
        key = made + 1;
        if let Err(other) = KEY.compare_exchange(0, key, AcqRel, Acquire) {
            // SAFETY: made above, and used by nobody.
            unsafe { libc::pthread_key_delete(made) };
            key = other;
        }
    }
    // SAFETY: the key exists. The value is only compared with null.
    unsafe { libc::pthread_setspecific(key - 1, std::ptr::dangling()) == 0 }
}

/// A number at that server. If there are 65,536 clients already, the thread waits until one of them leaves.
fn join(server: u32) -> u32 {
    loop {
        if let Some(client) = Host::of(server).core.join() {
            return client;
        }
        sys::nap(1_000);
    }
}

/// The thread's number at that server, which it keeps. `None` if the thread could not give it back when it ends.
#[cold]
fn lease(server: u32) -> Option<u32> {
    if ENDS.get() || !ends_with_giving_back() {
        return None;
    }
    let find = |leases: &ManuallyDrop<Leases>| {
        let mut leases = leases.borrow_mut();
        let known = leases.iter().find(|lease| lease.server == server).copied();
        let lease = known.unwrap_or_else(|| {
            // Numbers of closed servers are not needed any more.
            leases.retain(|lease| !Host::of(lease.server).core.is_closed());
            let lease = Lease { server, client: join(server) };
            leases.push(lease);
            lease
        });
        thread(|thread| thread.last.set(Some(lease)));
        lease.client
    };
    Some(LEASES.with(find))
}

// SAFETY: a thread has at each server a number of its own: its lease, or, when it ends, one for each request.
// `Thread::worker` is set by the threads that serve, and by no others.
unsafe impl Roster<Machine> for Here {
    #[inline]
    fn server(&self, number: u32) -> Server<'_, Machine> {
        Host::of(number).core
    }

    #[inline]
    fn client(&self, number: u32) -> u32 {
        match thread(|thread| thread.last.get()) {
            Some(last) if last.server == number => last.client,
            _ => lease(number).unwrap_or_else(|| join(number)),
        }
    }

    #[inline]
    fn done(&self, number: u32, client: u32) {
        if thread(|thread| thread.last.get()).is_none() {
            Host::of(number).core.leave(client);
        }
    }

    #[inline]
    fn worker(&self) -> Option<(u32, u32)> {
        thread(|thread| thread.worker.get())
    }

    fn calls(&self, number: u32) {
        Host::of(number).call_manager();
    }

    fn serves(&self) {
        if let Some((number, _)) = self.worker() {
            threads::serves(Host::of(number));
        }
    }

    fn works(&self) {
        let Some((number, _)) = self.worker() else { return };
        let host = Host::of(number);
        if host.core.must_call() {
            host.call_manager();
        }
    }
}
