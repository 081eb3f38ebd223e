//! Readers-writer locks with one bug each: the production code with one function done wrong.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::{Deadline, Machine, Word as _};
use flashlock_locks::parts::wait::Park;
use flashlock_locks::rw::cst::CstRwState;
use flashlock_locks::rw::shfl::{BARS, READER, SLEEPER, ShflRwState, WRITER};
use flashlock_locks::rw::{CstRw, RawRwLock, Refusal, ShflRw, Writer};

/// `ShflRw<Park>`, with its functions taken from [`RwBug`].
pub(crate) struct MutantRw<B>(std::marker::PhantomData<B>);

type Sound = ShflRw<Park>;

/// What a mutant of `ShflRw` does otherwise.
pub(crate) trait RwBug: 'static {
    fn acquire_fast<M: Machine>(state: &ShflRwState<M>) -> bool {
        // SAFETY: a model's state, see `harness::Mutex`.
        unsafe { Sound::acquire_fast(state) }
    }
    fn acquire_write<M: Machine>(state: &ShflRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        // SAFETY: a model's state, see `harness::Mutex`.
        unsafe { Sound::acquire_write(state, how, until) }
    }
    fn unlock<M: Machine>(state: &ShflRwState<M>) {
        // SAFETY: a model's state, see `harness::Mutex`.
        unsafe { Sound::release(state) };
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine, B: RwBug> RawRwLock<M> for MutantRw<B> {
    type State = ShflRwState<M>;

    flashlock_locks::same_rw_as!(
        M, Sound: MOST_READERS acquire_read try_acquire_read try_acquire_write is_written is_held
    );

    unsafe fn acquire_fast(state: &ShflRwState<M>) -> bool {
        B::acquire_fast(state)
    }
    unsafe fn acquire_write(state: &ShflRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        B::acquire_write(state, how, until)
    }
    unsafe fn release(state: &ShflRwState<M>) {
        B::unlock(state);
    }
}

/// `CstRw<Park>` in which a reader that leaves lets readers count together from now on, as only a writer may.
pub(crate) struct TogetherTooSoon;

type SoundCst = CstRw<Park>;

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine> RawRwLock<M> for TogetherTooSoon {
    type State = CstRwState<M>;

    flashlock_locks::same_rw_as!(
        M, SoundCst: MOST_READERS acquire_fast acquire_read try_acquire_read acquire_write try_acquire_write
            is_written is_held destroy
    );

    unsafe fn release(state: &CstRwState<M>) {
        // SAFETY: the callers' promise.
        let writes = unsafe { SoundCst::is_written(state) };
        // SAFETY: the callers' promise.
        unsafe { SoundCst::release(state) };
        if !writes {
            state.heat.store(0, Relaxed);
        }
    }
}

/// Nothing: the skeleton is sound.
pub(crate) struct NoBug;
impl RwBug for NoBug {}

/// A reader that was not to come in stays in the counter, and is let in: it has looked only at whether the lock is
/// held.
pub(crate) struct IgnoresWriter;
impl RwBug for IgnoresWriter {
    fn acquire_fast<M: Machine>(state: &ShflRwState<M>) -> bool {
        state.count.fetch_add(READER, Acquire) & BARS == 0 || {
            state.count.fetch_add(READER.wrapping_neg(), Release);
            false
        }
    }
}

/// A refused reader takes itself out without a look at the thread that waits for that. (Found by shuttle only: loom's
/// models are too small for a head that sleeps while a refused reader comes and goes.)
#[allow(dead_code)]
pub(crate) struct LeavesSilently;
impl RwBug for LeavesSilently {
    fn acquire_fast<M: Machine>(state: &ShflRwState<M>) -> bool {
        let seen = state.count.fetch_add(READER, Acquire);
        if seen & (WRITER | BARS) != 0 {
            state.count.fetch_add(READER.wrapping_neg(), Release);
        }
        seen & (WRITER | BARS) == 0
    }
}

/// A writer takes the lock as soon as no writer has it.
pub(crate) struct ForgetsReaders;
impl RwBug for ForgetsReaders {
    fn acquire_write<M: Machine>(state: &ShflRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        if state.count.fetch_or(WRITER, AcqRel) & WRITER == 0 {
            Ok(())
        } else {
            // SAFETY: a model's state, see `harness::Mutex`.
            unsafe { Sound::acquire_write(state, how, until) }
        }
    }
}

/// The release wakes no thread that sleeps on the counter.
pub(crate) struct WakesNobody;
impl RwBug for WakesNobody {
    fn unlock<M: Machine>(state: &ShflRwState<M>) {
        state.count.fetch_and(!SLEEPER, Relaxed);
        // SAFETY: a model's state, see `harness::Mutex`.
        unsafe { Sound::release(state) };
    }
}

/// The release looks at the counter once more.
pub(crate) struct LooksBack;
impl RwBug for LooksBack {
    fn unlock<M: Machine>(state: &ShflRwState<M>) {
        // SAFETY: a model's state, see `harness::Mutex`.
        unsafe { Sound::release(state) };
        let _ = state.count.load(Relaxed);
    }
}
