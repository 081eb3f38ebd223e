//! Which thread runs on which CPU, and for how long, against times that were computed by hand.

mod common;

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use common::{Log, simulation, tiny};
use flashlock_locks::machine::{Clock, Deadline, Memory as _, Patience, Pause, Unparked, Waiting as _, Word as _};
use flashlock_locks::mutex::spin::Tas;
use flashlock_locks::parts::raw::RawLock;
use flashlock_sim::description::{Hypervisor, Scheduler};
use flashlock_sim::{Description, Placed, Sim, Simulation, Word, compute, nap, now, thread_cpu};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// How long `act` takes, in ns.
fn timed(act: impl FnOnce()) -> u64 {
    let before = now();
    act();
    now() - before
}

fn at(ns: u64) -> Deadline {
    Deadline { clock: Clock::Monotonic, sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as u32 }
}

fn word(simulation: &mut Simulation) -> Rc<Placed<Word>> {
    Rc::new(simulation.place("word", Word::new(0)))
}

/// How long a millisecond of computing takes each of so many threads that start at once.
fn a_millisecond(machine: &Description, threads: u32) -> Vec<u64> {
    let (mut simulation, log) = (simulation(machine), Log::new());
    for _ in 0..threads {
        let log = log.clone();
        simulation.spawn(move || log.write(timed(|| compute(1e6))));
    }
    simulation.run().unwrap();
    log.take()
}

// ------------------------------------------------------------------------------------------------------------ slices

#[test]
fn two_threads_on_one_cpu_take_turns() {
    let mut simulation = simulation(&tiny(1, 1));
    for _ in 0..2 {
        simulation.spawn(|| compute(1e6));
    }
    let outcome = simulation.run().unwrap();
    // Of each 100 us, 99 are left after the switch: ten slices each make 990 us of work by 2,000 us. Then the first
    // thread needs a switch and 10 us, and so does the second one.
    assert_eq!(outcome.ns, 2_022_000.0);
    assert_eq!((outcome.involuntary_switches, outcome.voluntary_switches), (20, 0));
}

/// The longest slice that a description may have ends all the same, and so does a run that never sees its end.
#[test]
fn more_threads_than_cpus_end_with_the_longest_slice() {
    let mut machine = tiny(1, 1);
    machine.scheduler.slice_us = 1e9;
    assert!(Description::parse(&machine.text()).is_ok());
    let longer =
        Description { scheduler: Scheduler { slice_us: 1.1e9, ..machine.scheduler.clone() }, ..machine.clone() };
    assert!(Description::parse(&longer.text()).is_err());
    for ns in [1e6, 1e12] {
        let mut simulation = simulation(&machine);
        for _ in 0..3 {
            simulation.spawn(move || compute(ns));
        }
        let outcome = simulation.run().unwrap();
        // A thread that computes for 1,000 s loses its CPU, and needs a second slice for the time of a switch.
        let slices = if ns > 1e9 { 6.0 } else { 3.0 };
        assert_eq!(outcome.ns, 3.0 * ns + slices * 1e3);
    }
}

#[test]
fn who_is_woken_waits_for_a_third_of_a_slice() {
    // `ran`: how long the waker has run when it wakes the other thread.
    for (ran, waits) in [(10e3, 33_333), (60e3, 61_500)] {
        let (mut simulation, log) = (simulation(&tiny(1, 1)), Log::new());
        let (word, sleeper, waker) = (word(&mut simulation), log.clone(), log.clone());
        let same = Rc::clone(&word);
        simulation.spawn(move || {
            Sim::park(&word, 0, None);
            sleeper.write(now());
        });
        simulation.spawn(move || {
            waker.write(now());
            compute(ran);
            Sim::wake(&**same, 1);
            compute(1e6);
        });
        simulation.run().unwrap();
        let [began, woken] = log.take()[..] else { panic!() };
        // A third of a slice, as both begin with a switch. If that is over, at once: 0.5 us into the system, and a
        // switch.
        assert!((woken - began).abs_diff(waits) <= 1, "{ran}: {}", woken - began);
    }
}

#[test]
fn a_thread_that_nobody_waits_for_is_not_interrupted() {
    let mut simulation = simulation(&tiny(2, 1));
    for _ in 0..2 {
        simulation.spawn(|| compute(1e6));
    }
    let outcome = simulation.run().unwrap();
    assert_eq!((outcome.ns, outcome.involuntary_switches), (1_001_000.0, 0));
}

