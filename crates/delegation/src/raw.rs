//! # A lock without a value
//!
//! [`Delegated`](crate::Delegated) puts it beside its value, and the C interface is made of it.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::closure::rcl::{Lock, Roster as _, Section, acquire, assign, exec, release};
use flashlock_locks::machine::Deadline;
use flashlock_locks::parts::wait::{SpinThenPark, WaitPolicy};
use flashlock_native::clock;

use crate::Machine;
use crate::adapt::Governor;
use crate::adapt::meter::{self, Meter, Sample};
use crate::cond::Cond;
use crate::here::{self, Here};
use crate::host::Host;

/// A lock that may be a server's. All-zero is an ordinary, free lock. Clients wait by policy `W`.
///
/// # Invariants
/// 1. Only the holder writes `sections`.
/// 2. `meter` is null, or owns a count of an `Arc`. It does not change.
#[repr(C)]
pub struct Raw<W: WaitPolicy = SpinThenPark> {
    lock: Lock<Machine>,
    /// The number of sections of an adaptive lock. It is beside the word, because the holder has that cache line.
    sections: AtomicU32,
    meter: Option<Metered>,
    wait: PhantomData<fn() -> W>,
}

const _: () = assert!(size_of::<Raw>() == 24);

/// An `Arc`. In zeroed memory an `Option` of it is `None`.
#[repr(transparent)]
struct Metered(NonNull<Meter>);

// SAFETY: it is an `Arc` of a type that is `Send` and `Sync`.
unsafe impl Send for Metered {}
// SAFETY: as above.
unsafe impl Sync for Metered {}

impl Metered {
    fn new(meter: Arc<Meter>) -> Self {
        Self(NonNull::new(Arc::into_raw(meter).cast_mut()).expect("an Arc is never null"))
    }

    /// The meter, with a count of its own.
    fn share(&self) -> Arc<Meter> {
        // SAFETY: from `into_raw`; the count that is owned (invariant 2) is not the one that is returned.
        unsafe {
            Arc::increment_strong_count(self.0.as_ptr());
            Arc::from_raw(self.0.as_ptr())
        }
    }

    #[inline(always)]
    fn get(&self) -> &Meter {
        // SAFETY: it owns a count (invariant 2).
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        // SAFETY: from `into_raw`, and its count is given back once (invariant 2).
        drop(unsafe { Arc::from_raw(self.0.as_ptr()) });
    }
}

/// A section whose wait is timed.
struct Timed<'a> {
    section: Section<'a>,
    /// When it was asked for.
    posted: u64,
}

impl Timed<'_> {
    /// The section begins.
    ///
    /// # Safety
    /// The context is a `Timed`, which nothing else accesses. And what the call of its section asks for.
    unsafe fn begin(context: *mut ()) {
        // SAFETY: the callers' promise.
        let timed = unsafe { &mut *context.cast::<Self>() };
        if let Some((server, me)) = Here.worker() {
            Host::of(server).counts[me as usize].waited(clock::now().saturating_sub(timed.posted));
        }
        // SAFETY: as above.
        unsafe { timed.section.call() };
    }
}

/// Why nothing was done: the calling thread runs a section of this lock, and would wait for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recursive;

/// Why nothing was done: the calling thread runs no section of this lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInside;

impl<W: WaitPolicy> Raw<W> {
    /// A free lock: of the server of that number, or ordinary if the number is 0.
    pub fn new(server: u32) -> Self {
        Self { lock: Lock::of(server), sections: AtomicU32::new(0), meter: None, wait: PhantomData }
    }

    /// A free, ordinary lock that the governor may move.
    pub fn adaptive(governor: &Governor, name: Option<&str>) -> Self {
        Self { meter: governor.meter(name).map(Metered::new), ..Self::new(0) }
    }

