//! Queues built by hand, and two or three threads that race from there.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::{LEFT, state};
use flashlock_locks::machine::{Handle, Memory as _, Tunables, Word as _};
use flashlock_locks::mutex::malthusian::loiter::{ARRIVAL, IMPATIENT, SLEEPS};
use flashlock_locks::mutex::malthusian::{Loiter, Mcscr};
use flashlock_locks::mutex::numa::{Cna, QspinCna};
use flashlock_locks::mutex::queue::{Mcs, Qspin};
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::mutex::spin::Ticket;
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::shuffle::front::{GRANTED, naming};
use flashlock_locks::parts::wait::left::MAX;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::arena::named;
use flashlock_model::erased::erased;
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::{Fault, Field, Loom, Setup};

use crate::common::{ALL, AnyMutex, HASTY, Lock, Mutex, adopt, adopted_section, sleepers, world};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(4) };
/// All waits are overdue: the releaser hands over.
const OVERDUE: Setup = Setup { tunables: &HASTY, micros_step: 3, ..SETUP };
/// The clock leaps: grants are stale at once, and heads idle.
const LEAPING: Setup = Setup { tunables: &HASTY, micros_step: 30_000, ..SETUP };

/// The holder releases while the sleepers in its queue, which a condition variable moved there, come back.
pub(crate) fn moved<L: Lock>(count: usize) {
    moved_of(erased::<Loomed, L>, count);
}

fn moved_of(new: fn() -> AnyMutex, count: usize) {
    let mutex = Arc::new(new());
    mutex.lock();
    let asleep = sleepers(&[0, 1, 0][..count]);
    adopt(&mutex, &asleep);
    let threads: Vec<_> = asleep
        .into_iter()
        .map(|me| {
            let mutex = mutex.clone();
            thread::spawn(move || adopted_section(&mutex, me))
        })
        .collect();
    mutex.visit();
    mutex.unlock();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(!mutex.is_locked());
}

/// Sleepers are put into the queue by a thread that does not hold the lock, while another uses it.
pub(crate) fn moved_from_outside<L: Lock>() {
    moved_from_outside_of(erased::<Loomed, L>);
}

fn moved_from_outside_of(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    let asleep = sleepers(&[0, 0]);
    let threads = [0, 1].map(|i| {
        let (mutex, me) = (mutex.clone(), asleep[i]);
        me.node::<Loom>().state.store(state::CLAIMED, Relaxed);
        thread::spawn(move || adopted_section(&mutex, me))
    });
    let user = {
        let mutex = mutex.clone();
        thread::spawn(move || mutex.section())
    };
    mutex.adopt(Chain::new(asleep[0], asleep[1]));
    for thread in threads.into_iter().chain([user]) {
        thread.join().expect("no panic");
    }
    assert!(!mutex.is_locked());
}

macro_rules! adopting {
    ($($name:ident: $lock:ty, $moved:expr, $outside:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn moved_waiters() {
                explore(concat!(stringify!($name), " 1 moved"), ALL, SETUP, || moved::<$lock>(1));
                explore(concat!(stringify!($name), " 1 moved, overdue"), ALL, OVERDUE, || moved::<$lock>(1));
                explore(concat!(stringify!($name), " 2 moved"), $moved, SETUP, || moved::<$lock>(2));
                explore(
                    concat!(stringify!($name), " 2 moved, overdue"),
                    $moved,
                    OVERDUE,
                    || moved::<$lock>(2),
                );
                explore(concat!(stringify!($name), " 3 moved"), Preemptions(1), SETUP, || moved::<$lock>(3));
            }

            #[test]
            fn from_outside() {
                let name = concat!(stringify!($name), " moved from outside");
                explore(name, $outside, SETUP, moved_from_outside::<$lock>);
            }
        }
    )*};
}

/// Two preemptions would take each run too long.
fn one_fewer() -> Depth {
    Preemptions(1).or_in_full(Preemptions(2))
}

