//! Servers on simulated machines. Every section runs once and alone, and an idle server costs nothing. The purpose of
//! servers shows, too: the data stay in their caches.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::{at_rest, taken_away};
use flashlock_locks::machine::Machine;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark, Umwait, WaitPolicy};
use flashlock_sim::delegation::{Served, Servers};
use flashlock_sim::{Description, Options, Outcome, Region, Sim, Simulation, compute, delay, nap, now};

/// What the sections of a lock access.
struct Inside {
    somebody: Cell<bool>,
    count: Cell<u64>,
}

/// Threads with one `client` program each, served by so many servers. Asserts that all return.
fn run<S: WaitPolicy>(
    machine: &Description,
    (threads, servers): (u32, u32),
    client: impl Fn(u32, &Servers) + Clone + 'static,
) -> (Outcome, Vec<Served>) {
    let mut simulation = Simulation::new(machine, Options::default());
    let cpus: Vec<u32> = (0..servers).map(|_| simulation.reserve_cpu()).collect();
    let servers = Servers::new(&mut simulation, servers);
    let left = Rc::new(Cell::new(threads));
    for thread in 0..threads {
        let (servers, left, client) = (Rc::clone(&servers), Rc::clone(&left), client.clone());
        simulation.spawn(move || {
            client(thread, &servers);
            left.set(left.get() - 1);
            if left.get() == 0 {
                servers.close();
            }
        });
    }
    for (number, cpu) in (1..).zip(cpus) {
        let servers = Rc::clone(&servers);
        simulation.spawn_on(cpu, move || servers.serve::<S>(number, (0, u64::MAX)));
    }
    let outcome = simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"));
    (outcome, servers.served())
}

/// Threads use three locks of two servers. If another thread is inside, or the count changes before the end, the lock
/// is broken.
fn torture<W: WaitPolicy, S: WaitPolicy>(machine: &Description, threads: u32, rounds: u32) {
    let mut machine = machine.clone();
    machine.cache.llc.kib = machine.cache.llc.ways * 64; // Small caches are made quickly.
    let locks = Rc::new([1, 2, 1].map(|server| {
        let inside = Inside { somebody: Cell::new(false), count: Cell::new(0) };
        (Servers::lock(server), inside)
    }));
    let same = Rc::clone(&locks);
    let (_, served) = run::<S>(&machine, (threads, 2), move |_, servers| {
        for _ in 0..rounds {
            let (lock, Inside { somebody, count }) = &same[(Sim::random() % 3) as usize];
            let mut done = false;
            servers.run::<W>(lock, &mut || {
                assert!(!somebody.replace(true), "two were inside at once");
                assert!(!std::mem::replace(&mut done, true), "run twice");
                let before = count.get();
                match Sim::random() % 64 {
                    0 => nap(1_000.0),
                    1 => compute(30_000.0),
                    _ => compute(f64::from(Sim::random() % 300)),
                }
                assert_eq!(count.replace(before + 1), before, "two were inside at once");
                assert!(somebody.replace(false));
            });
            assert!(done, "not run");
            compute(f64::from(Sim::random() % 1_000));
        }
    });
    let all = u64::from(threads * rounds);
    assert_eq!(locks.iter().map(|(_, inside)| inside.count.get()).sum::<u64>(), all);
    assert_eq!(served.iter().map(|one| one.sections).sum::<u64>(), all, "a server runs all of them");
}

#[test]
fn servers_run_every_section_once_and_alone() {
    for machine in ["2x18x2", "opteron-6172"]
        .map(|name| Description::find(name).unwrap())
        .iter()
        .chain([&taken_away(), &at_rest()])
    {
        for threads in [1, 2, 7, machine.cpus() - 2, machine.cpus() + machine.cpus() / 4] {
            let rounds = 700_u32.div_ceil(threads);
            torture::<Spin, Spin>(machine, threads, rounds);
            torture::<SpinThenPark, SpinThenPark>(machine, threads, rounds);
            torture::<Park, SpinThenPark>(machine, threads, rounds);
            torture::<Umwait, Spin>(machine, threads, rounds);
        }
    }
}

