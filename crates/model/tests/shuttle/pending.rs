//! The waiter that is PENDING under `qspin`, while a joiner is stopped that has overwritten its bit.

use std::sync::Arc;

use flashlock_locks::machine::node::state;
use flashlock_locks::mutex::queue::qspin::line::{Joined, Line, Succession};
use flashlock_locks::mutex::queue::qspin::word::{LOCKED, PENDING, is_locked, tail_word};
use flashlock_locks::mutex::queue::qspin::{Arrival, QspinLock};
use flashlock_locks::parts::queue::link::Link;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::{Park, SpinThenPark, WaitPolicy};
use flashlock_model::arena::take_node;
use flashlock_model::shuttle::thread;
use flashlock_model::{Setup, Shuttle};

use crate::common::{Mutex, STILL, both, world};

/// How often a thread lets others run before it takes the one that it watches to be stuck.
const LONG_ENOUGH: u32 = 3_000;

/// Lets others run until `is_done`; whether it came to that.
fn awaits(is_done: impl Fn() -> bool) -> bool {
    (0..LONG_ENOUGH).any(|_| {
        let done = is_done();
        thread::yield_now();
        done
    })
}

/// A waiter is PENDING. A joiner, which saw the word before that, is stopped before it has put that bit back, and the
/// lock is released. The waiter does not work meanwhile: it naps.
fn naps_without_its_bit<S: Succession, W: WaitPolicy>() {
    let mutex = Arc::new(Mutex::<QspinLock<S, W>>::new());
    mutex.lock();
    let pends = {
        let mutex = mutex.clone();
        thread::spawn(move || mutex.section())
    };
    assert!(awaits(|| mutex.word.peek() & PENDING != 0));
    let joins = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            let (line, me) = (Line::<Shuttle> { word: &mutex.word }, take_node::<Shuttle>());
            me.node::<Shuttle>().prepare(state::WAITING);
            S::begin(me.node::<Shuttle>());
            world().stop_after(1);
            assert!(matches!(line.join::<S>(LOCKED, Link::without_numa(me), me, true, W::PARKS), Joined::Head));
            assert!(line.contend::<S, W>(me, None).is_ok());
            mutex.visit();
            // SAFETY: this thread has it.
            unsafe { <QspinLock<S, W> as RawLock<Shuttle>>::unlock(&mutex.word, &()) };
        })
    };
    assert!(awaits(|| world().stopped() == 1));
    mutex.unlock();
    (0..100).for_each(|_| thread::yield_now());
    let seen = mutex.word.peek();
    assert!(seen & PENDING == 0 && !is_locked(seen) && tail_word(seen) != 0, "{seen:#x}");
    let before = world().atomics();
    (0..300).for_each(|_| thread::yield_now());
    assert_eq!(world().atomics(), before, "a waiter works on while a joiner is stopped");
    world().thaw();
    [pends, joins].into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(mutex.word.peek(), 0, "nothing is left in the word");
}

#[test]
fn a_pending_waiter_naps_while_its_bit_is_missing() {
    // Before it falls asleep: otherwise a flag tells joiners to leave the word's flags alone.
    let polls = Setup { polls: 60, ..STILL };
    for (name, setup) in [("awake", polls), ("asleep", STILL)] {
        both(&format!("qspin park, stopped joiner, {name}"), 600, setup, naps_without_its_bit::<Arrival, Park>);
        both(&format!("qspin stp, stopped joiner, {name}"), 600, setup, naps_without_its_bit::<Arrival, SpinThenPark>);
    }
}
