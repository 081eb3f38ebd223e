//! `flash` with one bug each: the production code with one access changed ([`meddle`](flashlock_model::meddle)), or
//! with another release.

#![allow(dead_code, reason = "each checker is given some of them")]

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::{Machine, Memory, Waiting as _, Word as _};
use flashlock_locks::mutex::flash::state::CALL;
use flashlock_locks::mutex::flash::state::{
    GRANT, HANDOFF, HEAD, PASS, SLEEPER, SLEEPS, TIMED, TRANSIT, after_resigning, after_sleeper, has_sleepers,
};
use flashlock_locks::mutex::flash::turn;
use flashlock_locks::mutex::flash::{Flash, FlashQueue};
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::raw::RawLock;
use flashlock_model::checker::Checker;
use flashlock_model::world::World;
use flashlock_model::{Access, Field, Instead, Model, Op};

use Field::{LockNext as CALLS, LockTail as STATE, LockWord as WORD};
use Instead::{AsTold, InTwoSteps, Loosely, Nothing, With};

/// The mark of a thread in glibc's code, with which no bug meddles.
pub(crate) const GLIBC: u32 = 1 << 31;
/// And of one that moves the waiters of a broadcast.
const ADOPTS: u32 = 1 << 30;

/// Whether it is a change of `state`.
fn changes(access: &Access<'_>) -> bool {
    access.is(STATE, Op::Cas)
}

/// How many sleepers more are counted than before.
fn more(access: &Access<'_>) -> i32 {
    (access.new / SLEEPER) as i32 - (access.old / SLEEPER) as i32
}

/// Whether it sets these bits of `state`.
fn sets(access: &Access<'_>, bits: u32) -> bool {
    changes(access) && access.new & bits == bits && access.old & bits == 0
}

/// Whether it clears these.
fn clears(access: &Access<'_>, bits: u32) -> bool {
    changes(access) && access.old & bits == bits && access.new & bits == 0
}

/// Whether a head passes its place on without the lock.
fn resigns(access: &Access<'_>) -> bool {
    sets(access, TRANSIT) && more(access) == 0 && access.old & PASS == 0
}

/// A head that was woken on the word acquires with 1: the other sleepers on the word are forgotten.
pub(crate) fn forgets_the_word(access: &mut Access<'_>) -> Instead {
    if access.is(WORD, Op::Cas) && (access.old, access.new) == (0, 2) {
        With(1)
    } else if access.is(WORD, Op::Swap) && access.new == 2 && *access.mark != GLIBC {
        Nothing
    } else {
        AsTold
    }
}

/// A head that was woken on the word, and leaves, does not leave a 2.
pub(crate) fn leaves_no_notice(access: &mut Access<'_>) -> Instead {
    if access.is(WORD, Op::Cas) && (access.old, access.new) == (1, 2) { With(1) } else { AsTold }
}

/// Glibc's code has released a lock whose release was to pass the place of the head on: no sleeper takes that place.
pub(crate) fn strands_the_place(access: &mut Access<'_>) -> Instead {
    let takes_it = clears(access, PASS) && access.new & HEAD != 0 && more(access) == -1;
    if takes_it { Loosely(|_| None) } else { AsTold }
}

/// A grant wakes only one of the threads that sleep on the word.
pub(crate) fn grant_wakes_one(access: &mut Access<'_>) -> Instead {
    if access.op == Op::Wake && access.new == u32::MAX { With(1) } else { AsTold }
}

/// A grant does not change the word: a head on its way to sleep there finds its 3.
pub(crate) fn grant_leaves_the_word(access: &mut Access<'_>) -> Instead {
    if access.is(WORD, Op::Store) && access.new == 2 { Nothing } else { AsTold }
}

/// A head sleeps while the word holds 2, as others do.
pub(crate) fn sleeps_with_2(access: &mut Access<'_>) -> Instead {
    let says_so = access.is(WORD, Op::Cas) || access.is(WORD, Op::Park);
    if says_so && access.new == 3 { With(2) } else { AsTold }
}

/// A head does not look whether it has been granted the lock before it sleeps.
pub(crate) fn sleeps_granted(access: &mut Access<'_>) -> Instead {
    const WROTE: u32 = 1;
    const LOOKED: u32 = 2;
    match *access.mark {
        0 if access.is(WORD, Op::Cas) && access.new == 3 => *access.mark = WROTE,
        WROTE if access.is(STATE, Op::Load) => {
            *access.mark = LOOKED;
            return With(access.new & !GRANT);
        }
        LOOKED => {
            *access.mark = 0;
            if sets(access, SLEEPS) {
                return Loosely(|state| Some(state | SLEEPS));
            }
        }
        _ => {}
    }
    AsTold
}

