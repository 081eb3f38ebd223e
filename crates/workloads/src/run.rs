//! Running a workload on this computer, with threads.

use std::thread;

use crate::Workload;

/// The seed of the clients.
const SEED: u64 = 11;

/// Runs a workload with `threads` clients, each in a thread of its own, which performs `each` operations. Then runs the
/// workload's check, and returns its result. It measures nothing: `flashlock compare` does.
pub fn run<W: Workload>(mut shared: W, threads: u32, each: u64) -> Result<(), &'static str> {
    thread::scope(|scope| {
        for number in 0..threads {
            let shared = &shared;
            scope.spawn(move || {
                let mut client = shared.client(SEED, number);
                (0..each).for_each(|_| shared.operate(&mut client));
                shared.retire(client);
            });
        }
    });
    shared.check(u64::from(threads) * each)
}
