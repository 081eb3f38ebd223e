//! Models that many tests use.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flashlock_locks::machine::node::{is_head, state};
use flashlock_locks::machine::{Handle, Tunables, Word as _};
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::adoption::{claimed, until_notified};
use flashlock_locks::parts::raw::RawLock;
use flashlock_model::arena::take_node;
use flashlock_model::erased::{self, erased};
pub(crate) use flashlock_model::loom::sections;
use flashlock_model::loom::thread::{self, JoinHandle};
use flashlock_model::loom::{Depth, Loomed, explore};
use flashlock_model::tag::Tag;
use flashlock_model::world::World;
use flashlock_model::{Loom, Setup, harness};

/// A bound that every wait exceeds.
pub(crate) const HASTY: Tunables = Tunables { bound_us: 1, max_shuffles: 4, ..Tunables::DEFAULT };

/// Two racers; all schedules.
pub(crate) const ALL: Depth = Depth::Exhaustive;

/// A mutex under loom.
pub(crate) type Mutex<L> = harness::Mutex<Loomed, L>;
/// A mutex under loom, with any lock.
pub(crate) type AnyMutex = erased::Mutex<Loomed>;
/// A condition variable under loom.
pub(crate) type Cond = harness::Cond<Loomed>;

/// A lock that can be modelled.
pub(crate) trait Lock: RawLock<Loom, Queue: Tag + Send + Sync> {}
impl<L: RawLock<Loom, Queue: Tag + Send + Sync>> Lock for L {}

/// The running execution's world.
pub(crate) fn world() -> Rc<World<Loomed>> {
    World::get()
}

/// [`sections`] of lock `L`.
pub(crate) fn excludes<L: Lock>(name: &str, depth: Depth, setup: Setup, rounds: &'static [u32]) {
    explore(name, depth, setup, sections::<L>(rounds));
}

/// The last of two frees the mutex.
pub(crate) fn last_frees<L: Lock>() {
    last_frees_of(erased::<Loomed, L>);
}

fn last_frees_of(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    let work = |mutex: &AnyMutex| {
        mutex.lock();
        let last = mutex.visit() == 1;
        mutex.unlock();
        if last {
            mutex.free();
        }
    };
    let other = {
        let mutex = mutex.clone();
        thread::spawn(move || work(&mutex))
    };
    work(&mutex);
    other.join().expect("no panic");
}

/// A thread that takes its time, one that has until the first tick, and the tick. Each thread that gets the lock makes
/// a visit.
pub(crate) fn timed<L: Lock>() -> impl Fn() + Send + Sync + 'static {
    timed_of(erased::<Loomed, L>)
}

fn timed_of(new: fn() -> AnyMutex) -> impl Fn() + Send + Sync + 'static {
    move || {
        let mutex = Arc::new(new());
        let patient = {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.section())
        };
        let hasty = {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.section_until(world().first_tick()))
        };
        world().tick();
        patient.join().expect("no panic");
        let served = hasty.join().expect("no panic");
        mutex.lock();
        assert_eq!(mutex.visit(), 1 + u32::from(served));
        mutex.unlock();
        assert!(!mutex.is_locked());
        mutex.free();
    }
}

/// So many nodes, prepared as if their threads slept in a queue, linked in this order, each with its NUMA node.
pub(crate) fn sleepers(numa: &[u32]) -> Vec<Handle> {
    let nodes: Vec<_> = numa.iter().map(|_| take_node::<Loom>()).collect();
    for (i, handle) in nodes.iter().enumerate() {
        let node = handle.node::<Loom>();
        node.prepare(state::PARKED);
        node.numa.store(numa[i], Relaxed);
        node.next.store(nodes.get(i + 1).map_or(0, |next| next.word()), Relaxed);
    }
    nodes
}

/// Marks the sleepers as taken off a condition variable, and not yet notified.
pub(crate) fn claim(sleepers: &[Handle]) {
    for sleeper in sleepers {
        let node = sleeper.node::<Loom>();
        node.state.store(claimed(node), Relaxed);
    }
}

/// Puts claimed sleepers into the lock's queue, as a broadcast does; the first waits like the others from then on.
pub(crate) fn adopt_claimed<L: Lock>(mutex: &Mutex<L>, sleepers: &[Handle]) {
    mutex.adopt(Chain::new(sleepers[0], sleepers[sleepers.len() - 1]));
    let first = sleepers[0].node::<Loom>();
    let _ = first.state.compare_exchange(claimed(first), state::PARKED, Release, Relaxed);
}

