//! `flash`: states built by hand, in which two race; a forked child; and seeded bugs.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Memory as _, Waiting as _, Word as _};
use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::flash::state::CALL;
use flashlock_locks::mutex::flash::state::{EPOCH, EPOCH_AT, GRANT, HEAD, PASS, SLEEPER, TRANSIT};
use flashlock_locks::parts::raw::RawLock;
use flashlock_model::arena::take_node;
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{explore, find};
use flashlock_model::meddle::Meddler;
use flashlock_model::{Loom, Setup};

use crate::common::{HASTY, Lock, Mutex, world};
use crate::flash_mutants::*;

pub(crate) const SETUP: Setup = Setup { polls: 1, ..Setup::new(4) };
pub(crate) const OVERDUE: Setup = Setup { tunables: &HASTY, micros_step: 3, ..SETUP };
/// Sections are timed.
const TIMING: Setup = Setup { random: Some(1), ..SETUP };
const BOUND: Depth = Preemptions(2);

/// The locks that keep their state as `flash` does.
pub(crate) trait Flashes: Lock + RawLock<Loom, Queue = <Flash as RawLock<Loom>>::Queue> {}
impl<L: Lock + RawLock<Loom, Queue = <Flash as RawLock<Loom>>::Queue>> Flashes for L {}

/// Held by the calling thread, with waiters as `state` says.
fn held<L: Flashes>(state: u32) -> Arc<Mutex<L>> {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    mutex.queue.state.store((Loom::epoch() << EPOCH_AT) | state, Relaxed);
    mutex
}

/// A thread that has the lock once.
fn comes<L: Flashes>(mutex: &Arc<Mutex<L>>) -> thread::JoinHandle<()> {
    let mutex = mutex.clone();
    thread::spawn(move || mutex.section())
}

/// The section of a thread that has been counted as a sleeper.
fn slept<L: Flashes>(mutex: &Mutex<L>) {
    mutex.lock_adopted(take_node::<Loom>());
    mutex.visit();
    mutex.unlock();
}

/// No thread waits, and the lock's state says so.
fn check_idle<L: Flashes>(mutex: &Mutex<L>) {
    let left = mutex.queue.state.peek() & !EPOCH;
    assert_eq!((mutex.is_locked(), left), (false, 0), "held, or waited for");
}

/// The head has slept; its place is passed on to a sleeper while that falls asleep.
pub(crate) fn passed_to_a_sleeper<L: Flashes>() {
    let mutex = held::<L>(HEAD | PASS | SLEEPER);
    let sleeper = {
        let mutex = mutex.clone();
        thread::spawn(move || slept(&mutex))
    };
    mutex.visit();
    mutex.unlock();
    sleeper.join().expect("no panic");
    check_idle(&mutex);
}

/// A sleeper was called though the holder is the head, which passes the place on at the same time.
pub(crate) fn called_as_the_place_moves<L: Flashes>() {
    let mutex = held::<L>(HEAD | PASS | SLEEPER);
    let sleeper = {
        let mutex = mutex.clone();
        thread::spawn(move || slept(&mutex))
    };
    thread::yield_now(); // It falls asleep, unless it is held up.
    mutex.queue.calls.fetch_add(CALL, AcqRel);
    Loom::wake(&raw const mutex.queue.calls, 1);
    mutex.visit();
    mutex.unlock();
    sleeper.join().expect("no panic");
    check_idle(&mutex);
}

/// A thread comes, and is counted, while this thread releases, becomes the head, has the lock, and passes the place on.
pub(crate) fn counted_as_the_place_moves<L: Flashes>() {
    let mutex = held::<L>(HEAD | TRANSIT | SLEEPER);
    let comes = comes(&mutex);
    thread::yield_now(); // It falls asleep, unless it is held up.
    mutex.visit();
    mutex.unlock();
    slept(&mutex);
    comes.join().expect("no panic");
    check_idle(&mutex);
}

