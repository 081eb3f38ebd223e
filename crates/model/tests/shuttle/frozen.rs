//! A thread that freezes while it waits, as one whose signal handler sleeps, delays others but does not stop them.

use std::sync::Arc;

use flashlock_locks::shuffle::Shfl;
use flashlock_locks::spin::{Futex, Tas};
use flashlock_locks::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use shuttle::thread;

use crate::common::{FLOWING, Lock, Mutex, any, both, world};

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

macro_rules! frozen {
    ($($name:ident: $lock:ty;)*) => {$(
        #[test]
        fn $name() {
            for setup in [FAST] {
                both(concat!(stringify!($name), " frozen"), 10_000, setup, frozen::<$lock>);
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
