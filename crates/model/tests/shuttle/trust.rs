//! A waiter that relies on the wake-up of the waiter before it goes on if that one freezes as it is woken, wherever the
//! releaser stands meanwhile, and if others give up between the two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::Deadline;
use flashlock_locks::rw::Writer;
use flashlock_locks::{for_each_lock, for_each_rw_lock};
use flashlock_model::Setup;
use flashlock_model::erased::erased;
use flashlock_model::shuttle::Shuttled;
use flashlock_model::shuttle::thread;

use crate::common::{AnyMutex, HASTY, STILL, any, both, can, share, world};
use crate::modelled::unless_alike;
use crate::rw::{Rw, made};

/// A patience ends, but no sleep ends for no reason: only who is called, or has patience, looks at the lock.
const PATIENT: Setup = Setup { nodes: 32, micros_step: 500, patience: 1, flow: 20, ..STILL };
/// The same, where the clock hardly moves: no wait is overdue.
const SLOW: Setup = Setup { micros_step: 20, ..PATIENT };
/// The same, where every wait is overdue, and grants become stale.
const GRANTING: Setup = Setup { micros_step: 4_000, tunables: &HASTY, ..PATIENT };

/// Within so many steps of the main thread the waiter has the lock.
const LONG_ENOUGH: u32 = 12_000;
/// How many schedules of each kind and model.
const SCHEDULES: usize = 3_000;

/// A lock that this model holds and releases, and others wait for.
struct Held<A, U> {
    acquire: A,
    unlock: U,
}

/// Lets others run until so many nodes are taken, or for a while.
fn await_nodes(count: usize) {
    for _ in 0..200 {
        if world().arena.in_use() >= count {
            return;
        }
        thread::yield_now();
    }
}

/// This thread holds the lock. A thread waits that freezes somewhere, and behind it, perhaps, one that gives up, and
/// one that must have the lock in the end. This thread releases.
fn frozen_as_woken<A, U>(held: Held<A, U>, leaves: bool)
where
    A: Fn(Option<Deadline>) -> bool + Clone + Send + 'static,
    U: Fn() + Clone + Send + 'static,
{
    let Held { acquire, unlock } = held;
    let waits = |frozen: bool, ticks: Option<u32>, finished: Arc<AtomicU32>| {
        let (acquire, unlock) = (acquire.clone(), unlock.clone());
        thread::spawn(move || {
            if frozen {
                world().freeze_at(1 + any(16));
            }
            if acquire(ticks.map(|ticks| world().deadline(ticks))) {
                unlock();
            }
            finished.fetch_add(1, Relaxed);
        })
    };
    assert!(acquire(None));
    let [finished, others] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
    let taken = world().arena.in_use();
    let mut threads = vec![waits(true, None, others.clone())];
    await_nodes(taken + 1);
    if leaves {
        threads.push(waits(false, Some(1 + any(4)), others.clone()));
        await_nodes(taken + 2);
    }
    threads.push(waits(false, None, finished.clone()));
    (0..any(150)).for_each(|_| thread::yield_now());
    unlock();
    for step in 0.. {
        if finished.load(Relaxed) == 1 {
            break;
        }
        assert!(step < LONG_ENOUGH, "nobody tells a waiter that the one before it is frozen");
        thread::yield_now();
    }
    world().thaw();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn frozen_mutex(new: fn() -> AnyMutex, leaves: bool) {
    let mutex = Arc::new(new());
    let acquire = {
        let mutex = mutex.clone();
        move |until| match until {
            Some(until) => mutex.lock_until(until),
            None => {
                mutex.lock();
                true
            }
        }
    };
    let unlock = {
        let mutex = mutex.clone();
        move || {
            mutex.visit();
            mutex.unlock();
        }
    };
    frozen_as_woken(Held { acquire, unlock }, leaves);
    assert!(!mutex.is_locked());
    mutex.free();
}

fn frozen_writer<L: Rw>(leaves: bool) {
    let lock = made::<L>();
    let acquire = {
        let lock = lock.clone();
        move |until| lock.write(Writer::Fair, until)
    };
    let unlock = {
        let lock = lock.clone();
        move || {
            lock.visit();
            lock.unlock();
        }
    };
    frozen_as_woken(Held { acquire, unlock }, leaves);
    assert!(lock.try_write(), "left held");
    lock.unlock();
    lock.free();
}

/// The model in each set-up, with a waiter that gives up and without.
fn each(lock: &str, wait: &str, model: impl Fn(bool) + Send + Sync + Clone + 'static) {
    for (how, setup) in [("slow", SLOW), ("patient", PATIENT), ("granting", GRANTING)] {
        if how == "slow" && lock != "shfl" {
            continue; // Under the others, waiters need the clock to take a thread to be frozen.
        }
        for leaves in [false, true] {
            let name = format!("{lock}:wait={wait} relied on, {how}, leaves: {leaves}");
            let model = model.clone();
            both(&name, share(lock, wait, SCHEDULES), setup, move || model(leaves));
        }
    }
}

#[test]
fn a_waiter_behind_a_frozen_one_goes_on() {
    macro_rules! all {
        ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(unless_alike! { $wait,
                if can($name, "torture.freeze-waiter") {
                    each($name, stringify!($wait), |leaves| frozen_mutex(erased::<Shuttled, $type>, leaves));
                }
            })+)*
        };
    }
    for_each_lock!(all);
}

#[test]
fn a_writer_behind_a_frozen_one_goes_on() {
    macro_rules! all {
        ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(unless_alike! { $wait,
                each($name, stringify!($wait), frozen_writer::<$type>);
            })+)*
        };
    }
    for_each_rw_lock!(all);
}
