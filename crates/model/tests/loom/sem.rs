//! Semaphores: no permit lost or made, what was done before a post is seen, destroyed as soon as the wait is over.

use std::sync::Arc;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::state;
use flashlock_locks::machine::order::Order;
use flashlock_locks::machine::{Handle, Tunables, Waiting as _, Word as _};
use flashlock_locks::sem::call::kind;
use flashlock_locks::sem::{Ended, Entry, Semaphore, Slept};
use flashlock_model::harness;
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::{Fault, Field, Loom, Op, Setup, Weaken};

use crate::common::world;
use crate::sem_mutants::{adds_and_looks, calls_nobody, keeps_the_permit, leaves_it_to_the_list};

type Sem = harness::Sem<Loomed>;

const SETUP: Setup = Setup { polls: 1, crowded: true, ..Setup::new(6) };
const BOUND: Depth = Preemptions(2);
const LIFO: Tunables = Tunables { sem_order: Order::LIFO, ..Tunables::DEFAULT };

fn start(sem: &Arc<Sem>, body: impl FnOnce(&Sem) + Send + 'static) -> thread::JoinHandle<()> {
    let sem = sem.clone();
    thread::spawn(move || body(&sem))
}

/// Used as a mutex, so often by each; the last thread is the model's main one.
fn as_mutex(rounds: &'static [u32]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let sem = Arc::new(Sem::new(1));
        let work = |sem: &Sem, rounds: u32| {
            for _ in 0..rounds {
                assert!(sem.wait(None));
                sem.visit();
                sem.post();
            }
        };
        let (mine, others) = rounds.split_last().expect("a thread");
        let threads: Vec<_> = others.iter().map(|&rounds| start(&sem, move |sem| work(sem, rounds))).collect();
        work(&sem, *mine);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert!(sem.wait(None));
        assert_eq!(sem.visit(), rounds.iter().sum::<u32>());
        sem.post();
        assert_eq!(sem.value(), 1);
        sem.destroy();
    }
}

/// So many wait, two threads post; all come back, and the permits that are too many are there.
fn posts_and_waits(waits: u32, posts: [u32; 2]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let sem = Arc::new(Sem::new(0));
        let waiters: Vec<_> = (0..waits).map(|_| start(&sem, |sem| assert!(sem.wait(None)))).collect();
        let poster = start(&sem, move |sem| (0..posts[0]).for_each(|_| sem.post()));
        (0..posts[1]).for_each(|_| sem.post());
        for thread in waiters.into_iter().chain([poster]) {
            thread.join().expect("no panic");
        }
        assert_eq!(sem.value(), posts[0] + posts[1] - waits);
        sem.destroy();
    }
}

/// One thread waits until the first tick, one for good. The permit that the first does not take reaches the second.
fn against_the_clock() {
    let sem = Arc::new(Sem::new(0));
    let until = world().first_tick();
    let hasty = start(&sem, move |sem| {
        if sem.wait(Some(until)) {
            sem.post();
        }
    });
    let patient = start(&sem, |sem| assert!(sem.wait(None)));
    sem.post();
    world().tick();
    hasty.join().expect("no panic");
    patient.join().expect("no panic");
    assert_eq!(sem.value(), 0);
    sem.destroy();
}

/// A thread's wait is cancelled, or interrupted, when it sleeps; it has taken no permit, and another waits for one.
fn ended_otherwise(cancelled: bool) {
    let sem = Arc::new(Sem::new(0));
    let fickle = start(&sem, move |sem| {
        let semaphore = sem.semaphore();
        let Entry::Queued(me) = sem.begin() else { return sem.post() };
        if cancelled {
            return semaphore.cancel(me);
        }
        if semaphore.wait_with(me, None, |_, _| Slept::Interrupted) == Ended::Acquired {
            sem.post();
        }
    });
    let steady = start(&sem, |sem| assert!(sem.wait(None)));
    sem.post();
    fickle.join().expect("no panic");
    steady.join().expect("no panic");
    assert_eq!(sem.value(), 0);
    sem.destroy();
}

