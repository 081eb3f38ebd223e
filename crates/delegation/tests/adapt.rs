//! Adaptive locks: there and back, driven by measures that are made up. What is measured for real is looked at, and
//! decides nothing here.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use common::limited;
use flashlock_delegation::adapt::policy::{CONFIRM, Lock, Seen, Server as Counted};
use flashlock_delegation::adapt::{Governor, Thresholds, Why};
use flashlock_delegation::{Delegated, Kind};

const BUSY: Counted = Counted { scans: 1_000, busy: 900, mixed: 0, sections: 100_000, clients: 200_000 };
const COOL: Counted = Counted { scans: 1_000_000, busy: 900, mixed: 0, sections: 900, clients: 9_000 };

/// Gives a governor these figures of the lock, which it knows as number 1, until it decides. Returns its reason.
fn told(governor: &Governor, lock: Lock, server: Counted, cpus: f64) -> Option<Why> {
    let at = governor.measure().locks.iter().find(|of| of.id == lock.id).expect("known").at;
    let seen = Seen { seconds: 0.1, locks: vec![Lock { at, ..lock }], servers: vec![server], cpus, busy: 1.0 };
    (0..CONFIRM * 2).find_map(|_| governor.step(&seen).first().map(|decision| decision.why))
}

const HOT: Lock =
    Lock { id: 1, at: None, pinned: false, sections: 100_000, share: Some(0.9), warm: Some(50.0), cold: Some(200.0) };

/// Threads that count under the lock until told to stop, while this thread acts.
fn meanwhile(data: &Delegated<u64>, act: impl FnOnce()) {
    const THREADS: u32 = 3;
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut mine = 0;
                while !stop.load(Relaxed) {
                    data.run(|count| *count += 1);
                    mine += 1;
                }
                counted.fetch_add(mine, Relaxed);
            });
        }
        act();
        stop.store(true, Relaxed);
    });
    assert_eq!(data.run(std::mem::take), counted.load(Relaxed));
}

fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        thread::yield_now();
    }
}

#[test]
fn a_lock_goes_to_a_server_and_comes_back_while_it_is_used() {
    limited("there and back", || {
        let governor = Governor::new(Thresholds::PAPER);
        let data = Delegated::governed(&governor, "counter", 0);
        assert!(data.is_adaptive() && data.server().is_none());
        let here = || data.run(|_| thread::current().id()) == thread::current().id();
        assert!(here(), "it begins as an ordinary lock");
        for round in 1..=2 {
            // After it came back it rests: a lock that is reported as hot at once does not go.
            meanwhile(&data, || {
                let mut told = (0..100).map(|_| told(&governor, HOT, BUSY, 4.0));
                assert_eq!(told.find(Option::is_some).flatten(), Some(Why::Hot));
                wait_for(|| data.server().is_some());
            });
            assert!(!here(), "a server runs its sections");
            meanwhile(&data, || {
                let mut told = (0..100).map(|_| told(&governor, HOT, COOL, 4.0));
                assert_eq!(told.find(Option::is_some).flatten(), Some(Why::Cool));
                wait_for(|| data.server().is_none());
            });
            assert!(here(), "it came back");
            let report = &governor.reports()[0];
            assert_eq!((report.lock.as_str(), report.server, report.moves), ("counter", None, 2 * round));
        }
        let whys: Vec<Why> = governor.decisions().iter().map(|decision| decision.why).collect();
        assert_eq!(whys, [Why::Hot, Why::Cool, Why::Hot, Why::Cool]);
        assert_eq!(governor.servers().len(), 1, "the server is used again");
    });
}

/// A thread alone moves it, too: with its next section.
#[test]
fn no_cpu_to_spare_no_server() {
    let governor = Governor::new(Thresholds::PAPER);
    let data = Delegated::governed(&governor, "counter", 0);
    assert_eq!(told(&governor, HOT, BUSY, 1.9), None);
    assert_eq!(told(&governor, HOT, BUSY, 2.0), Some(Why::Hot));
    assert!(data.server().is_none(), "nobody has used it yet");
    data.run(|count| *count += 1);
    assert!(data.server().is_some());
    // Threads want that CPU.
    assert_eq!(told(&governor, HOT, BUSY, 1.5), Some(Why::NoCpu));
    data.run(|count| *count += 1);
    assert!(data.server().is_none() && data.into_inner() == 2);
}

#[test]
fn a_pinned_lock_stays() {
    limited("pinned", || {
        let governor = Governor::new(Thresholds::PAPER);
        let data = Delegated::governed(&governor, "counter", 0_u64);
        data.assign(None);
        // The governor has measured before it was pinned.
        assert_eq!(told(&governor, HOT, BUSY, 4.0), None);
        data.run(|count| *count += 1);
        assert!(data.server().is_none() && governor.reports()[0].pinned);
        // Pinned to a server of the program's own.
        let server = common::server();
        data.assign(Some(&server));
        data.run(|count| *count += 1);
        assert_eq!(data.server(), Some(server.number()));
        assert_eq!(told(&governor, HOT, COOL, 4.0), None);
        data.run(|count| *count += 1);
        assert_eq!(data.server(), Some(server.number()));
        // No longer pinned, on a server that the governor does not know: it is ordinary first.
        data.unpin();
        data.run(|count| *count += 1);
        assert!(data.server().is_none() && !governor.reports()[0].pinned);
        data.assign(Some(&server));
        drop(server);
        data.run(|count| *count += 1);
        assert!(data.server().is_none(), "its server was closed");
        data.unpin();
        data.assign(None);
        data.unpin();
        wait_for(|| told(&governor, HOT, BUSY, 4.0) == Some(Why::Hot));
        data.run(|count| *count += 1);
        assert!(data.server().is_some());
        assert_eq!(data.into_inner(), 6);
    });
}

/// What is measured: all sections, and of their time that which it is.
#[test]
fn measures_are_what_they_are_called() {
    limited("measures", || {
        let governor = Governor::new(Thresholds::NEVER);
        let data = Delegated::governed(&governor, "counter", 0_u64);
        let rests = Delegated::governed(&governor, "rests", 0_u64);
        meanwhile(&data, || {
            while data.run(|count| *count) < 100_000 {
                thread::yield_now();
            }
        });
        let seen = governor.measure();
        let (busy, idle) = (seen.locks[0], seen.locks[1]);
        assert!(busy.sections >= 100_000 - 64 && idle.sections == 0, "{seen:?}");
        assert!(busy.share.is_some_and(|share| share > 0.0 && share <= 1.0), "{seen:?}");
        assert!(idle.share.is_none() && seen.cpus >= 1.0 && seen.busy > 0.0, "{seen:?}");
        drop(rests);
        assert_eq!(governor.measure().locks.len(), 1, "a lock that is gone");
    });
}

/// The process's governor looks by itself, and the program may ask what it does.
#[test]
fn adaptive_locks_by_name() {
    limited("by name", || {
        let data = Arc::new(Delegated::named("by name", Kind::Adaptive, 0_u64).unwrap());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let data = data.clone();
                thread::spawn(move || (0..50_000).for_each(|_| data.run(|count| *count += 1)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(data.run(|count| *count), 100_000);
        let governor = Governor::of_process().unwrap();
        wait_for(|| governor.reports().iter().any(|of| of.lock == "by name" && of.last.sections == 0));
        let report = governor.reports().into_iter().find(|of| of.lock == "by name").unwrap();
        assert!(report.sections >= 100_000 - 64 && report.sections <= 100_001, "{report:?}");
    });
}