/// A thread comes, becomes the head, and asks for the lock, which this thread releases.
pub(crate) fn released_to_a_head<L: Flashes>() {
    let mutex = held::<L>(0);
    let head = comes(&mutex);
    thread::yield_now(); // It asks, and falls asleep, unless it is held up.
    mutex.visit();
    mutex.unlock();
    head.join().expect("no panic");
    check_idle(&mutex);
}

/// A thread that has just been woken comes while the lock is held. It sleeps: it does not offer its CPU before.
fn released_to_a_woken_thread(wait: fn(&Mutex<Flash>)) {
    let mutex = held::<Flash>(0);
    let woken = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            wait(&mutex);
            mutex.visit();
            mutex.unlock();
        })
    };
    thread::yield_now(); // It falls asleep, unless it is held up.
    mutex.visit();
    mutex.unlock();
    woken.join().expect("no panic");
    assert_eq!(world().offers(), 0, "it offered its CPU");
    check_idle(&mutex);
}

/// The same, until the first tick, which comes before the release.
fn released_to_a_hasty_head<L: Flashes>() {
    let mutex = held::<L>(0);
    let head = {
        let mutex = mutex.clone();
        thread::spawn(move || mutex.section_until(world().first_tick()))
    };
    mutex.visit();
    world().tick();
    mutex.unlock();
    head.join().expect("no panic");
    check_idle(&mutex);
}

/// The same; if the head gets the lock, it is the last to use it, and frees it.
fn freed_by_a_hasty_head<L: Flashes>() {
    let mutex = held::<L>(0);
    let head = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            if mutex.section_until(world().first_tick()) {
                mutex.free();
            }
        })
    };
    thread::yield_now(); // It asks, and falls asleep, unless it is held up.
    mutex.visit();
    world().tick();
    mutex.unlock();
    head.join().expect("no panic");
}

/// The holder was the head, and releases; a thread that was counted gives up.
fn released_as_one_leaves<L: Flashes>() {
    let mutex = held::<L>(HEAD | PASS | SLEEPER);
    let hasty = {
        let mutex = mutex.clone();
        thread::spawn(move || mutex.section_until(world().first_tick()))
    };
    world().tick();
    mutex.visit();
    mutex.unlock();
    slept(&mutex);
    hasty.join().expect("no panic");
    check_idle(&mutex);
}

/// A child whose parent's lock had been granted to a head that the child does not have: two threads use it.
pub(crate) fn granted_in_the_parent() {
    let mutex = held::<Flash>(HEAD | GRANT | (2 * SLEEPER));
    world().fork();
    let other = comes(&mutex);
    mutex.section();
    other.join().expect("no panic");
    check_idle(&mutex);
}

/// Two threads, whose sections after a wait are timed; so each may watch the lock later.
fn used_twice() {
    let mutex = Arc::new(Mutex::<Flash>::new());
    let twice = |mutex: &Mutex<Flash>| (0..2).for_each(|_| mutex.section());
    let other = {
        let mutex = mutex.clone();
        thread::spawn(move || twice(&mutex))
    };
    twice(&mutex);
    other.join().expect("no panic");
    check_idle(&mutex);
}

#[test]
fn a_timed_section_ends_as_others_do() {
    explore("flash, timed", Preemptions(1).or_in_full(BOUND), TIMING, used_twice);
    finds("leaves TIMED", leaves_timed, TIMING, used_twice);
}

#[test]
fn a_place_is_passed_on() {
    for (setup, counted) in [(SETUP, BOUND), (OVERDUE, Preemptions(0).or_in_full(Preemptions(1)))] {
        explore("flash, passed to a sleeper", BOUND, setup, passed_to_a_sleeper::<Flash>);
        explore("flash, counted as the place moves", counted, setup, counted_as_the_place_moves::<Flash>);
        explore("flash, a sleeper leaves", Preemptions(1), setup, released_as_one_leaves::<Flash>)
            .shows(&[Event::TimedOut]);
    }
}

