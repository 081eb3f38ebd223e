//! The order of events, how threads see each other's stores, and the reports about threads that wait for ever.

mod common;

use std::rc::Rc;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};

use common::{Log, simulation, taken_away, tiny};
use flashlock_locks::machine::{Patience, Waiting as _, Word as _};
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::parts::wait::Spin;
use flashlock_sim::{
    Description, Options, Placed, Region, Sim, Simulation, Why, Word, compute, delay, nap, now, thread_number,
};

/// A word on a line of its own.
fn word(simulation: &mut Simulation, name: &str) -> Rc<Placed<Word>> {
    Rc::new(simulation.place(name, Word::new(0)))
}

/// Two nodes with small caches, which are made quickly.
fn two_nodes() -> Description {
    let mut machine = Description::find("2x18x2").unwrap();
    machine.cache.llc.kib = 640;
    machine
}

/// Pseudo-random times in ns, up to `most`.
fn times(seed: u64, most: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 32) % most) as f64
    }
}

#[test]
fn time_never_goes_back() {
    for machine in ["2x18x2", "opteron-6172"] {
        let mut simulation = simulation(&Description::find(machine).unwrap());
        let (log, data) = (Log::new(), Rc::new(Region::new(8)));
        for thread in 0..150_u64 {
            let (log, data) = (log.clone(), Rc::clone(&data));
            simulation.spawn(move || {
                let mut time = times(thread, 3_000);
                for round in 0..20 {
                    compute(time());
                    log.write(now());
                    data.write(round % 8);
                    data.read((round + 1) % 8);
                    log.write(now());
                    if round % 8 == 0 {
                        nap(time());
                    }
                }
            });
        }
        let outcome = simulation.run().unwrap();
        let times = log.take();
        assert!(times.is_sorted(), "{machine}");
        assert_eq!(times.len(), 150 * 40);
        assert!(*times.last().unwrap() as f64 <= outcome.ns);
    }
}

#[test]
fn what_happens_at_one_time_happens_in_the_order_in_which_it_was_begun() {
    let (mut simulation, log) = (simulation(&tiny(8, 1)), Log::new());
    for _ in 0..8 {
        let log = log.clone();
        simulation.spawn(move || {
            for _ in 0..3 {
                log.write(thread_number());
                delay(1_000.0);
            }
        });
    }
    simulation.run().unwrap();
    assert_eq!(log.take(), [0, 1, 2, 3, 4, 5, 6, 7].repeat(3));
}

// ------------------------------------------------------------------------------------------------------ stores, loads

#[test]
fn who_sees_the_flag_sees_the_data() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(&two_nodes(), Options { placement: seed, ..Options::default() });
        let [data, flag] = ["data", "flag"].map(|name| word(&mut simulation, name));
        let (their_data, their_flag) = (Rc::clone(&data), Rc::clone(&flag));
        let mut time = times(seed + 1, 500);
        let (sooner, later) = (time(), time());
        simulation.spawn(move || {
            // The flag's line is near. The other thread has the data's line, so its store takes longer.
            flag.load(Relaxed);
            compute(sooner);
            data.store(1, Relaxed);
            flag.store(1, Release);
        });
        simulation.spawn(move || {
            their_data.load(Relaxed);
            compute(later);
            Sim::spin_until(&their_flag, Acquire, Patience::Forever, |seen| seen == 1);
            assert_eq!(their_data.load(Relaxed), 1);
        });
        simulation.run().unwrap();
    }
}

#[test]
fn a_store_is_not_seen_before_earlier_ones_are() {
    let machine = Description::find("4x18x2").unwrap();
    let transfer = machine.latency_ns.transfer[1] as u64;
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let [data, flag] = ["data", "flag"].map(|name| word(&mut simulation, name));
    let (their_data, their_flag) = (Rc::clone(&data), Rc::clone(&flag));
    let (stores, loads) = (log.clone(), log.clone());
    simulation.spawn(move || {
        flag.store(0, Relaxed);
        compute(10e3);
        stores.write(now());
        data.store(1, Relaxed); // The other thread has the line, in another node.
        flag.store(1, Release); // This thread has the line.
        stores.write(now());
    });
    simulation.spawn(move || {
        their_data.store(0, Relaxed);
        compute(10_020.0);
        // The first core owns the line, so this is a plain transfer, but it has to wait for the data.
        their_flag.load(Acquire);
        loads.write(now());
    });
    simulation.run().unwrap();
    let times = log.take();
    assert!(times[1] - times[0] <= 2, "a thread does not wait for its stores: {times:?}");
    // The request for the flag has travelled meanwhile.
    let both = 2 * transfer - transfer / 2;
    assert!(times[2] - times[0] >= both, "the data comes to one, then the flag to the other: {times:?}");
}