/// A head that acquires writes the state, instead of exchanging it.
pub(crate) fn head_stores(access: &mut Access<'_>) -> Instead {
    if sets(access, PASS) || clears(access, HEAD) { InTwoSteps } else { AsTold }
}

/// A head that saw no thread counted clears `HEAD`, whatever has come since.
pub(crate) fn head_goes_blindly(access: &mut Access<'_>) -> Instead {
    if clears(access, HEAD) { Loosely(|state| Some(state & !(HEAD | HANDOFF | GRANT | PASS))) } else { AsTold }
}

/// A sleeper is counted whether or not there is a head.
pub(crate) fn counts_blindly(access: &mut Access<'_>) -> Instead {
    if changes(access) && more(access) == 1 { Loosely(|state| Some(state + SLEEPER)) } else { AsTold }
}

/// A release that has read the clock leaves TIMED behind.
pub(crate) fn leaves_timed(access: &mut Access<'_>) -> Instead {
    if changes(access) && clears(access, TIMED) { Loosely(Some) } else { AsTold }
}

/// A sleeper reads `calls` after it is counted, not before.
pub(crate) fn reads_calls_late(access: &mut Access<'_>) -> Instead {
    const COUNTED: u32 = 1;
    if changes(access) && more(access) == 1 {
        *access.mark = COUNTED;
    } else if access.is(CALLS, Op::Park) && *access.mark == COUNTED {
        *access.mark = 0;
        return Loosely(Some);
    }
    AsTold
}

/// A sleeper that leaves does not look whether it has been called just now.
pub(crate) fn leaving_ignores_the_call(access: &mut Access<'_>) -> Instead {
    const LATE: u32 = 1;
    const LOOKED: u32 = 2;
    fn leaves(state: u32) -> Option<u32> {
        Some(after_sleeper(state))
    }
    match *access.mark {
        0 if access.is(CALLS, Op::Unparked) && access.new == 1 => *access.mark = LATE,
        LATE if access.is(STATE, Op::Load) => {
            *access.mark = LOOKED;
            return With(access.new & !TRANSIT);
        }
        LOOKED if changes(access) => {
            *access.mark = 0;
            return Loosely(leaves);
        }
        _ => {}
    }
    AsTold
}

/// Whether a sleeper that was called finds the place taken, and becomes an extra head.
fn becomes_extra(access: &Access<'_>) -> bool {
    changes(access) && more(access) == -1 && access.old & TRANSIT == 0
}

/// An extra head is counted among the sleepers.
pub(crate) fn extra_head_is_counted(access: &mut Access<'_>) -> Instead {
    if becomes_extra(access) { With(access.old) } else { AsTold }
}

/// An extra head does not see that the place has become free again.
pub(crate) fn extra_head_goes_blindly(access: &mut Access<'_>) -> Instead {
    if becomes_extra(access) { Loosely(|state| Some(after_sleeper(state))) } else { AsTold }
}

/// The last sleeper that leaves does not take the place with it that the holder is to pass on.
pub(crate) fn last_sleeper_leaves_the_place(access: &mut Access<'_>) -> Instead {
    if clears(access, PASS | HEAD) && more(access) == -1 { With(access.new | PASS | HEAD) } else { AsTold }
}

/// A head that gives up goes as if no thread slept.
pub(crate) fn resigns_the_place(access: &mut Access<'_>) -> Instead {
    if resigns(access) { With(access.new & !(TRANSIT | HEAD)) } else { AsTold }
}

/// A head that gives up does not look whether it has been granted the lock just now.
pub(crate) fn resigns_granted(access: &mut Access<'_>) -> Instead {
    const TAKES: u32 = 1;
    if access.is(WORD, Op::Cas) && access.old == 0 {
        *access.mark = TAKES;
    } else if changes(access) {
        let takes = access.old & GRANT != 0 || std::mem::take(access.mark) == TAKES;
        if resigns(access) || clears(access, HEAD) && !takes {
            return Loosely(|state| Some(after_resigning(state)));
        }
    }
    AsTold
}

/// The lock is granted, whether or not the head is still there.
pub(crate) fn grants_blindly(access: &mut Access<'_>) -> Instead {
    if sets(access, GRANT) { Loosely(|state| Some(state & !HANDOFF | GRANT)) } else { AsTold }
}

