//! The last thread to use a mutex frees it, as POSIX allows: no thread touches it after the access that lets another
//! thread in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::malthusian::Mcscr;
use flashlock_locks::mutex::numa::{Cna, QspinCna};
use flashlock_locks::mutex::queue::{Mcs, Qspin};
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::mutex::spin::{Futex, Tas, Ticket};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::erased::erased;
use flashlock_model::shuttle::Shuttled;
use flashlock_model::shuttle::thread;

use crate::common::{AnyMutex, Cond, FLOWING, Lock, OVERDUE, STILL, both, world};

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
    ($($name:ident: $lock:ty;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn mutex() {
                for setup in [STILL, OVERDUE, FLOWING] {
                    both(concat!(stringify!($name), " freed"), 4000, setup, last_frees::<$lock>);
                }
            }

            #[test]
            fn mutex_after_broadcast() {
                for setup in [STILL, FLOWING] {
                    for moves in [false, true] {
                        for waiters in [1, 2, 3] {
                            let name = concat!(stringify!($name), " freed after broadcast");
                            both(name, 2000, setup, move || last_waiter_frees::<$lock>(waiters, moves));
                        }
                    }
                }
            }
        }
    )*};
}

lifetime! {
    tas: Tas;
    futex: Futex;
    flash: Flash;
    mcs_spin: Mcs<Spin>;
    mcs_stp: Mcs<SpinThenPark>;
    mcs_park: Mcs<Park>;
    ticket: Ticket;
    cna_stp: Cna<SpinThenPark>;
    cna_park: Cna<Park>;
    qspin_stp: Qspin<SpinThenPark>;
    qspin_park: Qspin<Park>;
    qspin_cna_stp: QspinCna<SpinThenPark>;
    qspin_cna_park: QspinCna<Park>;
    mcscr_stp: Mcscr<SpinThenPark>;
    mcscr_park: Mcscr<Park>;
    shfl_only_spins: ShflSpin;
    shfl_spin: Shfl<Spin>;
    shfl_stp: Shfl<SpinThenPark>;
    shfl_park: Shfl<Park>;
}
