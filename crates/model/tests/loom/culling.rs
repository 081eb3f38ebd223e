//! The two lists of CNA, MCSCR and MCSCRN: built by hand, for it takes three waiters to have both, and raced from
//! there.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::{is_head, state};
use flashlock_locks::machine::{Handle, Memory as _, Word as _};
use flashlock_locks::mutex::malthusian::{Mcscr, Mcscrn};
use flashlock_locks::mutex::numa::Cna;
use flashlock_locks::parts::queue::culling::CullingQueue;
use flashlock_locks::parts::queue::link::Link;
use flashlock_locks::parts::wait::left::SWEEP_AT;
use flashlock_locks::parts::wait::{Park, SpinThenPark};
use flashlock_model::harness::Totals;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::explore;
use flashlock_model::loom::thread::{self, JoinHandle};
use flashlock_model::{Loom, Setup};

use crate::common::{
    ALL, Lock, Mutex, Racers, adopt, adopt_claimed, adopted_section, all_done, claim, gives_up, joins,
    release_as_one_comes, sleepers, world,
};

/// A lock with two lists.
pub(crate) trait TwoLists: Lock<Queue = CullingQueue<Loom>> {}
impl<L: Lock<Queue = CullingQueue<Loom>>> TwoLists for L {}

/// Draws say no: CNA stays on its node, MCSCR does not serve the eldest.
pub(crate) const STAYS: Setup = Setup { polls: 1, random: Some(u32::MAX), ..Setup::new(6) };
/// Draws say yes.
pub(crate) const LEAVES: Setup = Setup { random: Some(0), ..STAYS };

/// A waiter that was adopted wakes up, has the lock, and goes.
pub(crate) fn comes_back<L: TwoLists>(mutex: &Arc<Mutex<L>>, me: Handle) -> JoinHandle<()> {
    let mutex = mutex.clone();
    thread::spawn(move || adopted_section(&mutex, me))
}

/// The lock is held by this thread, on node 0, with these waiters, all of node 1, in the main queue.
fn with_main<L: TwoLists>(count: usize) -> (Arc<Mutex<L>>, Vec<Handle>) {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    let asleep = sleepers(&[1, 1][..count]);
    adopt(&mutex, &asleep);
    (mutex, asleep)
}

/// The same with culled waiters of these nodes, and an empty main queue: another of node 0 was behind them, has had the
/// lock since, and holds it.
pub(crate) fn with_culled<L: TwoLists>(numa: &[u32]) -> (Arc<Mutex<L>>, Vec<Handle>) {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    let mut asleep = Vec::new();
    world().set_random(STAYS.random);
    for &numa in numa {
        let pair = sleepers(&[numa, 0]);
        adopt(&mutex, &pair);
        mutex.unlock();
        mutex.lock_adopted(pair[1]);
        asleep.push(pair[0]);
    }
    world().set_random(world().setup.random);
    assert_eq!(kept(&mutex.queue).map(Handle::word), Some(mutex.queue.tail.load(Relaxed)));
    (mutex, asleep)
}

/// The holder finds the main queue empty and takes waiters back, while a thread joins.
pub(crate) fn recall_against_joiner<L: TwoLists>(racers: Racers) {
    let (mutex, asleep) = with_culled::<L>(&[1]);
    release_as_one_comes(&mutex, asleep, 0, racers);
}

/// The holder looks behind the first waiter while a thread joins there; it culls the first waiter, or does not.
pub(crate) fn choice_against_joiner<L: TwoLists>(racers: Racers) {
    let (mutex, asleep) = with_main::<L>(1);
    release_as_one_comes(&mutex, asleep, 0, racers);
}

/// The only waiter, culled or in the main queue, gives up as the holder turns to it. If it does, the lock is free then,
/// and no node is lost.
pub(crate) fn choice_against_time_out<L: TwoLists>(secondary: bool) {
    let (mutex, asleep) = if secondary { with_culled::<L>(&[1]) } else { with_main::<L>(1) };
    let me = asleep[0];
    let leaving = gives_up(me);
    mutex.visit();
    mutex.unlock();
    if leaving.join().expect("no panic") {
        assert!(!mutex.is_locked(), "nobody waits");
    } else {
        adopted_section(&mutex, me);
        assert!(!mutex.is_locked());
    }
}

/// The node that the calling holder has kept.
fn kept(queue: &CullingQueue<Loom>) -> Option<Handle> {
    // SAFETY: it is only looked at.
    unsafe { queue.holder() }.node
}

/// The only waiter, culled or in the main queue, has given up, so the lock is freed; then it is acquired anew, and a
/// thread joins. By then the nodes serve in the queue of another lock, and this lock must not notify them.
pub(crate) fn contended_anew<L: TwoLists>(secondary: bool) {
    let (mutex, asleep) = if secondary { with_culled::<L>(&[1]) } else { with_main::<L>(1) };
    let (waiter, kept) = (asleep[0], kept(&mutex.queue));
    waiter.node::<Loom>().state.store(state::ABANDONED, Relaxed);
    mutex.unlock();
    assert!(!mutex.is_locked(), "nobody waits");
    let elsewhere = sleepers(&[0])[0];
    for handle in kept.into_iter().chain([waiter]) {
        handle.node::<Loom>().state.store(state::WAITING, Relaxed);
        handle.node::<Loom>().next.store(Link::new(elsewhere, 0).word(), Relaxed);
    }
    mutex.lock();
    let joiner = joins(&mutex, 0);
    mutex.visit();
    mutex.unlock();
    let seen = [waiter, elsewhere].map(|handle| handle.node::<Loom>().state.load(Relaxed));
    assert_eq!(seen, [state::WAITING, state::PARKED], "notified by a lock that they do not wait for");
    all_done(&mutex, [joiner]);
    Loom::give_node(elsewhere);
}

