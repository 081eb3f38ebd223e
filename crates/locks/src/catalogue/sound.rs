//! Every lock of the catalogue lets one thread at a time to data that is not atomic, on a machine of plain atomics.
//!
//! Natively this shows little. Under Miri (`cargo xtask miri`) it shows that nothing here breaks Rust's rules of
//! memory: Miri checks each access, sees a data race wherever a lock does not order two sections, and lets loads return
//! old values where the orderings allow that.

extern crate std;

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use std::thread;

use crate::closure::{Delegate, RawClosure};
use crate::machine::bench::{Bench, Plain};
use crate::machine::{Deadline, Patience, Time as _, TimedOut, Waiting as _, Word as _};
use crate::parts::raw::{Raw, RawLock};
use crate::rw::{self, RawRwLock, Reader, Writer};
use crate::{for_each_lock, for_each_rw_lock, for_each_standalone_lock};

const THREADS: u32 = 3;
const ROUNDS: u32 = if cfg!(miri) { 8 } else { 1_000 };

/// What a lock protects.
struct Data(UnsafeCell<u32>);

// SAFETY: accessed by holders of a lock only, which is what is tested.
unsafe impl Sync for Data {}

impl Data {
    fn add(&self) {
        // SAFETY: callers hold the lock.
        unsafe { *self.0.get() += 1 };
    }

    fn get(&self) -> u32 {
        // SAFETY: callers hold the lock, for reading at least.
        unsafe { *self.0.get() }
    }
}

/// Each of the threads runs `round` for each of its rounds; returns how often that was true.
fn rounds(round: impl Fn(u32) -> bool + Sync) -> u32 {
    let work = |thread| (0..ROUNDS).filter(|number| round(thread + number)).count() as u32;
    thread::scope(|scope| {
        let threads: [_; THREADS as usize] = core::array::from_fn(|thread| scope.spawn(move || work(thread as u32)));
        threads.map(|thread| thread.join().expect("no panic")).iter().sum()
    })
}

fn mutex<L: RawLock<Bench, Queue: Sync>>(name: &str) {
    let (lock, data) = (Raw::<Bench, L>::new(), Data(UnsafeCell::new(0)));
    let held = rounds(|number| {
        let held = match number % 4 {
            0 => lock.try_lock(),
            1 => lock.lock_until(Bench::sooner(100, None)).is_ok(),
            _ => {
                lock.lock();
                true
            }
        };
        if held {
            data.add();
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        }
        held
    });
    lock.lock();
    assert_eq!(data.get(), held, "{name}");
    // SAFETY: this thread holds it.
    unsafe { lock.unlock() };
}

fn rw_lock<L: RawRwLock<Bench, State: Sync>>(name: &str) {
    let (lock, data) = (rw::Raw::<Bench, L>::new(), Data(UnsafeCell::new(0)));
    let wrote = rounds(|number| {
        let until = number.is_multiple_of(3).then(|| Bench::sooner(100, None));
        let writes = number.is_multiple_of(2);
        let held = if writes { lock.write(Writer::Fair, until) } else { lock.read(Reader::Newcomer, until) }.is_ok();
        if held {
            if writes {
                data.add();
            } else {
                _ = data.get();
            }
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        }
        held && writes
    });
    assert!(lock.read(Reader::Newcomer, None).is_ok());
    assert_eq!(data.get(), wrote, "{name}");
    // SAFETY: this thread holds it.
    unsafe { lock.unlock() };
}

fn closure<L: RawClosure<Bench, State: Sync>>(name: &str) {
    let all = Delegate::<Bench, L, u32>::new(0);
    let came = rounds(|_| {
        all.with(|all| *all += 1);
        true
    });
    assert_eq!(all.with(|all| *all), came, "{name}");
}

macro_rules! each {
    (as $test:ident: $(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        $($($test::<$type>(concat!($name, ":wait=", stringify!($wait)));)+)*
    };
}

#[test]
fn mutexes() {
    macro_rules! all {
        ($($rows:tt)*) => { each!(as mutex: $($rows)*) };
    }
    for_each_lock!(all);
}

#[test]
fn readers_writer_locks() {
    macro_rules! all {
        ($($rows:tt)*) => { each!(as rw_lock: $($rows)*) };
    }
    for_each_rw_lock!(all);
}

#[test]
fn closure_locks() {
    macro_rules! one {
        (closure, $name:expr, $type:ty) => {
            closure::<$type>($name)
        };
        ($interface:ident, $name:expr, $type:ty) => {};
    }
    macro_rules! all {
        ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(one!($interface, concat!($name, ":wait=", stringify!($wait)), $type);)+)*
        };
    }
    for_each_standalone_lock!(all);
}

/// Excludes, but orders nothing: what Miri must report. (A test by itself, since Miri ends there.)
struct Unordered;

// SAFETY: it has no nodes.
unsafe impl RawLock<Bench> for Unordered {
    type Queue = ();

    unsafe fn try_acquire(word: &Plain, (): &()) -> bool {
        word.compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
    }

    unsafe fn acquire(word: &Plain, (): &(), _: Option<&Deadline>) -> Result<(), TimedOut> {
        Bench::spin_until(word, Relaxed, Patience::Forever, |_| word.compare_exchange(0, 1, Relaxed, Relaxed).is_ok());
        Ok(())
    }

    unsafe fn unlock(word: &Plain, (): &()) {
        word.store(0, Relaxed);
    }

    unsafe fn is_locked(word: &Plain, (): &()) -> bool {
        word.load(Relaxed) != 0
    }
}

#[test]
#[ignore = "a data race, for Miri to report: cargo xtask miri"]
fn unordered_sections() {
    mutex::<Unordered>("unordered");
}