#[test]
fn a_holder_loses_its_cpu_and_keeps_its_lock() {
    let (mut simulation, log) = (simulation(&tiny(1, 1)), Log::new());
    let (word, theirs, other) = (word(&mut simulation), log.clone(), log.clone());
    let same = Rc::clone(&word);
    simulation.spawn(move || {
        // SAFETY: the word is this lock's alone.
        unsafe { <Tas as RawLock<Sim>>::lock(&word, &()) };
        let section = timed(|| compute(150e3));
        theirs.write(("section", section));
        // SAFETY: this thread holds it.
        unsafe { <Tas as RawLock<Sim>>::unlock(&word, &()) };
    });
    simulation.spawn(move || {
        // SAFETY: the word is this lock's alone.
        let acquired = unsafe { <Tas as RawLock<Sim>>::try_lock(&same, &()) };
        other.write(("acquired", u64::from(acquired)));
        compute(1e6);
    });
    simulation.run().unwrap();
    // Its own 150 us, the other thread's slice, and the switches.
    assert_eq!(log.take(), [("acquired", 0), ("section", 251 * US)]);
}

#[test]
fn a_thread_that_polls_for_long_lets_others_have_its_cpu() {
    let mut machine = tiny(1, 1);
    machine.scheduler.slice_us = 1e6;
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let (word, theirs) = (word(&mut simulation), log.clone());
    let same = Rc::clone(&word);
    simulation.spawn(move || {
        Sim::spin_until(&word, Relaxed, Patience::Forever, |seen| seen == 1);
        theirs.write(now());
    });
    simulation.spawn(move || same.store(1, Relaxed));
    let outcome = simulation.run().unwrap();
    let seen = log.take()[0];
    assert!((MS..2 * MS).contains(&seen), "after a millisecond, long before its slice of a second is over: {seen}");
    assert_eq!((outcome.involuntary_switches, outcome.voluntary_switches), (0, 1));
}

// ------------------------------------------------------------------------------------------------------ idle CPUs

#[test]
fn who_is_woken_goes_to_an_idle_cpu_that_takes_time_to_wake_up() {
    let mut machine = tiny(3, 1);
    machine.scheduler.idle_us = vec![(0.0, 1.0), (500.0, 15.0)];
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let word = word(&mut simulation);
    let (sleeps, wakes) = (Rc::clone(&word), Rc::clone(&word));
    let (first, second, third) = (log.clone(), log.clone(), log.clone());
    simulation.spawn(move || {
        Sim::park(&sleeps, 0, None);
        first.write(("woken", thread_cpu(), now()));
    });
    simulation.spawn(move || {
        compute(1e6);
        second.write(("wakes", thread_cpu(), now()));
        Sim::wake(&**wakes, 1);
    });
    simulation.spawn(move || {
        compute(10e3);
        third.write(("ends", thread_cpu(), now()));
    });
    simulation.spawn(|| compute(10e6)); // On the sleeper's CPU.
    simulation.run().unwrap();
    let [("ends", idle, _), ("wakes", _, from), ("woken", cpu, at)] = log.take()[..] else { panic!() };
    assert_eq!(cpu, idle);
    // Entering the system; the wake-up of a CPU that was idle for 1 ms; a switch.
    assert_eq!(at - from, 500 + 15 * US + US);
}

#[test]
fn a_whole_idle_core_comes_before_half_of_one() {
    let (mut simulation, log) = (simulation(&tiny(3, 2)), Log::new());
    let word = word(&mut simulation);
    let (sleeps, wakes) = (Rc::clone(&word), Rc::clone(&word));
    // Threads go to cores a, b, c, a, b, c, and then to the first CPU again.
    let core = log.clone();
    simulation.spawn(move || {
        Sim::park(&sleeps, 0, None);
        core.write(thread_cpu() / 2);
    });
    simulation.spawn(move || {
        compute(1e6);
        Sim::wake(&**wakes, 1);
    });
    for thread in 2..7 {
        let core = log.clone();
        simulation.spawn(move || {
            if thread == 2 {
                core.write(thread_cpu() / 2);
            }
            compute(if thread == 6 { 10e6 } else { 10e3 });
        });
    }
    simulation.run().unwrap();
    let cores = log.take();
    assert_eq!(cores[0], cores[1], "c; the second CPUs of a and b are idle, too");
}