adopting! {
    mcs_stp: Mcs<SpinThenPark>, Preemptions(3), Preemptions(2);
    mcs_park: Mcs<Park>, Preemptions(3), Preemptions(2);
    cna_stp: Cna<SpinThenPark>, Preemptions(3), Preemptions(2);
    cna_park: Cna<Park>, Preemptions(3), Preemptions(2);
    qspin_stp: Qspin<SpinThenPark>, Preemptions(3), one_fewer();
    qspin_park: Qspin<Park>, Preemptions(3), one_fewer();
    qspin_cna_stp: QspinCna<SpinThenPark>, Preemptions(3), Preemptions(1);
    qspin_cna_park: QspinCna<Park>, Preemptions(3), Preemptions(1);
    mcscr_stp: Mcscr<SpinThenPark>, Preemptions(3), Preemptions(2);
    mcscr_park: Mcscr<Park>, Preemptions(3), Preemptions(2);
    shfl_stp: Shfl<SpinThenPark>, one_fewer(), Preemptions(1);
    shfl_park: Shfl<Park>, one_fewer(), Preemptions(1);
}

/// The lock is handed to a head that may be polling or falling asleep. No thread's patience helps: a lost wake-up is a
/// deadlock.
pub(crate) fn grant_against_doze<L: Lock<Queue = flashlock_locks::parts::shuffle::ShflQueue<Loom>>>() {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    let asleep = sleepers(&[0]);
    adopt(&mutex, &asleep);
    let head = {
        let (mutex, me) = (mutex.clone(), asleep[0]);
        thread::spawn(move || adopted_section(&mutex, me))
    };
    mutex.queue.head.fetch_or(0, Relaxed); // Loom tries no other order of a load and what it could have read.
    mutex.visit();
    mutex.unlock();
    head.join().expect("no panic");
}

#[test]
fn a_grant_reaches_a_head_that_falls_asleep() {
    explore("grant, park", ALL, OVERDUE, grant_against_doze::<Shfl<Park>>).shows(&[Event::Grant]);
    explore("grant, stp", Preemptions(3).or_in_full(Preemptions(4)), OVERDUE, grant_against_doze::<Shfl<SpinThenPark>>)
        .shows(&[Event::Grant]);
    explore("grant, spin", ALL, OVERDUE, grant_against_doze::<Shfl<Spin>>).shows(&[Event::Grant]);
}

/// A grant that its taker is slow to take is taken back by another thread, which evicts the taker.
pub(crate) fn revoke<L: Lock>() {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    let asleep = sleepers(&[0]);
    adopt(&mutex, &asleep);
    mutex.unlock();
    let taker = {
        let (mutex, me) = (mutex.clone(), asleep[0]);
        thread::spawn(move || adopted_section(&mutex, me))
    };
    if mutex.try_lock() {
        mutex.visit();
        mutex.unlock();
    }
    taker.join().expect("no panic");
    assert!(!mutex.is_locked());
}

#[test]
fn a_stale_grant_is_taken_back_by_one() {
    explore("revoke, park", Preemptions(4), LEAPING, revoke::<Shfl<Park>>).shows(&[Event::Grant]);
    explore("revoke, stp", Preemptions(3), LEAPING, revoke::<Shfl<SpinThenPark>>).shows(&[Event::Grant]);
}

/// The holder makes a sleeper the head and moves it to the word, while that one falls asleep, or its time is over.
fn moved_to_the_word<L: Lock<Queue = flashlock_locks::parts::shuffle::ShflQueue<Loom>>>() {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    let me = sleepers(&[0])[0];
    me.node::<Loom>().role.store(mutex.queue.marked(0), Relaxed);
    assert!(mutex.queue.join(me, me));
    let sleeper = {
        let mutex = mutex.clone();
        thread::spawn(move || adopted_section(&mutex, me))
    };
    let clock = thread::spawn(|| world().tick());
    assert_eq!(mutex.queue.install(me, Some(&mutex.word)), Some(me));
    mutex.word.swap(2, Relaxed);
    mutex.visit();
    mutex.unlock();
    sleeper.join().expect("no panic");
    clock.join().expect("no panic");
}

