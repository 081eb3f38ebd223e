//! Locks with one bug each, as small as they can be: the production code with one function done wrong.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Deadline, Handle, Machine, Patience, Pause, TimedOut, Unparked, Word as _};
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::queue::culling::CullingQueue;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::shuffle::ShflQueue;
use flashlock_locks::parts::wait::Park;
use flashlock_model::arena::{handle_in, take_node};

/// `Futex`, with its functions taken from [`FutexBug`].
pub(crate) struct MutantFutex<B>(std::marker::PhantomData<B>);

/// What a mutant of `Futex` does otherwise.
pub(crate) trait FutexBug: 'static {
    fn unlock<M: Machine>(word: &M::Word) {
        // SAFETY: the callers' promise.
        unsafe { <Futex as RawLock<M>>::release(word, &()) };
    }
    fn lock_slow<M: Machine>(word: &M::Word) {
        // SAFETY: the callers' promise.
        unsafe { <Futex as RawLock<M>>::lock(word, &()) };
    }
    fn adopt<M: Machine>(word: &M::Word, chain: Chain) {
        // SAFETY: the callers' promise.
        unsafe { <Futex as RawLock<M>>::take_over(word, &(), chain) };
    }
    fn acquire_adopted<M: Machine>(word: &M::Word, me: Handle) {
        // SAFETY: the callers' promise.
        unsafe { <Futex as RawLock<M>>::acquire_adopted(word, &(), me) };
    }
}

/// A thread that finds it held naps and looks again; no thread wakes another.
#[allow(dead_code, reason = "shuttle's alone")]
pub(crate) struct LooksNowAndThen;

impl FutexBug for LooksNowAndThen {
    fn lock_slow<M: Machine>(word: &M::Word) {
        while word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            M::pause(Pause::Nap(50));
        }
    }
    fn unlock<M: Machine>(word: &M::Word) {
        word.store(0, Release);
    }
}

/// A thread that finds it held sleeps for a while and looks again; no thread wakes another.
#[allow(dead_code, reason = "shuttle's alone")]
pub(crate) struct SleepsForAWhile;

impl FutexBug for SleepsForAWhile {
    fn lock_slow<M: Machine>(word: &M::Word) {
        while word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            M::park(word, 1, Some(M::sooner(50, None)));
        }
    }
    fn unlock<M: Machine>(word: &M::Word) {
        word.store(0, Release);
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine, B: FutexBug> RawLock<M> for MutantFutex<B> {
    type Queue = ();

    unsafe fn try_acquire(word: &M::Word, _: &()) -> bool {
        word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }
    unsafe fn acquire(word: &M::Word, queue: &(), until: Option<&Deadline>) -> Result<(), TimedOut> {
        if until.is_some() {
            // SAFETY: the callers' promise.
            return unsafe { <Futex as RawLock<M>>::acquire(word, queue, until) };
        }
        // SAFETY: the callers' promise.
        if !unsafe { <Self as RawLock<M>>::try_acquire(word, queue) } {
            B::lock_slow::<M>(word);
        }
        Ok(())
    }
    unsafe fn release(word: &M::Word, _: &()) {
        B::unlock::<M>(word);
    }
    unsafe fn is_locked(word: &M::Word, _: &()) -> bool {
        word.load(Relaxed) != 0
    }
    unsafe fn take_over(word: &M::Word, _: &(), chain: Chain) {
        B::adopt::<M>(word, chain);
    }
    unsafe fn acquire_adopted(word: &M::Word, _: &(), me: Handle) {
        B::acquire_adopted::<M>(word, me);
    }
}

/// The first waiter of a broadcast acquires with 1: the waiters that were moved to the word are forgotten.
pub(crate) struct MovedForgets;
impl FutexBug for MovedForgets {
    fn acquire_adopted<M: Machine>(word: &M::Word, me: Handle) {
        // SAFETY: the callers' promise.
        unsafe { <Futex as RawLock<M>>::lock(word, &()) };
        M::give_node(me);
    }
}

/// Release wakes no thread.
pub(crate) struct WakesNobody;
impl FutexBug for WakesNobody {
    fn unlock<M: Machine>(word: &M::Word) {
        word.swap(0, Release);
    }
}

/// Release looks at the word again after it has freed it.
pub(crate) struct LooksBack;
impl FutexBug for LooksBack {
    fn unlock<M: Machine>(word: &M::Word) {
        let before = word.swap(0, Release);
        if word.load(Relaxed) != 0 || before == 2 {
            M::wake(word, 1);
        }
    }
}

/// A thread that has slept acquires with 1: the others that sleep are forgotten.
pub(crate) struct Forgets;
impl FutexBug for Forgets {
    fn lock_slow<M: Machine>(word: &M::Word) {
        loop {
            if word.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                return;
            }
            if word.compare_exchange(1, 2, Relaxed, Relaxed).is_ok() || word.load(Relaxed) == 2 {
                M::park(word, 2, None);
            }
        }
    }
}

/// Writes 2 only if the word still holds 1, but acquires by a store: two may do so.
pub(crate) struct StoresItsTurn;
impl FutexBug for StoresItsTurn {
    fn lock_slow<M: Machine>(word: &M::Word) {
        while word.load(Acquire) != 0 {
            word.swap(2, Acquire);
            M::park(word, 2, None);
        }
        word.store(2, Relaxed);
    }
}

