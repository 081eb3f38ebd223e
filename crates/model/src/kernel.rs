//! # The kernel: futexes
//!
//! Models sleep and wake by these functions. Checking the word and falling asleep are one step, and wake-ups reach only
//! threads that sleep. The address in a wake-up need not name anything.
//!
//! ## Invariants
//! 1. A sleeper is entered in the same step as the check of its word; nothing is scheduled between that and its block.
//! 2. Each futex call begins with a read-modify-write of `calls`, which tells the checker that the order of calls
//!    matters.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::{Deadline, Unparked, Word as _};

use crate::checker::Checker;
use crate::meddle::Instead;
use crate::word::{Field, Op, Word};
use crate::world::{Fault, World};

struct Sleeper<C: Checker> {
    address: *const Word<C>,
    until: Option<i64>,
    thread: C::Thread,
    end: Rc<Cell<Option<Unparked>>>,
}

/// The sleeping threads and their words.
pub struct Kernel<C: Checker> {
    calls: C::Atomic,
    sleepers: RefCell<Vec<Sleeper<C>>>,
    naps: RefCell<Vec<Nap<C>>>,
}

struct Nap<C: Checker> {
    thread: C::Thread,
    over: Rc<Cell<bool>>,
}

impl<C: Checker> Kernel<C> {
    pub(crate) fn new() -> Self {
        Self { calls: C::Atomic::new(0), sleepers: RefCell::new(Vec::new()), naps: RefCell::new(Vec::new()) }
    }

    /// Invariant 2. Relaxed: a futex call orders nothing that the algorithm does not order itself.
    pub(crate) fn enter(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// Ends up to `count` sleeps that `chosen` selects. Returns how many.
    fn end(&self, count: u32, how: Unparked, chosen: impl Fn(&Sleeper<C>) -> bool) -> u32 {
        for ended in 0..count {
            let sleeper = {
                let mut sleepers = self.sleepers.borrow_mut();
                let Some(at) = sleepers.iter().position(&chosen) else { return ended };
                sleepers.remove(at)
            };
            sleeper.end.set(Some(how));
            C::unblock(&sleeper.thread);
        }
        count
    }

    /// Ends the sleeps whose deadline has passed.
    pub(crate) fn expire(&self, now: u32) {
        self.end(u32::MAX, Unparked::TimedOut, |sleeper| sleeper.until.is_some_and(|until| i64::from(now) >= until));
    }

    /// Ends all naps, because a word has changed.
    pub(crate) fn end_naps(&self) {
        while let Some(nap) = { self.naps.borrow_mut().pop() } {
            nap.over.set(true);
            C::unblock(&nap.thread);
        }
    }

    /// The purpose of the word at this address, if a thread sleeps on it.
    fn field_at(&self, address: *const Word<C>) -> u8 {
        let sleepers = self.sleepers.borrow();
        let here = sleepers.iter().find(|sleeper| sleeper.address == address);
        // SAFETY: a sleeper's word is alive as long as it sleeps.
        here.map_or(Field::Untagged as u8, |sleeper| unsafe { &*sleeper.address }.field())
    }

    /// How many threads sleep.
    pub fn sleepers(&self) -> usize {
        self.sleepers.borrow().len()
    }
}

/// `FUTEX_WAIT`, with which a test may meddle.
pub fn park<C: Checker>(world: &World<C>, word: &Word<C>, expected: u32, until: Option<Deadline>) -> Unparked {
    let instead = world.meddle(word.field(), Op::Park, 0, expected);
    let stays = |seen| match instead {
        Instead::With(other) => seen == other,
        Instead::Loosely(change) => change(seen).is_some(),
        _ => seen == expected,
    };
    let unparked = sleep(world, word, stays, until);
    world.meddle(word.field(), Op::Unparked, 0, u32::from(unparked == Unparked::TimedOut));
    unparked
}

fn sleep<C: Checker>(
    world: &World<C>,
    word: &Word<C>,
    stays: impl Fn(u32) -> bool,
    until: Option<Deadline>,
) -> Unparked {
    world.maybe_freeze();
    world.flow();
    assert!(!word.is(Field::Freed), "park on a word in freed memory");
    let kernel = &world.kernel;
    kernel.enter();
    // The load is for the checker, which learns that writes of the word matter here. The kernel looks under its own
    // lock, and never sees an old value. Nor may the thread that returns from it; hence the yield.
    let old = word.raw.load(Relaxed);
    let seen = word.peek();
    if !stays(seen) && world.setup.fault != Some(Fault::ParkBlindly) {
        if seen != old {
            C::yield_now();
        }
        return Unparked::Changed;
    }
    if C::chance(world.setup.spurious) {
        return Unparked::Woken;
    }
    let until = until.map(|deadline| deadline.sec);
    if until.is_some_and(|until| i64::from(world.now.get()) >= until) {
        return Unparked::TimedOut;
    }
    let end = Rc::new(Cell::new(None));
    let sleeper = Sleeper { address: word, until, thread: C::thread(), end: end.clone() };
    kernel.sleepers.borrow_mut().push(sleeper);
    // Invariant 1.
    loop {
        if let Some(how) = end.get() {
            return how;
        }
        if until.is_some_and(|until| until != i64::MAX) && world.setup.flow > 0 {
            // Time must go on even if no other thread runs.
            C::yield_now();
            world.flow();
        } else {
            C::block();
        }
    }
}

/// A nap while time stands still.
pub(crate) fn nap<C: Checker>(world: &World<C>) {
    world.maybe_freeze();
    world.kernel.enter(); // Other threads may run here: a change that they make does not end this nap.
    let over = Rc::new(Cell::new(false));
    world.kernel.naps.borrow_mut().push(Nap { thread: C::thread(), over: over.clone() });
    while !over.get() {
        C::block();
    }
}

/// `FUTEX_REQUEUE` of one sleeper.
pub fn requeue<C: Checker>(world: &World<C>, from: *const Word<C>, to: *const Word<C>) {
    world.kernel.enter();
    let mut sleepers = world.kernel.sleepers.borrow_mut();
    if let Some(sleeper) = sleepers.iter_mut().find(|sleeper| sleeper.address == from) {
        sleeper.address = to;
    }
}

/// `FUTEX_WAKE`.
pub fn wake<C: Checker>(world: &World<C>, address: *const Word<C>, count: u32) -> u32 {
    world.kernel.enter();
    let count = match world.meddle(world.kernel.field_at(address), Op::Wake, 0, count) {
        Instead::With(other) => other,
        Instead::Nothing => return 0,
        _ => count,
    };
    let lost = |sleeper: &Sleeper<C>| match world.setup.fault {
        // SAFETY: a sleeper's word is alive as long as it sleeps.
        Some(Fault::NoWake(field)) => unsafe { &*sleeper.address }.is(field),
        _ => false,
    };
    world.kernel.end(count, Unparked::Woken, |sleeper| sleeper.address == address && !lost(sleeper))
}
