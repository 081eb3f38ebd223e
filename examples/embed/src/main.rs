//! A mutex for Rust programs, made of one of flashlock's locks. It is a page: copy it, and name the lock that you want.
//!
//! ```sh
//! cargo run --release --package flashlock-example-embed
//! ```
//!
//! The algorithms (`flashlock-locks`) know nothing of a computer; `flashlock-native` is the one that they run on here.
//! No preload is needed: the locks are part of the program.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::thread;

use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_locks::parts::zeroed::ConstZeroed;
use flashlock_native::Native;

/// A value that one thread at a time may use. `L` is any mutex of the catalogue
/// (`crates/locks/src/catalogue/mutexes.rs`) that excludes; not `null`.
struct Mutex<T, L: RawLock<Native> = Flash> {
    lock: Raw<Native, L>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time to the value, so sharing the mutex is sending the value to and fro. The
// lock's own state may be shared.
unsafe impl<T: Send, L: RawLock<Native, Queue: Sync>> Sync for Mutex<T, L> {}

impl<T, L: RawLock<Native, Queue: ConstZeroed>> Mutex<T, L> {
    /// A constant, so that a mutex can be a static.
    const fn new(value: T) -> Self {
        const { assert!(L::EXCLUDES, "this lock protects nothing") };
        Self { lock: Raw::FREE, value: UnsafeCell::new(value) }
    }
}

impl<T, L: RawLock<Native>> Mutex<T, L> {
    fn lock(&self) -> Guard<'_, T, L> {
        self.lock.lock();
        Guard { mutex: self, of_thread: PhantomData }
    }
}

/// Holds the lock until it is dropped.
struct Guard<'a, T, L: RawLock<Native>> {
    mutex: &'a Mutex<T, L>,
    /// It stays with its thread: a pointer is neither `Send` nor `Sync`.
    of_thread: PhantomData<*const ()>,
}

// SAFETY: other threads get no more of a shared guard than a shared value, and that may be shared.
unsafe impl<T: Sync, L: RawLock<Native, Queue: Sync>> Sync for Guard<'_, T, L> {}

impl<T, L: RawLock<Native>> Deref for Guard<'_, T, L> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while its lock is held.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T, L: RawLock<Native>> DerefMut for Guard<'_, T, L> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a guard exists only while its lock is held, and it is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T, L: RawLock<Native>> Drop for Guard<'_, T, L> {
    fn drop(&mut self) {
        // SAFETY: a guard is made by the thread that holds the lock, and stays with it until it is dropped.
        unsafe { self.mutex.lock.unlock() };
    }
}

/// Counts with eight threads. The additions are in two steps, so that some would be lost without the lock.
fn count<L: RawLock<Native, Queue: ConstZeroed + Sync>>(name: &str) {
    const THREADS: u64 = 8;
    const EACH: u64 = 50_000;
    let counter = Mutex::<u64, L>::new(0);
    *COUNTS.lock() += 1;
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let mut count = counter.lock();
                    let seen = *count;
                    *count = std::hint::black_box(seen) + 1;
                }
            });
        }
    });
    let total = *counter.lock();
    println!("{name}: {total} of {} counted, a mutex has {} bytes", THREADS * EACH, size_of::<Mutex<u64, L>>());
    assert_eq!(total, THREADS * EACH, "{name} let two threads in at once");
}

/// A mutex in a static needs no initialisation.
static COUNTS: Mutex<u64> = Mutex::new(0);

fn main() {
    count::<Flash>("flash");
    count::<Mcs<SpinThenPark>>("mcs");
    println!("{} locks counted", *COUNTS.lock());
}
