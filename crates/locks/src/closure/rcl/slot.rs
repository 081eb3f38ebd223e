//! # A client's line
//!
//! It has 64 bytes: the request (lock, context, function), its state, and 32 bytes for a small context. With a context
//! of that size, the section needs no other line of the client's.
//!
//! ```text
//!   EMPTY ── post ──> RUN, GRANT ── the section was run; the lock is the client's ──> EMPTY
//!   RUN, GRANT ── the lock is not this server's ──> MOVED        MOVED ── post ──> RUN, GRANT
//! ```

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::word::Lock;
use crate::machine::{Machine, Patience, Word};
use crate::parts::counted::{park, wake};
use crate::parts::wait::{self, STAY, WaitPolicy};

/// No request, or the request was done.
pub const EMPTY: u32 = 0;
/// A section is to be run.
pub const RUN: u32 = 1;
/// The lock is wanted: the client runs its section itself, and releases it.
pub const GRANT: u32 = 2;
/// The request was not done: the lock no longer belongs to the server.
pub const MOVED: u32 = 3;

/// A context that travels in a line.
pub type Inline = [MaybeUninit<u64>; 4];

/// A section's function: it is called with the context.
pub type Function = unsafe fn(*mut ());

/// A request line.
#[repr(C, align(64))]
pub struct Slot<M: Machine> {
    pub(super) code: M::Word,
    /// 1: the client sleeps on `code`, or is about to.
    asleep: M::Word,
    function: [M::Word; 2],
    lock: [M::Word; 2],
    context: [M::Word; 2],
    inline: UnsafeCell<Inline>,
}

// SAFETY: `inline` is accessed by the client, or, between `post` and the answer, by the thread that acts on the request
// (the page, invariant 5).
unsafe impl<M: Machine<Word: Sync>> Sync for Slot<M> {}

/// A request, as the server reads it.
pub(super) struct Request<M: Machine> {
    pub(super) lock: *const Lock<M>,
    pub(super) function: Function,
    pub(super) context: *mut (),
}

/// Writes an address in two halves. Relaxed: `code` publishes it.
fn write<W: Word>(halves: &[W; 2], address: usize) {
    halves[0].store(address as u32, Relaxed);
    halves[1].store((address as u64 >> 32) as u32, Relaxed);
}

fn read<W: Word>(halves: &[W; 2]) -> usize {
    (u64::from(halves[0].load(Relaxed)) | u64::from(halves[1].load(Relaxed)) << 32) as usize
}

impl<M: Machine> Slot<M> {
    /// A line without a request.
    pub fn new() -> Self {
        let pair = || [M::Word::new(0), M::Word::new(0)];
        let inline = UnsafeCell::new([MaybeUninit::uninit(); 4]);
        let (code, asleep) = (M::Word::new(EMPTY), M::Word::new(0));
        Self { code, asleep, function: pair(), lock: pair(), context: pair(), inline }
    }

    /// Its words and their names, for checkers.
    pub fn words(&self) -> [(&M::Word, &'static str); 2] {
        [(&self.code, "code"), (&self.asleep, "asleep")]
    }

    /// Where a small context travels.
    pub(super) fn inline(&self) -> *mut Inline {
        self.inline.get()
    }

    /// EMPTY | MOVED -> RUN | GRANT, by the client.
    #[inline(always)]
    pub(super) fn post(&self, kind: u32, lock: &Lock<M>, function: Function, context: *mut ()) {
        write(&self.lock, core::ptr::from_ref(lock).expose_provenance());
        write(&self.function, function as usize);
        write(&self.context, context.expose_provenance());
        self.code.store(kind, Release);
    }

    /// RUN or GRANT, if there is a request that was not answered.
    #[inline(always)]
    pub(super) fn posted(&self) -> Option<u32> {
        Some(self.code.load(Acquire)).filter(|code| matches!(*code, RUN | GRANT))
    }

    pub(super) fn is_posted(&self) -> bool {
        self.posted().is_some()
    }

    /// The request that was posted.
    ///
    /// # Safety
    /// `code` was seen to be RUN or GRANT, with Acquire, and the request was not answered.
    #[inline(always)]
    pub(super) unsafe fn request(&self) -> Request<M> {
        let lock = core::ptr::with_exposed_provenance(read(&self.lock));
        let function: *const () = core::ptr::with_exposed_provenance(read(&self.function));
        // SAFETY: written by `post`, from a `Function`.
        let function = unsafe { core::mem::transmute::<*const (), Function>(function) };
        Request { lock, function, context: core::ptr::with_exposed_provenance_mut(read(&self.context)) }
    }

    /// RUN | GRANT -> EMPTY | MOVED, by the thread that has acted on the request. After the store the client may have
    /// left, and another one may use the line. Then the wake-up is superfluous; every sleeper tolerates that.
    #[inline(always)]
    pub(super) fn answer(&self, what: u32) {
        self.code.store(what, Release);
        M::light_fence();
        if self.asleep.load(Relaxed) != 0 {
            wake::<M>(&raw const self.code, 1);
        }
    }

    /// Waits for the answer: EMPTY or MOVED. `blocks` is called before the thread sleeps for the first time.
    #[inline]
    pub(super) fn wait<W: WaitPolicy>(&self, blocks: impl FnOnce()) -> u32 {
        let is_answer = |seen| !matches!(seen, RUN | GRANT);
        if W::SPINS {
            let mut end = None;
            loop {
                let patience = W::patience(None, Patience::Budget);
                if let Some(seen) = wait::poll::<M, W>(&self.code, Acquire, patience, is_answer) {
                    return seen;
                }
                // The server would have to wake this thread, which takes longer than many sections. If there is a CPU
                // for each thread, it polls on, for a while.
                let end = end.get_or_insert_with(|| M::sooner(STAY, None));
                if M::crowded() || M::expired(end) {
                    break;
                }
            }
        }
        self.sleep(blocks)
    }

    /// Announces that this thread sleeps, makes sure that the server sees that or this thread sees the answer, and
    /// sleeps.
    #[cold]
    fn sleep(&self, blocks: impl FnOnce()) -> u32 {
        blocks();
        self.asleep.store(1, Relaxed);
        M::heavy_fence();
        loop {
            let seen = self.code.load(Acquire);
            if !matches!(seen, RUN | GRANT) {
                self.asleep.store(0, Relaxed);
                return seen;
            }
            park::<M>(&self.code, seen, None);
        }
    }
}

impl<M: Machine> Default for Slot<M> {
    fn default() -> Self {
        Self::new()
    }
}
