//! # Closure locks
//!
//! A lock that is given what is to be done under it, instead of being acquired and released: then any thread may do it,
//! and the data stay with the thread that does it for several others (Hendler et al., *Flat Combining*, SPAA 2010;
//! compared with delegation to a core of its own in Lozi et al., *Remote Core Locking*, ATC 2012, sections 1, 5.1 and
//! 6). Such a lock cannot stand behind `pthread_mutex_lock`.
//!
//! | file | lock |
//! |---|---|
//! | [`flat_combining`] | `flat-combining`: a list of records in which threads publish requests; who holds the lock runs those of all |
//! | [`cc_synch`] | `cc-synch`: a queue of requests; who is at its front runs those behind it |
//! | [`rcl`] | Remote Core Locking: each client posts its request in a line of its own; a server thread runs those of all |
//!
//! ## Who runs a request
//! With the first two locks, a thread that is itself in [`RawClosure::run`] for the same lock.
//!
//! With `rcl`, a thread of a server, which has called nothing of the lock. There are two exceptions: while the lock is
//! ordinary, and when the client is itself a thread of that server, the client runs its request. So `rcl` is not a
//! [`RawClosure`]. It needs a runtime that makes servers and knows which thread is which ([`rcl::Roster`]);
//! `flashlock-delegation` is one. The rest of this page holds for `rcl` too, except where it says otherwise.
//!
//! ## The two layers
//! [`RawClosure`] is what such a lock is: a type without values, whose state is made of words, all-zero when it is
//! free; it runs [`Request`]s. [`Delegate`] puts a value beside it, and takes closures.
//!
//! ## A request
//! stands on the stack of the thread that makes it, which does not go on before it was run: a queue node carries its
//! address.
//!
//! ## What holds of all of them
//! 1. A request is run once, and none other of that lock meanwhile. It is run by a thread that is in
//!    [`RawClosure::run`] for the same lock; with `rcl`, by a thread of the lock's server.
//! 2. It has been run when `run` returns; what it wrote is seen by who asked, and by all later requests.
//! 3. A thread that runs the requests of others does so before its own `run` returns, for a number of them that is
//!    bounded. (With `rcl`, a server's thread does nothing else.)
//! 4. The lock's state may be accessed until **every** `run` has returned, unlike a mutex's: a thread whose request was
//!    run may be on its way while another one still looks for more. (With `rcl`, only until the client's own
//!    [`rcl::exec`] has returned: a server releases the lock before it answers.)
//!
//! ## Panics
//! This crate knows nothing of `std`, and cannot catch one; and it would be unwinding through a thread that has only
//! helped. So a closure that panics under a [`Delegate`] aborts the program, after its message was printed.
//! (`flashlock-delegation` catches panics, and hands them to the client.) Who has `std` and wants its panics catches
//! them inside, which costs nothing else, for then the outcome comes back to the thread that asked, and the lock goes
//! on: `delegate.with(|value| catch_unwind(AssertUnwindSafe(|| work(value))))`, and `resume_unwind` of an error
//! outside. Whether the value is still fit for use is then the caller's to say, as with any lock that does not poison.
//!
//! **Cannot:** be used by a request of its own, which would wait for itself; be given up on (a request that was
//! published is run); be used in a child that was forked while another thread was in `run`. A request that blocks holds
//! up all others. (With `rcl`, only those of its own lock, if the server may have several threads.)

pub mod cc_synch;
pub mod flat_combining;
pub mod rcl;

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{Relaxed, Release};

pub use cc_synch::CcSynch;
pub use flat_combining::FlatCombining;

use crate::machine::{Machine, Word};
use crate::node::Node;
use crate::wait::{WaitPolicy, tell};

/// What is to be done under a lock: the head of a record on the stack of the thread that asks, whose rest the function
/// knows.
#[repr(C)]
pub struct Request {
    act: unsafe fn(*mut Request),
}

impl Request {
    /// One that is done by calling `act` with its address.
    pub const fn new(act: unsafe fn(*mut Request)) -> Self {
        Self { act }
    }

    /// Does it.
    ///
    /// # Safety
    /// It is there, with what its function expects behind it, and nobody else accesses that until this returns.
    pub unsafe fn act(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { ((*this).act)(this) }
    }
}

