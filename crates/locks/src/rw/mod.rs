//! # Readers-writer locks
//!
//! Any number of readers, or one writer. Like a [`RawLock`](crate::parts::raw::RawLock), such a lock is a type without
//! values: its state is made of words, passed by reference, and all-zero is a free lock.
//!
//! | file | lock |
//! |---|---|
//! | [`shfl`] | `shfl-rw`: one counter, and one queue for readers and writers, which waiters reorder |
//! | [`cst`] | `cst-rw`: distributed counters, one for each NUMA node or part of it, in a side block that is made when readers meet |
//! | [`futex`] | `futex-rw`: one counter, on which all waiters sleep; the simplest one |
//!
//! ## Which thread goes first
//! If readers never wait for a waiting writer, writers starve. If readers always wait for one, a deadlock is possible:
//! thread A holds a read lock and waits for B, B wants a read lock, and a writer is queued between them. So a reader
//! says what it is ([`Reader`]). A reader that holds a read lock already passes waiting writers. Any other reader waits
//! behind them, but not for ever: if only a waiting writer keeps it out, it is admitted after the bound. A writer that
//! has been passed in this way makes the next reader wait twice as long. So the writer does not starve, either. Readers
//! wait for writers without a bound only if the program has asked for that (glibc's `PREFER_WRITER_NONRECURSIVE`).

use core::marker::PhantomData;

use crate::machine::event::Event;
use crate::machine::{Deadline, Machine};
use crate::parts::counted::about;
use crate::parts::zeroed::{ConstZeroed, Zeroed};

pub mod cst;
pub mod futex;
pub mod shfl;

pub use cst::CstRw;
pub use futex::FutexRw;
pub use shfl::ShflRw;

/// How a reader treats waiting writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It holds a read lock on this lock, as far as is known. It passes them.
    Again,
    /// It waits behind them, for as long as the bound.
    Newcomer,
    /// It waits behind them for as long as it takes.
    Behind,
}

/// How a writer treats new readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// It lets them in as long as that costs it little time.
    Fair,
    /// It keeps them out from the moment it is head.
    Preferred,
}

/// Why a lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Others hold it, or go first.
    Busy,
    /// The deadline has passed.
    TimedOut,
    /// As many readers hold it as can be counted.
    Overflow,
}

