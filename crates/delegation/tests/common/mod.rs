//! What several tests use.

#![allow(dead_code)]

use std::sync::mpsc;
use std::time::Duration;

use flashlock_delegation::{Options, Server};

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