/// Claims the sleepers and puts them into the lock's queue.
pub(crate) fn adopt<L: Lock>(mutex: &Mutex<L>, sleepers: &[Handle]) {
    claim(sleepers);
    adopt_claimed(mutex, sleepers);
}

/// What the thread of an adopted node does.
pub(crate) fn adopted_section<L: Lock>(mutex: &Mutex<L>, me: Handle) {
    until_notified(me.node::<Loom>());
    mutex.lock_adopted(me);
    mutex.visit();
    mutex.unlock();
}

/// These waiters get the lock, in this order: one thread of the model plays them all.
pub(crate) fn come_back<L: Lock>(mutex: &Arc<Mutex<L>>, asleep: Vec<Handle>) -> JoinHandle<()> {
    let mutex = mutex.clone();
    thread::spawn(move || asleep.into_iter().for_each(|me| adopted_section(&mutex, me)))
}

/// A newcomer on this NUMA node has the lock, and goes.
pub(crate) fn joins<L: Lock>(mutex: &Arc<Mutex<L>>, numa: u32) -> JoinHandle<()> {
    let mutex = mutex.clone();
    thread::spawn(move || {
        world().set_numa(numa);
        mutex.section();
    })
}

/// How many race for a lock that this thread holds and others sleep for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Racers {
    /// This thread, which releases, and one that queues; then this thread plays all sleepers. All schedules.
    Two,
    /// This thread, a newcomer with a whole section, and one that plays the sleepers. Two preemptions.
    Three,
}

impl Racers {
    pub(crate) const BOTH: [Self; 2] = [Self::Two, Self::Three];

    pub(crate) fn depth(self) -> Depth {
        if self == Self::Two { ALL } else { Depth::Preemptions(2) }
    }
}

/// The holder releases while a thread of this NUMA node joins. The sleepers are served in this order, wherever the
/// joiner's turn comes; the lock is free in the end.
pub(crate) fn release_as_one_comes<L: Lock>(mutex: &Arc<Mutex<L>>, asleep: Vec<Handle>, numa: u32, racers: Racers) {
    match racers {
        Racers::Two => {
            let (me, queues) = puts_himself(mutex, numa);
            mutex.visit();
            mutex.unlock();
            queues.join().expect("no panic");
            serve(mutex, asleep.into_iter().chain([me]).collect());
        }
        Racers::Three => {
            let threads = [come_back(mutex, asleep), joins(mutex, numa)];
            mutex.visit();
            mutex.unlock();
            all_done(mutex, threads);
        }
    }
}

/// A thread that puts a sleeper of this NUMA node into the queue, as a broadcast does, and goes.
pub(crate) fn puts_himself<L: Lock>(mutex: &Arc<Mutex<L>>, numa: u32) -> (Handle, JoinHandle<()>) {
    let (mutex, me) = (mutex.clone(), sleepers(&[numa])[0]);
    claim(&[me]);
    (me, thread::spawn(move || adopt_claimed(&mutex, &[me])))
}

/// This thread plays these sleepers, and no other thread interferes: each has its section when its turn comes, until
/// none is left.
pub(crate) fn serve<L: Lock>(mutex: &Arc<Mutex<L>>, mut asleep: Vec<Handle>) {
    while let Some(turn) = asleep.iter().position(|me| is_head(me.node::<Loom>().state.peek())) {
        adopted_section(mutex, asleep.swap_remove(turn));
    }
    assert_eq!((asleep, mutex.is_locked()), (Vec::new(), false), "who was never served");
}

/// All come to their end, and the lock is free.
pub(crate) fn all_done<L: Lock>(mutex: &Mutex<L>, threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(!mutex.is_locked());
}

/// This waiter gives up, as if its deadline had passed, unless it has been notified. Returns whether it gave up.
pub(crate) fn gives_up(me: Handle) -> JoinHandle<bool> {
    thread::spawn(move || {
        let (left, state) = (world().arena.left(), &me.node::<Loom>().state);
        left.add();
        let gone = state.compare_exchange(state::PARKED, state::ABANDONED, Release, Acquire).is_ok();
        if !gone {
            left.remove();
        }
        gone
    })
}