/// Both threads raise a flag, then look at the other's flag. Returns how often neither saw the other's.
fn dekker(raise: fn(&Word)) -> u32 {
    let mut neither = 0;
    for seed in 0..200 {
        let mut simulation = Simulation::new(&two_nodes(), Options { placement: seed, ..Options::default() });
        let [one, other] = ["one", "other"].map(|name| word(&mut simulation, name));
        let (log, mut time) = (Log::new(), times(seed + 1, 300));
        for (mine, theirs) in [(&one, &other), (&other, &one)] {
            let (mine, theirs, log, time) = (Rc::clone(mine), Rc::clone(theirs), log.clone(), time());
            simulation.spawn(move || {
                theirs.load(Relaxed);
                compute(time);
                raise(&mine);
                log.write(theirs.load(SeqCst));
            });
        }
        simulation.run().unwrap();
        neither += u32::from(log.take() == [0, 0]);
    }
    neither
}

#[test]
fn of_two_who_raise_a_flag_one_sees_the_others() {
    assert_eq!(dekker(|flag| _ = flag.swap(1, SeqCst)), 0);
    assert_eq!(dekker(|flag| _ = flag.fetch_or(1, Ordering::AcqRel)), 0);
    assert_eq!(dekker(|flag| flag.store(1, SeqCst)), 0);
}

#[test]
fn a_full_store_buffer_makes_its_thread_wait() {
    let stores = |room| {
        let mut machine = tiny(1, 1);
        machine.bandwidth.store_buffer = room;
        let (mut simulation, log) = (simulation(&machine), Log::new());
        let (data, theirs) = (Region::new(4_096), log.clone());
        simulation.spawn(move || {
            let before = now();
            (0..64).for_each(|line| data.write(line * 64)); // All from memory.
            theirs.write(now() - before);
        });
        simulation.run().unwrap();
        log.take()[0]
    };
    assert!(stores(64) < 64, "0.4 ns each: {}", stores(64));
    assert!(stores(4) > 96 && stores(4) < 64 * 96, "a miss takes 96 ns, and four overlap: {}", stores(4));
    assert!(stores(1) > stores(4));
}

#[test]
fn loads_that_nothing_depends_on_are_under_way_together() {
    let mut machine = tiny(1, 1);
    machine.latency_ns.overlap = 4.0;
    let (mut simulation, log) = (simulation(&machine), Log::new());
    let (data, theirs) = (Region::new(4_096), log.clone());
    simulation.spawn(move || {
        for (first, read) in [(0, Region::read as fn(&Region, u32)), (32, |data, line| data.read_ahead([line]))] {
            // From memory, each on a page that is not in the TLB.
            let before = now();
            (first..first + 32).for_each(|line| read(&data, line * 64));
            theirs.write(now() - before);
        }
    });
    simulation.run().unwrap();
    let times = log.take();
    assert!(times[0].abs_diff(32 * (96 + 15)) <= 32, "{times:?}");
    assert!(times[1].abs_diff(32 * (96 + 15) / 4) <= 32, "four at once: {times:?}");
}

