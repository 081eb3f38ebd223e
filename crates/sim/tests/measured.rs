//! Only a part of a run is measured, and the run is the same as without.

mod common;

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use common::{simulation, tiny};
use flashlock_locks::event::Event;
use flashlock_locks::machine::{Machine, Patience, Word as _};
use flashlock_sim::{Outcome, Region, Sim, Use, Word, compute, delay, nap, now};

const US: u64 = 1_000;

/// Of a part of a run, what two threads spend their time with: one computes and touches memory, one waits.
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
    // The one is in the middle of its delay, which is computing. The other sleeps until 20 + 50 us after the 1 at which it began,
    // needs another one to get its CPU, and polls then, with some loads, of which memory serves one.
    let (computed, polled) = (spent(&part, Use::Compute), spent(&part, Use::Polling));
    assert!((60e3..60.1e3).contains(&computed) && (17e3..18e3).contains(&polled), "{part:?}");
    assert_eq!((spent(&part, Use::Parked), spent(&part, Use::Scheduling)), (41e3, 1e3));
    assert!((part.times.iter().sum::<f64>() - 120e3).abs() < 1e-6, "{part:?}");
    assert_eq!((part.traffic.memory, part.voluntary_switches), (1, 0));
    assert_eq!(run(Some((500, 600))).times, [0.0; Use::ALL.len()], "it is over");
}

/// Whether others act before it is over or not.
#[test]
fn an_action_is_one_step() {
    let steps = |threads: u32| {
        let mut simulation = simulation(&tiny(4, 1));
        for _ in 0..threads {
            simulation.spawn(|| (0..50).for_each(|_| compute(7.0)));
        }
        simulation.run().unwrap().events
    };
    // Getting the CPU is one, too. Threads with CPUs of their own have all their events at the same times.
    assert_eq!([1, 2, 4].map(steps), [51, 102, 204]);
}