/// A readers-writer lock. Its functions are unsafe for the [reasons](crate::parts::raw) for which a mutex's are; part 1
/// of the contract there is about its state, and part 2 about a release of what a thread holds.
///
/// | a lock defines | its users call |
/// |---|---|
/// | [`acquire_fast`](RawRwLock::acquire_fast) | [`enter`](RawRwLock::enter) |
/// | [`acquire_read`](RawRwLock::acquire_read) | [`read`](RawRwLock::read) |
/// | [`try_acquire_read`](RawRwLock::try_acquire_read) | [`try_read`](RawRwLock::try_read) |
/// | [`acquire_write`](RawRwLock::acquire_write) | [`write`](RawRwLock::write) |
/// | [`try_acquire_write`](RawRwLock::try_acquire_write) | [`try_write`](RawRwLock::try_write) |
/// | [`release`](RawRwLock::release) | [`unlock`](RawRwLock::unlock) |
/// | the other functions | the same |
///
/// The functions on the right count acquisitions and time-outs, say which lock events are about, and call those on the
/// left. No lock overrides them.
///
/// # Safety
/// As for [`RawLock`](crate::parts::raw::RawLock), it does with nodes and blocks only what the invariants allow. A
/// writer holds the lock alone, and sees what the holders before it wrote. While readers hold it, no writer does, and
/// they see what the writers before them wrote.
pub unsafe trait RawRwLock<M: Machine>: 'static {
    /// Its state; all-zero is free.
    type State: Zeroed;

    /// The number of readers that can hold it at once, at least.
    const MOST_READERS: u32;

    /// [`RawRwLock::enter`], not counted.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    unsafe fn acquire_fast(state: &Self::State) -> bool;

    /// [`RawRwLock::read`], not counted.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    unsafe fn acquire_read(state: &Self::State, how: Reader, until: Option<Deadline>) -> Result<(), Refusal>;

    /// [`RawRwLock::try_read`], not counted.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    unsafe fn try_acquire_read(state: &Self::State, how: Reader) -> Result<(), Refusal>;

    /// [`RawRwLock::write`], not counted.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    unsafe fn acquire_write(state: &Self::State, how: Writer, until: Option<Deadline>) -> Result<(), Refusal>;

    /// [`RawRwLock::try_write`], not counted.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    unsafe fn try_acquire_write(state: &Self::State) -> bool;

    /// [`RawRwLock::unlock`], without saying which lock it is.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1 and 2.
    unsafe fn release(state: &Self::State);

    /// Whether a thread holds the lock for writing, or did a moment ago.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    unsafe fn is_written(state: &Self::State) -> bool;

    /// Whether a thread holds the lock, or did a moment ago.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    unsafe fn is_held(state: &Self::State) -> bool;

    /// Gives back what the lock owns beside its state.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1. No thread uses the lock any more, until it is made anew.
    unsafe fn destroy(_state: &Self::State) {}

    /// Acquires for reading if no thread holds the lock for writing, or is about to. This is the fast path, to be tried
    /// before [`read`](Self::read).
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    #[inline(always)]
    unsafe fn enter(state: &Self::State) -> bool {
        about::<M, _, _>(state, || {
            // SAFETY: the callers' promise.
            let entered = unsafe { Self::acquire_fast(state) };
            if entered {
                M::trace(Event::RwRead);
            }
            entered
        })
    }

    /// Acquires for reading. A reader that need not wait for writers acquires a lock that no writer holds even after
    /// the deadline.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    #[inline]
    unsafe fn read(state: &Self::State, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        let before = M::about(core::ptr::from_ref(state).addr());
        // SAFETY: the callers' promise.
        counted::<M>(unsafe { Self::acquire_read(state, how, until) }, Event::RwRead, before)
    }

    /// Acquires for reading if that is possible at once. A [`Reader::Newcomer`] passes writers that wait.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    #[inline]
    unsafe fn try_read(state: &Self::State, how: Reader) -> Result<(), Refusal> {
        let before = M::about(core::ptr::from_ref(state).addr());
        // SAFETY: the callers' promise.
        counted::<M>(unsafe { Self::try_acquire_read(state, how) }, Event::RwRead, before)
    }

    /// Acquires for writing. A free lock is acquired even after the deadline.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    #[inline]
    unsafe fn write(state: &Self::State, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        let before = M::about(core::ptr::from_ref(state).addr());
        // SAFETY: the callers' promise.
        counted::<M>(unsafe { Self::acquire_write(state, how, until) }, Event::RwWrite, before)
    }

    /// Acquires for writing if that is possible at once.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1.
    #[inline]
    unsafe fn try_write(state: &Self::State) -> bool {
        about::<M, _, _>(state, || {
            // SAFETY: the callers' promise.
            let taken = unsafe { Self::try_acquire_write(state) };
            if taken {
                M::trace(Event::RwWrite);
            }
            taken
        })
    }

    /// Releases what is held: the write lock if there is one, else a read lock; nothing if the lock is free. After the
    /// store that lets another thread in, nothing of the lock is accessed.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1 and 2.
    #[inline]
    unsafe fn unlock(state: &Self::State) {
        // SAFETY: the callers' promise.
        about::<M, _, _>(state, || unsafe { Self::release(state) });
    }
}

/// Counts an acquisition as `event`, or as one that timed out. Events are about `before` again. (If this called the
/// acquisition, an uncontended writer would execute a few instructions more.)
#[inline(always)]
fn counted<M: Machine>(acquired: Result<(), Refusal>, event: Event, before: usize) -> Result<(), Refusal> {
    match acquired {
        Ok(()) => M::trace(event),
        Err(Refusal::TimedOut) => M::trace(Event::RwTimedOut),
        Err(_) => {}
    }
    M::about(before);
    acquired
}

/// A readers-writer lock with its state, which nothing else has access to. So part 1 of the
/// [contract](crate::parts::raw) is kept; the release is left to its user.
pub struct Raw<M: Machine, L: RawRwLock<M>> {
    state: L::State,
    lock: PhantomData<fn() -> (M, L)>,
}

impl<M: Machine, L: RawRwLock<M, State: ConstZeroed>> Raw<M, L> {
    /// A free lock, for statics.
    pub const FREE: Self = Self { state: ConstZeroed::ZERO, lock: PhantomData };
}

impl<M: Machine, L: RawRwLock<M>> Raw<M, L> {
    /// A free lock.
    pub fn new() -> Self {
        Self { state: Zeroed::zeroed(), lock: PhantomData }
    }

