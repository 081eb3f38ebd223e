//! Measuring only a part of a run, which does not change the run.

mod common;

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use common::{Log, simulation, tiny};
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Listen as _, Manner, Patience, Special as _, Time as _, Waiting as _, Word as _};
use flashlock_sim::description::{Hypervisor, Umwait};
use flashlock_sim::{Description, Outcome, Region, Sim, Use, Word, compute, delay, nap, now};

const US: u64 = 1_000;

/// How two threads spend their time in a part of a run: one computes and touches memory, the other waits.
fn run(part: Option<(u64, u64)>) -> Outcome {
    let mut simulation = simulation(&tiny(2, 1));
    let word = Rc::new(simulation.place("word", Word::new(0)));
    let lines = Region::new(100);
    if let Some((from, to)) = part {
        simulation.measure(from * US..to * US);
    }
    let other = Rc::clone(&word);
    simulation.spawn(move || {
        delay(100e3);
        (0..100).for_each(|line| lines.read(line));
        Sim::trace(Event::Alteration);
        delay((200 * US - now()) as f64);
        word.store(1, Relaxed);
        compute(100e3);
    });
    simulation.spawn(move || {
        nap(20e3);
        Sim::spin_until(&**other, Relaxed, Patience::Forever, |seen| seen == 1);
    });
    simulation.run().unwrap()
}

fn spent(outcome: &Outcome, usage: Use) -> f64 {
    outcome.times[usage as usize]
}

#[test]
fn parts_add_up() {
    let whole = run(None);
    assert_eq!(run(Some((0, 1_000_000))), whole);
    let parts = [(0, 10), (10, 50), (50, 104), (104, 150), (150, 1_000)].map(|part| run(Some(part)));
    for usage in Use::ALL {
        let sum: f64 = parts.iter().map(|part| spent(part, usage)).sum();
        assert!((sum - spent(&whole, usage)).abs() < 1e-3, "{usage:?}: {sum} of {}", spent(&whole, usage));
    }
    let sum = |of: fn(&Outcome) -> u64| parts.iter().map(of).sum::<u64>();
    assert_eq!(sum(|part| part.traffic.memory), whole.traffic.memory);
    assert_eq!(sum(|part| part.traffic.hits), whole.traffic.hits);
    assert_eq!(sum(|part| part.voluntary_switches), whole.voluntary_switches);
    assert_eq!(sum(|part| part.counts[Event::Alteration as usize]), 1);
    assert!((parts.iter().map(|part| part.joules).sum::<f64>() - whole.joules).abs() < 1e-12);
}

#[test]
fn what_comes_before_and_after_is_left_out() {
    let (whole, part) = (run(None), run(Some((30, 90))));
    assert_eq!((part.ns, part.events), (whole.ns, whole.events), "nothing else happens");
    // The first thread is in the middle of its delay, which counts as computing. The second starts at 1 us, sleeps for
    // 20 + 50 us, needs another 1 us to get its CPU, which is idle, and then polls, with a few loads, one of which
    // memory serves.
    let (computed, polled) = (spent(&part, Use::Compute), spent(&part, Use::Polling));
    assert!((60e3..60.1e3).contains(&computed) && (17e3..18e3).contains(&polled), "{part:?}");
    assert_eq!([Use::Parked, Use::System, Use::Runnable].map(|usage| spent(&part, usage)), [41e3, 1e3, 0.0]);
    assert!((part.times.iter().sum::<f64>() - 120e3).abs() < 1e-6, "{part:?}");
    assert_eq!((part.traffic.memory, part.voluntary_switches), (1, 0));
    assert_eq!(run(Some((500, 600))).times, [0.0; Use::ALL.len()], "it is over");
}

/// Whether or not other threads act before it is over.
#[test]
fn an_action_is_one_step() {
    let steps = |threads: u32| {
        let mut simulation = simulation(&tiny(4, 1));
        for _ in 0..threads {
            simulation.spawn(|| (0..50).for_each(|_| compute(7.0)));
        }
        simulation.run().unwrap().events
    };
    // Getting the CPU is a step, too. Threads with CPUs of their own have all their events at the same times.
    assert_eq!([1, 2, 4].map(steps), [51, 102, 204]);
}

