//! A head of a ShflLock that has only just been woken is not taken for one that does not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Tunables, Waiting as _, Word as _};
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::parts::shuffle::front::{naming, start_clock};
use flashlock_locks::parts::wait::Park;
use flashlock_model::arena::take_node;
use flashlock_model::shuttle::thread;
use flashlock_model::{Setup, Shuttle};

use crate::common::{Mutex, STILL, both, world};

/// No wait is overdue, and time passes only when this model says so.
const SETUP: Setup =
    Setup { tunables: &Tunables { bound_us: 10_000_000, ..Tunables::DEFAULT }, patience: 1, nodes: 8, ..STILL };

/// The head slept for long. A release wakes it, and before it runs, the waiter behind it has the lock out of turn.
fn woken_after_a_long_sleep() {
    let mutex = Arc::new(Mutex::<Shfl<Park>>::new());
    mutex.lock();
    let me = take_node::<Shuttle>();
    let head = me.node::<Shuttle>();
    head.prepare(state::NAPPING);
    head.role.store(mutex.queue.marked(0), Relaxed);
    assert!(mutex.queue.join(me, me));
    start_clock(head);
    mutex.queue.set_head(naming(me));
    mutex.word.swap(2, Relaxed);
    let [done, goes_on] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
    let sleeps = {
        let (mutex, goes_on) = (mutex.clone(), goes_on.clone());
        thread::spawn(move || {
            Shuttle::park(&mutex.word, 2, None);
            while goes_on.load(Relaxed) == 0 {
                thread::yield_now();
            }
            assert_ne!(head.state.load(Relaxed), state::EVICTED, "it was evicted as it woke up");
            mutex.lock_adopted(me);
            mutex.visit();
            mutex.unlock();
        })
    };
    let behind = {
        let (mutex, done) = (mutex.clone(), done.clone());
        thread::spawn(move || {
            mutex.section();
            done.fetch_add(1, Relaxed);
        })
    };
    while world().sleepers() < 2 {
        thread::yield_now();
    }
    world().pass(100_000);
    mutex.unlock();
    while done.load(Relaxed) == 0 {
        world().tick();
        thread::yield_now();
    }
    goes_on.store(1, Relaxed);
    [sleeps, behind].into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(!mutex.is_locked());
}

#[test]
fn a_head_that_was_just_woken_is_not_evicted() {
    both("shfl:wait=park, just woken", 600, SETUP, woken_after_a_long_sleep);
}