/// The holder goes through the culled waiters, one of which is giving up.
fn sweep_against_time_out<L: TwoLists>() {
    let (mutex, asleep) = with_culled::<L>(&[1, 1]);
    mutex.queue.left().0.store(SWEEP_AT as u32 - 1, Relaxed); // And the one that leaves.
    let leaving = gives_up(asleep[0]);
    mutex.visit();
    mutex.unlock();
    let gone = leaving.join().expect("no panic");
    // A waiter that has the lock releases it, and so on.
    for me in asleep.into_iter().rev().filter(|&me| !gone || world().arena.taken().contains(&me)) {
        if is_head(me.node::<Loom>().state.load(Relaxed)) {
            adopted_section(&mutex, me);
        }
    }
    while let Some(me) = world().arena.taken().first().copied().filter(|_| mutex.is_locked()) {
        adopted_section(&mutex, me);
    }
    assert!(!mutex.is_locked());
}

/// A thread that does not hold the lock, and may find it free, puts a waiter into the main queue.
fn adopts_against_release<L: TwoLists>() {
    let (mutex, asleep) = with_culled::<L>(&[1]);
    let moved = sleepers(&[1])[0];
    let outside = {
        let mutex = mutex.clone();
        claim(&[moved]);
        thread::spawn(move || adopt_claimed(&mutex, &[moved]))
    };
    let threads = [comes_back(&mutex, asleep[0]), comes_back(&mutex, moved)];
    mutex.visit();
    mutex.unlock();
    outside.join().expect("no panic");
    all_done(&mutex, threads);
}

macro_rules! two_lists {
    ($($name:ident: $lock:ty;)*) => {$(
        mod $name {
            use super::*;

            fn check(what: &str, setup: Setup, body: fn(Racers)) -> u64 {
                let name = format!("{} {what}", stringify!($name));
                let moved = |totals: Totals| totals.of(Event::Alteration) + totals.of(Event::Cull);
                let explored = |racers: Racers| moved(explore(&name, racers.depth(), setup, move || body(racers)));
                Racers::BOTH.map(explored).into_iter().min().unwrap_or(0)
            }

            #[test]
            fn taken_back_while_somebody_joins() {
                check("recall, join", STAYS, recall_against_joiner::<$lock>);
                check("recall, join, drawn", LEAVES, recall_against_joiner::<$lock>);
            }

            #[test]
            fn set_aside_while_somebody_joins() {
                assert!(check("choice, join", STAYS, choice_against_joiner::<$lock>) > 0);
                check("choice, join, drawn", LEAVES, choice_against_joiner::<$lock>);
            }

            #[test]
            fn adopted_while_the_lock_is_released() {
                let name = concat!(stringify!($name), " adopt, release");
                explore(name, Preemptions(2), STAYS, adopts_against_release::<$lock>);
            }
        }
    )*};
}

two_lists! {
    cna_stp: Cna<SpinThenPark>;
    cna_park: Cna<Park>;
    mcscr_stp: Mcscr<SpinThenPark>;
    mcscr_park: Mcscr<Park>;
    mcscrn_stp: Mcscrn<SpinThenPark>;
    mcscrn_park: Mcscrn<Park>;
}

#[test]
fn giving_up_as_ones_turn_comes() {
    for secondary in [false, true] {
        explore("cna, time-out", ALL, STAYS, move || choice_against_time_out::<Cna<Park>>(secondary));
        explore("mcscr, time-out", ALL, STAYS, move || choice_against_time_out::<Mcscr<Park>>(secondary));
        explore("mcscr, time-out, drawn", ALL, LEAVES, move || choice_against_time_out::<Mcscr<Park>>(secondary));
        explore("mcscrn, time-out", ALL, STAYS, move || choice_against_time_out::<Mcscrn<Park>>(secondary));
        explore("mcscrn, time-out, drawn", ALL, LEAVES, move || choice_against_time_out::<Mcscrn<Park>>(secondary));
    }
}

#[test]
fn contended_anew_after_all_have_gone() {
    for secondary in [false, true] {
        explore("cna, contended anew", ALL, STAYS, move || contended_anew::<Cna<Park>>(secondary));
        explore("mcscr, contended anew", ALL, STAYS, move || contended_anew::<Mcscr<Park>>(secondary));
        explore("mcscrn, contended anew", ALL, STAYS, move || contended_anew::<Mcscrn<Park>>(secondary));
    }
}

#[test]
fn giving_up_as_the_holder_sweeps() {
    explore("cna, sweep", ALL, STAYS, sweep_against_time_out::<Cna<Park>>);
    explore("mcscr, sweep", ALL, STAYS, sweep_against_time_out::<Mcscr<Park>>);
    explore("mcscrn, sweep", ALL, STAYS, sweep_against_time_out::<Mcscrn<Park>>);
}
