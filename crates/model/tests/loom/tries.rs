//! A try fails only if a thread holds the lock.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::Word as _;
use flashlock_locks::mutex::malthusian::Loiter;
use flashlock_locks::mutex::malthusian::loiter::ARRIVAL;
use flashlock_locks::mutex::numa::Cna;
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::wait::Park;
use flashlock_model::Setup;
use flashlock_model::loom::{explore, thread};

use crate::common::{ALL, Lock, Mutex};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(4) };

/// One thread polls for a free lock, another one comes, and this one tries.
fn tried_as_one_comes<L: Lock>() {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.word.fetch_add(ARRIVAL, Relaxed);
    let comes = {
        let mutex = mutex.clone();
        thread::spawn(move || _ = mutex.word.fetch_add(ARRIVAL, Relaxed))
    };
    assert!(mutex.try_lock(), "a try fails at a lock that nobody holds");
    mutex.visit();
    comes.join().expect("no panic");
    mutex.word.fetch_add((2 * ARRIVAL).wrapping_neg(), Relaxed);
    mutex.unlock();
    assert_eq!(mutex.word.load(Relaxed), 0);
}

#[test]
fn a_try_does_not_fail_because_others_come() {
    explore("loiter, tried", ALL, SETUP, tried_as_one_comes::<Loiter<Mcs<Park>, Park>>);
    explore("loiter-cna, tried", ALL, SETUP, tried_as_one_comes::<Loiter<Cna<Park>, Park>>);
}
