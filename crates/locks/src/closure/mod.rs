//! # Closure locks
//!
//! A closure lock is passed a closure, and some thread runs it under the lock. The caller does not acquire and release.
//! The protected data stay in the cache of the thread that runs the closures of several threads. Use one for short
//! sections on a few cache lines that many threads want all the time. Such a lock cannot stand behind
//! `pthread_mutex_lock`.
//!
//! **Source.** Hendler et al., *Flat Combining*, SPAA 2010; compared with delegation to a dedicated core in Lozi et
//! al., *Remote Core Locking*, ATC 2012, sections 1, 5.1 and 6.
//!
//! | file | lock |
//! |---|---|
//! | [`flat_combining`] | `flat-combining`: a list of records in which threads publish requests; the lock holder runs all of them |
//! | [`cc_synch`] | `cc-synch`: a queue of requests; the thread at its head runs those behind it |
//! | [`rcl`] | Remote Core Locking: each client posts its request in a cache line of its own; a server thread runs all of them |
//!
//! ## Which thread runs a request
//! With the first two locks, it is a thread that is itself in [`RawClosure::run`] for the same lock.
//!
//! With `rcl`, it is a thread of a server, which has called no function of the lock. There are two exceptions. A client
//! runs its own request while the lock is ordinary, and when the client is itself a thread of that server. So `rcl` is
//! not a [`RawClosure`]. It needs a runtime that makes servers and knows which thread is which ([`rcl::Roster`]);
//! `flashlock-delegation` is one. The rest of this page holds for `rcl` too, except where it says otherwise.
//!
//! ## The two layers
//! [`RawClosure`] is the lock itself: a type without values, whose state is made of words. All-zero is free. It runs
//! [`Request`]s. [`Delegate`] puts a value beside the lock, and takes closures.
//!
//! ## A request
//! A request is on the stack of the thread that makes it. That thread does not go on before the request has been run.
//! So a queue node can carry the request's address.
//!
//! ## What holds for all of them
//! 1. A request is run once, and no other request of that lock runs meanwhile. The thread that runs it is in
//!    [`RawClosure::run`] for the same lock. With `rcl`, it is a thread of the lock's server.
//! 2. The request has been run when `run` returns. The thread that asked sees what the request wrote, and so do all
//!    later requests.
//! 3. A thread runs the requests of others only before its own `run` returns, and only a bounded number of them. (With
//!    `rcl`, a server's thread does nothing else.)
//! 4. The lock's state may be accessed until **every** `run` has returned, unlike a mutex's. A thread whose request was
//!    run may have left while another thread still looks for requests. (With `rcl`, only until the client's own
//!    [`rcl::exec`] has returned: a server releases the lock before it answers.)
//!
//! ## Panics
//! This crate does not use `std`, so it cannot catch a panic. Besides, the panic would unwind the stack of a thread
//! that only helped. So a closure that panics under a [`Delegate`] aborts the program, after the panic message was
//! printed. (`flashlock-delegation` catches panics, and hands them to the client.)
//!
//! If you have `std` and want your panics, catch them inside the closure: `delegate.with(|value|
//! catch_unwind(AssertUnwindSafe(|| work(value))))`. Call `resume_unwind` with the error outside. This costs nothing
//! else: the outcome returns to the thread that asked, and the lock stays usable. The caller decides whether the value
//! is still fit for use, as with any lock that does not poison.
//!
//! **Cannot:** be used by one of its own requests, which would wait for itself; give up a request (a published request
//! is run); be used in a child that was forked while another thread was in `run`. A request that blocks holds up all
//! others. (With `rcl`, it holds up only those of its own lock, if the server may have several threads.)

pub mod cc_synch;
pub mod flat_combining;
pub mod rcl;

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{Relaxed, Release};

pub use cc_synch::CcSynch;
pub use flat_combining::FlatCombining;

use crate::machine::event::Event;
use crate::machine::node::Node;
use crate::machine::{Machine, Word};
use crate::parts::counted::about;
use crate::parts::wait::{WaitPolicy, notify};
use crate::parts::zeroed::{ConstZeroed, Zeroed};

/// Work to be done under a lock. It is the head of a record on the stack of the thread that asks; the function knows
/// the rest of the record.
#[repr(C)]
pub struct Request {
    act: unsafe fn(*mut Request),
}

impl Request {
    /// A request that is run by calling `act` with its address.
    pub const fn new(act: unsafe fn(*mut Request)) -> Self {
        Self { act }
    }

    /// Runs the request.
    ///
    /// # Safety
    /// The request is valid, with what its function expects behind it. No other thread accesses these until this
    /// returns.
    pub unsafe fn act(this: *mut Self) {
        // SAFETY: the callers' promise.
        unsafe { ((*this).act)(this) }
    }
}

/// A lock that runs requests. It defines [`serve`](RawClosure::serve); its users call [`run`](RawClosure::run), which
/// counts requests, and says which lock events are about. No lock overrides that.
///
/// # Safety
/// Statements 1 to 3 of the [module](self) hold.
pub unsafe trait RawClosure<M: Machine>: 'static {
    /// The lock's state; all-zero is free.
    type State: Zeroed;

    /// [`RawClosure::run`], not counted.
    ///
    /// # Safety
    /// That of [`RawClosure::run`].
    unsafe fn serve(state: &Self::State, request: *mut Request);

    /// Has the request run, by this thread or another one. No other request of this lock runs meanwhile.
    ///
    /// If the request unwinds, the lock stays held for ever, whichever thread ran the request.
    ///
    /// # Safety
    /// The request is valid, with what its function expects behind it. Until this returns, any thread may run the
    /// request, once, and nothing else accesses it. The lock is valid until every call of this has returned.
    #[inline]
    unsafe fn run(state: &Self::State, request: *mut Request) {
        about::<M, _, _>(state, || {
            M::trace(Event::Acquire);
            // SAFETY: the callers' promise.
            unsafe { Self::serve(state, request) }
        });
    }

    /// Gives back what the lock owns besides its state.
    ///
    /// # Safety
    /// No call of [`run`](RawClosure::run) is under way, and no other call of this. The lock is not used any more.
    unsafe fn destroy(_state: &Self::State) {}
}

