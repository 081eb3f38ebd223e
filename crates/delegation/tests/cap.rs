//! Every allowed servicing thread is in a section. What those sections need of the server goes on. The user is
//! told.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use common::{again, await_flag, is_again, limited, with_threads};
use flashlock_delegation::{Cond, Delegated, Options, Scheduling, Server};
use flashlock_locks::machine::{Clock, Deadline};

/// The manager has taken the turn from the last thread, and could not make another one.
fn await_short(server: &Server) {
    while server.statistics().threads_short == 0 {
        thread::yield_now();
    }
}

/// The section is longer than the time-out, and asks for a free lock only then.
#[test]
fn a_nested_section_of_a_free_lock() {
    limited("nested at the cap", || {
        let server = with_threads(1);
        let (outer, nested) = (Delegated::<u32>::on(&server, 0), Delegated::<u32>::on(&server, 0));
        outer.run(|outer| {
            await_short(&server);
            nested.run(|nested| *nested += 1);
            *outer += 1;
        });
        assert_eq!((outer.into_inner(), nested.into_inner()), (1, 1));
    });
}

/// Each of four threads is in a section of its own lock, and they nest in turn into one lock.
#[test]
fn a_nested_lock_that_several_want() {
    limited("a nested lock at the cap", || {
        const THREADS: u32 = 4;
        let server = with_threads(THREADS);
        let outer = [0; THREADS as usize].map(|zero| Delegated::<u32>::on(&server, zero));
        let nested = Delegated::<u32>::on(&server, 0);
        thread::scope(|scope| {
            for outer in &outer {
                let (server, nested) = (&server, &nested);
                scope.spawn(move || {
                    outer.run(|_| {
                        await_short(server);
                        nested.run(|nested| *nested += 1);
                    });
                });
            }
        });
        assert_eq!(nested.into_inner(), THREADS);
    });
}

/// A wait gets its lock back.
#[test]
fn a_wait_that_ends_when_its_time_has_come() {
    limited("a timed wait at the cap", || {
        let server = with_threads(1);
        let (data, cond) = (Delegated::<u32>::on(&server, 0), Cond::new());
        data.run_inside(|inside| {
            await_short(&server);
            let long_ago = Deadline { clock: Clock::Monotonic, sec: 0, nsec: 1 };
            assert!(inside.wait_until(&cond, long_ago));
            **inside += 1;
        });
        assert_eq!(data.into_inner(), 1);
    });
}

/// The only thread's section waits for another section. When the server is closed, that one is run under an ordinary
/// lock.
fn closes(scheduling: Scheduling) {
    let server = Server::open(Options { threads: 1, scheduling, ..Options::default() }).unwrap();
    let (waits, sets) = (Delegated::<u32>::on(&server, 0), Delegated::<u32>::on(&server, 0));
    let (inside, goes) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            waits.run(|count| {
                inside.store(true, Relaxed);
                await_flag(&goes);
                *count += 1;
            });
        });
        await_flag(&inside);
        scope.spawn(|| {
            sets.run(|count| {
                goes.store(true, Relaxed);
                *count += 1;
            });
        });
        await_short(&server);
        server.close();
    });
    assert_eq!((waits.into_inner(), sets.into_inner()), (1, 1));
}

#[test]
fn a_server_closes() {
    limited("closing at the cap", || closes(Scheduling::Ordinary));
}

/// Without the privilege it is ordinary, too.
#[test]
fn a_real_time_server_closes() {
    limited("closing at the cap, in real time", || closes(Scheduling::RealTime));
}

/// Both threads of a server are in sections, then not, and then again: there was an election in between.
fn twice_at_the_cap() {
    let server = with_threads(2);
    let data = [0; 2].map(|zero| Delegated::<u32>::on(&server, zero));
    for _ in 0..3 {
        let (before, goes) = (server.statistics().threads_short, AtomicBool::new(false));
        thread::scope(|scope| {
            for data in &data {
                let goes = &goes;
                scope.spawn(move || {
                    data.run(|count| {
                        await_flag(goes);
                        *count += 1;
                    });
                });
            }
            while server.statistics().threads_short == before {
                thread::yield_now();
            }
            goes.store(true, Relaxed);
        });
    }
    assert!(server.statistics().elections > 1);
}

#[test]
fn the_user_is_told_once() {
    if is_again() {
        return limited("twice at the cap", twice_at_the_cap);
    }
    let done = again("the_user_is_told_once", |_| ());
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(text.matches("another thread cannot be made").count(), 1, "{text}");
}
