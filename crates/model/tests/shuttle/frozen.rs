//! A thread that freezes while it waits, as one whose signal handler sleeps, delays others but does not stop them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::shuffle::Shfl;
use flashlock_locks::spin::{Futex, Tas};
use flashlock_locks::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use shuttle::thread;

use crate::common::{Cond, FLOWING, Lock, Mutex, any, both, world};

/// Time passes fast enough for grants to become stale, and for heads to be thrown out.
const FAST: Setup = Setup { micros_step: 4000, ..FLOWING };

fn frozen<L: Lock>() {
    let mutex = Arc::new(Mutex::<L>::new());
    let (rounds, others) = (2, 3);
    let victim = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            world().freeze_at(1 + any(8));
            (0..rounds).for_each(|_| mutex.section());
        })
    };
    let threads: Vec<_> = (0..others)
        .map(|me| {
            let mutex = mutex.clone();
            thread::spawn(move || {
                world().set_numa(me % 2);
                (0..rounds).for_each(|_| mutex.section());
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    world().thaw();
    victim.join().expect("no panic");
    mutex.lock();
    assert_eq!(mutex.visit(), rounds * (others + 1));
    mutex.unlock();
}

/// A thread freezes on its way to the mutex while a broadcast wakes others, or moves them to the queue that it stands in.
fn frozen_before_woken<L: Lock>(moves: bool) {
    let (mutex, cond) = (Arc::new(Mutex::<L>::new()), Arc::new(Cond::new()));
    let flag = Arc::new(AtomicU32::new(0));
    let waiters = [(); 2].map(|()| {
        let (mutex, cond, flag) = (mutex.clone(), cond.clone(), flag.clone());
        thread::spawn(move || {
            mutex.lock();
            while flag.load(Relaxed) == 0 {
                cond.wait(&mutex, None);
            }
            mutex.visit();
            mutex.unlock();
        })
    });
    let victim = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            world().freeze_at(1 + any(8));
            mutex.section();
        })
    };
    mutex.lock();
    flag.store(1, Relaxed);
    cond.broadcast(&mutex, moves);
    mutex.unlock();
    for waiter in waiters {
        waiter.join().expect("no panic");
    }
    world().thaw();
    victim.join().expect("no panic");
    assert!(!mutex.is_locked());
}

macro_rules! frozen {
    ($($name:ident: $lock:ty;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn others_go_on() {
                both(concat!(stringify!($name), " frozen"), 20_000, FAST, frozen::<$lock>);
            }

            #[test]
            fn woken_waiters_go_on() {
                let name = concat!(stringify!($name), " frozen, woken");
                both(name, 20_000, FAST, || frozen_before_woken::<$lock>(false));
            }
        }
    )*};
}

frozen! {
    tas: Tas;
    futex: Futex;
    shfl_spin: Shfl<Spin>;
    shfl_stp: Shfl<SpinThenPark>;
    shfl_park: Shfl<Park>;
}

#[test]
fn moved_waiters_go_on() {
    both("shfl_stp frozen, moved", 20_000, FAST, || frozen_before_woken::<Shfl<SpinThenPark>>(true));
    both("shfl_park frozen, moved", 20_000, FAST, || frozen_before_woken::<Shfl<Park>>(true));
}
