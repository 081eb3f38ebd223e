//! In a forked child, a thread that uses a lock for the first time is stopped in the middle of that, and another one
//! tries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::for_each_lock;
use flashlock_model::Setup;
use flashlock_model::erased::erased;
use flashlock_model::shuttle::thread;
use flashlock_model::shuttle::{Draws, Shuttled};

use crate::common::{AnyMutex, STILL, any, both, world};
use crate::modelled::unless_alike;

/// How often a thread lets others run before it takes the one that it watches to be stuck.
const LONG_ENOUGH: u32 = 3_000;
/// Accesses within which each acquisition has queued, or was let in.
const ACCESSES: u32 = 40;
const SHORT: Draws = Draws { usual: 600, full: 20_000 };
const ROOMY: Setup = Setup { nodes: 32, ..STILL };

/// Lets others run until `is_done`; whether it came to that.
fn awaits(is_done: impl Fn() -> bool) -> bool {
    (0..LONG_ENOUGH).any(|_| {
        let done = is_done();
        thread::yield_now();
        done
    })
}

/// In a forked child, a thread that uses the lock for the first time is stopped at any access, and another thread
/// tries. In a program, that other thread may be the signal handler that stops the first one.
fn a_try_in_a_child_returns(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    mutex.section();
    world().fork();
    let tried = Arc::new(AtomicU32::new(0));
    let stopped = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            world().stop_after(1 + any(ACCESSES));
            mutex.section();
            world().stop_after(0);
        })
    };
    (0..any(20)).for_each(|_| thread::yield_now());
    let tries = {
        let (mutex, tried) = (mutex.clone(), tried.clone());
        thread::spawn(move || {
            if mutex.try_lock() {
                mutex.visit();
                mutex.unlock();
            }
            tried.store(1, Relaxed);
        })
    };
    assert!(awaits(|| tried.load(Relaxed) == 1), "a try waits for a thread that is stopped");
    world().thaw();
    [stopped, tries].into_iter().for_each(|thread| thread.join().expect("no panic"));
    mutex.section();
    mutex.free();
}

#[test]
fn a_try_waits_for_nobody_who_settles() {
    macro_rules! all {
        ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(unless_alike! { $wait, {
                let name = concat!($name, ":wait=", stringify!($wait), ", a try in a child");
                both(name, SHORT, ROOMY, || a_try_in_a_child_returns(erased::<Shuttled, $type>));
            } })+)*
        };
    }
    for_each_lock!(all);
}
