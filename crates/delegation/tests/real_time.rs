//! Servers in real time. A system may refuse `SCHED_FIFO`: then these are skipped, and say so.

mod common;

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use common::limited;
use flashlock_delegation::{Delegated, Options, Scheduling, Server};

/// The first and the last CPU that the calling thread may use, if they are two.
fn two_cpus() -> Option<(usize, usize)> {
    // SAFETY: a set of plain bits, which is writable.
    let may = unsafe {
        let mut may: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&may), &raw mut may), 0);
        may
    };
    // SAFETY: within the set.
    let mut all = (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &may) });
    Some((all.next()?, all.next_back()?))
}

/// Binds the calling thread, and those that it makes.
fn bind(cpu: usize) {
    // SAFETY: a set of plain bits, which is readable and writable.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
    }
}

/// The policy of that thread, or of the calling one (0).
fn policy(thread: libc::pid_t) -> libc::c_int {
    // SAFETY: no memory is passed.
    unsafe { libc::sched_getscheduler(thread) & !libc::SCHED_RESET_ON_FORK }
}

/// Calls `act` with a real-time server on the second one of two CPUs, and these CPUs. In a thread on the first one.
fn on_two_cpus(name: &str, act: impl FnOnce(&Server, (usize, usize)) + Send) {
    limited(name, || {
        let Some(cpus) = two_cpus() else { return eprintln!("{name}: skipped: this needs two CPUs") };
        let (cpu, timeout) = (Some(cpus.1 as u32), Duration::from_millis(2));
        let options = Options { cpu, timeout, scheduling: Scheduling::RealTime, ..Options::default() };
        let server = Server::open(options).unwrap();
        Delegated::<()>::on(&server, ()).run(|()| ()); // Its first thread has asked.
        if !server.statistics().real_time {
            return eprintln!("{name}: skipped: SCHED_FIFO is not allowed");
        }
        bind(cpus.0);
        act(&server, cpus);
    });
}

/// Waits for what another thread does.
fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        thread::sleep(Duration::from_micros(100));
    }
}

/// The section polls. The thread that is elected finds nothing to do, and sleeps. What is posted then wakes it, on the
/// CPU of the section.
#[test]
fn a_section_that_polls_for_another_one() {
    on_two_cpus("a section that polls", |server, _| {
        let (polls, sets) = (Delegated::<u32>::on(server, 0), Delegated::<u32>::on(server, 0));
        let flag = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                polls.run(|_| {
                    while !flag.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            });
            wait_for(|| server.statistics().elections > 0);
            thread::sleep(Duration::from_millis(50)); // It sleeps by now; if not, the test shows less.
            sets.run(|_| flag.store(true, Relaxed));
        });
    });
}

/// A thread that has lost the turn is an ordinary one, until it has the turn again.
#[test]
fn only_the_thread_that_serves_has_the_priority() {
    on_two_cpus("who has the priority", |server, _| {
        let (long, short) = (Delegated::<()>::on(server, ()), Delegated::<()>::on(server, ()));
        let (inside, over) = (AtomicI32::new(0), AtomicBool::new(false));
        for round in 1..=3 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    long.run(|()| {
                        assert_eq!(policy(0), libc::SCHED_FIFO, "round {round}: it serves");
                        // SAFETY: no memory is passed.
                        inside.store(unsafe { libc::gettid() }, Relaxed);
                        wait_for(|| over.load(Relaxed));
                    });
                });
                wait_for(|| inside.load(Relaxed) != 0);
                // This one is run by another thread.
                assert_eq!(short.run(|()| policy(0)), libc::SCHED_FIFO, "round {round}: it serves");
                wait_for(|| policy(inside.load(Relaxed)) == libc::SCHED_OTHER);
                over.store(true, Relaxed);
            });
            inside.store(0, Relaxed);
            over.store(false, Relaxed);
        }
        assert!(server.statistics().real_time);
    });
}

/// The server never sleeps, because clients on the other CPU feed it. A client that is bound to its CPU is served, too.
#[test]
fn a_client_on_the_servers_cpu() {
    on_two_cpus("a client on the server's CPU", |server, (_, here)| {
        const ROUNDS: u32 = 30;
        let (fed, own) = (Delegated::<u32>::on(server, 0), Delegated::<u32>::on(server, 0));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        fed.run(|count| *count += 1);
                    }
                });
            }
            let client = scope.spawn(|| {
                bind(here);
                (0..ROUNDS).for_each(|_| own.run(|count| *count += 1));
            });
            client.join().unwrap();
            over.store(true, Relaxed);
        });
        assert_eq!(own.into_inner(), ROUNDS);
    });
}