/// A lock that runs requests.
///
/// # Safety
/// What the [module](self) says of all of them holds (1 to 3).
pub unsafe trait RawClosure<M: Machine>: 'static {
    /// Its state; all-zero is free.
    type State: 'static;

    /// A free lock.
    fn new_state() -> Self::State;

    /// Has the request run, by this thread or another one, alone among all of this lock.
    ///
    /// If the request unwinds, the lock stays held for ever, whoever ran it.
    ///
    /// # Safety
    /// The request can be run, once, by any thread, until this returns: it is there, with what its function expects
    /// behind it, and nobody accesses that meanwhile. The lock is there until every call of this has returned.
    unsafe fn run(state: &Self::State, request: *mut Request);

    /// Gives back what the lock owns beside its state. Nobody uses it any more.
    fn destroy(_state: &Self::State) {}
}

/// Writes into a node whose request it stands for. Relaxed: published by whoever links the node, or stores its state.
pub fn publish<M: Machine>(node: &Node<M>, request: *mut Request) {
    let address = request.expose_provenance() as u64;
    node.mutex[0].store(address as u32, Relaxed);
    node.mutex[1].store((address >> 32) as u32, Relaxed);
}

/// Does the request of a node.
///
/// # Safety
/// The node was published with a request that was not run yet, and the caller has seen that. It is alone in running
/// requests of its lock.
pub unsafe fn serve<M: Machine>(node: &Node<M>) {
    let address = u64::from(node.mutex[0].load(Relaxed)) | u64::from(node.mutex[1].load(Relaxed)) << 32;
    let request: *mut Request = core::ptr::with_exposed_provenance_mut(address as usize);
    assert!(!request.is_null(), "a node was published without its request");
    // SAFETY: by the caller's promise, one that `run` was called with, and that call has not returned.
    unsafe { Request::act(request) }
}

/// WAITING | PARKED -> what its thread waits for. Release pairs with the Acquire in `wait::notified`.
fn answer<M: Machine, W: WaitPolicy>(node: &Node<M>, what: u32) {
    if W::PARKS { tell::<M>(&node.state, what) } else { node.state.store(what, Release) }
}

/// A value, and a closure lock by which alone it can be had.
///
/// Small sections that many threads want all the time, on data of a few lines, are what it is for. For sections that
/// are long, that block, or that are mostly alone, use a mutex.
pub struct Delegate<M: Machine, L: RawClosure<M>, T> {
    state: L::State,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed by one thread at a time, though not always by the same one: it is as if sent to it.
unsafe impl<M: Machine, L: RawClosure<M, State: Sync>, T: Send> Sync for Delegate<M, L, T> {}

/// A closure on its way to a value, and back with what it returned.
#[repr(C)]
struct Call<T, F, R> {
    request: Request,
    value: *mut T,
    work: Work<F, R>,
}

/// First the closure, then what it returned: `run` says that the one has become the other.
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
    /// `request` is the head of a `Call` that nobody else accesses, and that was not acted upon yet. Nobody else
    /// accesses its value.
    unsafe fn act(request: *mut Request) {
        let guard = NoUnwinding;
        // SAFETY: the caller's promise; a `Call` begins with its request.
        unsafe {
            let call = &mut *request.cast::<Self>();
            let closure = ManuallyDrop::take(&mut call.work.closure);
            call.work.returned = ManuallyDrop::new(closure(&mut *call.value));
        }
        core::mem::forget(guard);
    }
}

impl<M: Machine, L: RawClosure<M>, T> Delegate<M, L, T> {
    /// With this value.
    pub fn new(value: T) -> Self {
        Self { state: L::new_state(), value: UnsafeCell::new(value) }
    }

    /// Has the closure run with the value, by this thread or by another one that wants it, too; what it returned. For
    /// panics see the [module](self); on the same lock inside itself it waits for ever.
    pub fn with<R: Send, F: FnOnce(&mut T) -> R + Send>(&self, closure: F) -> R
    where
        T: Send,
    {
        let work = Work { closure: ManuallyDrop::new(closure) };
        let mut call = Call { request: Request::new(Call::<T, F, R>::act), value: self.value.get(), work };
        // SAFETY: the call stays here until `run` returns, and is not touched before. What it carries may go to another
        // thread (`Send`), and comes back. The value is accessed by requests of this lock only, one at a time (1).
        // Whoever is in `run` borrows the lock.
        unsafe { L::run(&self.state, (&raw mut call).cast()) };
        // SAFETY: it was run (2).
        ManuallyDrop::into_inner(unsafe { call.work.returned })
    }

    /// The value, for who has it alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<M: Machine, L: RawClosure<M>, T> Drop for Delegate<M, L, T> {
    fn drop(&mut self) {
        L::destroy(&self.state);
    }
}
