//! Cohort locks with one bug each: C-BO-MCS with one function of one of its levels done wrong.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::block::Block;
use flashlock_locks::machine::{Deadline, Machine, TimedOut, Word as _};
use flashlock_locks::mutex::numa::cohort::global::BackOff;
use flashlock_locks::mutex::numa::cohort::level::{Global, LocalLock, Place};
use flashlock_locks::mutex::numa::cohort::local::LocalMcs;
use flashlock_locks::mutex::numa::cst::LocalCst;
use flashlock_locks::parts::counted::Contention;
use flashlock_locks::parts::side::above;
use flashlock_locks::parts::wait::Park;

type G = BackOff<Park>;
type L = LocalMcs<Park>;

/// Both levels, with the functions of [`Bug`].
pub(crate) struct Broken<B>(PhantomData<B>);

/// What a mutant does otherwise.
pub(crate) trait Bug: 'static {
    fn pass<M: Machine>(part: &Block<M>) -> bool {
        L::pass(part)
    }
    fn unlock_part<M: Machine>(part: &Block<M>) {
        <L as LocalLock>::unlock(part);
    }
    fn reset_part<M: Machine>(part: &Block<M>, held: bool) {
        L::reset(part, held);
    }
    fn lock<M: Machine>(
        at: &Place<'_, M, ()>,
        until: Option<Deadline>,
        waiting: &mut Contention<M>,
    ) -> Result<(), TimedOut> {
        G::lock(at, until, waiting)
    }
    fn unlock<M: Machine>(at: &Place<'_, M, ()>) {
        G::unlock(at);
    }
}

/// Nothing is wrong.
pub(crate) struct Sound;
impl Bug for Sound {}

/// Says that it has handed the lock over to a waiter, even if there is none.
pub(crate) struct PassesToNobody;
impl Bug for PassesToNobody {
    fn pass<M: Machine>(part: &Block<M>) -> bool {
        L::pass(part);
        true
    }
}

/// Looks at the lock after it was released.
pub(crate) struct LooksBack;
impl Bug for LooksBack {
    fn unlock<M: Machine>(at: &Place<'_, M, ()>) {
        G::unlock(at);
        at.word().load(Relaxed);
    }
}

/// Looks at its part of the side block after the lock was released.
pub(crate) struct LooksBackAtTheCulled;
impl Bug for LooksBackAtTheCulled {
    fn unlock<M: Machine>(at: &Place<'_, M, ()>) {
        let parts: Vec<_> = at.side().into_iter().flat_map(|side| side.parts()).collect();
        G::unlock(at);
        parts[M::numa_node() as usize].passes.load(Relaxed);
    }
}

/// A forked child waits for those that it does not have.
pub(crate) struct KeepsTheDead;
impl Bug for KeepsTheDead {
    fn reset_part<M: Machine>(_: &Block<M>, _: bool) {}
}

/// Releases no lock that has others below it.
pub(crate) struct KeepsTheMiddle;
impl Bug for KeepsTheMiddle {
    fn unlock_part<M: Machine>(part: &Block<M>) {
        if above(part).is_some() {
            <L as LocalLock>::unlock(part);
        }
    }
}

/// A forked child waits for those that it does not have, in the innermost locks.
pub(crate) struct KeepsTheDeadBelow;
impl Bug for KeepsTheDeadBelow {
    fn reset_part<M: Machine>(part: &Block<M>, held: bool) {
        if above(part).is_none() {
            L::reset(part, held);
        }
    }
}

/// Looks at a part after its lock was handed over.
pub(crate) struct LooksBackPassed;
impl Bug for LooksBackPassed {
    fn pass<M: Machine>(part: &Block<M>) -> bool {
        let passed = L::pass(part);
        part.passes.load(Relaxed);
        passed
    }
}

/// The local lock is enough.
pub(crate) struct NoGlobal;
impl Bug for NoGlobal {
    fn lock<M: Machine>(at: &Place<'_, M, ()>, _: Option<Deadline>, _: &mut Contention<M>) -> Result<(), TimedOut> {
        G::try_lock(at);
        Ok(())
    }
}

/// The same of [`LocalCst`].
pub(crate) struct BrokenCst<B>(PhantomData<B>);

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<B: BugOfCst> LocalLock for BrokenCst<B> {
    const CAN_LEAVE: bool = true;

    fn lock<M: Machine>(part: &Block<M>, until: Option<Deadline>, waiting: &mut Contention<M>) -> Result<(), TimedOut> {
        LocalCst::<Park>::lock(part, until, waiting)
    }
    fn has_waiters<M: Machine>(part: &Block<M>) -> bool {
        LocalCst::<Park>::has_waiters(part)
    }
    fn pass<M: Machine>(part: &Block<M>) -> bool {
        LocalCst::<Park>::pass(part)
    }
    fn unlock<M: Machine>(part: &Block<M>) {
        B::unlock(part);
    }
    fn reset<M: Machine>(part: &Block<M>, held: bool) {
        B::reset(part, held);
    }
}

/// What a mutant of it does otherwise.
pub(crate) trait BugOfCst: 'static {
    fn unlock<M: Machine>(part: &Block<M>) {
        LocalCst::<Park>::unlock(part);
    }
    fn reset<M: Machine>(part: &Block<M>, held: bool) {
        LocalCst::<Park>::reset(part, held);
    }
}

impl BugOfCst for Sound {}

/// Lets none of the culled waiters in.
pub(crate) struct ForgetsSleepers;
impl BugOfCst for ForgetsSleepers {
    fn unlock<M: Machine>(part: &Block<M>) {
        <L as LocalLock>::unlock(part);
    }
}

/// A forked child wakes sleepers that it does not have.
pub(crate) struct KeepsSleepers;
impl BugOfCst for KeepsSleepers {
    fn reset<M: Machine>(part: &Block<M>, held: bool) {
        L::reset(part, held);
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<B: Bug> LocalLock for Broken<B> {
    const CAN_LEAVE: bool = true;

    fn lock<M: Machine>(part: &Block<M>, until: Option<Deadline>, waiting: &mut Contention<M>) -> Result<(), TimedOut> {
        <L as LocalLock>::lock(part, until, waiting)
    }
    fn has_waiters<M: Machine>(part: &Block<M>) -> bool {
        L::has_waiters(part)
    }
    fn pass<M: Machine>(part: &Block<M>) -> bool {
        B::pass(part)
    }
    fn unlock<M: Machine>(part: &Block<M>) {
        B::unlock_part(part);
    }
    fn reset<M: Machine>(part: &Block<M>, held: bool) {
        B::reset_part(part, held);
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<B: Bug> Global for Broken<B> {
    type State<M: Machine> = ();

    fn try_lock<M: Machine>(at: &Place<'_, M, ()>) -> bool {
        G::try_lock(at)
    }
    fn lock<M: Machine>(
        at: &Place<'_, M, ()>,
        until: Option<Deadline>,
        waiting: &mut Contention<M>,
    ) -> Result<(), TimedOut> {
        B::lock(at, until, waiting)
    }
    fn unlock<M: Machine>(at: &Place<'_, M, ()>) {
        B::unlock(at);
    }
    fn is_held<M: Machine>(word: &M::Word, state: &()) -> bool {
        G::is_held::<M>(word, state)
    }
    fn reset<M: Machine>(at: &Place<'_, M, ()>, held: bool) {
        G::reset(at, held);
    }
}
