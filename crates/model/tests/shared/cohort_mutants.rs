//! Cohort locks with one bug each: C-BO-MCS with one function of one of its levels done wrong.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::{Deadline, Machine, TimedOut, Word as _};
use flashlock_locks::node::Node;
use flashlock_locks::numa::cohort::level::{BackOff, Global, LocalLock, LocalMcs, Place, Waiting};
use flashlock_locks::wait::Park;

type G = BackOff<Park>;
type L = LocalMcs<Park>;

/// Both levels, with the functions of [`Bug`].
pub(crate) struct Broken<B>(PhantomData<B>);

/// What a mutant does otherwise.
pub(crate) trait Bug: 'static {
    fn pass<M: Machine>(part: &Node<M>, passes: u32) -> bool {
        L::pass(part, passes)
    }
    fn reset_part<M: Machine>(part: &Node<M>, held: bool) {
        L::reset(part, held);
    }
    fn lock<M: Machine>(
        at: &Place<'_, M, ()>,
        until: Option<Deadline>,
        waiting: &mut Waiting<M>,
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

/// Says that it has handed the lock over, to whoever waits, if somebody does.
pub(crate) struct PassesToNobody;
impl Bug for PassesToNobody {
    fn pass<M: Machine>(part: &Node<M>, passes: u32) -> bool {
        L::pass(part, passes);
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
pub(crate) struct LooksBackAside;
impl Bug for LooksBackAside {
    fn unlock<M: Machine>(at: &Place<'_, M, ()>) {
        let parts: Vec<_> = at.side().parts().collect();
        G::unlock(at);
        parts[M::numa_node() as usize].passes.load(Relaxed);
    }
}

/// A forked child waits for those that it does not have.
pub(crate) struct KeepsTheDead;
impl Bug for KeepsTheDead {
    fn reset_part<M: Machine>(_: &Node<M>, _: bool) {}
}

/// The local lock is enough.
pub(crate) struct NoGlobal;
impl Bug for NoGlobal {
    fn lock<M: Machine>(at: &Place<'_, M, ()>, _: Option<Deadline>, _: &mut Waiting<M>) -> Result<(), TimedOut> {
        G::try_lock(at);
        Ok(())
    }
}

impl<B: Bug> LocalLock for Broken<B> {
    const CAN_LEAVE: bool = true;

    fn lock<M: Machine>(part: &Node<M>, until: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<u32, TimedOut> {
        <L as LocalLock>::lock(part, until, waiting)
    }
    fn has_waiters<M: Machine>(part: &Node<M>) -> bool {
        L::has_waiters(part)
    }
    fn pass<M: Machine>(part: &Node<M>, passes: u32) -> bool {
        B::pass(part, passes)
    }
    fn unlock<M: Machine>(part: &Node<M>) {
        <L as LocalLock>::unlock(part);
    }
    fn reset<M: Machine>(part: &Node<M>, held: bool) {
        B::reset_part(part, held);
    }
}

impl<B: Bug> Global for Broken<B> {
    type State<M: Machine> = ();

    fn new<M: Machine>() {}
    fn try_lock<M: Machine>(at: &Place<'_, M, ()>) -> bool {
        G::try_lock(at)
    }
    fn lock<M: Machine>(
        at: &Place<'_, M, ()>,
        until: Option<Deadline>,
        waiting: &mut Waiting<M>,
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