/// The lock is granted to a head that has fallen asleep again since the look at it.
pub(crate) fn grants_a_sleeper(access: &mut Access<'_>) -> Instead {
    fn grant(state: u32) -> Option<u32> {
        (state & HANDOFF != 0).then_some(state & !HANDOFF | GRANT)
    }
    if sets(access, GRANT) { Loosely(grant) } else { AsTold }
}

/// A thread that has moved the waiters of a broadcast wakes none of them.
pub(crate) fn adopts_without_a_look(access: &mut Access<'_>) -> Instead {
    if access.is(Field::NodeState, Op::Wake) && *access.mark == ADOPTS { Nothing } else { AsTold }
}

/// A forked child forgets the head that was granted the lock, but not that the lock is held.
pub(crate) fn settles_half(access: &mut Access<'_>) -> Instead {
    const SETTLES: u32 = 1;
    if clears(access, GRANT) && more(access) < -1 {
        *access.mark = SETTLES;
    } else if access.is(WORD, Op::Swap) && std::mem::take(access.mark) == SETTLES {
        return Nothing;
    }
    AsTold
}

/// `Flash` with the release `B`, one of the constants below; and with a mark on threads that move waiters.
pub(crate) struct MutantFlash<const B: u8>;
/// Nothing is wrong: the skeleton of the mutants must hold.
pub(crate) const SOUND: u8 = 0;
/// The lock is granted before the word says so: it is touched when it may be gone.
pub(crate) const GRANTS_FIRST: u8 = 1;
/// A sleeper is called before it can take the place.
pub(crate) const CALLS_FIRST: u8 = 2;

impl<const B: u8> MutantFlash<B> {
    /// Whether it was handed over.
    fn hand_over<M: Machine>(word: &M::Word, queue: &FlashQueue<M>, seen: u32, slept: &mut bool) -> bool {
        let change = |new| queue.state.compare_exchange(seen, new, Release, Relaxed).is_ok();
        if seen & SLEEPS != 0 && B != GRANTS_FIRST {
            if change(seen & !SLEEPS) {
                *slept = true;
                word.store(2, Relaxed);
            }
            return false;
        }
        *slept |= seen & SLEEPS != 0;
        queue.turn.store(turn::at(queue.turn.load(Relaxed), M::micros()), Relaxed);
        if !change(seen & !(HANDOFF | SLEEPS) | GRANT) {
            return false;
        }
        if *slept {
            if B == GRANTS_FIRST {
                word.store(2, Relaxed);
            }
            M::wake(word, u32::MAX);
        }
        true
    }
}

// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<C: Checker, const B: u8> RawLock<Model<C>> for MutantFlash<B> {
    type Queue = FlashQueue<Model<C>>;

    flashlock_locks::same_as!(Model<C>, Flash: try_acquire acquire acquire_adopted);

    unsafe fn release(word: &<Model<C> as Memory>::Word, queue: &Self::Queue) {
        queue.turn.store(turn::next(queue.turn.load(Relaxed)), Relaxed);
        let mut slept = false;
        let called = loop {
            let seen = queue.state.load(Relaxed);
            if seen & PASS != 0 {
                if B == CALLS_FIRST {
                    queue.calls.fetch_add(CALL, AcqRel);
                }
                let passed = seen & !PASS | TRANSIT;
                if queue.state.compare_exchange(seen, passed, Relaxed, Relaxed).is_ok() {
                    if B != CALLS_FIRST {
                        queue.calls.fetch_add(CALL, AcqRel);
                    }
                    break true;
                }
            } else if seen & HANDOFF == 0 {
                break false;
            } else if Self::hand_over::<Model<C>>(word, queue, seen, &mut slept) {
                return;
            }
        };
        let has_others = has_sleepers(queue.state.load(Relaxed));
        let (word_at, calls): (*const _, *const _) = (word, &raw const queue.calls);
        if word.hand_back(0, 1, Release) && Model::<C>::wake(word_at, 1) == 0 && has_others && !called {
            Model::<C>::wake(calls, 1);
        }
        if called {
            Model::<C>::wake(calls, 1);
        }
    }
    unsafe fn is_locked(word: &<Model<C> as Memory>::Word, _: &Self::Queue) -> bool {
        word.load(Acquire) != 0
    }
    unsafe fn take_over(word: &<Model<C> as Memory>::Word, queue: &Self::Queue, chain: Chain) {
        World::<C>::get().set_mark(ADOPTS);
        // SAFETY: the callers' promise.
        unsafe { <Flash as RawLock<Model<C>>>::take_over(word, queue, chain) };
        World::<C>::get().set_mark(0);
    }
}
