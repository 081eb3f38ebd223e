//! One thread plays all threads: it puts waiters into the queue, lets them give up, releases, and goes on as the waiter
//! that was handed the lock.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::node::{self, Node, state};
use flashlock_locks::machine::{Handle, Memory as _, Time as _, Tunables, Word as _};
use flashlock_locks::mutex::malthusian::LifoCr;
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::adoption::claimed;
use flashlock_locks::parts::queue::culling::CullingLock;
use flashlock_locks::parts::queue::service::LONG_AGO;
use flashlock_locks::parts::queue::succession::{Holder, Succession};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::Park;
use flashlock_locks::parts::wait::left::LeftBehind;
use flashlock_model::arena::{link_in, take_node};
use flashlock_model::harness;
use flashlock_model::shuttle::{By, Shuttled, explore};
use flashlock_model::tag::Tag;
use flashlock_model::world::World;
use flashlock_model::{Setup, Shuttle};

/// A draw that says no, whatever the odds (except one in one).
pub(crate) const NO: Option<u32> = Some(u32::MAX);
/// A draw that says yes.
pub(crate) const YES: Option<u32> = Some(0);

const SETUP: Setup = Setup { recycles: true, random: NO, ..Setup::new(100) };

/// Names a waiter: the number of its arrival, from 0.
pub(crate) type Id = usize;

/// Runs `body` once, or under so many random choices.
pub(crate) fn play(name: &str, times: usize, tunables: &'static Tunables, body: impl Fn() + Send + Sync + 'static) {
    explore(name, By::Random, times, Setup { tunables, ..SETUP }, body);
}

/// The running execution's world.
pub(crate) fn world() -> Rc<World<Shuttled>> {
    World::get()
}

#[derive(Clone, Copy)]
struct Waiter {
    id: Id,
    handle: Handle,
    gone: bool,
}

/// A lock that takes the waiters of a broadcast, which is how the script's waiters come.
pub(crate) trait Scripted: RawLock<Shuttle, Queue: Tag> {
    /// Nodes of waiters that gave up.
    fn left(queue: &Self::Queue) -> LeftBehind<Shuttle>;
}

impl<S: Succession> Scripted for CullingLock<S, Park> {
    fn left(queue: &Self::Queue) -> LeftBehind<Shuttle> {
        queue.left()
    }
}

impl Scripted for LifoCr<Park> {
    fn left(queue: &Self::Queue) -> LeftBehind<Shuttle> {
        queue.left()
    }
}

/// A lock that is held, and its waiters.
pub(crate) struct Script<L: Scripted> {
    mutex: harness::Mutex<Shuttled, L>,
    /// The threads that have arrived and have not had the lock, in order; those that gave up stay.
    waiters: RefCell<Vec<Waiter>>,
    arrived: RefCell<Id>,
}

impl<L: Scripted> Script<L> {
    /// A thread holds the lock, and none waits.
    pub(crate) fn new() -> Self {
        let script = Self { mutex: harness::Mutex::new(), waiters: RefCell::new(Vec::new()), arrived: RefCell::new(0) };
        script.mutex.lock();
        script
    }

    fn queue(&self) -> &L::Queue {
        &self.mutex.queue
    }

    /// One waiter for each NUMA node named joins the queue, all in one chain.
    pub(crate) fn arrive(&self, numa: &[u32]) {
        let chain: Vec<_> = numa.iter().map(|_| take_node::<Shuttle>()).collect();
        for (i, (handle, &numa)) in chain.iter().zip(numa).enumerate() {
            let node: &Node<Shuttle> = handle.node();
            node.prepare_on(numa, state::CLAIMED);
            node.next.store(chain.get(i + 1).map_or(0, |next| next.word()), Relaxed);
            let mut arrived = self.arrived.borrow_mut();
            self.waiters.borrow_mut().push(Waiter { id: *arrived, handle: *handle, gone: false });
            *arrived += 1;
        }
        let first = chain[0].node::<Shuttle>();
        first.state.store(claimed(first), Relaxed);
        let chain = Chain::new(chain[0], chain[chain.len() - 1]);
        self.mutex.adopt(chain);
        // The first waits like the others, and may give up.
        let _ = first.state.compare_exchange(claimed(first), state::PARKED, Relaxed, Relaxed);
    }

    /// Each NUMA node's waiter arrives alone: the links then say on which node each waiter is.
    pub(crate) fn arrive_singly(&self, numa: &[u32]) {
        numa.iter().for_each(|&numa| self.arrive(&[numa]));
    }

    fn handle(&self, id: Id) -> Handle {
        let waiters = self.waiters.borrow();
        waiters.iter().find(|waiter| waiter.id == id).expect("it waits").handle
    }

    fn id(&self, handle: Handle) -> Id {
        // The latest: a node may serve again once its former waiter is out of the queue.
        let waiters = self.waiters.borrow();
        waiters.iter().rev().find(|waiter| waiter.handle == handle).expect("a waiter that has arrived").id
    }

    /// A waiter's deadline passes.
    pub(crate) fn give_up(&self, id: Id) {
        let node: &Node<Shuttle> = self.handle(id).node();
        assert!(node.state.compare_exchange(state::PARKED, state::ABANDONED, Relaxed, Relaxed).is_ok());
        L::left(self.queue()).add();
        self.waiters.borrow_mut().iter_mut().filter(|waiter| waiter.id == id).for_each(|waiter| waiter.gone = true);
    }

