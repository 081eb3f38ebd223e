//! What several tests use.

#![allow(dead_code)]

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use flashlock_delegation::{Delegated, Options, Server};
use flashlock_locks::parts::wait::WaitPolicy;

/// Against hangs, and for nothing else: much more than anything here takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// A server of the usual kind.
pub(crate) fn server() -> Server {
    Server::open(Options::default()).unwrap()
}

/// A server that has so many servicing threads at most.
pub(crate) fn with_threads(threads: u32) -> Server {
    Server::open(Options { threads, ..Options::default() }).unwrap()
}

/// Does it, in a thread of its own; a hang ends the test program with a message.
pub(crate) fn limited(name: &str, act: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let (done, waits) = mpsc::channel();
        scope.spawn(move || {
            act();
            done.send(()).unwrap();
        });
        match waits.recv_timeout(LIMIT) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                eprintln!("{name}: not done after {LIMIT:?}");
                std::process::abort();
            }
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {}
        }
    });
}

/// Waits for another thread to set the flag.
pub(crate) fn await_flag(flag: &AtomicBool) {
    while !flag.load(Relaxed) {
        thread::yield_now();
    }
}

/// Set in the process that [`again`] starts.
const AGAIN: &str = "FLASHLOCK_TEST_AGAIN";

/// Whether this is that process.
pub(crate) fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

/// Runs that test of this program in a process of its own, set up by `with`.
pub(crate) fn again(test: &str, with: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(AGAIN, "1");
    with(&mut command);
    command.output().expect("this program again")
}

pub(crate) const THREADS: u64 = 4;

/// What each thread did, and all together: nothing but the lock protects them.
pub(crate) type Data = ([u64; THREADS as usize], u64);

fn add<W: WaitPolicy>(data: &Delegated<Data, W>, me: u64, (round, rounds): (u64, u64)) {
    let (mine, all) = data.run(|(own, all)| {
        own[me as usize] += 1;
        *all += 1;
        (own[me as usize], *all)
    });
    assert_eq!(mine, round + 1);
    assert!((mine..=THREADS * rounds).contains(&all));
}

/// All threads add under the lock. `meanwhile` is called with the lock and whether they have finished.
pub(crate) fn torture<W: WaitPolicy>(
    data: &Delegated<Data, W>,
    rounds: u64,
    meanwhile: impl FnOnce(&Delegated<Data, W>, &dyn Fn() -> bool),
) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let add_often = move |me| (0..rounds).for_each(|round| add(data, me, (round, rounds)));
        let threads: Vec<_> = (0..THREADS).map(|me| scope.spawn(move || add_often(me))).collect();
        let over = &over;
        scope.spawn(move || {
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            over.store(true, Relaxed);
        });
        meanwhile(data, &|| over.load(Relaxed));
    });
    data.run(|data| assert_eq!(*data, ([rounds; THREADS as usize], THREADS * rounds)));
}