#[test]
fn a_cpu_with_nothing_to_do_takes_from_the_longest_queue() {
    let (mut simulation, log) = (simulation(&tiny(3, 1)), Log::new());
    // Two wait for a, one for b; c is done after 1 + 10 + 1 + 10 us.
    for (thread, time) in [1e6, 1e6, 10e3, 1e6, 1e6, 10e3, 10e3].into_iter().enumerate() {
        let log = log.clone();
        simulation.spawn(move || {
            log.write((thread, thread_cpu(), now()));
            compute(time);
        });
    }
    simulation.run().unwrap();
    let started = log.take();
    let of = |thread: usize| started.iter().find(|entry| entry.0 == thread).unwrap();
    assert_eq!((of(6).1, of(6).2), (of(2).1, 23 * US), "from a, the last one, after a switch");
    assert_ne!(of(0).1, of(6).1);
}

#[test]
fn who_waits_for_a_cpu_goes_to_an_idle_one_of_another_node_in_the_end() {
    let mut machine = tiny(1, 1);
    machine.topology.packages = 2;
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let (word, sleeper, written) = (word(&mut simulation), log.clone(), log.clone());
    let same = Rc::clone(&word);
    // The first and the last thread start on the same CPU. The other CPU is soon idle, before any thread waits.
    simulation.spawn(move || {
        Sim::park(&word, 0, None);
        sleeper.write((thread_cpu(), now()));
    });
    simulation.spawn(|| compute(1_200.0));
    simulation.spawn(move || {
        log.write((thread_cpu(), now()));
        Sim::wake(&**same, 1);
        compute(1e6);
    });
    let outcome = simulation.run().unwrap();
    let [(waker, began), (woken, ran)] = written.take()[..] else { panic!() };
    assert_ne!(waker, woken);
    // A third of a slice after the waker's start, which had a switch before it; and a switch on the new CPU.
    assert!((ran - began).abs_diff(33_333) <= 1, "{}", ran - began);
    assert_eq!(outcome.involuntary_switches, 0, "nobody had to make room");
}

#[test]
fn a_nap_takes_the_timers_slack_longer() {
    let mut machine = tiny(1, 1);
    machine.scheduler.idle_us = vec![(0.0, 3.0)];
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let theirs = log.clone();
    simulation.spawn(move || {
        theirs.write(timed(|| nap(100e3)));
        theirs.write(timed(|| Sim::pause(Pause::Nap(20))));
    });
    simulation.run().unwrap();
    // 100 asked for, 50 of slack, 3 for the CPU to wake up, 1 to switch.
    assert_eq!(log.take(), [154 * US, 74 * US]);
}

// ------------------------------------------------------------------------------------------------- speed of the cores

#[test]
fn a_cpu_that_is_away_half_of_the_time_takes_twice_as_long() {
    let away = |away_ms| {
        let mut machine = tiny(1, 1);
        machine.hypervisor = Some(Hypervisor { run_ms: 0.25, away_ms });
        a_millisecond(&machine, 1)
    };
    assert_eq!([away(0.0), away(0.25), away(0.75)], [[MS], [2 * MS], [4 * MS]]);
}

#[test]
fn hardware_threads_share_a_core() {
    let mut machine = tiny(1, 8);
    (machine.clock.pipelines, machine.clock.smt_share) = (1.0, 0.625);
    assert_eq!(a_millisecond(&machine, 1), [MS]);
    assert_eq!(a_millisecond(&machine, 2), [1_600_000; 2], "1 / 0.625");
    assert_eq!(a_millisecond(&machine, 4), [3_200_000; 4], "4 / (2 * 0.625)");
    machine.clock.pipelines = 2.0;
    assert_eq!(a_millisecond(&machine, 2), [MS; 2]);
    assert_eq!(a_millisecond(&machine, 8), [3_200_000; 8], "four on each");
}

#[test]
fn a_neighbour_that_polls_takes_little() {
    let mut machine = tiny(1, 2);
    (machine.clock.smt_share, machine.clock.poll_share) = (0.6, 0.5);
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let (word, theirs) = (word(&mut simulation), log.clone());
    let same = Rc::clone(&word);
    simulation.spawn(move || {
        compute(100e3);
        theirs.write(timed(|| compute(1e6)));
        word.store(1, Relaxed);
    });
    simulation.spawn(move || _ = Sim::spin_until(&same, Relaxed, Patience::Forever, |seen| seen == 1));
    simulation.run().unwrap();
    assert_eq!(log.take(), [1_250_000], "0.4 would be lost to one that computes, half of it to one that polls");
}

