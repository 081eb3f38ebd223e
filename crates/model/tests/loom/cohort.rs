//! Cohort locks, with their side block made: two of a NUMA node, and of two, and with more levels of two groups of CPUs
//! of a NUMA node, or two cores; time-outs; the lock freed after use; a forked child; seeded bugs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::for_each_lock;
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Deadline, TimedOut, Tunables, Word as _};
use flashlock_locks::mutex::numa::cohort::Cohort;
use flashlock_locks::mutex::numa::cohort::global::GlobalMcs;
use flashlock_locks::mutex::numa::cohort::level::{Global, LocalLock};
use flashlock_locks::mutex::numa::cohort::local::LocalTicket;
use flashlock_locks::mutex::numa::cohort::parts::{Groups, Parts};
use flashlock_locks::mutex::numa::cst::LocalCst;
use flashlock_locks::mutex::numa::{CBoMcs, CPtlTkt, CTktTkt, Cst, Hmcs};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::side::Side;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::arena::name_in;
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::{Field, Loom, Op, Setup, Weaken, is_full};

use crate::cohort_mutants::*;
use crate::common::{ALL, Lock, Mutex, sleepers, world};
use crate::modelled::each;

/// A cohort lock that no thread acquires without its local locks, even if it is free, so that two threads meet there.
pub(crate) struct InLine<C>(std::marker::PhantomData<C>);

// SAFETY: that of the cohort lock.
unsafe impl<G: Global, L: LocalLock, P: Parts> RawLock<Loom> for InLine<Cohort<G, L, P>> {
    type Queue = <Cohort<G, L, P> as RawLock<Loom>>::Queue;

    flashlock_locks::same_as!(Loom, Cohort<G, L, P>: try_acquire release is_locked destroy);

    unsafe fn acquire(word: &Word, queue: &Self::Queue, until: Option<&Deadline>) -> Result<(), TimedOut> {
        // SAFETY: the callers' promise.
        unsafe { Cohort::<G, L, P>::lock_in_queue::<Loom>(word, queue, until.copied()) }
    }
}

type Word = flashlock_model::word::Word<Loomed>;

const SETUP: Setup = Setup { polls: 1, ..Setup::new(14) };
const BOUND: Depth = Preemptions(3);

/// The same where waiters of `cst` sleep, for there are more tasks than CPUs.
const CROWDED: Setup = Setup { crowded: true, ..SETUP };

/// The same, with groups of CPUs below NUMA nodes.
const THREE_LEVELS: Setup = Setup { tunables: &Tunables { levels: 3, ..Tunables::DEFAULT }, ..SETUP };

/// The same, with cores below those.
const FOUR_LEVELS: Setup = Setup { tunables: &Tunables { levels: 4, ..Tunables::DEFAULT }, ..SETUP };

/// Where two threads run: side by side, or in two cores of a group, or in two groups of a NUMA node, or in two NUMA
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    One,
    Cores,
    Groups,
    Two,
}

impl On {
    /// The calling thread runs where the first of the two does, or where the second.
    fn settle(self, second: u32) {
        world().set_numa(second * u32::from(self == Self::Two));
        let [groups, cores] = [Self::Groups, Self::Cores].map(|depth| second * u32::from(self == depth));
        world().set_near([groups, cores]);
    }
}

/// How many sections it takes to make all parts of a lock, and all grants of a partitioned ticket lock.
const BEFORE: u32 = 4;

/// A free lock whose side block is there.
fn made<L: Lock>(on: On) -> Arc<Mutex<L>> {
    let mutex = Arc::new(Mutex::new());
    for section in 0..BEFORE {
        on.settle(section % 2);
        mutex.section();
    }
    on.settle(0);
    mutex
}