/// A thread sleeps until it is called or the first tick comes, and is cancelled then; the permit reaches another that
/// waits.
fn cancelled_asleep(cancel: fn(&Semaphore<'_, Loom>, Handle)) {
    let sem = Arc::new(Sem::new(0));
    let until = world().first_tick();
    let fickle = start(&sem, move |sem| match sem.begin() {
        Entry::Queued(me) => {
            let state = &me.node::<Loom>().state;
            let seen = state.load(Acquire);
            if kind(seen) == state::WAITS {
                Loom::park(state, seen, Some(until));
            }
            cancel(&sem.semaphore(), me);
        }
        Entry::Over(_) => sem.post(),
    });
    let steady = start(&sem, |sem| assert!(sem.wait(None)));
    sem.post();
    world().tick();
    fickle.join().expect("no panic");
    steady.join().expect("no panic");
    assert_eq!(sem.value(), 0);
    sem.destroy();
}

/// The thread that has got what was posted destroys the semaphore while the post is on its way out.
fn destroyed_by_the_waiter() {
    let sem = Arc::new(Sem::new(0));
    let poster = start(&sem, |sem| sem.post());
    assert!(sem.wait(None));
    sem.destroy();
    poster.join().expect("no panic");
}

/// A child, forked when another thread of the parent was anywhere in a post or a wait, while a third waited.
fn forked(steps: u32, waits: bool) {
    let sem = Arc::new(Sem::new(0));
    let Entry::Queued(_) = sem.begin() else { unreachable!("no permit") };
    world().fork_within(steps, || {
        if waits {
            let _ = sem.begin();
        } else {
            sem.post();
        }
    });
    let before = sem.value();
    assert!(before <= u32::from(!waits));
    let waiter = start(&sem, |sem| assert!(sem.wait(None)));
    sem.post();
    waiter.join().expect("no panic");
    assert_eq!(sem.value(), before);
    sem.destroy();
}

/// One preemption takes half a minute.
fn at_rest() -> Depth {
    Preemptions(0).or_in_full(Preemptions(1))
}

#[test]
fn excludes_with_one_permit() {
    let deep = Depth::in_full(3);
    explore("sem 1+1", deep, SETUP, as_mutex(&[1, 1])).shows(&[Event::SemQueued, Event::SemWake]);
    explore("sem 2+1", deep, Setup { recycles: true, ..SETUP }, as_mutex(&[2, 1]));
    explore("sem 1+1+1", Preemptions(1), SETUP, as_mutex(&[1, 1, 1]));
    explore("sem 1+1, polling", deep, Setup { crowded: false, ..SETUP }, as_mutex(&[1, 1]));
}

#[test]
fn no_permit_is_lost() {
    explore("sem: 1 waits, 1+1 posts", Preemptions(1), SETUP, posts_and_waits(1, [1, 1]));
    explore("sem: 2 wait, 2 posts, lifo", at_rest(), Setup { tunables: &LIFO, ..SETUP }, mutant::<2>(post));
    // Four threads take loom minutes: they are shuttle's (`makers_and_takers`).
}

#[test]
fn waits_that_end_otherwise_take_none() {
    explore("sem, deadline", Preemptions(1), SETUP, against_the_clock).shows(&[Event::SemQueued]);
    explore("sem, cancelled", Preemptions(1), SETUP, || ended_otherwise(true));
    explore("sem, cancelled asleep", Preemptions(1), SETUP, || cancelled_asleep(|sem, me| sem.cancel(me)));
    explore("sem, interrupted", Preemptions(1), SETUP, || ended_otherwise(false));
}

#[test]
fn a_post_does_not_look_back() {
    explore("sem, destroyed", Preemptions(3), SETUP, destroyed_by_the_waiter).shows(&[Event::SemWake]);
}

#[test]
fn usable_in_a_forked_child() {
    for steps in 1..30 {
        for waits in [false, true] {
            explore("sem, forked", Preemptions(1).or_in_full(Preemptions(2)), SETUP, move || forked(steps, waits));
        }
    }
}

#[test]
fn ordering_bugs_are_found() {
    const fn weak(field: Field, op: Op, from: Ordering, to: Ordering) -> Weaken {
        Weaken { field, op, from, to }
    }
    const POST: &[Weaken] = &[weak(Field::SemWord, Op::Cas, Release, Relaxed)];
    const WAIT: &[Weaken] = &[weak(Field::SemWord, Op::Cas, Acquire, Relaxed)];
    for (name, weaken) in [("sem_post", POST), ("sem_wait", WAIT)] {
        find(name, BOUND, Setup { weaken, ..SETUP }, as_mutex(&[1, 1]));
    }
    // Where a waiter announces itself, or a thread leaves the list.
    const HANDS_ON: &[Weaken] = &[weak(Field::SemWord, Op::Cas, AcqRel, Acquire)];
    const TAKES_OVER: &[Weaken] = &[weak(Field::SemWord, Op::Cas, AcqRel, Release)];
    find("sem_list_release", Preemptions(1), Setup { weaken: HANDS_ON, ..SETUP }, against_the_clock);
    find("sem_list_acquire", BOUND, Setup { weaken: TAKES_OVER, ..SETUP }, as_mutex(&[1, 1]));
    const SETTLED: &[Weaken] = &[weak(Field::SemEpoch, Op::Store, Release, Relaxed)];
    const FINDS_SETTLED: &[Weaken] = &[weak(Field::SemEpoch, Op::Load, Acquire, Relaxed)];
    for (name, weaken) in [("sem_epoch_store", SETTLED), ("sem_epoch_load", FINDS_SETTLED)] {
        find(name, Preemptions(1), Setup { weaken, ..SETUP }, || forked(25, true));
    }
    let deaf = Setup { fault: Some(Fault::NoWake(Field::NodeState)), ..SETUP };
    find("nobody is woken", BOUND, deaf, posts_and_waits(1, [1, 1]));
}

fn post(semaphore: &Semaphore<'_, Loom>) {
    semaphore.post().expect("room");
}

/// `N` wait, and as many posts are made in the mutant's way.
fn mutant<const N: usize>(post: fn(&Semaphore<'_, Loom>)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let sem = Arc::new(Sem::new(0));
        let waiters = [(); N].map(|()| start(&sem, |sem| assert!(sem.wait(None))));
        (0..N).for_each(|_| post(&sem.semaphore()));
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
        sem.destroy();
    }
}

#[test]
fn protocol_bugs_are_found() {
    explore("sem, the mutants' body", Preemptions(3), SETUP, mutant::<1>(post));
    find("a post leaves it to the list", Preemptions(3), SETUP, mutant::<1>(leaves_it_to_the_list));
    find("a post calls nobody", Preemptions(3), SETUP, mutant::<1>(calls_nobody));
    find("a post looks back", BOUND, SETUP, || {
        let sem = Arc::new(Sem::new(0));
        let poster = start(&sem, |sem| adds_and_looks(&sem.semaphore()));
        assert!(sem.wait(None));
        sem.destroy();
        poster.join().expect("no panic");
    });
    find("a cancelled wait keeps the permit", BOUND, SETUP, || cancelled_asleep(keeps_the_permit));
}