    /// Its state, for tests.
    ///
    /// # Safety
    /// The [contract](crate::parts::raw), 1: only the lock's functions change it.
    pub unsafe fn state(&self) -> &L::State {
        &self.state
    }

    /// Acquires for reading, the fast path first.
    #[inline]
    pub fn read(&self, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        // SAFETY: contract 1: the state is private, was free at first, and exists as long as this borrow.
        unsafe { if L::enter(&self.state) { Ok(()) } else { L::read(&self.state, how, until) } }
    }

    /// Acquires for reading if that is possible at once.
    pub fn try_read(&self, how: Reader) -> Result<(), Refusal> {
        // SAFETY: as in `read`.
        unsafe { L::try_read(&self.state, how) }
    }

    /// Acquires for writing.
    #[inline]
    pub fn write(&self, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        // SAFETY: as in `read`.
        unsafe { L::write(&self.state, how, until) }
    }

    /// Acquires for writing if that is possible at once.
    pub fn try_write(&self) -> bool {
        // SAFETY: as in `read`.
        unsafe { L::try_write(&self.state) }
    }

    /// Releases what the calling thread holds.
    ///
    /// # Safety
    /// Part 2 of the [contract](crate::parts::raw).
    #[inline]
    pub unsafe fn unlock(&self) {
        // SAFETY: contract 1 as in `read`; contract 2 is the callers' promise.
        unsafe { L::unlock(&self.state) }
    }

    /// Whether a thread holds the lock, or did a moment ago.
    pub fn is_held(&self) -> bool {
        // SAFETY: as in `read`.
        unsafe { L::is_held(&self.state) }
    }
}

impl<M: Machine, L: RawRwLock<M>> Default for Raw<M, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine, L: RawRwLock<M>> Drop for Raw<M, L> {
    fn drop(&mut self) {
        // SAFETY: contract 1 as in `read`; `&mut` excludes all others. A lock that is held keeps its side blocks.
        unsafe { L::destroy(&self.state) }
    }
}

/// [`same_as!`](crate::same_as), for a [`RawRwLock`](crate::rw::RawRwLock).
#[macro_export]
macro_rules! same_rw_as {
    ($m:ty, $lock:ty: $($name:ident)*) => { $($crate::same_rw_as!(@ $name $m, $lock);)* };
    (@ MOST_READERS $m:ty, $lock:ty) => {
        const MOST_READERS: u32 = <$lock as $crate::rw::RawRwLock<$m>>::MOST_READERS;
    };
    (@ acquire_fast $m:ty, $lock:ty) => { $crate::same_rw_as!(@@ $m, $lock, acquire_fast() -> bool); };
    (@ acquire_read $m:ty, $lock:ty) => {
        $crate::same_rw_as!(@@ $m, $lock, acquire_read(how: $crate::rw::Reader,
            until: Option<$crate::machine::Deadline>) -> Result<(), $crate::rw::Refusal>);
    };
    (@ try_acquire_read $m:ty, $lock:ty) => {
        $crate::same_rw_as!(@@ $m, $lock, try_acquire_read(how: $crate::rw::Reader)
            -> Result<(), $crate::rw::Refusal>);
    };
    (@ acquire_write $m:ty, $lock:ty) => {
        $crate::same_rw_as!(@@ $m, $lock, acquire_write(how: $crate::rw::Writer,
            until: Option<$crate::machine::Deadline>) -> Result<(), $crate::rw::Refusal>);
    };
    (@ try_acquire_write $m:ty, $lock:ty) => { $crate::same_rw_as!(@@ $m, $lock, try_acquire_write() -> bool); };
    (@ release $m:ty, $lock:ty) => { $crate::same_rw_as!(@@ $m, $lock, release() -> ()); };
    (@ is_written $m:ty, $lock:ty) => { $crate::same_rw_as!(@@ $m, $lock, is_written() -> bool); };
    (@ is_held $m:ty, $lock:ty) => { $crate::same_rw_as!(@@ $m, $lock, is_held() -> bool); };
    (@ destroy $m:ty, $lock:ty) => { $crate::same_rw_as!(@@ $m, $lock, destroy() -> ()); };
    (@@ $m:ty, $lock:ty, $name:ident($($arg:ident: $type:ty),*) -> $result:ty) => {
        unsafe fn $name(state: &Self::State, $($arg: $type),*) -> $result {
            // SAFETY: the callers' promise.
            unsafe { <$lock as $crate::rw::RawRwLock<$m>>::$name(state, $($arg),*) }
        }
    };
}