/// Writes the request's address into a node. Relaxed: the thread that links the node, or stores its state, publishes
/// it.
///
/// # Safety
/// The node is the calling thread's, as invariants of the lock say. Until the request has been run, it is valid, and
/// any thread may run it: what [`RawClosure::run`] was promised.
pub unsafe fn publish<M: Machine>(node: &Node<M>, request: *mut Request) {
    let address = request.expose_provenance() as u64;
    node.mutex[0].store(address as u32, Relaxed);
    node.mutex[1].store((address >> 32) as u32, Relaxed);
}

/// Runs the request of a node.
///
/// # Safety
/// The node was published with a request that has not been run, and the caller has seen that. No other thread runs
/// requests of this lock.
pub unsafe fn serve<M: Machine>(node: &Node<M>) {
    let address = u64::from(node.mutex[0].load(Relaxed)) | u64::from(node.mutex[1].load(Relaxed)) << 32;
    let request: *mut Request = core::ptr::with_exposed_provenance_mut(address as usize);
    assert!(!request.is_null(), "a node was published without its request");
    // SAFETY: callers promise that `run` was called with this request; and that call has not returned.
    unsafe { Request::act(request) }
}

/// WAITING | PARKED -> what its thread waits for. Release pairs with the Acquire in `wait::notified`.
fn answer<M: Machine, W: WaitPolicy>(node: &Node<M>, what: u32) {
    if W::PARKS { notify::<M>(&node.state, what) } else { node.state.store(what, Release) }
}

/// A value that can be accessed only through its closure lock.
///
/// Use it for small sections that many threads want all the time, on data of a few cache lines. For sections that are
/// long, that block, or that mostly find the lock free, use a mutex.
pub struct Delegate<M: Machine, L: RawClosure<M>, T> {
    state: L::State,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time accesses the value, though not always the same thread: it is as if sent to it.
unsafe impl<M: Machine, L: RawClosure<M, State: Sync>, T: Send> Sync for Delegate<M, L, T> {}

/// A closure on its way to a value, and back with what it returned.
#[repr(C)]
struct Call<T, F, R> {
    request: Request,
    value: *mut T,
    work: Work<F, R>,
}

/// First the closure, then what it returned. When `run` returns, the one has become the other.
union Work<F, R> {
    closure: ManuallyDrop<F>,
    returned: ManuallyDrop<R>,
}

/// Ends the program if it is dropped while a panic unwinds the stack.
struct NoUnwinding;

impl Drop for NoUnwinding {
    fn drop(&mut self) {
        panic!(
            "a closure panicked under a closure lock: the program ends, for this thread may not be the one that asked"
        );
    }
}

impl<T, F: FnOnce(&mut T) -> R, R> Call<T, F, R> {
    /// Closure -> returned.
    ///
    /// # Safety
    /// `request` is the head of a `Call` that nothing else accesses, and that has not been run. Nothing else accesses
    /// its value.
    unsafe fn act(request: *mut Request) {
        let guard = NoUnwinding;
        // SAFETY: the callers' promise; a `Call` begins with its request.
        unsafe {
            let call = &mut *request.cast::<Self>();
            let closure = ManuallyDrop::take(&mut call.work.closure);
            call.work.returned = ManuallyDrop::new(closure(&mut *call.value));
        }
        core::mem::forget(guard);
    }
}

impl<M: Machine, L: RawClosure<M, State: ConstZeroed>, T> Delegate<M, L, T> {
    /// A lock around this value, for statics.
    pub const fn of(value: T) -> Self {
        Self { state: ConstZeroed::ZERO, value: UnsafeCell::new(value) }
    }
}

impl<M: Machine, L: RawClosure<M>, T> Delegate<M, L, T> {
    /// A lock around this value.
    pub fn new(value: T) -> Self {
        Self { state: Zeroed::zeroed(), value: UnsafeCell::new(value) }
    }

    /// Has the closure run with the value, by this thread or by another one that wants the lock too. Returns what the
    /// closure returned. For panics see the [module](self). A closure that calls this on its own lock waits for ever.
    pub fn with<R: Send, F: FnOnce(&mut T) -> R + Send>(&self, closure: F) -> R
    where
        T: Send,
    {
        let work = Work { closure: ManuallyDrop::new(closure) };
        let mut call = Call { request: Request::new(Call::<T, F, R>::act), value: self.value.get(), work };
        // SAFETY: the call stays here until `run` returns, and is not touched before. What it carries may go to another
        // thread (`Send`), and comes back. Only requests of this lock access the value, one at a time (1). Every thread
        // in `run` borrows the lock.
        unsafe { L::run(&self.state, (&raw mut call).cast()) };
        // SAFETY: the request has been run (2).
        ManuallyDrop::into_inner(unsafe { call.work.returned })
    }

    /// The value, without the lock: `&mut` excludes other threads.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<M: Machine, L: RawClosure<M>, T> Drop for Delegate<M, L, T> {
    fn drop(&mut self) {
        // SAFETY: `&mut` excludes all others, and this is the last use.
        unsafe { L::destroy(&self.state) };
    }
}
