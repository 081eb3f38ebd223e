//! Cohort locks, with their side block made: two of a NUMA node, and of two; time-outs; the lock freed after use; a forked child; seeded bugs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::event::Event;
use flashlock_locks::numa::cohort::Cohort;
use flashlock_locks::numa::cohort::level::{GlobalMcs, LocalTicket};
use flashlock_locks::numa::{CBoMcs, CPtlTkt, CTktTkt, Hmcs};
use flashlock_locks::wait::{Park, Spin};
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::{explore, find};
use flashlock_model::{Field, Op, Setup, Weaken};
use loom::thread;

use crate::cohort_mutants::*;
use crate::common::{Lock, Mutex, world};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(14) };
const BOUND: Depth = Preemptions(3);

/// Two threads of the same NUMA node, or of two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    One,
    Two,
}

impl On {
    /// Where the other thread runs.
    fn other(self) -> u32 {
        u32::from(self == Self::Two)
    }
}

/// How many sections it takes to make all parts of a lock, and all grants of a partitioned ticket lock.
const BEFORE: u32 = 4;

/// A free lock whose side block is there.
fn made<L: Lock>(on: On) -> Arc<Mutex<L>> {
    let mutex = Arc::new(Mutex::new());
    for section in 0..BEFORE {
        world().set_numa(section % 2 * on.other());
        mutex.section();
    }
    world().set_numa(0);
    mutex
}

/// Another thread does something with the lock.
fn other<L: Lock, R: 'static>(mutex: &Arc<Mutex<L>>, on: On, act: fn(&Mutex<L>) -> R) -> thread::JoinHandle<R> {
    let mutex = mutex.clone();
    thread::spawn(move || {
        world().set_numa(on.other());
        act(&mutex)
    })
}

/// Both do a section; none is lost.
fn sections<L: Lock>(on: On) {
    let mutex = made::<L>(on);
    let threads = other(&mutex, on, Mutex::section);
    mutex.section();
    threads.join().expect("no panic");
    mutex.lock();
    assert_eq!(mutex.visit(), BEFORE + 2);
    mutex.unlock();
    assert!(!mutex.is_locked());
    mutex.free();
}

/// A thread that has until the first tick waits behind the holder; the lock can be had afterwards.
fn timed<L: Lock>(on: On) {
    let mutex = made::<L>(on);
    mutex.lock();
    let hasty = other(&mutex, on, |mutex| mutex.section_until(world().first_tick()));
    world().tick();
    mutex.visit();
    mutex.unlock();
    hasty.join().expect("no panic");
    assert!(!mutex.is_locked());
    mutex.section();
    mutex.free();
}

/// The last of two frees the lock.
fn last_frees<L: Lock>(on: On) {
    let mutex = made::<L>(on);
    let act: fn(&Mutex<L>) = |mutex| {
        mutex.lock();
        let last = mutex.visit() > BEFORE;
        mutex.unlock();
        if last {
            mutex.free();
        }
    };
    let threads = other(&mutex, on, act);
    act(&mutex);
    threads.join().expect("no panic");
}

/// The child, forked by the holder when another thread had done so many steps of an acquisition, which waits for it: the holder releases, and both of
/// two threads get in. Whether that thread's acquisition had ended, which cannot be.
fn forked<L: Lock>(on: On, steps: u32) {
    let mutex = made::<L>(on);
    mutex.lock();
    let ended = world().fork_within(steps, || {
        world().set_numa(on.other());
        mutex.lock();
    });
    assert!(!ended, "two hold the lock");
    world().set_numa(0);
    let threads = other(&mutex, on, Mutex::section);
    mutex.visit();
    mutex.unlock();
    mutex.section();
    threads.join().expect("no panic");
    assert!(!mutex.is_locked());
}

