//! Compact locks with one bug each: LIFO-CR whose release is done wrong, HBO that is acquired by a store.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::{Deadline, Handle, Machine, Patience, TimedOut, Word as _};
use flashlock_locks::mutex::malthusian::LifoCr;
use flashlock_locks::mutex::malthusian::lifo_cr::{HELD, LifoQueue};
use flashlock_locks::mutex::spin::Hbo;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::{Park, grant};
use flashlock_model::arena::handle_in;

/// LIFO-CR, with what takes a successor from [`LifoBug`]; for waiters that do not give up.
pub(crate) struct MutantLifo<B>(PhantomData<B>);
type SoundLifo = LifoCr<Park>;

/// How a mutant of LIFO-CR takes a successor out of the stack.
pub(crate) trait LifoBug: 'static {
    /// Takes a waiter, when `top` was the top; `None`: as it is done right.
    fn take<M: Machine>(_queue: &LifoQueue<M>, _top: Handle) -> Option<Handle> {
        None
    }
}

impl LifoBug for () {}

fn below<M: Machine>(waiter: Handle) -> Option<Handle> {
    handle_in(waiter.node::<M>().next.load(Relaxed))
}

/// Overwrites any waiter that was pushed meanwhile.
pub(crate) struct PopsByStore;
impl LifoBug for PopsByStore {
    fn take<M: Machine>(queue: &LifoQueue<M>, top: Handle) -> Option<Handle> {
        queue.top.swap(below::<M>(top).map_or(HELD, Handle::word), AcqRel);
        Some(top)
    }
}

/// Takes the waiter below the top, and takes the top out of the stack with it.
pub(crate) struct TakesTheSecond;
impl LifoBug for TakesTheSecond {
    fn take<M: Machine>(queue: &LifoQueue<M>, top: Handle) -> Option<Handle> {
        let second = below::<M>(top)?;
        let rest = below::<M>(second).map_or(HELD, Handle::word);
        queue.top.compare_exchange(top.word(), rest, Acquire, Relaxed).is_ok().then_some(second)
    }
}

/// Takes the eldest of three or more, and with it all waiters between the top and it.
pub(crate) struct LosesThoseBetween;
impl LifoBug for LosesThoseBetween {
    fn take<M: Machine>(_: &LifoQueue<M>, top: Handle) -> Option<Handle> {
        let mut eldest = below::<M>(below::<M>(top)?)?;
        while let Some(deeper) = below::<M>(eldest) {
            eldest = deeper;
        }
        top.node::<M>().next.store(0, Relaxed);
        Some(eldest)
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine, B: LifoBug> RawLock<M> for MutantLifo<B> {
    type Queue = LifoQueue<M>;

    flashlock_locks::same_as!(M, SoundLifo: try_acquire acquire is_locked take_over acquire_adopted);

    unsafe fn release(word: &M::Word, queue: &Self::Queue) {
        match handle_in(queue.top.load(Acquire)).and_then(|top| B::take(queue, top)) {
            Some(successor) => assert!(grant::<M>(successor, M::numa_node), "a skeleton for waiters that stay"),
            // SAFETY: the callers' promise.
            None => unsafe { <SoundLifo as RawLock<M>>::release(word, queue) },
        }
    }
}

/// HBO that is acquired by a store, once it was seen free.
pub(crate) struct HboByStore;

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine> RawLock<M> for HboByStore {
    type Queue = ();

    flashlock_locks::same_as!(M, Hbo: try_acquire release is_locked);

    unsafe fn acquire(word: &M::Word, queue: &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        if until.is_some() {
            // SAFETY: the callers' promise.
            return unsafe { <Hbo as RawLock<M>>::acquire(word, queue, until) };
        }
        M::spin_until(word, Acquire, Patience::Forever, |holder| holder == 0);
        word.store(M::numa_node() + 1, Release);
        Ok(())
    }
}
