//! Readers-writer locks: exclusion, and that each section sees those before it; with seeded bugs.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::for_each_rw_lock;
use flashlock_locks::machine::Tunables;
use flashlock_locks::parts::wait::{Park, Spin};
use flashlock_locks::rw::cst::CstRwState;
use flashlock_locks::rw::{CstRw, FutexRw, RawRwLock, Reader, ShflRw, Writer};
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::tag::Tag;
use flashlock_model::{Field, Loom, Op, Setup, Weaken, harness};

use crate::common::{ALL, HASTY, world};
use crate::modelled::each;
use crate::rw_mutants::*;

type Lock<L> = harness::RwLock<Loomed, L>;

/// A readers-writer lock that can be modelled.
trait Rw: RawRwLock<Loom, State: Tag> {}
impl<L: RawRwLock<Loom, State: Tag>> Rw for L {}

/// A new lock. `cst-rw` has a side block from the beginning, and a counter in it.
fn made<L: Rw>() -> Arc<Lock<L>> {
    let lock = Arc::new(Lock::<L>::new());
    if let Some(state) = (&lock.state as &dyn Any).downcast_ref::<CstRwState<Loom>>() {
        // SAFETY: it is a new lock's.
        unsafe { state.count_distributed::<Park>(None) };
        // SAFETY: a model's state, which no other thread uses yet.
        unsafe {
            assert!(CstRw::<Park>::read(state, Reader::Newcomer, None).is_ok());
            CstRw::<Park>::unlock(state);
        }
    }
    lock
}

/// What a thread of a model does.
#[derive(Clone, Copy)]
enum Do {
    Read,
    Write,
}

fn section<L: Rw>(lock: &Lock<L>, what: Do) {
    match what {
        Do::Read => {
            assert!(lock.read(Reader::Newcomer, None));
            lock.look();
        }
        Do::Write => {
            assert!(lock.write(Writer::Fair, None));
            lock.visit();
        }
    }
    lock.unlock();
}

/// One thread for each entry, the last one being the model's main thread, does one section.
fn sections<L: Rw>(what: &'static [Do]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let lock = made::<L>();
        let (&mine, others) = what.split_last().expect("a thread");
        let threads: Vec<_> = others
            .iter()
            .map(|&what| {
                let lock = lock.clone();
                thread::spawn(move || section(&lock, what))
            })
            .collect();
        section(&lock, mine);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert!(lock.try_write(), "left held");
        assert_eq!(lock.visit() as usize, what.iter().filter(|what| matches!(what, Do::Write)).count());
        lock.unlock();
        lock.free();
    }
}

const SETUP: Setup = Setup { polls: 1, ..Setup::new(6) };
const OVERDUE: Setup = Setup { tunables: &HASTY, micros_step: 3, ..SETUP };
const BOUND: Depth = Preemptions(3);

/// How deep two threads are explored, and three; and the last owner, who frees the lock.
fn depths(lock: &str, wait: &str) -> [Depth; 3] {
    match (lock, wait) {
        ("shfl-rw", "park") | ("futex-rw", _) => [ALL, Preemptions(2), BOUND],
        ("shfl-rw", "stp") => [BOUND, Preemptions(1).or_in_full(Preemptions(2)), Preemptions(2)],
        ("cst-rw", _) => [BOUND, Preemptions(0), Preemptions(2)],
        _ => [BOUND, Preemptions(1), Preemptions(2)],
    }
}

const TWO: [&[Do]; 2] = [&[Do::Read, Do::Write], &[Do::Write, Do::Write]];

macro_rules! excluding {
    ($lock:literal, $wait:ident, $type:ty) => {
        const NAME: &str = concat!($lock, ":wait=", stringify!($wait));

        fn check(what: &str, depth: Depth, setup: Setup, threads: &'static [Do]) {
            explore(&format!("{NAME} {what}"), depth, setup, sections::<$type>(threads));
        }

        #[test]
        fn a_reader_and_a_writer() {
            let [two, _, _] = depths($lock, stringify!($wait));
            check("R+W", two, SETUP, TWO[0]);
        }

        #[test]
        fn two_writers() {
            let [two, _, _] = depths($lock, stringify!($wait));
            check("W+W", two, SETUP, TWO[1]);
        }

        #[test]
        fn overdue() {
            let depth = if $lock == "cst-rw" { Preemptions(2).or_in_full(BOUND) } else { BOUND };
            check("R+W overdue", depth, OVERDUE, TWO[0]);
        }

        #[test]
        fn few_cpus() {
            let crowded = Setup { crowded: true, ..SETUP };
            check("R+W crowded", BOUND, crowded, TWO[0]);
            check("W+W crowded", BOUND, crowded, TWO[1]);
        }

        #[test]
        fn two_readers_and_a_writer() {
            let [_, three, _] = depths($lock, stringify!($wait));
            check("R+R+W", three, SETUP, &[Do::Read, Do::Read, Do::Write]);
        }

        #[test]
        fn a_reader_and_two_writers() {
            let [_, three, _] = depths($lock, stringify!($wait));
            check("W+R+W", three, SETUP, &[Do::Write, Do::Read, Do::Write]);
        }

        #[test]
        fn nothing_is_touched_after_release() {
            let [_, _, freed] = depths($lock, stringify!($wait));
            explore(&format!("{NAME} freed"), freed, SETUP, last_frees::<$type>);
            explore(&format!("{NAME} freed, overdue"), freed, OVERDUE, last_frees::<$type>);
        }
    };
}

macro_rules! rw_locks {
    ($($rows:tt)*) => { each! { of: excluding, crate::modelled::all: $($rows)* } };
}
for_each_rw_lock!(rw_locks);

