//! Condition variables: no wake-up lost, no signal swallowed, and nothing touched once they are destroyed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::cond::fifo::Outcome;
use flashlock_locks::machine::order::Order;
use flashlock_locks::machine::{Handle, Tunables, Word as _};
use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::mutex::spin::{Futex, Tas};
use flashlock_locks::parts::wait::Park;
use flashlock_model::erased::erased;
use flashlock_model::harness::Waited;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::{Loom, Setup, is_full};

use crate::common::{AnyMutex, Cond, Lock, world};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(4) };

/// A mutex, a condition variable, and a number that the mutex protects.
pub(crate) struct Shared {
    pub(crate) mutex: AnyMutex,
    pub(crate) cond: Cond,
    pub(crate) flag: AtomicU32,
}

/// Makes the mutex of a model.
type New = fn() -> AnyMutex;

impl Shared {
    pub(crate) fn new(new: New) -> Arc<Self> {
        Arc::new(Self { mutex: new(), cond: Cond::new(), flag: AtomicU32::new(0) })
    }

    pub(crate) fn wait_for_flag(&self) {
        self.mutex.lock();
        while self.flag.load(Relaxed) == 0 {
            assert_eq!(self.cond.wait(&self.mutex, None), Waited::Woken);
        }
        self.mutex.visit();
        self.mutex.unlock();
    }

    pub(crate) fn set_flag(&self) {
        self.mutex.lock();
        self.flag.store(1, Relaxed);
        self.mutex.visit();
        self.mutex.unlock();
    }
}

/// A thread waits for a flag; the flag is set, and signalled after the mutex is released.
pub(crate) fn signal<L: Lock>() {
    signal_of(erased::<Loomed, L>);
}

fn signal_of(new: New) {
    let shared = Shared::new(new);
    let waiter = {
        let shared = shared.clone();
        thread::spawn(move || shared.wait_for_flag())
    };
    shared.set_flag();
    shared.cond.signal();
    waiter.join().expect("no panic");
    assert!(shared.cond.destroy());
}

/// Waiters for a flag; it is set, and broadcast, and the condition variable destroyed at once.
pub(crate) fn broadcast<L: Lock>(waiters: usize, moves: bool) {
    broadcast_of(erased::<Loomed, L>, waiters, moves);
}

fn broadcast_of(new: New, waiters: usize, moves: bool) {
    let shared = Shared::new(new);
    let threads: Vec<_> = (0..waiters)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || shared.wait_for_flag())
        })
        .collect();
    shared.set_flag();
    shared.cond.broadcast(&shared.mutex, moves);
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(shared.cond.destroy());
}

/// Two wait; a broadcast from outside moves them. The last to go frees the mutex.
pub(crate) fn moved_from_outside<L: Lock>() {
    moved_from_outside_of(erased::<Loomed, L>);
}

fn moved_from_outside_of(new: New) {
    let shared = Shared::new(new);
    shared.mutex.lock();
    let waiters = [(); 2].map(|()| shared.cond.enqueue(shared.mutex.address()));
    shared.mutex.unlock();
    let threads = waiters.map(|me| {
        let shared = shared.clone();
        thread::spawn(move || {
            flashlock_model::harness::finish(shared.cond.queue.wait(me, None), &shared.mutex);
            let last = shared.mutex.visit() == 1;
            shared.mutex.unlock();
            if last {
                shared.mutex.free();
            }
        })
    });
    shared.cond.broadcast(&shared.mutex, true);
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// A waiter whose deadline passes, and a signal: the signal is consumed by the wait or it is not, and no node is lost.
pub(crate) fn signal_against_deadline<L: Lock>(cancelled: bool) {
    signal_against_deadline_of(erased::<Loomed, L>, cancelled);
}

fn signal_against_deadline_of(new: New, cancelled: bool) {
    let shared = Shared::new(new);
    let waiter = {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.mutex.lock();
            let waited = if cancelled {
                shared.cond.wait_cancelled(&shared.mutex)
            } else {
                shared.cond.wait(&shared.mutex, Some(world().first_tick()))
            };
            shared.mutex.visit();
            shared.mutex.unlock();
            waited
        })
    };
    if !cancelled {
        world().tick();
    }
    shared.cond.signal();
    waiter.join().expect("no panic");
    assert!(shared.cond.destroy());
}

/// The last waiter is about to leave; the condition variable is destroyed and freed as soon as it was signalled.
pub(crate) fn destroy<L: Lock>(all: bool, moves: bool) {
    destroy_of(erased::<Loomed, L>, all, moves);
}

fn destroy_of(new: New, all: bool, moves: bool) {
    let shared = Shared::new(new);
    shared.mutex.lock();
    let me = shared.cond.enqueue(shared.mutex.address());
    shared.mutex.unlock();
    let waiter = {
        let shared = shared.clone();
        thread::spawn(move || {
            let outcome = shared.cond.queue.wait(me, None);
            flashlock_model::harness::finish(outcome, &shared.mutex);
            shared.mutex.visit();
            shared.mutex.unlock();
        })
    };
    if all {
        shared.cond.broadcast(&shared.mutex, moves);
    } else {
        shared.cond.signal();
    }
    assert!(shared.cond.destroy());
    waiter.join().expect("no panic");
}

/// Two threads wait, one of them is cancelled; one signal reaches the other, unless the cancelled one had gone before.
pub(crate) fn one_signal_for_two<L: Lock>(cancel: fn(&Shared, Handle) -> Outcome) {
    one_signal_for_two_of(erased::<Loomed, L>, cancel);
}