macro_rules! cohorts {
    ($($name:ident: $lock:ty, $spin:ty;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn exclude() {
                let totals = explore(concat!(stringify!($name), " on one node"), BOUND, SETUP, || sections::<$lock>(On::One));
                totals.shows(&[Event::CohortPass]);
                let totals = explore(concat!(stringify!($name), " on two nodes"), BOUND, SETUP, || sections::<$lock>(On::Two));
                totals.shows(&[Event::CohortMove]);
            }

            #[test]
            fn time_out() {
                for on in [On::One, On::Two] {
                    explore(concat!(stringify!($name), " timed"), BOUND, SETUP, move || timed::<$lock>(on)).shows(&[Event::TimedOut]);
                }
            }

            #[test]
            fn touch_nothing_after_release() {
                for on in [On::One, On::Two] {
                    explore(concat!(stringify!($name), " freed"), BOUND, SETUP, move || last_frees::<$lock>(on));
                }
            }

            #[test]
            fn work_in_a_forked_child() {
                for (on, steps) in [On::One, On::Two].into_iter().flat_map(|on| (1..20).map(move |steps| (on, steps))) {
                    explore(concat!(stringify!($name), " forked"), Preemptions(1), SETUP, move || forked::<$spin>(on, steps));
                }
            }
        }
    )*};
}

cohorts! {
    c_bo_mcs: CBoMcs<Park>, CBoMcs<Spin>;
    c_tkt_tkt: CTktTkt, CTktTkt;
    c_ptl_tkt: CPtlTkt, CPtlTkt;
    hmcs: Hmcs<Park>, Hmcs<Spin>;
}

const fn weak(field: Field, op: Op, from: Ordering, to: Ordering) -> Weaken {
    Weaken { field, op, from, to }
}

macro_rules! found {
    ($($name:ident: [$($weak:expr),+], $lock:ty, $on:expr;)*) => {$(
        #[test]
        fn $name() {
            const WEAKEN: &[Weaken] = &[$($weak),+];
            find(stringify!($name), BOUND, Setup { weaken: WEAKEN, ..SETUP }, || sections::<$lock>($on));
        }
    )*};
}

/// One that was handed the local lock and does not see that the global lock came with it sleeps, which loom tells from polling for ever.
type McsTicket = Cohort<GlobalMcs<Park>, LocalTicket>;

found! {
    back_off_unlock: [weak(Field::LockWord, Op::Store, Release, Relaxed)], CBoMcs<Spin>, On::Two;
    back_off_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], CBoMcs<Spin>, On::Two;
    local_mcs_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], Hmcs<Park>, On::One;
    local_ticket_call: [weak(Field::NodeOther, Op::Store, Release, Relaxed)], McsTicket, On::One;
    local_ticket_served: [weak(Field::NodeOther, Op::Load, Acquire, Relaxed)], McsTicket, On::One;
    global_ticket_call: [weak(Field::TicketServing, Op::Store, Release, Relaxed)], CTktTkt, On::Two;
    global_ticket_served: [weak(Field::TicketServing, Op::Load, Acquire, Relaxed)], CTktTkt, On::Two;
    partitioned_grant: [weak(Field::NodeOther, Op::Store, Release, Relaxed)], CPtlTkt, On::Two;
    partitioned_granted: [weak(Field::NodeOther, Op::Load, Acquire, Relaxed)], CPtlTkt, On::Two;
    global_mcs_unlock: [weak(Field::LockWord, Op::Cas, Release, Relaxed)], Hmcs<Spin>, On::Two;
    global_mcs_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], Hmcs<Spin>, On::Two;
}

#[test]
fn seeded_bugs_are_found() {
    type Of<B> = Cohort<Broken<B>, Broken<B>>;
    explore("the mutants' skeleton", BOUND, SETUP, || sections::<Of<Sound>>(On::Two));
    find("passes on to who has left", BOUND, SETUP, || timed::<Of<PassesToNobody>>(On::One));
    find("looks back at a released lock", BOUND, SETUP, || last_frees::<Of<LooksBack>>(On::Two));
    find("looks back at the part", BOUND, SETUP, || last_frees::<Of<LooksBackAside>>(On::Two));
    find("keeps the dead", Preemptions(1), SETUP, || forked::<Of<KeepsTheDead>>(On::Two, 6));
    find("lets in who holds the local lock", BOUND, SETUP, || sections::<Of<NoGlobal>>(On::Two));
}

/// A part that several make at once, and the index.
#[test]
fn a_side_block_is_made_once() {
    let made = Arc::new(AtomicBool::new(false));
    let seen = made.clone();
    explore("side block", BOUND, SETUP, move || {
        let mutex = Arc::new(Mutex::<CBoMcs<Park>>::new());
        let threads = other(&mutex, On::One, Mutex::section);
        mutex.section();
        threads.join().expect("no panic");
        seen.fetch_or(world().events(Event::SideBlock) > 1, Relaxed);
        mutex.free();
    });
    assert!(made.load(Relaxed), "two never made it at once");
}