/// CPUs that are away half of the time, in turns of 200 us. One thread computes; the other waits for it and polls. The
/// parts of the run are checked, too.
#[test]
fn who_has_a_cpu_that_is_away_waits_for_it() {
    let run = |part: Option<(u64, u64)>| {
        let machine = Description { hypervisor: Some(Hypervisor { run_ms: 0.1, away_ms: 0.1 }), ..tiny(2, 1) };
        let (mut simulation, log) = (simulation(&machine), Log::new());
        let word = Rc::new(simulation.place("word", Word::new(0)));
        if let Some((from, to)) = part {
            simulation.measure(from * US..to * US);
        }
        let (other, ends, end) = (Rc::clone(&word), log.clone(), log.clone());
        simulation.spawn(move || {
            compute(1e6);
            word.store(1, Relaxed);
            ends.write(now());
        });
        simulation.spawn(move || {
            Sim::spin_until(&**other, Relaxed, Patience::Forever, |seen| seen == 1);
            end.write(now());
        });
        (simulation.run().unwrap(), log.take().iter().sum::<u64>())
    };
    let (whole, together) = run(None);
    assert!((whole.times.iter().sum::<f64>() - together as f64).abs() < 2.0, "{together}: {whole:?}");
    assert!((1e6..1.001e6).contains(&spent(&whole, Use::Compute)), "{whole:?}");
    for part in [(200, 400), (230, 1_430), (410, 480)] {
        let (found, length) = (run(Some(part)).0, (part.1 - part.0) as f64 * 1e3);
        assert!((found.times.iter().sum::<f64>() - 2.0 * length).abs() < 1e-3, "{part:?}: {found:?}");
        let away = spent(&found, Use::Runnable);
        // Each CPU is away while the other runs.
        assert!((away - length).abs() < 1.0, "{part:?}: {away}");
        // 2x18x2: 3 W for a thread that computes, and 2 W for a thread that polls and looks from time to time.
        let busy = length - spent(&found, Use::Polling);
        let expected = 3.0 * busy + 2.0 * spent(&found, Use::Polling);
        assert!((found.joules * 1e9 - expected).abs() < 0.01 * expected, "{part:?}: {found:?}");
    }
}

/// The power in watts above idle of this many cores with two hardware threads each. `threads`: what each thread does
/// for a millisecond.
fn watts(cores: u32, threads: &[fn(&Word)]) -> f64 {
    let machine = Description { umwait: Some(Umwait { wake_ns: 500.0, max_us: 1e6, wait_w: 0.5 }), ..tiny(cores, 2) };
    let mut simulation = simulation(&machine);
    let word = Rc::new(simulation.place("word", Word::new(0)));
    simulation.measure(200 * US..900 * US);
    for act in threads {
        let (word, act) = (Rc::clone(&word), *act);
        simulation.spawn(move || act(&word));
    }
    simulation.run().unwrap().joules * 1e9 / 700e3
}

#[test]
fn a_core_consumes_what_its_busiest_thread_does() {
    fn until() -> Patience {
        Patience::Until(Sim::sooner(1_000, None))
    }
    let computes: fn(&Word) = |_| delay(1e6);
    let polls: fn(&Word) = |word| _ = Sim::spin_until(word, Relaxed, until(), |_| false);
    let rests: fn(&Word) = |word| _ = Sim::poll_until(word, Relaxed, until(), Manner::Rests, |_| false);
    // 2x18x2: 3 W for a core that computes, 2 W for one that polls.
    for (cores, threads, expected) in [
        (1, vec![computes], 3.0),
        (1, vec![computes, computes], 3.0),
        (2, vec![computes, computes], 6.0),
        (1, vec![computes, polls], 3.0),
        (1, vec![polls, polls], 2.0),
        (1, vec![rests, polls], 2.0),
        (1, vec![rests, rests], 0.5),
        (2, vec![computes, rests], 3.5),
    ] {
        let found = watts(cores, &threads);
        assert!((found - expected).abs() < 0.02, "{cores} cores, {} threads: {found} W of {expected}", threads.len());
    }
}