/// A thread that names many lines at once does not act in between; all else is the same.
#[test]
fn lines_named_at_once_are_loaded_one_after_the_other() {
    let run = |at_once: bool| {
        let mut machine = taken_away();
        (machine.scheduler.slice_us, machine.cache.llc.kib) = (20.0, 640);
        let (mut simulation, log) = (simulation(&machine), Log::new());
        let data = Rc::new(Region::new(40_000));
        // More threads than CPUs.
        for thread in 0..24_u32 {
            let (data, log) = (Rc::clone(&data), log.clone());
            simulation.spawn(move || {
                for round in 0..20 {
                    let lines =
                        (0..50_u32).map(|n| (thread * 1000 + round * 50 + n).wrapping_mul(0x9e37_79b1) % 40_000);
                    if at_once {
                        data.read_ahead(lines);
                    } else {
                        lines.for_each(|line| data.read_ahead([line]));
                    }
                    data.write(thread * 64);
                    log.write((thread, now()));
                }
            });
        }
        (simulation.run().unwrap(), log.take())
    };
    let (outcome, log) = run(true);
    assert!(outcome.involuntary_switches > 10 && outcome.traffic.displaced_by_others > 10, "{outcome:?}");
    assert_eq!((outcome, log), run(false));
}

// ------------------------------------------------------------------------------------------------- waiting for ever

/// The tests check the reason, too: threads that all sleep are a deadlock, but a thread that polls only makes no
/// progress.
const POLLED: Why = Why::NoProgress(10_000_000_000);

fn stuck(simulation: &mut Simulation, why: Why) -> Vec<String> {
    let stuck = simulation.run().unwrap_err();
    assert_eq!(stuck.why, why, "{stuck}");
    let words = if why == Why::Deadlock { "deadlock or lost wake-up after" } else { "no progress for 10 s" };
    assert!(stuck.to_string().starts_with(words), "{stuck}");
    stuck.threads
}

#[test]
fn a_lost_wake_up_is_reported() {
    let mut simulation = simulation(&tiny(2, 1));
    let flag = word(&mut simulation, "the flag");
    let same = Rc::clone(&flag);
    simulation.spawn(move || _ = Sim::park(&flag, 0, None));
    simulation.spawn(move || {
        compute(10e3);
        same.store(7, Release); // And no thread is woken.
    });
    let threads = stuck(&mut simulation, Why::Deadlock);
    assert_eq!(threads.len(), 1);
    assert!(threads[0].starts_with("thread 0 sleeps on the flag, byte 0 (which holds 7) since 1"), "{threads:?}");
}

#[test]
fn a_deadlock_of_sleepers_names_both_locks() {
    let mut simulation = simulation(&tiny(2, 1));
    let [left, right] = ["left", "right"].map(|name| word(&mut simulation, name));
    for (first, second) in [(&left, &right), (&right, &left)] {
        let (first, second) = (Rc::clone(first), Rc::clone(second));
        simulation.spawn(move || {
            // SAFETY: the words are this lock's alone.
            unsafe { <Futex as RawLock<Sim>>::lock(&first, &()) };
            compute(10e3);
            // SAFETY: as above.
            unsafe { <Futex as RawLock<Sim>>::lock(&second, &()) };
        });
    }
    let threads = stuck(&mut simulation, Why::Deadlock);
    assert_eq!(threads.len(), 2);
    assert!(threads[0].starts_with("thread 0 sleeps on right, byte 0 (which holds 2)"), "{threads:?}");
    assert!(threads[1].starts_with("thread 1 sleeps on left, byte 0 (which holds 2)"), "{threads:?}");
}

#[test]
fn who_polls_for_ever_is_reported() {
    let mut simulation = simulation(&tiny(2, 1));
    let lock = simulation.place("a lock", Raw::<Sim, Mcs<Spin>>::new());
    simulation.spawn(move || {
        lock.lock();
        lock.lock();
    });
    let threads = stuck(&mut simulation, POLLED);
    assert_eq!(threads.len(), 1);
    assert!(threads[0].contains("thread 0") && threads[0].contains("queue node"), "{threads:?}");
}

#[test]
fn a_long_program_does_not_hang() {
    // Longer than the limit for a hang, while another thread has events.
    for long in [compute, delay, nap] {
        let mut simulation = simulation(&tiny(2, 1));
        simulation.spawn(move || long(25e9));
        simulation.spawn(|| (0..10).for_each(|_| delay(1e9)));
        assert!(simulation.run().unwrap().ns >= 25e9);
    }
}
