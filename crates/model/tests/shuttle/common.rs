//! Models that many tests use.

use std::rc::Rc;
use std::sync::Arc;

use flashlock_locks::catalogue::rw::RW_LOCKS;
use flashlock_locks::catalogue::{LOCKS, LockId};
use flashlock_locks::machine::Tunables;
use flashlock_locks::parts::raw::RawLock;
use flashlock_model::checker::Checker;
use flashlock_model::erased::{self, erased};
use flashlock_model::harness::{self, Totals};
use flashlock_model::shuttle::thread;
use flashlock_model::shuttle::{By, Draws, Shuttled, explore};
use flashlock_model::tag::Tag;
use flashlock_model::world::World;
use flashlock_model::{Setup, Shuttle};

/// A mutex under shuttle.
pub(crate) type Mutex<L> = harness::Mutex<Shuttled, L>;
/// A mutex under shuttle, with any lock.
pub(crate) type AnyMutex = erased::Mutex<Shuttled>;
/// A condition variable under shuttle.
pub(crate) type Cond = harness::Cond<Shuttled>;

/// A lock that can be modelled.
pub(crate) trait Lock: RawLock<Shuttle, Queue: Tag + Send + Sync> {}
impl<L: RawLock<Shuttle, Queue: Tag + Send + Sync>> Lock for L {}

/// The running execution's world.
pub(crate) fn world() -> Rc<World<Shuttled>> {
    World::get()
}

/// A number below `n`, of shuttle's choice.
pub(crate) fn any(n: u32) -> u32 {
    Shuttled::random() % n
}

/// A bound that every wait exceeds.
pub(crate) const HASTY: Tunables = Tunables { bound_us: 1, max_shuffles: 4, ..Tunables::DEFAULT };

/// Time stands still: a wake-up that is lost is a deadlock.
pub(crate) const STILL: Setup = Setup { recycles: true, polls: 3, ..Setup::new(16) };
/// As [`STILL`], but all waits are overdue: locks are handed over.
pub(crate) const OVERDUE: Setup = Setup { micros_step: 3, tunables: &HASTY, ..STILL };
/// Time flows, sleeps end for no reason, and all waits are overdue. An impatient waiter leaves a node behind.
pub(crate) const FLOWING: Setup = Setup { nodes: 32, patience: 1, flow: 40, spurious: 10, ..OVERDUE };

/// How many threads do how much.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) threads: u32,
    pub(crate) rounds: u32,
    /// Over how many NUMA nodes the threads are spread; in each, over two groups of CPUs.
    pub(crate) nodes: u32,
    /// Whether some acquisitions are timed or tried.
    pub(crate) timed: bool,
    /// How often a section lets others run.
    pub(crate) hold: u32,
}

/// One acquisition: plain, timed or tried. Whether the lock was had; the section is done then.
fn acquisition(mutex: &AnyMutex, load: Load) -> bool {
    let held = match if load.timed { any(4) } else { 0 } {
        0 | 1 => {
            mutex.lock();
            true
        }
        2 => mutex.lock_until(world().deadline(1 + any(3))),
        _ => mutex.try_lock(),
    };
    if held {
        mutex.visit();
        (0..load.hold).for_each(|_| thread::yield_now());
        mutex.unlock();
    }
    held
}

/// All threads do their rounds; each acquisition counts once, and at the end the lock is free.
pub(crate) fn rounds<L: Lock>(load: Load) -> impl Fn() + Send + Sync + Clone + 'static {
    rounds_of(erased::<Shuttled, L>, load)
}

fn rounds_of(new: fn() -> AnyMutex, load: Load) -> impl Fn() + Send + Sync + Clone + 'static {
    move || {
        let mutex = Arc::new(new());
        let work = move |mutex: &AnyMutex, me: u32| {
            world().set_numa(me % load.nodes);
            world().set_near([me / load.nodes % 2, 0]);
            (0..load.rounds).filter(|_| acquisition(mutex, load)).count() as u32
        };
        let threads: Vec<_> = (1..load.threads)
            .map(|me| {
                let mutex = mutex.clone();
                thread::spawn(move || work(&mutex, me))
            })
            .collect();
        let mut total = work(&mutex, 0);
        for thread in threads {
            total += thread.join().expect("no panic");
        }
        assert!(!mutex.is_locked(), "left locked");
        mutex.lock();
        assert_eq!(mutex.visit(), total);
        mutex.unlock();
        mutex.free();
    }
}

/// So many schedules of each kind, random and PCT, in each of three set-ups of a lock and a way of waiting: 10,200
/// together, and a tenth of them in each run.
pub(crate) const SCHEDULES: usize = 3_400;

/// How many schedules of a model that every mutex runs: a tenth of this number for the principal locks, unless
/// their waiters spin, and a twentieth for all others. In full, all of them.
pub(crate) fn share(lock: &str, wait: &str, full: usize) -> Draws {
    let principal = LockId::from_name(lock).is_some_and(LockId::is_principal);
    if principal && wait != "spin" { full.into() } else { Draws { usual: full / 20, full } }
}

/// Whether the row of this lock has no exception for this check of the conformance or torture suite.
pub(crate) fn can(lock: &str, check: &str) -> bool {
    let rows = LOCKS.iter().map(|lock| &lock.facts).chain(RW_LOCKS.iter().map(|lock| &lock.facts));
    let unable = rows.filter(|row| row.exceptions().any(|exception| exception.check == check));
    let unable: Vec<&str> = unable.map(|row| row.name).collect();
    assert!(!unable.is_empty(), "no row has an exception for {check}");
    !unable.contains(&lock)
}

/// A body under so many random schedules, and as many of PCT.
pub(crate) fn both(
    name: &str,
    schedules: impl Into<Draws>,
    setup: Setup,
    body: impl Fn() + Send + Sync + Clone + 'static,
) -> [Totals; 2] {
    both_of(name, schedules.into(), setup, &(Arc::new(body) as Arc<_>))
}

fn both_of(name: &str, schedules: Draws, setup: Setup, body: &Arc<dyn Fn() + Send + Sync>) -> [Totals; 2] {
    [By::Random, By::Pct(3)].map(|by| {
        let body = body.clone();
        explore(name, by, schedules, setup, move || body())
    })
}