/// Another thread does something with the lock.
fn other<L: Lock, R: 'static>(mutex: &Arc<Mutex<L>>, on: On, act: fn(&Mutex<L>) -> R) -> thread::JoinHandle<R> {
    let mutex = mutex.clone();
    thread::spawn(move || {
        on.settle(1);
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

/// The child, forked by the holder when another thread had done so many steps of an acquisition, which waits for it:
/// the holder releases, and both of two threads get in. Whether that thread's acquisition had ended, which cannot be.
fn forked<L: Lock>(on: On, steps: u32) {
    let mutex = made::<L>(on);
    mutex.lock();
    let ended = world().fork_within(steps, || {
        on.settle(1);
        mutex.lock();
    });
    assert!(!ended, "two hold the lock");
    on.settle(0);
    let threads = other(&mutex, on, Mutex::section);
    mutex.visit();
    mutex.unlock();
    mutex.section();
    threads.join().expect("no panic");
    assert!(!mutex.is_locked());
}

/// What follows, if the lock is a cohort lock, or unless it is one. (Other models begin without a side block, and reach
/// nothing of these locks but the word.)
macro_rules! if_cohort {
    ($variant:ident { numa: LockEach, $($facts:tt)* }, $($what:tt)*) => { $($what)* };
    ($variant:ident $facts:tt, $($what:tt)*) => {};
}
pub(crate) use if_cohort;

macro_rules! unless_cohort {
    ($variant:ident { numa: LockEach, $($facts:tt)* }, $($what:tt)*) => {};
    ($variant:ident $facts:tt, $($what:tt)*) => { $($what)* };
}
pub(crate) use unless_cohort;

/// How deep two sections are explored, and how deep all else is; and with how many CPUs.
fn how(lock: &str, wait: &str) -> (Depth, Depth, Setup) {
    let bound = match (lock, wait) {
        ("c-bo-mcs" | "hmcs", "spin" | "stp") | ("cst", "spin") => Preemptions(2),
        _ => BOUND,
    };
    let sections = match (lock, wait) {
        ("c-bo-mcs", "park") | ("c-tkt-tkt", _) => ALL,
        ("c-ptl-tkt", _) => BOUND.or_in_full(ALL),
        _ => bound,
    };
    (sections, bound, if (lock, wait) == ("cst", "stp") { CROWDED } else { SETUP })
}

/// What two threads of a NUMA node show: a waiter of `cst` that sleeps is culled, and so not passed on to.
fn passes(lock: &str, wait: &str) -> Event {
    if (lock, wait) == ("cst", "park") { Event::CohortCulling } else { Event::CohortPass }
}

macro_rules! cohorts {
    ($lock:literal, $wait:ident, $type:ty) => {
        cohorts! {
            concat!($lock, ":wait=", stringify!($wait)), $type, how($lock, stringify!($wait)),
            [(On::One, passes($lock, stringify!($wait))), (On::Two, Event::CohortMove)]
        }
        forked! { $wait, $lock, $type, SETUP, [On::One, On::Two] }
    };
    ($name:expr, $type:ty, $how:expr, $on:expr) => {
        #[test]
        fn exclude() {
            let (depth, _, setup) = $how;
            for (on, shows) in $on {
                explore(&format!("{} {on:?}", $name), depth, setup, move || sections::<InLine<$type>>(on))
                    .shows(&[shows]);
            }
        }

        /// A thread that finds it free takes it, alone.
        #[test]
        fn exclude_when_it_is_free() {
            let (_, _, setup) = $how;
            for (on, _) in $on {
                explore(&format!("{} free", $name), Preemptions(2), setup, move || sections::<$type>(on))
                    .shows(&[Event::SideBlock]);
            }
        }

        #[test]
        fn time_out() {
            let (_, bound, setup) = $how;
            for (on, _) in $on {
                explore(&format!("{} timed", $name), bound, setup, move || timed::<InLine<$type>>(on))
                    .shows(&[Event::TimedOut]);
            }
        }

        #[test]
        fn touch_nothing_after_release() {
            let (_, bound, setup) = $how;
            for (on, _) in $on {
                explore(&format!("{} freed", $name), bound, setup, move || last_frees::<InLine<$type>>(on));
            }
        }
    };
}

/// The child's waiters spin: so those who sleep in the parent do not matter.
macro_rules! forked {
    (spin, $name:expr, $type:ty, $setup:expr, $on:expr) => {
        #[test]
        fn work_in_a_forked_child() {
            for (on, steps) in $on
                .into_iter()
                .flat_map(|on| (1..20).step_by(if is_full() { 1 } else { 2 }).map(move |steps| (on, steps)))
            {
                let name = concat!($name, ":wait=spin, forked");
                explore(name, Preemptions(1), $setup, move || forked::<InLine<$type>>(on, steps));
            }
        }
    };
    ($wait:ident, $name:expr, $type:ty, $setup:expr, $on:expr) => {};
}

macro_rules! mutexes {
    ($($rows:tt)*) => { each! { of: cohorts, crate::cohort::if_cohort: $($rows)* } };
}
for_each_lock!(mutexes);

/// `hmcs` with more levels than two.
macro_rules! levels {
    ($($name:ident: $setup:expr, $on:expr;)*) => {$(
        mod $name {
            use super::*;

            cohorts! { stringify!($name), Hmcs<Park>, (BOUND, BOUND, $setup), $on }
            forked! { spin, stringify!($name), Hmcs<Spin>, $setup, $on.map(|(on, _)| on) }
        }
    )*};
}

levels! {
    hmcs_of_three_levels: THREE_LEVELS,
        [(On::One, Event::CohortNear), (On::Groups, Event::CohortPass), (On::Two, Event::CohortMove)];
    hmcs_of_four_levels: FOUR_LEVELS,
        [(On::One, Event::CohortNear), (On::Cores, Event::CohortNear), (On::Groups, Event::CohortPass),
         (On::Two, Event::CohortMove)];
}

const fn weak(field: Field, op: Op, from: Ordering, to: Ordering) -> Weaken {
    Weaken { field, op, from, to }
}

macro_rules! found {
    ($($name:ident: [$($weak:expr),+], $lock:ty, $on:expr $(, $setup:expr)?;)*) => {$(
        #[test]
        fn $name() {
            const WEAKEN: &[Weaken] = &[$($weak),+];
            const SETUPS: &[Setup] = &[$($setup,)? SETUP];
            find(stringify!($name), BOUND, Setup { weaken: WEAKEN, ..SETUPS[0] }, || sections::<InLine<$lock>>($on));
        }
    )*};
}

/// A thread that was handed the local lock and does not see that the global lock came with it sleeps, which loom
/// distinguishes from polling for ever.
type McsTicket = Cohort<GlobalMcs<Park>, LocalTicket>;

found! {
    back_off_unlock: [weak(Field::LockWord, Op::Store, Release, Relaxed)], CBoMcs<Spin>, On::Two;
    back_off_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], CBoMcs<Spin>, On::Two;
    local_mcs_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], Hmcs<Park>, On::One;
    local_ticket_call: [weak(Field::BlockNext, Op::Store, Release, Relaxed)], McsTicket, On::One;
    local_ticket_served: [weak(Field::BlockNext, Op::Load, Acquire, Relaxed)], McsTicket, On::One;
    global_ticket_call: [weak(Field::TicketServing, Op::Store, Release, Relaxed)], CTktTkt, On::Two;
    global_ticket_served: [weak(Field::TicketServing, Op::Load, Acquire, Relaxed)], CTktTkt, On::Two;
    partitioned_grant: [weak(Field::BlockState, Op::Store, Release, Relaxed)], CPtlTkt, On::Two;
    partitioned_granted: [weak(Field::BlockState, Op::Load, Acquire, Relaxed)], CPtlTkt, On::Two;
    global_mcs_unlock: [weak(Field::LockWord, Op::Cas, Release, Relaxed)], Hmcs<Spin>, On::Two;
    global_mcs_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], Hmcs<Spin>, On::Two;
    cst_grant_awake: [weak(Field::NodeState, Op::Cas, Release, Relaxed)], Cst<SpinThenPark>, On::One, CROWDED;
    cst_grant_asleep: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], Cst<Park>, On::One;
    grant_between_groups: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], Hmcs<Park>, On::Groups, THREE_LEVELS;
}