fn one_signal_for_two_of(new: New, cancel: fn(&Shared, Handle) -> Outcome) {
    let shared = Shared::new(new);
    shared.mutex.lock();
    let first = shared.cond.enqueue(shared.mutex.address());
    let second = shared.cond.enqueue(shared.mutex.address());
    shared.mutex.unlock();
    let threads = [(first, true), (second, false)].map(|(me, cancelled)| {
        let shared = shared.clone();
        thread::spawn(move || {
            let outcome = if cancelled { cancel(&shared, me) } else { shared.cond.queue.wait(me, None) };
            flashlock_model::harness::finish(outcome, &shared.mutex);
            shared.mutex.visit();
            shared.mutex.unlock();
        })
    });
    shared.cond.signal();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(shared.cond.destroy());
}

#[test]
fn a_signal_is_not_lost() {
    explore("signal, futex", Preemptions(4), SETUP, signal::<Futex>);
    explore("signal, flash", Preemptions(2), SETUP, signal::<Flash>);
    explore("signal, mcs", Preemptions(3), SETUP, signal::<Mcs<Park>>);
    explore("signal, shfl", Preemptions(3), SETUP, signal::<Shfl<Park>>);
}

#[test]
fn a_broadcast_reaches_all() {
    for moves in [false, true] {
        explore("broadcast to one, mcs", Preemptions(3), SETUP, move || broadcast::<Mcs<Park>>(1, moves));
        explore("broadcast to one, shfl", Preemptions(3), SETUP, move || broadcast::<Shfl<Park>>(1, moves));
        explore("broadcast to two, mcs", Preemptions(1), SETUP, move || broadcast::<Mcs<Park>>(2, moves));
        explore("broadcast to two, shfl", Preemptions(1), SETUP, move || broadcast::<Shfl<Park>>(2, moves));
    }
    explore("broadcast to two, hand over hand", Preemptions(2), SETUP, || broadcast::<Futex>(2, false));
    explore("broadcast to two, futex", Preemptions(2), SETUP, || broadcast::<Futex>(2, true));
    explore("broadcast to two, flash", Preemptions(1), SETUP, || broadcast::<Flash>(2, true));
    explore("broadcast to two, tas", Preemptions(1), SETUP, || broadcast::<Tas>(2, true));
}

#[test]
fn moved_waiters_may_free_the_mutex() {
    explore("moved, freed, futex", Preemptions(2), SETUP, moved_from_outside::<Futex>);
    // Without a preemption, there are 268,020 executions.
    if is_full() {
        explore("moved, freed, flash", Preemptions(0), SETUP, moved_from_outside::<Flash>);
    }
    explore("moved, freed, tas", Preemptions(2), SETUP, moved_from_outside::<Tas>);
    explore("moved, freed, mcs", Preemptions(2), SETUP, moved_from_outside::<Mcs<Park>>);
    explore("moved, freed, shfl", Preemptions(1).or_in_full(Preemptions(2)), SETUP, moved_from_outside::<Shfl<Park>>);
}

#[test]
fn a_signal_and_a_deadline() {
    explore("signal, deadline", Preemptions(3), SETUP, || signal_against_deadline::<Futex>(false));
    explore("signal, cancellation", Preemptions(3), SETUP, || signal_against_deadline::<Futex>(true));
    explore("cancelled, passes on", Preemptions(2), SETUP, || {
        one_signal_for_two::<Futex>(|shared, me| shared.cond.queue.cancel(me));
    });
}

#[test]
fn destroyed_as_soon_as_nobody_is_blocked() {
    explore("destroy after signal", Preemptions(4), SETUP, || destroy::<Futex>(false, false));
    explore("destroy after broadcast", Preemptions(4), SETUP, || destroy::<Futex>(true, false));
    explore("destroy after move, futex", Preemptions(4), SETUP, || destroy::<Futex>(true, true));
    explore("destroy after move, flash", Preemptions(2), SETUP, || destroy::<Flash>(true, true));
    explore("destroy after move, mcs", Preemptions(3), SETUP, || destroy::<Mcs<Park>>(true, true));
    explore("destroy after move, shfl", Preemptions(3), SETUP, || destroy::<Shfl<Park>>(true, true));
}

const LIFO: Tunables = Tunables { cond_order: Order::LIFO, ..Tunables::DEFAULT };

/// Two threads wait, the last in front. The first gives up while a signal comes for the one in front. `forgets`: the
/// node of the first does not name the one that was put in front of it.
fn the_front_stays(forgets: bool) {
    let cond = Arc::new(Cond::new());
    let [first, last] = [(); 2].map(|()| cond.enqueue(0));
    if forgets {
        first.node::<Loom>().prev.store(0, Relaxed);
    }
    let leaves = {
        let cond = cond.clone();
        thread::spawn(move || assert!(cond.queue.withdraw(first)))
    };
    cond.signal();
    assert_eq!(cond.queue.wait(last, None), Outcome::Signaled(None));
    leaves.join().expect("no panic");
    assert!(cond.destroy());
}

#[test]
fn who_is_put_in_front_is_linked() {
    let setup = Setup { tunables: &LIFO, ..SETUP };
    explore("lifo, one leaves", Preemptions(3), setup, || the_front_stays(false));
    find("put in front, not linked back", Preemptions(3), setup, || the_front_stays(true));
}