#[test]
fn a_sleeper_that_is_called_again_contends() {
    for setup in [SETUP, OVERDUE] {
        explore("flash, called as the place moves", BOUND, setup, called_as_the_place_moves::<Flash>);
    }
    finds("an extra head goes blindly", extra_head_goes_blindly, SETUP, called_as_the_place_moves::<Flash>);
    finds(
        "the last extra head leaves the place",
        last_sleeper_leaves_the_place,
        SETUP,
        called_as_the_place_moves::<Flash>,
    );
}

#[test]
fn a_grant_reaches_a_head() {
    explore("flash, granted", BOUND, OVERDUE, released_to_a_head::<Flash>).shows(&[Event::Grant, Event::Park]);
    let shown = explore("flash, granted as it leaves", BOUND, OVERDUE, released_to_a_hasty_head::<Flash>);
    shown.shows(&[Event::Grant, Event::TimedOut]);
    explore("flash, granted, freed", BOUND, OVERDUE, freed_by_a_hasty_head::<Flash>).shows(&[Event::Grant]);
}

#[test]
fn a_thread_sleeps_at_once_after_a_signal() {
    explore("flash, woken", BOUND, SETUP, || released_to_a_woken_thread(Mutex::lock_woken)).shows(&[Event::Park]);
    find("flash: offers its CPU after a signal", BOUND, SETUP, || released_to_a_woken_thread(Mutex::lock));
}

#[test]
fn a_forked_child_is_granted_nothing() {
    explore("flash, forked", Preemptions(1).or_in_full(BOUND), SETUP, granted_in_the_parent);
}

/// The production code, with one access done otherwise.
fn finds(name: &str, meddle: Meddler, setup: Setup, body: impl Fn() + Send + Sync + 'static) {
    find(&format!("flash: {name}"), BOUND, Setup { meddle: Some(meddle), ..setup }, body);
}

#[test]
fn bugs_of_the_grant() {
    explore("the mutants' skeleton", BOUND, OVERDUE, released_to_a_head::<MutantFlash<SOUND>>);
    finds("a grant leaves the word", grant_leaves_the_word, OVERDUE, released_to_a_head::<Flash>);
    finds("a head waits for 2", sleeps_with_2, OVERDUE, released_to_a_head::<Flash>);
    finds("a head sleeps though it was granted", sleeps_granted, OVERDUE, released_to_a_head::<Flash>);
    finds("granted to who sleeps again", grants_a_sleeper, OVERDUE, released_to_a_head::<Flash>);
    finds("granted to who has left", grants_blindly, OVERDUE, released_to_a_hasty_head::<Flash>);
    finds("gives up what was granted", resigns_granted, OVERDUE, released_to_a_hasty_head::<Flash>);
    explore("the mutants' skeleton, freed", BOUND, OVERDUE, freed_by_a_hasty_head::<MutantFlash<SOUND>>);
    find("flash: granted before the word says so", BOUND, OVERDUE, freed_by_a_hasty_head::<MutantFlash<GRANTS_FIRST>>);
    finds("settles half", settles_half, SETUP, granted_in_the_parent);
}

#[test]
fn bugs_of_the_place() {
    explore("the mutants' skeleton", BOUND, SETUP, passed_to_a_sleeper::<MutantFlash<SOUND>>);
    find("flash: called too early", BOUND, SETUP, passed_to_a_sleeper::<MutantFlash<CALLS_FIRST>>);
    finds("reads calls late", reads_calls_late, SETUP, counted_as_the_place_moves::<Flash>);
    finds("counted without a head", counts_blindly, SETUP, counted_as_the_place_moves::<Flash>);
    finds("a head stores", head_stores, SETUP, counted_as_the_place_moves::<Flash>);
    finds("a head goes blindly", head_goes_blindly, SETUP, counted_as_the_place_moves::<Flash>);
    finds("ignores a call", leaving_ignores_the_call, SETUP, released_as_one_leaves::<Flash>);
}
