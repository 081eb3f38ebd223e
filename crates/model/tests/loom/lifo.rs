//! LIFO-CR: stacks built by hand, from which the holder takes its successor while a thread is pushed, or gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Handle, Word as _};
use flashlock_locks::mutex::malthusian::LifoCr;
use flashlock_locks::mutex::malthusian::lifo_cr::LifoQueue;
use flashlock_locks::parts::wait::left::SWEEP_AT;
use flashlock_locks::parts::wait::{Park, SpinThenPark};
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::thread;
use flashlock_model::loom::{explore, find};
use flashlock_model::{Loom, Setup};

use crate::common::{
    ALL, Lock, Mutex, Racers, adopt, adopted_section, all_done, come_back, gives_up, joins, puts_himself,
    release_as_one_comes, sleepers, world,
};
use crate::compact_mutants::{LosesThoseBetween, MutantLifo, PopsByStore, TakesTheSecond};
use crate::culling::{LEAVES, STAYS};

/// A lock with a stack.
pub(crate) trait Stack: Lock<Queue = LifoQueue<Loom>> {}
impl<L: Lock<Queue = LifoQueue<Loom>>> Stack for L {}

/// The lock is held by this thread, and so many sleep in the stack. The first of these is on top.
fn stack<L: Stack>(count: usize) -> (Arc<Mutex<L>>, Vec<Handle>) {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    let asleep = sleepers(&[0, 0, 0][..count]);
    adopt(&mutex, &asleep);
    (mutex, asleep)
}

/// The holder takes its successor while a thread is pushed: the sleepers are served in this order, wherever the new
/// one's turn comes.
fn against_pusher<L: Stack>(served: &[usize], racers: Racers) {
    let (mutex, asleep) = stack::<L>(served.len());
    release_as_one_comes(&mutex, served.iter().map(|&place| asleep[place]).collect(), 0, racers);
}

/// The same, but no thread looks at the data: a waiter that is lost was lost by the stack.
pub(crate) fn pushed_as_the_stack_is_popped() {
    let (mutex, asleep) = stack::<LifoCr<Park>>(1);
    let pusher = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            mutex.lock();
            mutex.unlock();
        })
    };
    mutex.unlock();
    mutex.lock_adopted(asleep[0]);
    mutex.unlock();
    all_done(&mutex, [pusher]);
}

/// One of two waiters, on top or below, gives up as the holder takes a successor; another is pushed, or none.
fn against_time_out<L: Stack>(leaving: usize, pushed: bool) {
    let (mutex, asleep) = stack::<L>(2);
    let leaves = gives_up(asleep[leaving]);
    let pusher = pushed.then(|| joins(&mutex, 0));
    mutex.visit();
    mutex.unlock();
    let gone = leaves.join().expect("no panic");
    // Whichever of the two is first: a waiter that has gone is passed over.
    let order = if STAYS.random == world().setup.random { [0, 1] } else { [1, 0] };
    for place in order.into_iter().filter(|&place| !gone || place != leaving) {
        adopted_section(&mutex, asleep[place]);
    }
    all_done(&mutex, pusher);
    assert_eq!(world().arena.left().count(), 0);
}

/// The holder goes through the stack, in which one waiter has gone, while another goes. Returns whether the release
/// removed the one that had gone.
fn sweep_against_time_out<L: Stack>(leaving: usize) -> bool {
    let (mutex, asleep) = stack::<L>(3);
    let gone = asleep[3 - leaving]; // The other one below the top.
    gone.node::<Loom>().state.store(state::ABANDONED, Relaxed);
    let left = &mutex.queue.left().0;
    left.store(SWEEP_AT as u32 - 1, Relaxed); // And the one that leaves.
    let leaves = gives_up(asleep[leaving]);
    mutex.visit();
    mutex.unlock();
    let swept = !world().arena.taken().contains(&gone);
    adopted_section(&mutex, asleep[0]);
    if !leaves.join().expect("no panic") {
        adopted_section(&mutex, asleep[leaving]);
    }
    assert!(!mutex.is_locked());
    assert_eq!(left.load(Relaxed) as i32, SWEEP_AT - 2, "who has gone is counted no longer");
    swept
}

fn check<L: Stack>(name: &str, setup: Setup, served: &'static [usize], shows: &[Event]) {
    for racers in Racers::BOTH {
        let name = format!("lifo-cr, {name}");
        explore(&name, racers.depth(), setup, move || against_pusher::<L>(served, racers)).shows(shows);
    }
}

#[test]
fn popped_as_somebody_is_pushed() {
    check::<LifoCr<SpinThenPark>>("pop, push, stp", STAYS, &[0, 1], &[]);
    check::<LifoCr<Park>>("pop, push, park", STAYS, &[0, 1], &[]);
    check::<LifoCr<Park>>("pop, push, three", STAYS, &[0, 1, 2], &[]);
}

#[test]
fn the_eldest_taken_as_somebody_is_pushed() {
    check::<LifoCr<SpinThenPark>>("eldest, push, stp", LEAVES, &[1, 0], &[Event::Eldest]);
    check::<LifoCr<Park>>("eldest, push, park", LEAVES, &[1, 0], &[Event::Eldest]);
    check::<LifoCr<Park>>("eldest, push, three", LEAVES, &[2, 1, 0], &[Event::Eldest]);
}

/// A thread has the lock while a sleeper is pushed: if the lock is free again, the sleeper is handed it at once.
pub(crate) fn adopted_as_the_lock_is_used() {
    let mutex = Arc::new(Mutex::<LifoCr<Park>>::new());
    let (me, puts) = puts_himself(&mutex, 0);
    let threads = [puts, come_back(&mutex, vec![me])];
    mutex.section();
    all_done(&mutex, threads);
}

#[test]
fn pushed_as_the_lock_is_used() {
    explore("lifo-cr, adopted", Preemptions(3), STAYS, adopted_as_the_lock_is_used).shows(&[Event::Wake]);
}

#[test]
fn giving_up_in_the_stack() {
    for (setup, leaving) in [(STAYS, 0), (STAYS, 1), (LEAVES, 0), (LEAVES, 1)] {
        explore("lifo-cr, time-out", ALL, setup, move || against_time_out::<LifoCr<Park>>(leaving, false));
        explore("lifo-cr, time-out, push", Preemptions(2), setup, move || {
            against_time_out::<LifoCr<Park>>(leaving, true);
        });
    }
}

#[test]
fn giving_up_as_the_holder_sweeps() {
    for leaving in [1, 2] {
        let swept = Arc::new(AtomicU32::new(0));
        let seen = swept.clone();
        explore("lifo-cr, sweep", ALL, STAYS, move || {
            seen.fetch_add(sweep_against_time_out::<LifoCr<Park>>(leaving).into(), Relaxed);
        });
        assert!(swept.load(Relaxed) > 0, "nobody went through the stack");
    }
}

#[test]
fn seeded_bugs_are_found() {
    explore("the mutants' skeleton, lifo-cr", ALL, STAYS, || against_pusher::<MutantLifo<()>>(&[0, 1], Racers::Two));
    find("lifo-cr: pops by a store", ALL, STAYS, || against_pusher::<MutantLifo<PopsByStore>>(&[0], Racers::Two));
    find("lifo-cr: takes the second, forgets the first", ALL, STAYS, || {
        against_pusher::<MutantLifo<TakesTheSecond>>(&[1, 0], Racers::Two);
    });
    find("lifo-cr: those above the eldest are lost", ALL, STAYS, || {
        against_pusher::<MutantLifo<LosesThoseBetween>>(&[2, 0, 1], Racers::Two);
    });
}