/// An MCS lock with the bug `B`, one of the constants below.
pub(crate) struct MutantMcs<const B: u8>;
/// Nothing is wrong: the skeleton of the mutants must hold.
pub(crate) const SOUND: u8 = 0;
/// The owner clears `next` after it has let waiters write it.
pub(crate) const CLEARS_LATE: u8 = 1;
/// The owner that finds no successor does not wait for one that is linking itself.
pub(crate) const DOES_NOT_AWAIT: u8 = 2;
/// A waiter that gives up stores ABANDONED, whatever happened meanwhile.
pub(crate) const ABANDONS_BY_STORE: u8 = 3;
/// The releaser hands over to a waiter that has given up.
pub(crate) const GRANTS_ABANDONED: u8 = 4;
/// The releaser does not wake a waiter that sleeps.
pub(crate) const LETS_SLEEP: u8 = 5;

/// The successor. If it does not come within so many polls, which loom makes fair, it never comes.
fn link_of<M: Machine>(next: &M::Word) -> Handle {
    let mut polls = 0;
    let seen = M::spin_until(next, Acquire, Patience::Forever, |next| {
        polls += 1;
        assert!(polls < 1000, "a successor that never links itself");
        next != 0
    });
    seen.and_then(handle_in).expect("a successor")
}

impl<const B: u8> MutantMcs<B> {
    fn own<M: Machine>(queue: &CullingQueue<M>, me: Handle) {
        let node = me.node::<M>();
        let mut next = node.next.load(Acquire);
        if B != CLEARS_LATE {
            queue.front.store(next, Relaxed);
        }
        if next == 0 {
            let alone = queue.tail.compare_exchange(me.word(), 1, Release, Relaxed).is_ok();
            if alone && B == CLEARS_LATE {
                queue.front.store(0, Relaxed);
            }
            if !alone && B != DOES_NOT_AWAIT {
                next = link_of::<M>(&node.next).word();
                queue.front.store(next, Relaxed);
            }
        } else {
            queue.front.store(next, Relaxed);
        }
        M::give_node(me);
    }

    fn wait<M: Machine>(me: Handle, until: Option<Deadline>) -> Result<(), TimedOut> {
        let state = &me.node::<M>().state;
        let _ = state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
        loop {
            if state.load(Acquire) == state::HEAD {
                return Ok(());
            }
            if M::park(state, state::PARKED, until) == Unparked::TimedOut {
                if B == ABANDONS_BY_STORE {
                    state.store(state::ABANDONED, Release);
                    return Err(TimedOut);
                }
                if state.compare_exchange(state::PARKED, state::ABANDONED, Release, Acquire).is_ok() {
                    return Err(TimedOut);
                }
            }
        }
    }

    fn join<M: Machine>(queue: &CullingQueue<M>, until: Option<Deadline>) -> Result<(), TimedOut> {
        if queue.tail.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            return Ok(());
        }
        let me = take_node::<M>();
        me.node::<M>().prepare(state::WAITING);
        let previous = queue.tail.swap(me.word(), AcqRel);
        if previous != 0 {
            match handle_in(previous) {
                Some(previous) => previous.node::<M>().next.store(me.word(), Release),
                None => queue.front.store(me.word(), Release),
            }
            Self::wait::<M>(me, until)?;
        }
        Self::own(queue, me);
        Ok(())
    }

    fn hand_over<M: Machine>(queue: &CullingQueue<M>) {
        let mut next = link_of::<M>(&queue.front);
        loop {
            let node = next.node::<M>();
            let before = node.state.swap(state::HEAD, AcqRel);
            if before != state::ABANDONED || B == GRANTS_ABANDONED {
                if before == state::PARKED && B != LETS_SLEEP {
                    M::unpark(node);
                }
                return;
            }
            let mut after = node.next.load(Acquire);
            if after == 0 {
                queue.front.store(0, Relaxed);
                if queue.tail.compare_exchange(next.word(), 0, Release, Relaxed).is_ok() {
                    return M::give_node(next);
                }
                after = link_of::<M>(&node.next).word();
            }
            M::give_node(next);
            next = handle_in(after).expect("a successor");
        }
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine, const B: u8> RawLock<M> for MutantMcs<B> {
    type Queue = CullingQueue<M>;

    unsafe fn try_acquire(_: &M::Word, queue: &Self::Queue) -> bool {
        queue.tail.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }
    unsafe fn acquire(_: &M::Word, queue: &Self::Queue, until: Option<&Deadline>) -> Result<(), TimedOut> {
        Self::join(queue, until.copied())
    }
    unsafe fn release(_: &M::Word, queue: &Self::Queue) {
        if queue.tail.compare_exchange(1, 0, Release, Relaxed).is_err() {
            Self::hand_over(queue);
        }
    }
    unsafe fn is_locked(_: &M::Word, queue: &Self::Queue) -> bool {
        queue.tail.load(Relaxed) != 0
    }
}

/// `Shfl`, with its release taken from [`ShflBug`].
pub(crate) struct MutantShfl<B>(std::marker::PhantomData<B>);
type Sound = Shfl<Park>;

/// What a mutant of `Shfl` does otherwise.
pub(crate) trait ShflBug: 'static {
    fn unlock<M: Machine>(word: &M::Word, queue: &ShflQueue<M>);
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<M: Machine, B: ShflBug> RawLock<M> for MutantShfl<B> {
    type Queue = ShflQueue<M>;

    flashlock_locks::same_as!(M, Sound: try_acquire acquire take_over acquire_adopted);

    unsafe fn release(word: &M::Word, queue: &Self::Queue) {
        B::unlock(word, queue);
    }
    unsafe fn is_locked(word: &M::Word, _: &Self::Queue) -> bool {
        word.load(Relaxed) != 0
    }
}

/// The release forgets that a sleeper was moved to the word.
pub(crate) struct ForgetsTheMoved;
impl ShflBug for ForgetsTheMoved {
    fn unlock<M: Machine>(word: &M::Word, queue: &ShflQueue<M>) {
        word.swap(1, Relaxed);
        // SAFETY: the callers' promise.
        unsafe { <Sound as RawLock<M>>::release(word, queue) };
    }
}