/// The first writer's release ends the counting apart, and two readers that meet begin it.
#[test]
fn cst_counts_apart_and_together() {
    const RESTLESS: Tunables = Tunables { meetings: 1, writers: 1, ..Tunables::DEFAULT };
    let setup = Setup { tunables: &RESTLESS, ..SETUP };
    explore("restless cst-rw R+W", BOUND, setup, sections::<CstRw<Park>>(RW));
    explore("restless cst-rw W+W", BOUND, setup, sections::<CstRw<Park>>(&[Do::Write, Do::Write]));
    find("readers count together too soon", BOUND, setup, sections::<TogetherTooSoon>(RW));
}

/// A child, forked after so many steps of a writer that gives up because a reader holds the lock: the child has no
/// writer. Returns whether the writer had come to its end.
fn forked_beside_a_writer(steps: u32) -> bool {
    let lock = Arc::new(Lock::<CstRw<Park>>::new());
    // SAFETY: it is a new lock's.
    unsafe { lock.state.count_distributed::<Park>(None) };
    assert!(lock.read(Reader::Newcomer, None));
    let ended = world().fork_within(steps, || assert!(!lock.write(Writer::Fair, Some(world().deadline(0)))));
    assert!(lock.try_read(Reader::Newcomer), "refused for a writer that does not exist");
    lock.unlock();
    let other = {
        let lock = lock.clone();
        thread::spawn(move || section(&lock, Do::Write))
    };
    lock.unlock();
    section(&lock, Do::Write);
    other.join().expect("no panic");
    assert!(lock.try_write(), "left held");
    assert_eq!(lock.visit(), 2);
    lock.unlock();
    ended // Not freed: the arena counts the side block among the nodes of the parent's threads.
}

#[test]
fn a_child_knows_no_writer_on_its_way() {
    let mut steps = 0;
    let ended = Arc::new(AtomicBool::new(false));
    while !ended.load(Relaxed) {
        steps += 1;
        let ended = ended.clone();
        explore(&format!("cst-rw forked, {steps} steps"), Preemptions(1), SETUP, move || {
            ended.store(forked_beside_a_writer(steps), Relaxed);
        });
    }
    assert!(steps > 5, "only {steps} steps");
}

/// The last of two frees the lock.
fn last_frees<L: Rw>() {
    let lock = Arc::new(Lock::<L>::new());
    let heirs = Arc::new(loom::sync::atomic::AtomicU32::new(2));
    let work = |lock: &Lock<L>, heirs: &loom::sync::atomic::AtomicU32, what: Do| {
        match what {
            Do::Read => assert!(lock.read(Reader::Newcomer, None)),
            Do::Write => assert!(lock.write(Writer::Fair, None)),
        }
        let last = heirs.fetch_sub(1, Relaxed) == 1;
        lock.unlock();
        if last {
            assert!(lock.write(Writer::Fair, None));
            lock.unlock();
            lock.free();
        }
    };
    let other = {
        let (lock, heirs) = (lock.clone(), heirs.clone());
        thread::spawn(move || work(&lock, &heirs, Do::Read))
    };
    work(&lock, &heirs, Do::Write);
    other.join().expect("no panic");
}

const RW: &[Do] = TWO[0];

#[test]
fn seeded_bugs_are_found() {
    explore("the mutants' skeleton", BOUND, SETUP, sections::<MutantRw<NoBug>>(RW));
    find("a reader ignores the writer", BOUND, SETUP, sections::<MutantRw<IgnoresWriter>>(RW));
    find("a writer ignores readers", BOUND, SETUP, sections::<MutantRw<ForgetsReaders>>(RW));
    find("release wakes nobody", BOUND, SETUP, sections::<MutantRw<WakesNobody>>(RW));
    find("release looks back", BOUND, SETUP, last_frees::<MutantRw<LooksBack>>);
}

const fn weak(field: Field, op: Op, from: Ordering, to: Ordering) -> Weaken {
    Weaken { field, op, from, to }
}

macro_rules! found {
    ($($name:ident: [$($weak:expr),+], $body:expr;)*) => {$(
        #[test]
        fn $name() {
            const WEAKEN: &[Weaken] = &[$($weak),+];
            find(stringify!($name), BOUND, Setup { weaken: WEAKEN, ..SETUP }, $body);
        }
    )*};
}

found! {
    shfl_enter: [weak(Field::RwCount, Op::Add, Acquire, Relaxed)], sections::<ShflRw<Spin>>(RW);
    shfl_release: [weak(Field::RwCount, Op::Add, Release, Relaxed)], sections::<ShflRw<Spin>>(RW);
    shfl_acquire: [weak(Field::RwCount, Op::Cas, Acquire, Relaxed)], sections::<ShflRw<Spin>>(RW);
    futex_acquire: [weak(Field::RwCount, Op::Cas, Acquire, Relaxed)], sections::<FutexRw>(RW);
    futex_release: [weak(Field::RwCount, Op::Cas, Release, Relaxed)], sections::<FutexRw>(RW);
    cst_counter_acquire: [weak(Field::BlockState, Op::Add, AcqRel, Release)], sections::<CstRw<Spin>>(RW);
    cst_counter_leave: [weak(Field::BlockState, Op::Add, Release, Relaxed)], sections::<CstRw<Spin>>(RW);
    cst_drain_announced: [weak(Field::Drain, Op::Add, Release, Relaxed)], sections::<CstRw<Park>>(RW);
    cst_drain_heard: [weak(Field::Drain, Op::Or, Acquire, Relaxed)], sections::<CstRw<Park>>(RW);
}
