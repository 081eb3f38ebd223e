//! The last thread to use a mutex frees it, as POSIX allows: no thread touches it after the access that lets another
//! thread in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::for_each_lock;
use flashlock_model::erased::erased;
use flashlock_model::shuttle::Shuttled;
use flashlock_model::shuttle::thread;

use crate::common::{AnyMutex, Cond, FLOWING, Lock, OVERDUE, STILL, both, share, world};
use crate::modelled::each;

const THREADS: u32 = 3;

/// Each thread does one section; the last one frees the mutex.
pub(crate) fn last_frees<L: Lock>() {
    last_frees_of(erased::<Shuttled, L>);
}

fn last_frees_of(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    let work = |mutex: &AnyMutex| {
        mutex.lock();
        let last = mutex.visit() == THREADS - 1;
        mutex.unlock();
        if last {
            mutex.free();
        }
    };
    let threads: Vec<_> = (1..THREADS)
        .map(|me| {
            let mutex = mutex.clone();
            thread::spawn(move || {
                world().set_numa(me % 2);
                work(&mutex);
            })
        })
        .collect();
    work(&mutex);
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// A broadcast by a thread that does not hold the mutex wakes waiters, which use it; the last one frees it.
fn last_waiter_frees<L: Lock>(waiters: u32, moves: bool) {
    last_waiter_frees_of(erased::<Shuttled, L>, waiters, moves);
}

fn last_waiter_frees_of(new: fn() -> AnyMutex, waiters: u32, moves: bool) {
    let mutex = Arc::new(new());
    let cond = Arc::new(Cond::new());
    let (ready, go) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let threads: Vec<_> = (0..waiters)
        .map(|_| {
            let (mutex, cond, ready, go) = (mutex.clone(), cond.clone(), ready.clone(), go.clone());
            thread::spawn(move || {
                mutex.lock();
                ready.fetch_add(1, Relaxed);
                while go.load(Relaxed) == 0 {
                    cond.wait(&mutex, None);
                }
                let last = ready.fetch_sub(1, Relaxed) == 1;
                mutex.visit();
                mutex.unlock();
                if last {
                    mutex.free();
                }
            })
        })
        .collect();
    loop {
        mutex.lock();
        let all = ready.load(Relaxed) == waiters;
        go.store(u32::from(all), Relaxed);
        mutex.unlock();
        if all {
            break;
        }
        thread::yield_now();
    }
    cond.broadcast(&mutex, moves);
    for thread in threads {
        thread.join().expect("no panic");
    }
}

macro_rules! lifetime {
    ($lock:literal, $wait:ident, $type:ty) => {
        const NAME: &str = concat!($lock, ":wait=", stringify!($wait));

        #[test]
        fn mutex() {
            for setup in [STILL, OVERDUE, FLOWING] {
                both(&format!("{NAME} freed"), share($lock, stringify!($wait), 4000), setup, last_frees::<$type>);
            }
        }

        #[test]
        fn mutex_after_broadcast() {
            let (name, schedules) = (format!("{NAME} freed after broadcast"), share($lock, stringify!($wait), 2000));
            for setup in [STILL, FLOWING] {
                for moves in [false, true] {
                    for waiters in [1, 2, 3] {
                        both(&name, schedules, setup, move || last_waiter_frees::<$type>(waiters, moves));
                    }
                }
            }
        }
    };
}

macro_rules! mutexes {
    ($($rows:tt)*) => { each! { of: lifetime, crate::modelled::all: $($rows)* } };
}
for_each_lock!(mutexes);
