//! `flash`: sleepers do not rely on a head that has stopped: neither if some of them have had their turn, nor if
//! signals interrupt them all the time.

use std::os::unix::thread::JoinHandleExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::parts::raw::Raw;
use flashlock_native::Native;

/// Against hangs only.
const LIMIT: Duration = Duration::from_secs(300);
const WAITERS: usize = 6;

static STOPPED: AtomicU32 = AtomicU32::new(0);
static THAW: AtomicBool = AtomicBool::new(false);

/// A signal handler in which a thread stops until it is thawed.
extern "C" fn stop(_: libc::c_int) {
    STOPPED.fetch_add(1, SeqCst);
    while !THAW.load(SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A signal handler that only interrupts.
extern "C" fn interrupt(_: libc::c_int) {}

#[test]
fn the_last_sleeper_goes_on_when_all_others_stop_after_some_turns() {
    for (signal, handler) in [(libc::SIGUSR1, stop as extern "C" fn(libc::c_int)), (libc::SIGUSR2, interrupt)] {
        // SAFETY: the handlers sleep and use atomics, which a handler may do.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    // Whether the head is among those that stop is a matter of luck.
    for is_interrupted in [false, true].repeat(5) {
        stop_all_but_the_last(is_interrupted);
    }
}

/// `is_interrupted`: the last one gets a signal each millisecond.
fn stop_all_but_the_last(is_interrupted: bool) {
    THAW.store(false, SeqCst);
    let lock = Arc::new(Raw::<Native, Flash>::FREE);
    let had: Arc<[AtomicBool; WAITERS]> = Arc::default();
    lock.lock();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|me| {
            let (lock, had) = (lock.clone(), had.clone());
            let waiter = thread::spawn(move || {
                lock.lock();
                had[me].store(true, SeqCst);
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
            });
            // Usually, it sleeps then.
            thread::sleep(Duration::from_millis(20));
            waiter
        })
        .collect();
    // SAFETY: this thread holds it, here and below.
    unsafe { lock.unlock() };
    // Gets in again between two of them, or after the last one.
    while !lock.try_lock() {}
    thread::sleep(Duration::from_millis(5));
    let others = &waiters[..WAITERS - 1];
    for (waiter, _) in others.iter().zip(had.iter()).filter(|(_, had)| !had.load(SeqCst)) {
        let before = STOPPED.load(SeqCst);
        // SAFETY: the thread has not ended, because it waits for the lock.
        assert_eq!(unsafe { libc::pthread_kill(waiter.as_pthread_t(), libc::SIGUSR1) }, 0);
        wait_for("a waiter stops", || STOPPED.load(SeqCst) > before);
    }
    // SAFETY: as above.
    unsafe { lock.unlock() };
    wait_for("the last sleeper has its turn", || {
        if is_interrupted {
            // SAFETY: the thread is not joined before this returns true.
            unsafe { libc::pthread_kill(waiters[WAITERS - 1].as_pthread_t(), libc::SIGUSR2) };
        }
        had[WAITERS - 1].load(SeqCst)
    });
    THAW.store(true, SeqCst);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
}