    #[inline(always)]
    fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref().map(Metered::get)
    }

    /// Whether a governor may move it while it is not pinned.
    pub fn is_adaptive(&self) -> bool {
        self.meter.is_some()
    }

    /// Has the section run under the lock. Its function calls [`inside`](Raw::inside). Do not call this inside a
    /// section of the same lock ([`is_inside`](Raw::is_inside)): it would wait for itself.
    ///
    /// # Safety
    /// The lock stays where it is until every call of this has returned.
    #[inline]
    pub unsafe fn run(&self, section: Section<'_>) {
        let is_usual = match &self.meter {
            None => self.server() == 0 || !here::is_to_be_timed(),
            Some(_) => meter::is_usual(),
        };
        if is_usual {
            // SAFETY: the callers' promise.
            unsafe { exec::<Machine, W, _>(&self.lock, section, &Here) };
        } else {
            // SAFETY: as above.
            unsafe { self.run_sampled(section) };
        }
    }

    /// The same, for one section in 251.
    ///
    /// # Safety
    /// As for [`run`](Raw::run).
    #[cold]
    unsafe fn run_sampled(&self, section: Section<'_>) {
        let run = |sample| match sample {
            // SAFETY: the callers' promise.
            Sample::No => unsafe { exec::<Machine, W, _>(&self.lock, section, &Here) },
            // SAFETY: as above.
            Sample::Wait => unsafe { self.run_timed(section) },
        };
        match &self.meter {
            None => run(Sample::Wait),
            // The meter is held: when the section has ended, another thread may destroy the lock.
            Some(meter) => meter::around(self.address(), &meter.share(), self.server() == 0, run),
        }
    }

    /// The same. If a server runs the section, it counts how long the section has waited for it.
    ///
    /// # Safety
    /// As for [`run`](Raw::run).
    unsafe fn run_timed(&self, section: Section<'_>) {
        let run = |section| {
            // SAFETY: the callers' promise.
            unsafe { exec::<Machine, W, _>(&self.lock, section, &Here) }
        };
        if Here.worker().is_some() {
            return run(section); // A nested section, whose outer one may hold the server up.
        }
        let mut timed = Timed { section, posted: clock::now() };
        // SAFETY: `begin` makes the call that `section` is for, once, while `timed` stays here. It does not unwind.
        run(unsafe { Section::new(Timed::begin, (&raw mut timed).cast()) });
    }

    /// Runs a section's work. Meanwhile the calling thread is known to be inside this lock.
    ///
    /// An adaptive lock moves, when its section has ended, to the server where it is wanted.
    ///
    /// # Safety
    /// The calling thread runs a section of this lock, and so holds it.
    #[inline]
    pub unsafe fn inside<R>(&self, work: impl FnOnce() -> R) -> R {
        let Some(meter) = self.meter() else { return here::inside(self.address(), |_| work()) };
        // Relaxed: the lock orders them (invariant 1).
        let count = self.sections.load(Relaxed).wrapping_add(1);
        self.sections.store(count, Relaxed);
        let result = here::inside(self.address(), |sampler| meter::inside(sampler, self.address(), meter, count, work));
        if meter.wanted() != self.server() {
            // SAFETY: the callers' promise.
            unsafe { self.goes(meter) };
        }
        result
    }

    /// (held by the caller, anywhere) -> (held by the caller, where it is wanted), if that server is open. (It is
    /// closed in a child that was forked.)
    ///
    /// # Safety
    /// The calling thread holds the lock.
    #[cold]
    unsafe fn goes(&self, meter: &Meter) {
        let wanted = meter.wanted();
        if wanted == 0 || !Host::of(wanted).core.is_closed() {
            // SAFETY: the callers hold it. If the server is closed later, clients find out.
            unsafe { assign(&self.lock, wanted, &Here) };
            meter.moved(wanted);
        }
    }

    /// Whether the calling thread runs a section of this lock.
    #[inline]
    pub fn is_inside(&self) -> bool {
        here::is_inside(self.address())
    }

    fn address(&self) -> *const () {
        std::ptr::from_ref(&self.lock).cast()
    }

    /// In a section: lets others in, waits until the condition variable is notified, and has the lock again. Returns
    /// whether time ran out. Wake-ups may be spurious.
    ///
    /// # Errors
    /// [`NotInside`].
    pub fn wait(&self, cond: &Cond, until: Option<Deadline>) -> Result<bool, NotInside> {
        if !self.is_inside() {
            return Err(NotInside);
        }
        // SAFETY: this thread runs a section of it, and so holds it.
        let release = || unsafe { release(&self.lock, &Here) };
        Ok(cond.wait_between(until, release, || acquire::<Machine, W, _>(&self.lock, &Here)))
    }

    /// Makes the lock that server's, or ordinary if the number is 0. It waits for the lock. An adaptive lock is then
    /// pinned there.
    ///
    /// # Errors
    /// [`Recursive`].
    pub fn assign(&self, server: u32) -> Result<(), Recursive> {
        if self.is_inside() {
            return Err(Recursive);
        }
        if let Some(meter) = self.meter() {
            meter.pin(server);
        }
        acquire::<Machine, W, _>(&self.lock, &Here);
        // SAFETY: held. If the server is closed later, clients find out.
        unsafe {
            assign(&self.lock, server, &Here);
            release(&self.lock, &Here);
        }
        if let Some(meter) = self.meter() {
            meter.moved(server);
        }
        Ok(())
    }

    /// Lets an adaptive lock move again that was [assigned](Raw::assign). It becomes ordinary first.
    pub fn unpin(&self) {
        if let Some(meter) = self.meter() {
            meter.unpin();
        }
    }

    /// The number of the server that runs its sections; 0 if the calling threads run them. It may change at any time.
    pub fn server(&self) -> u32 {
        self.lock.server()
    }

    /// Whether it is held. That may change at any time.
    pub fn is_held(&self) -> bool {
        flashlock_locks::closure::rcl::word::is_held(self.lock.word.0.load(Relaxed))
    }
}