#[test]
fn few_active_cores_run_faster() {
    let mut machine = tiny(3, 2);
    (machine.clock.ghz, machine.clock.turbo) = (2.0, vec![(1, 4.0), (2, 2.5)]);
    assert_eq!(a_millisecond(&machine, 1), [500 * US]);
    assert_eq!(a_millisecond(&machine, 2), [800 * US; 2]);
    assert_eq!(a_millisecond(&machine, 3), [MS; 3]);
}

// --------------------------------------------------------------------------------------------------- parking, waking

#[test]
fn sleepers_are_woken_in_order_and_counted() {
    let (mut simulation, log) = (simulation(&tiny(4, 1)), Log::new());
    let word = word(&mut simulation);
    for thread in 0..3 {
        let (word, log) = (Rc::clone(&word), log.clone());
        simulation.spawn(move || {
            compute(f64::from(thread) * 10e3);
            assert_eq!(Sim::park(&word, 0, None), Unparked::Woken);
            log.write(thread);
        });
    }
    let counts = Log::new();
    let theirs = counts.clone();
    simulation.spawn(move || {
        compute(100e3);
        theirs.write((timed(|| assert_eq!(Sim::wake(&**word, 2), 2)), 2));
        theirs.write((timed(|| assert_eq!(Sim::wake(&**word, 2), 1)), 1));
        theirs.write((timed(|| assert_eq!(Sim::wake(&**word, 2), 0)), 0));
    });
    simulation.run().unwrap();
    assert_eq!(log.take(), [0, 1, 2]);
    assert_eq!(counts.take(), [(4_500, 2), (2_500, 1), (500, 0)], "0.5 us, and 2 for each of them");
}

#[test]
fn nobody_sleeps_on_a_word_that_has_changed() {
    let mut simulation = simulation(&tiny(1, 1));
    let word = word(&mut simulation);
    simulation.spawn(move || {
        word.store(1, Relaxed);
        assert_eq!(Sim::park(&word, 0, None), Unparked::Changed);
    });
    assert_eq!(simulation.run().unwrap().voluntary_switches, 0);
}

#[test]
fn a_timed_park_ends_at_its_time_or_when_woken() {
    let mut machine = tiny(2, 1);
    machine.scheduler.timer_slack_us = 0.0;
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let (word, theirs) = (word(&mut simulation), log.clone());
    let same = Rc::clone(&word);
    simulation.spawn(move || {
        theirs.write((Sim::park(&word, 0, Some(at(MS))), now()));
        let (result, after) = (Sim::park(&word, 0, Some(at(9 * MS))), now());
        assert!((2 * MS..3 * MS).contains(&after), "{after}");
        theirs.write((result, 0));
        // The timer of a finished sleep does not affect the next one.
        theirs.write((Sim::park(&word, 0, Some(at(20 * MS))), now()));
    });
    simulation.spawn(move || {
        compute(2e6);
        assert_eq!(Sim::wake(&**same, 9), 1);
        compute(8e6);
    });
    simulation.run().unwrap();
    let timed_out = |ns| (Unparked::TimedOut, ns);
    assert_eq!(log.take(), [timed_out(MS + US), (Unparked::Woken, 0), timed_out(20 * MS + US)]);
}

#[test]
fn a_sleeper_that_is_moved_sleeps_on_elsewhere() {
    let mut machine = tiny(3, 1);
    machine.scheduler.timer_slack_us = 0.0;
    let mut simulation = simulation(&machine);
    let word = word(&mut simulation);
    let (log, handles) = (Log::new(), Log::new());
    for until in [None, Some(at(MS))] {
        let (log, handles) = (log.clone(), handles.clone());
        simulation.spawn(move || {
            // SAFETY: it is in no queue, and given back once.
            let handle = unsafe { Sim::take_node() };
            handles.write(handle);
            let node = Sim::node(handle);
            node.state.store(0, Relaxed);
            log.write(Sim::park(&node.state, 0, until));
            Sim::give_node(handle);
        });
    }
    simulation.spawn(move || {
        compute(100e3);
        let nodes: Vec<_> = handles.take().into_iter().map(Sim::node).collect();
        nodes.iter().for_each(|node| Sim::requeue(node, &**word));
        nodes.iter().for_each(|node| assert_eq!(Sim::wake(&node.state, 1), 0, "it is there no more"));
        compute(2e6);
        assert_eq!(Sim::wake(&**word, 9), 1, "one is left: the other one's time has come");
    });
    simulation.run().unwrap();
    assert_eq!(log.take(), [Unparked::TimedOut, Unparked::Woken]);
}