#[test]
fn seeded_bugs_are_found() {
    type Of<B> = Cohort<Broken<B>, Broken<B>>;
    explore("the mutants' skeleton", BOUND, SETUP, || sections::<InLine<Of<Sound>>>(On::Two));
    find("passes on to who has left", BOUND, SETUP, || timed::<InLine<Of<PassesToNobody>>>(On::One));
    find("looks back at a released lock", BOUND, SETUP, || last_frees::<InLine<Of<LooksBack>>>(On::Two));
    find("looks back at the part", BOUND, SETUP, || last_frees::<InLine<Of<LooksBackAtTheCulled>>>(On::Two));
    find("keeps the dead", Preemptions(1), SETUP, || forked::<InLine<Of<KeepsTheDead>>>(On::Two, 6));
    find("lets in who holds the local lock", BOUND, SETUP, || sections::<InLine<Of<NoGlobal>>>(On::Two));

    type Three<B> = Cohort<Broken<B>, Broken<B>, Groups>;
    explore("the mutants' skeleton, three levels", BOUND, SETUP, || sections::<InLine<Three<Sound>>>(On::Groups));
    find("keeps the middle level", BOUND, SETUP, || sections::<InLine<Three<KeepsTheMiddle>>>(On::Two));
    find("keeps the dead of a group", Preemptions(1), SETUP, || {
        forked::<InLine<Three<KeepsTheDeadBelow>>>(On::Groups, 10);
    });
    find("looks back at a part that was passed on", BOUND, SETUP, || {
        last_frees::<InLine<Three<LooksBackPassed>>>(On::Groups);
    });
}