    /// A waiter polls, and loses its CPU.
    pub(crate) fn lose_cpu(&self, id: Id) {
        self.handle(id).node::<Shuttle>().batch.store(node::PUBLISHES, Relaxed);
        self.lose_cpu_unseen(id);
        self.waiters.borrow_mut().iter_mut().filter(|waiter| waiter.id == id).for_each(|waiter| waiter.gone = true);
    }

    /// The same of a waiter that came before evictions were known, and does not publish when it ran.
    pub(crate) fn lose_cpu_unseen(&self, id: Id) {
        let node: &Node<Shuttle> = self.handle(id).node();
        node.since.store(Shuttle::micros().wrapping_sub(LONG_AGO), Relaxed);
        assert!(node.state.compare_exchange(state::PARKED, state::WAITING, Relaxed, Relaxed).is_ok());
    }

    /// The waiters that were passed over since the last time; their nodes are given back.
    pub(crate) fn evicted(&self) -> Vec<Id> {
        let is_evicted = |waiter: &Waiter| waiter.handle.node::<Shuttle>().state.load(Relaxed) == state::EVICTED;
        let (evicted, rest): (Vec<_>, Vec<_>) = self.waiters.take().into_iter().partition(is_evicted);
        self.waiters.replace(rest);
        evicted.iter().for_each(|waiter| Shuttle::give_node(waiter.handle));
        evicted.iter().map(|waiter| waiter.id).collect()
    }

    /// The holder, on this NUMA node, releases. Returns the waiter that has the lock now; none only if no thread waits.
    pub(crate) fn release(&self, numa: u32) -> Option<Id> {
        world().set_numa(numa);
        let waiting: Vec<_> = self.waiters.borrow().iter().copied().filter(|waiter| !waiter.gone).collect();

        self.mutex.unlock();

        let is_head = |waiter: &&Waiter| node::is_head(waiter.handle.node::<Shuttle>().state.load(Relaxed));
        let served: Vec<_> = waiting.iter().filter(is_head).collect();
        let somebody = !waiting.is_empty();
        assert_eq!(served.len(), usize::from(somebody), "work conservation: {} waited", waiting.len());
        assert_eq!(self.mutex.is_locked(), somebody, "work conservation: {} waited", waiting.len());
        let Waiter { id, handle, .. } = **served.first()?;
        self.waiters.borrow_mut().retain(|other| other.id != id);
        self.mutex.lock_adopted(handle);
        self.mutex.visit();
        self.forget_given_back();
        Some(id)
    }

    /// A thread that gave up and was taken out of the queue is no waiter any more.
    fn forget_given_back(&self) {
        let taken = world().arena.taken();
        self.waiters.borrow_mut().retain(|waiter| taken.contains(&waiter.handle));
    }

    /// The free lock is taken again.
    pub(crate) fn lock(&self) {
        self.forget_given_back();
        assert!(self.mutex.try_lock());
    }

    /// The process forks; the waiters do not exist in the child.
    pub(crate) fn fork(&self) {
        world().fork();
        self.waiters.borrow_mut().clear();
    }

    fn ids(&self, first: u32, last: Option<Handle>) -> Vec<Id> {
        let mut ids = Vec::new();
        let mut here = link_in(first);
        while let Some(link) = here {
            let node: &Node<Shuttle> = link.to().node();
            ids.push(self.id(link.to()));
            assert!(ids.len() <= 100, "a ring: {ids:?}");
            assert_eq!(link.numa::<Shuttle>(), node.numa.load(Relaxed), "the link says where its waiter is");
            here = if Some(link.to()) == last { None } else { link_in(node.next.load(Relaxed)) };
        }
        ids
    }

    /// Gives back those of the nodes that no thread in the child has found.
    pub(crate) fn lose(&self, nodes: Vec<Handle>) {
        let taken = world().arena.taken();
        nodes.into_iter().filter(|node| taken.contains(node)).for_each(|node| world().arena.give(node));
    }

    /// Serves all waiters, so that no node is left.
    pub(crate) fn drain(&self) {
        while self.release(0).is_some() {}
    }
}

impl Script<LifoCr<Park>> {
    /// The stack, the newest first.
    pub(crate) fn stack(&self) -> Vec<Id> {
        self.ids(self.queue().top.load(Relaxed), None)
    }
}

impl<S: Succession> Script<CullingLock<S, Park>> {
    fn holder(&self) -> Holder {
        // SAFETY: the only thread holds the lock, and looks at the nodes.
        unsafe { self.queue().holder() }
    }

    /// The main queue, first to last.
    pub(crate) fn main(&self) -> Vec<Id> {
        let kept = self.holder().node;
        let link = kept.map_or(&self.queue().front, |node| &node.node::<Shuttle>().next);
        let ids = self.ids(link.load(Relaxed), None);
        if let Some(last) = ids.last() {
            assert_eq!(self.handle(*last).word(), self.queue().tail.load(Relaxed), "the tail");
        }
        ids
    }

    /// The culled waiters, first to last.
    pub(crate) fn secondary(&self) -> Vec<Id> {
        let Some(last) = self.holder().secondary else { return Vec::new() };
        self.ids(last.node::<Shuttle>().next.load(Relaxed), Some(last))
    }
}