#[test]
fn a_sleeper_is_moved_to_the_word() {
    let impatient = Setup { patience: 1, ..SETUP };
    for setup in [SETUP, OVERDUE, impatient] {
        explore("moved to the word, park", Preemptions(2), setup, moved_to_the_word::<Shfl<Park>>);
        explore("moved to the word, stp", Preemptions(1), setup, moved_to_the_word::<Shfl<SpinThenPark>>);
    }
    let lost = Setup { fault: Some(Fault::NoWake(Field::LockWord)), ..SETUP };
    find("a moved sleeper is not woken", Preemptions(3), lost, moved_to_the_word::<Shfl<Park>>);
}

/// The head leaves while its successor is between the exchange of the tail and the link.
fn head_leaves_joiner() {
    let mutex = Arc::new(Mutex::<Shfl<Park>>::new());
    let nodes = sleepers(&[0, 0]);
    let (head, joiner) = (nodes[0], nodes[1]);
    head.node::<Loom>().next.store(0, Relaxed);
    head.node::<Loom>().role.store(mutex.queue.marked(0), Relaxed);
    assert!(mutex.queue.join(head, head));
    mutex.queue.set_head(naming(head));
    head.node::<Loom>().state.store(state::HEAD, Relaxed);
    let joins = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            let first = mutex.queue.join(joiner, joiner);
            if first {
                mutex.queue.set_head(naming(joiner));
                joiner.node::<Loom>().state.store(state::HEAD, Relaxed);
            }
            first
        })
    };
    let notified = mutex.queue.pass(head, None);
    let first = joins.join().expect("no panic");
    // Either the thread that leaves makes the joiner the head, or it finds itself first; never both, never none.
    assert!(notified.is_some() != first, "notified: {notified:?}, first: {first}");
    assert_eq!(named(mutex.queue.head.load(Relaxed)), Some(joiner));
    assert_eq!(joiner.node::<Loom>().state.load(Relaxed), state::HEAD);
    assert_ne!(joiner.node::<Loom>().next.load(Relaxed), LEFT);
    mutex.queue.pass(joiner, None);
    assert_eq!((mutex.queue.head.load(Relaxed), mutex.queue.tail.load(Relaxed)), (0, 0));
}

#[test]
fn leaving_and_joining() {
    explore("head leaves, joiner links", ALL, SETUP, head_leaves_joiner);
}

/// The head times out and passes on to a waiter that gives up at the same time; a third is behind.
fn head_and_next_give_up() {
    let mutex = Arc::new(Mutex::<Shfl<Park>>::new());
    mutex.lock();
    let nodes = sleepers(&[0, 0, 0]);
    adopt(&mutex, &nodes);
    let (head, next, last) = (nodes[0], nodes[1], nodes[2]);
    let gives_up = thread::spawn(move || {
        let node = next.node::<Loom>();
        node.state.compare_exchange(state::PARKED, state::ABANDONED, AcqRel, Relaxed).is_ok()
    });
    assert!(mutex.queue.change_head(naming(head), 0));
    let notified = mutex.queue.pass(head, None);
    let gone = gives_up.join().expect("no panic");
    let front = notified.expect("somebody is made head");
    assert_eq!(named(mutex.queue.head.load(Relaxed)), Some(front));
    // A waiter that gave up before it was made head is skipped.
    let rest: &[Handle] = if gone { &[last] } else { &[next, last] };
    assert_eq!(front, rest[0]);
    for &node in rest {
        mutex.queue.pass(node, None);
    }
    assert_eq!((mutex.queue.head.load(Relaxed), mutex.queue.tail.load(Relaxed)), (0, 0));
    mutex.unlock();
}

#[test]
fn giving_up_and_being_made_head() {
    explore("next gives up", ALL, SETUP, head_and_next_give_up);
}

