//! Waiters that time out behind a holder that does not release use a bounded number of nodes, and the lock works
//! afterwards.

use std::sync::Arc;
use std::time::Duration;

use flashlock_erased::native::{MUTEXES, Mutex};
use flashlock_locks::machine::{Clock, Deadline};
use flashlock_locks::parts::wait::left;
use flashlock_native::{left as counts, pool};

const TRIES: u32 = 2_000;
const THREADS: u32 = 3;

/// One thread holds the lock, one waits for it, and others try again and again with a deadline that has passed.
fn try_in_vain(lock: Mutex) {
    let lock = Arc::new(lock);
    let before = pool::size();
    lock.lock();
    let patient = {
        let lock = lock.clone();
        std::thread::spawn(move || {
            lock.lock();
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        })
    };
    std::thread::sleep(Duration::from_millis(20));
    let past = Deadline { clock: Clock::Monotonic, sec: 0, nsec: 0 };
    let hasty: Vec<_> = (0..THREADS)
        .map(|_| {
            let lock = lock.clone();
            std::thread::spawn(move || {
                for _ in 0..TRIES {
                    assert!(lock.lock_until(past).is_err());
                }
            })
        })
        .collect();
    for thread in hasty {
        thread.join().unwrap();
    }
    let used = pool::size() - before;
    assert!(used <= left::MAX as u32 + 2 * THREADS + 2, "{used} nodes");
    // SAFETY: this thread holds it.
    unsafe { lock.unlock() };
    patient.join().unwrap();
    // No abandoned node obstructs threads that come now, here or at a lock that shares the count.
    assert_eq!(counts::all(), 0, "abandoned nodes");
    assert!(lock.try_lock());
    // SAFETY: this thread holds it.
    unsafe { lock.unlock() };
}

#[test]
fn abandoned_nodes_are_bounded() {
    for entry in MUTEXES {
        println!("{}", entry.name);
        try_in_vain((entry.new)());
    }
}