/// Two threads wait behind the holder, one of them for a short time only. Each thread that does not give up gets the
/// lock.
fn asleep<L: Lock>() {
    let mutex = made::<L>(On::One);
    mutex.lock();
    let patient = other(&mutex, On::One, Mutex::section);
    let hasty = other(&mutex, On::One, |mutex| mutex.section_until(world().first_tick()));
    world().tick();
    mutex.visit();
    mutex.unlock();
    patient.join().expect("no panic");
    let served = u32::from(hasty.join().expect("no panic"));
    mutex.lock();
    assert_eq!(mutex.visit(), BEFORE + 2 + served);
    mutex.unlock();
    mutex.free();
}

/// A child that the holder forked while two threads slept in its list of sleepers. They do not exist in the child: the
/// holder releases, and another thread gets the lock.
fn forked_with_sleepers<L: LocalLock>() {
    type Of<L> = Cohort<GlobalMcs<Spin>, L>;
    let mutex = made::<InLine<Of<L>>>(On::One);
    mutex.lock();
    let part = name_in(mutex.queue.side.load(Relaxed)).and_then(|side| Side::<Loom>::below(side).part(0));
    let part = part.expect("made").block::<Loom>();
    world().fork_within(u32::MAX, || {
        let dead = sleepers(&[0, 0]);
        part.sleepers.iter().zip(dead).for_each(|(end, dead)| end.store(dead.word(), Relaxed));
    });
    let threads = other(&mutex, On::One, Mutex::section);
    mutex.visit();
    mutex.unlock();
    mutex.section();
    threads.join().expect("no panic");
    assert!(!mutex.is_locked());
}

#[test]
fn sleepers_aside() {
    let totals = explore("cst, two asleep", Preemptions(2), SETUP, asleep::<InLine<Cst<Park>>>);
    totals.shows(&[Event::CohortCulling, Event::TimedOut]);
    type Of<B> = Cohort<GlobalMcs<Park>, BrokenCst<B>>;
    explore("the mutants' skeleton, cst", Preemptions(2), SETUP, asleep::<InLine<Of<Sound>>>);
    find("forgets who sleeps", Preemptions(2), SETUP, asleep::<InLine<Of<ForgetsSleepers>>>);
    explore("cst forked, two asleep", Preemptions(2), SETUP, forked_with_sleepers::<LocalCst<Spin>>);
    find(
        "keeps those asleep in a forked child",
        Preemptions(2),
        SETUP,
        forked_with_sleepers::<BrokenCst<KeepsSleepers>>,
    );
}

/// A thread that sleeps in the queue of its NUMA node is handed the lock, or leaves, like any other waiter.
#[test]
fn sleepers_in_the_queue() {
    let shows = [Event::CohortPass, Event::TimedOut, Event::Wake];
    explore("c-bo-mcs, two asleep", Preemptions(2), SETUP, asleep::<InLine<CBoMcs<Park>>>).shows(&shows);
    explore("hmcs, two asleep", Preemptions(2), SETUP, asleep::<InLine<Hmcs<Park>>>).shows(&shows);
    explore("hmcs of three levels, two asleep", Preemptions(2), THREE_LEVELS, asleep::<InLine<Hmcs<Park>>>);
}

/// A part that several make at once, and the index.
#[test]
fn a_side_block_is_made_once() {
    let made = Arc::new(AtomicBool::new(false));
    let seen = made.clone();
    explore("side block", BOUND, SETUP, move || {
        let mutex = Arc::new(Mutex::<InLine<CBoMcs<Park>>>::new());
        let threads = other(&mutex, On::One, Mutex::section);
        mutex.section();
        threads.join().expect("no panic");
        seen.fetch_or(world().events(Event::SideBlock) > 1, Relaxed);
        mutex.free();
    });
    assert!(made.load(Relaxed), "two never made it at once");
}