/// A child, forked while the lock was held and a thread waited, starts a thread: one of the two discards the old
/// number, and the other may wait for that.
fn forked() {
    let mutex = Arc::new(Mutex::<Ticket>::new());
    mutex.lock();
    mutex.queue.next.fetch_add(1, Relaxed); // The number of a waiter that stays behind.
    world().fork();
    let other = {
        let mutex = mutex.clone();
        thread::spawn(move || mutex.section())
    };
    mutex.visit();
    mutex.unlock();
    mutex.section();
    other.join().expect("no panic");
    assert!(!mutex.is_locked());
}

/// A child, forked while the lock was held and a waiter's head reserved it, starts a thread: neither waits for the
/// dead, and nodes that the dead left behind do not count.
fn forked_with_a_head() {
    let mutex = Arc::new(Mutex::<ShflSpin>::new());
    mutex.lock();
    let dead = sleepers(&[0])[0];
    dead.node::<Loom>().role.store(mutex.queue.marked(0), Relaxed);
    assert!(mutex.queue.join(dead, dead));
    mutex.queue.set_head(naming(dead) | GRANTED);
    mutex.queue.left().0.store(MAX as u32, Relaxed);
    world().fork();
    let other = {
        let mutex = mutex.clone();
        thread::spawn(move || mutex.section())
    };
    mutex.visit();
    mutex.unlock();
    mutex.section();
    other.join().expect("no panic");
    assert!(!mutex.is_locked());
    assert_eq!((mutex.queue.head.load(Relaxed), mutex.queue.left().count()), (0, 0));
    Loom::give_node(dead); // As the parent does.
}

#[test]
fn a_forked_child_forgets_the_dead_head() {
    explore("shfl-spin, forked", Preemptions(3), SETUP, forked_with_a_head);
}

/// A child, forked while others polled for the lock and one stood by, starts a thread: the dead poll no more, and no
/// thread waits for them.
fn forked_with_arrivals() {
    let mutex = Arc::new(Mutex::<Loiter<Mcs<Park>, Park>>::new());
    mutex.lock();
    // SAFETY: the callers' promise.
    assert!(unsafe { <Mcs<Park> as RawLock<Loom>>::try_lock(&mutex.word, &mutex.queue.inner) });
    mutex.queue.epoch.store(Loom::epoch(), Relaxed);
    mutex.word.fetch_or(SLEEPS | IMPATIENT | (ARRIVAL * Tunables::DEFAULT.spinners), Relaxed);
    world().fork();
    let other = {
        let mutex = mutex.clone();
        thread::spawn(move || mutex.section())
    };
    mutex.visit();
    mutex.unlock();
    mutex.section();
    other.join().expect("no panic");
    assert_eq!(mutex.word.load(Relaxed), 0);
}

#[test]
fn a_forked_child_counts_no_dead_arrivals() {
    explore("loiter, forked", Preemptions(2), SETUP, forked_with_arrivals);
}

/// Three threads contend, of which so many may poll: in the end none is counted as polling.
fn arrivals(spinners: &'static Tunables, crowded: bool) {
    let setup = Setup { tunables: spinners, crowded, ..SETUP };
    explore("loiter, counted", Preemptions(2), setup, || {
        let mutex = Arc::new(Mutex::<Loiter<Mcs<Park>, Park>>::new());
        let others = [0; 2].map(|_| {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.section())
        });
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(mutex.word.load(Relaxed), 0);
    });
}

#[test]
fn arrivals_are_counted() {
    const ONE: Tunables = Tunables { spinners: 1, ..Tunables::DEFAULT };
    const NONE: Tunables = Tunables { spinners: 0, ..Tunables::DEFAULT };
    for (tunables, crowded) in [(&Tunables::DEFAULT, false), (&Tunables::DEFAULT, true), (&ONE, false), (&NONE, false)]
    {
        arrivals(tunables, crowded);
    }
}

#[test]
fn a_forked_child_throws_numbers_away() {
    explore("ticket, forked", Preemptions(3), SETUP, forked);
}
