//! Readers-writer locks: exclusion, and that each section sees those before it; with seeded bugs.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::Tunables;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark, WaitPolicy};
use flashlock_locks::rw::{CstRw, FutexRw, RawRwLock, Reader, ShflRw, Writer};
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::tag::Tag;
use flashlock_model::{Field, Loom, Op, Setup, Weaken, harness};

use crate::common::{ALL, HASTY, world};
use crate::modelled::Modelled;
use crate::rw_mutants::*;

type Lock<L> = harness::RwLock<Loomed, L>;

/// A readers-writer lock that can be modelled.
trait Rw: RawRwLock<Loom, State: Tag> {
    /// To be done with a new lock.
    fn begin(_: &Self::State) {}
}
impl<W: WaitPolicy> Rw for ShflRw<W> {}
impl Rw for FutexRw {}
impl<B: RwBug> Rw for MutantRw<B> {}
impl Rw for TogetherTooSoon {
    fn begin(state: &Self::State) {
        CstRw::<Park>::begin(state);
    }
}
impl<W: WaitPolicy> Rw for CstRw<W> {
    /// With a side block from the beginning, and a counter in it.
    fn begin(state: &Self::State) {
        // SAFETY: it is a new lock's.
        unsafe { state.count_distributed::<W>(None) };
        // SAFETY: a model's state, which no other thread uses yet.
        unsafe {
            assert!(Self::read(state, Reader::Newcomer, None).is_ok());
            Self::unlock(state);
        }
    }
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
        let lock = Arc::new(Lock::<L>::new());
        L::begin(&lock.state);
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

macro_rules! excluding {
    ($($name:ident: $lock:ty, $two:expr, $three:expr;)*) => {
        pub(crate) const MODELLED: Modelled = &[$(TypeId::of::<$lock>),*];

        $(mod $name {
            use super::*;

            #[test]
            fn a_reader_and_a_writer() {
                explore(concat!(stringify!($name), " R+W"), $two, SETUP, sections::<$lock>(&[Do::Read, Do::Write]));
            }

            #[test]
            fn two_writers() {
                explore(concat!(stringify!($name), " W+W"), $two, SETUP, sections::<$lock>(&[Do::Write, Do::Write]));
            }

            #[test]
            fn overdue() {
                explore(
                    concat!(stringify!($name), " R+W overdue"),
                    BOUND,
                    OVERDUE,
                    sections::<$lock>(&[Do::Read, Do::Write]),
                );
            }

            #[test]
            fn few_cpus() {
                let crowded = Setup { crowded: true, ..SETUP };
                explore(
                    concat!(stringify!($name), " R+W crowded"),
                    BOUND,
                    crowded,
                    sections::<$lock>(&[Do::Read, Do::Write]),
                );
                explore(
                    concat!(stringify!($name), " W+W crowded"),
                    BOUND,
                    crowded,
                    sections::<$lock>(&[Do::Write, Do::Write]),
                );
            }

            #[test]
            fn two_readers_and_a_writer() {
                let three = sections::<$lock>(&[Do::Read, Do::Read, Do::Write]);
                explore(concat!(stringify!($name), " R+R+W"), $three, SETUP, three);
            }

            #[test]
            fn a_reader_and_two_writers() {
                let three = sections::<$lock>(&[Do::Write, Do::Read, Do::Write]);
                explore(concat!(stringify!($name), " W+R+W"), $three, SETUP, three);
            }
        })*
    };
}

excluding! {
    shfl_stp: ShflRw<SpinThenPark>, BOUND, Preemptions(2);
    shfl_park: ShflRw<Park>, ALL, Preemptions(2);
    shfl_spin: ShflRw<Spin>, BOUND, Preemptions(1);
    futex: FutexRw, ALL, Preemptions(2);
    cst_park: CstRw<Park>, BOUND, Preemptions(1);
    cst_stp: CstRw<SpinThenPark>, BOUND, Preemptions(0);
}

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

#[test]
fn nothing_is_touched_after_release() {
    explore("shfl-rw freed", BOUND, SETUP, last_frees::<ShflRw<Park>>);
    explore("shfl-rw freed, overdue", BOUND, OVERDUE, last_frees::<ShflRw<Park>>);
    explore("futex-rw freed", BOUND, SETUP, last_frees::<FutexRw>);
    find("release looks back", BOUND, SETUP, last_frees::<MutantRw<LooksBack>>);
}

const RW: &[Do] = &[Do::Read, Do::Write];

#[test]
fn seeded_bugs_are_found() {
    explore("the mutants' skeleton", BOUND, SETUP, sections::<MutantRw<NoBug>>(RW));
    find("a reader ignores the writer", BOUND, SETUP, sections::<MutantRw<IgnoresWriter>>(RW));
    find("a writer ignores readers", BOUND, SETUP, sections::<MutantRw<ForgetsReaders>>(RW));
    find("release wakes nobody", BOUND, SETUP, sections::<MutantRw<WakesNobody>>(RW));
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
