//! A blocked thread uses no CPU. This test is a program of its own, so that the CPU time is that of this test alone;
//! time that passes is not limited.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use flashlock_delegation::{Delegated, Options, Server};

fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// What the process uses in two seconds of sleep.
fn used() -> Duration {
    let before = cpu_time();
    thread::sleep(Duration::from_secs(2));
    cpu_time() - before
}

/// A thread that polls would use 2 s. The managers' looks, 100 a second each, use some 1 ms.
const MOST: Duration = Duration::from_millis(200);

#[test]
fn who_is_blocked_uses_no_cpu() {
    let one = Options { threads: 1, ..Options::default() };
    let (idle, stuck, short) = (
        Server::open(Options::default()).unwrap(),
        Server::open(Options::default()).unwrap(),
        Server::open(one).unwrap(),
    );
    assert_eq!(Delegated::<u32>::on(&idle, 7).run(|seven| *seven), 7);
    let goes = AtomicBool::new(false);
    let [first, second] = [&stuck, &short].map(|server| Delegated::<u32>::on(server, 0));
    thread::scope(|scope| {
        for lock in [&first, &second] {
            scope.spawn(|| {
                lock.run(|count| {
                    while !goes.load(Relaxed) {
                        thread::park_timeout(Duration::from_millis(500));
                    }
                    *count += 1;
                });
            });
            // These wait for the lock that is held; one server has threads for others, the other one has none.
            (0..3).for_each(|_| _ = scope.spawn(|| lock.run(|count| *count += 1)));
        }
        thread::sleep(Duration::from_millis(500));
        let used = used();
        assert!(used < MOST, "blocked threads, and servers without anything to do, used {used:?} of CPU time in 2 s");
        goes.store(true, Relaxed);
    });
    assert!(short.statistics().threads_short > 0, "the program was not told");
    assert_eq!((first.into_inner(), second.into_inner()), (4, 4));
}