/// Each client runs one section at a time when the server is idle, then nothing for so many ms. Returns the number of
/// steps.
fn idle(threads: u32, ms: u32) -> u64 {
    let machine = Description::find("opteron-6172").unwrap();
    let lock = Rc::new(Servers::lock(1));
    let (outcome, _) = run::<Spin>(&machine, (threads, 1), move |thread, servers| {
        delay(f64::from(thread) * 10_000.0);
        servers.run::<Spin>(&lock, &mut || ());
        delay(f64::from(ms) * 1e6);
    });
    outcome.events
}

#[test]
fn an_idle_server_costs_no_step_for_each_slot() {
    for threads in [2, 47] {
        let (short, long) = (idle(threads, 10), idle(threads, 1_010));
        // The server looks once per ms whether another thread waits for its CPU.
        let a_ms = (long - short) / 1_000;
        assert!(a_ms <= u64::from(threads) + 12, "{a_ms} steps in a ms with {threads} clients");
    }
}

/// The mean time of a request from end to end, in ns, if the server has so many other clients that do nothing.
fn latency(others: u32) -> u64 {
    let machine = Description::find("opteron-6172").unwrap();
    let lock = Rc::new(Servers::lock(1));
    let all = Rc::new(Cell::new(0));
    let same = Rc::clone(&all);
    const ROUNDS: u64 = 200;
    run::<Spin>(&machine, (others + 1, 1), move |thread, servers| {
        // All threads keep their client numbers.
        servers.run::<Spin>(&lock, &mut || ());
        if thread < others {
            return;
        }
        delay(1e6);
        for _ in 0..ROUNDS {
            let begin = now();
            servers.run::<Spin>(&lock, &mut || ());
            same.set(same.get() + now() - begin);
            // Long enough for the server to have scanned once in vain.
            delay(f64::from(2_000 + Sim::random() % 1_000));
        }
    });
    all.get() / ROUNDS
}

/// A request waits until the scan reaches its line, though the scan is not simulated: 1.4 ns for each of the others,
/// 320 ns on average. (Some of that passes while the request is still on its way.)
#[test]
fn a_request_waits_for_the_scan() {
    let (few, many) = (latency(1), latency(460));
    assert!((200..350).contains(&(many - few)), "{few} and {many}");
}

/// How often the threads of clients and of a server gave up their CPUs. `section`: the length of a section in ns.
fn sleeps<W: WaitPolicy, S: WaitPolicy>(section: f64) -> u64 {
    let machine = Description::find("opteron-6172").unwrap();
    let lock = Rc::new(Servers::lock(1));
    let (outcome, _) = run::<S>(&machine, (4, 1), move |_, servers| {
        (0..20).for_each(|_| servers.run::<W>(&lock, &mut || compute(section)));
    });
    outcome.voluntary_switches
}

#[test]
fn who_has_a_cpu_stays_awake_for_longer_than_its_budget() {
    // A budget is some 10 µs; four sections of 100 µs are more, but less than the 10 ms after which a waiter sleeps.
    let awake = [sleeps::<SpinThenPark, Spin>(100e3), sleeps::<Umwait, Spin>(100e3)];
    assert!(awake.iter().all(|&sleeps| sleeps < 10), "{awake:?}");
    let asleep = [sleeps::<Park, Spin>(100e3), sleeps::<SpinThenPark, Spin>(15e6)];
    assert!(asleep.iter().all(|&sleeps| sleeps > 40), "{asleep:?}");
}

#[test]
fn the_data_stay_with_the_server() {
    let machine = Description::find("opteron-6172").unwrap();
    let fetched = |lines: u32| {
        let (lock, data) = (Rc::new(Servers::lock(1)), Rc::new(Cell::new(None::<Rc<Region>>)));
        let (outcome, served) = run::<Spin>(&machine, (20, 1), move |_, servers| {
            let region = data.take().unwrap_or_else(|| Rc::new(Region::new(lines)));
            data.set(Some(Rc::clone(&region)));
            for _ in 0..200 {
                servers.run::<Spin>(&lock, &mut || {
                    (0..lines).for_each(|line| {
                        region.read(line);
                        region.write(line);
                    });
                });
            }
        });
        assert_eq!(outcome.traffic.atomics / served[0].sections, 0, "no atomic operation of a section");
        let traffic = outcome.traffic;
        (traffic.local + traffic.remote + traffic.memory) as f64 / served[0].sections as f64
    };
    let (one, thirty) = (fetched(1), fetched(30));
    assert!((thirty - one).abs() < 0.2, "{one} lines a section with one shared line, {thirty} with thirty");
}
