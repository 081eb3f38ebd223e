//! A forked child in which a condition variable works, whatever another thread of the parent was at with it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flashlock_locks::machine::{Handle, Memory as _, Waiting as _, Word as _};
use flashlock_locks::mutex::spin::Futex;
use flashlock_model::erased::erased;
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::tag::cond_words;
use flashlock_model::{Loom, Setup};

use crate::common::world;
use crate::cond::Shared;

const SETUP: Setup = Setup { polls: 1, ..Setup::new(6) };

/// What the other thread was doing; two threads wait, and it may be the first of them.
type Act = fn(&Shared, Handle);

const QUEUES: Act = |shared, _| {
    shared.cond.enqueue(shared.mutex.address());
};
const SIGNALS: Act = |shared, _| shared.cond.signal();
const BROADCASTS: Act = |shared, _| shared.cond.broadcast(&shared.mutex, false);
const GIVES_UP: Act = |shared, me| {
    shared.cond.queue.withdraw(me);
};
const DESTROYS: Act = |shared, _| assert!(!shared.cond.destroy());

/// What a thread of the child does first: nothing, if the code is sound.
type First = fn(&Shared);
pub(crate) const NOTHING: First = |_| ();

/// The child, forked after so many steps of `act`: one thread waits, another signals and destroys. Returns whether the
/// act had come to its end.
fn forked(act: Act, steps: u32, first: First) -> bool {
    let shared = Shared::new(erased::<Loomed, Futex>);
    let [me, _] = [(); 2].map(|()| shared.cond.enqueue(shared.mutex.address()));
    let ended = world().fork_within(steps, || act(&shared, me));
    let waiter = {
        let shared = shared.clone();
        thread::spawn(move || {
            first(&shared);
            shared.wait_for_flag();
        })
    };
    first(&shared);
    shared.cond.signal(); // Before there is a reason: the first use of the one may meet that of the other.
    shared.set_flag();
    shared.cond.signal();
    waiter.join().expect("no panic");
    assert!(shared.cond.destroy());
    ended
}

/// Every step of the act.
fn anywhere(name: &str, depth: Depth, act: Act) {
    let mut steps = 0;
    let ended = Arc::new(AtomicBool::new(false));
    while !ended.load(Relaxed) {
        steps += 1;
        let ended = ended.clone();
        explore(&format!("{name}, {steps} steps"), depth, SETUP, move || {
            ended.store(forked(act, steps, NOTHING), Relaxed);
        });
    }
    assert!(steps > 5, "{name}: only {steps} steps");
}

#[test]
fn a_condition_variable_is_usable_in_a_child() {
    anywhere("forked, queueing", Preemptions(2), QUEUES);
    anywhere("forked, signalling", Preemptions(1), SIGNALS);
    anywhere("forked, broadcasting", Preemptions(1), BROADCASTS);
    anywhere("forked, giving up", Preemptions(1), GIVES_UP);
    anywhere("forked, destroying", Preemptions(1), DESTROYS);
}

/// The child, forked while the other thread had the internal lock, to queue.
pub(crate) fn forked_in_queueing(first: First) {
    let ended = forked(QUEUES, 14, first);
    assert!(!ended);
}

/// Takes the internal lock first, and looks at the epoch then.
const LOCKS_FIRST: First = |shared| {
    let [lock, ..] = cond_words(&shared.cond.queue);
    while lock.swap(2, Acquire) != 0 {
        Loom::park(lock, 2, None);
    }
    if lock.swap(0, Release) == 2 {
        Loom::wake(lock, 1);
    }
};

/// Says that it has thrown away what others have left, and then does it.
const SETTLES_LATE: First = |shared| {
    let [lock, head, tail, refs, epoch, deferred] = cond_words::<Loomed>(&shared.cond.queue);
    let (seen, now) = (epoch.load(Relaxed), Loom::epoch());
    if seen != now && epoch.compare_exchange(seen, now, Relaxed, Relaxed).is_ok() {
        for word in [lock, head, tail, refs, deferred] {
            word.store(0, Relaxed);
        }
    }
};

#[test]
fn bugs() {
    for (name, first) in [("locks before it settles", LOCKS_FIRST), ("settles late", SETTLES_LATE)] {
        find(name, Preemptions(2), SETUP, move || forked_in_queueing(first));
    }
}
