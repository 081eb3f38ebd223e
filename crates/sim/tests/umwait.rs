//! Waiters that wait for a change of a line instead of polling it.

mod common;

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use common::{Log, simulation, tiny};
use flashlock_locks::machine::{Manner, Patience, Special as _, Waiting as _, Word as _};
use flashlock_locks::mutex::malthusian::{LifoCr, Mcscr};
use flashlock_locks::mutex::numa::Cna;
use flashlock_locks::mutex::queue::{Clh, Mcs, Qspin};
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::parts::wait;
use flashlock_sim::description::Umwait;
use flashlock_sim::{Description, Outcome, Sim, Word, compute, now};

const REST: Umwait = Umwait { wake_ns: 500.0, max_us: 1e6, wait_w: 0.5 };

/// One thread computes for a millisecond and stores; another one waits for the store. Returns how long the computing
/// took, when the other thread saw the store, and the outcome.
fn handed_over(cores: u32, threads_per_core: u32, umwait: Option<Umwait>, patience: Patience) -> (u64, u64, Outcome) {
    let mut machine: Description = tiny(cores, threads_per_core);
    machine.umwait = umwait;
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let word = Rc::new(simulation.place("word", Word::new(0)));
    let (same, computed, seen) = (Rc::clone(&word), log.clone(), log.clone());
    simulation.spawn(move || {
        // Until the other thread rests.
        compute(100e3);
        let before = now();
        compute(1e6);
        computed.write(now() - before);
        word.store(1, Relaxed);
    });
    simulation.spawn(move || {
        Sim::poll_until(&same, Relaxed, patience, Manner::Rests, |value| value == 1);
        seen.write(now());
    });
    let outcome = simulation.run().unwrap();
    let [computed, seen] = log.take()[..] else { panic!("both come to an end") };
    (computed, seen, outcome)
}

#[test]
fn waking_up_takes_its_time() {
    let (_, polling, _) = handed_over(2, 1, None, Patience::Forever);
    let (_, at_rest, _) = handed_over(2, 1, Some(REST), Patience::Forever);
    // The next poll comes after at most 16 ns, and waits until the store has got its line, in at most 55 ns.
    assert!((500 - 16 - 55..=500).contains(&(at_rest - polling)), "{polling} {at_rest}");
}

#[test]
fn a_waiter_at_rest_leaves_the_core_to_its_neighbour() {
    let (polled_beside, ..) = handed_over(1, 2, None, Patience::Forever);
    let (rested_beside, ..) = handed_over(1, 2, Some(REST), Patience::Forever);
    assert!(polled_beside > 1_010_000, "{polled_beside}");
    // The waiter looks once in 10 µs.
    assert!((1_000_000..1_002_000).contains(&rested_beside), "{rested_beside}");
}

#[test]
fn rest_consumes_what_the_machine_says() {
    let watts = |umwait| {
        let (.., outcome) = handed_over(2, 1, umwait, Patience::Forever);
        outcome.joules * 1e9 / outcome.ns
    };
    let (polling, resting) = (watts(None), watts(Some(REST)));
    // 2x18x2: 3 W for the core that computes, 2 W for one that polls.
    assert!((polling - 5.0).abs() < 0.05 && (resting - 3.5).abs() < 0.05, "{polling} {resting}");
}

#[test]
fn the_system_limits_the_rest() {
    let steps = |max_us| handed_over(2, 1, Some(Umwait { max_us, ..REST }), Patience::Forever).2.events;
    assert!(steps(1.0) > steps(1e6) + 200, "{} {}", steps(1.0), steps(1e6));
}

#[test]
fn a_short_wait_is_a_rest_too() {
    let machine = Description { umwait: Some(REST), ..tiny(2, 1) };
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let word = Rc::new(simulation.place("word", Word::new(0)));
    let (same, looked) = (Rc::clone(&word), log.clone());
    simulation.spawn(move || {
        compute(3_000.0);
        word.store(1, Relaxed);
    });
    simulation.spawn(move || {
        let mut looks = 0;
        Sim::poll_until(&same, Relaxed, Patience::Budget, Manner::Rests, |value| {
            looks += 1;
            value == 1
        });
        looked.write(looks);
    });
    simulation.run().unwrap();
    let [looks] = log.take()[..] else { panic!("it has seen the store") };
    // Each rest is half a µs long. The waiter also looks before the first one, and when the line has changed.
    assert!(looks <= 12, "{looks} looks");
}

#[test]
fn who_contends_with_the_holder_goes_on_polling() {
    let seen = |umwait| handed_over(2, 1, umwait, Patience::Contend).1;
    assert_eq!(seen(None), seen(Some(REST)));
}

#[test]
fn who_polls_does_not_rest() {
    let run = |umwait| {
        let machine = Description { umwait, ..tiny(2, 1) };
        let mut simulation = simulation(&machine);
        let word = Rc::new(simulation.place("word", Word::new(0)));
        let same = Rc::clone(&word);
        simulation.spawn(move || {
            compute(1e6);
            word.store(1, Relaxed);
        });
        simulation.spawn(move || _ = Sim::spin_until(&same, Relaxed, Patience::Forever, |value| value == 1));
        simulation.run().unwrap()
    };
    assert_eq!(run(None), run(Some(REST)));
}

/// Sections of half a µs on four cores, under a lock whose waiters wait in this way. Returns the outcome.
fn contended<L: RawLock<Sim>>() -> Outcome {
    let machine = Description { umwait: Some(Umwait { wake_ns: 250.0, ..REST }), ..tiny(4, 1) };
    let mut simulation = simulation(&machine);
    let lock = Rc::new(simulation.place("lock", Raw::<Sim, L>::new()));
    for _ in 0..4 {
        let lock = Rc::clone(&lock);
        simulation.spawn(move || {
            for _ in 0..200 {
                lock.lock();
                compute(500.0);
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
            }
        });
    }
    simulation.run().unwrap()
}

/// The same sections take less energy, though each hand-off takes 250 ns longer.
#[test]
fn locks_whose_waiters_rest_take_less_energy() {
    fn compare<Resting: RawLock<Sim>, Polling: RawLock<Sim>>(name: &str) {
        let (resting, polling) = (contended::<Resting>(), contended::<Polling>());
        assert!(resting.joules < 0.9 * polling.joules, "{name}: {} {}", resting.joules, polling.joules);
        assert!(resting.ns < 1.6 * polling.ns, "{name}: {} {}", resting.ns, polling.ns);
    }
    compare::<Mcs<wait::Umwait>, Mcs<wait::SpinThenPark>>("mcs");
    compare::<Clh<wait::Umwait>, Clh<wait::SpinThenPark>>("clh");
    compare::<Cna<wait::Umwait>, Cna<wait::SpinThenPark>>("cna");
    compare::<Mcscr<wait::Umwait>, Mcscr<wait::SpinThenPark>>("mcscr");
    compare::<LifoCr<wait::Umwait>, LifoCr<wait::SpinThenPark>>("lifo-cr");
    compare::<Qspin<wait::Umwait>, Qspin<wait::SpinThenPark>>("qspin");
}
