//! A bench for policies: the production shuffler on a queue that a test describes, without other threads.
//!
//! The machine has no time, no CPUs and one thread; its NUMA nodes stand in a row.

extern crate std;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{self, Relaxed};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::vec::Vec;

use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Local, Machine, Patience, Tunables, Unparked, Word};
use crate::parts::policy::Admission;
use crate::parts::shuffle::ShflQueue;
use crate::parts::shuffle::shuffler::{is_shuffled, start_at_head, walk};
use crate::parts::side::{Block, Name};
use crate::parts::wait::left::LeftBehind;

/// A waiter as a test describes it. The first of a queue is the shuffler.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) numa: u32,
    /// What it would write into its node; [`Waiter::with_priority`] computes it.
    pub(crate) role: u32,
    pub(crate) asleep: bool,
}

impl Waiter {
    /// On that NUMA node.
    pub(crate) const fn on(numa: u32) -> Self {
        Self::of(numa, 0)
    }

    /// On that NUMA node, with that role.
    pub(crate) const fn of(numa: u32, role: u32) -> Self {
        Self { numa, role, asleep: false }
    }

    /// With that priority.
    pub(crate) fn with_priority(priority: i32) -> Self {
        PRIORITY.set(priority);
        Self::of(0, crate::parts::policy::HighestFirst::role::<Bench>())
    }
}

/// The order of the waiters after the head has walked once, by their places before.
pub(crate) fn shuffled<P: Admission>(queue: &[Waiter]) -> Vec<usize> {
    after::<P>(queue, state::HEAD).into_iter().map(|(place, _)| place).collect()
}

/// The same, if the shuffler is not the head.
pub(crate) fn shuffled_behind_the_front<P: Admission>(queue: &[Waiter]) -> Vec<usize> {
    after::<P>(queue, state::WAITING).into_iter().map(|(place, _)| place).collect()
}

/// The shuffler's group then, including the shuffler.
pub(crate) fn group_after<P: Admission>(queue: &[Waiter]) -> Vec<usize> {
    let after = after::<P>(queue, state::HEAD).into_iter();
    after.filter(|(_, node)| is_shuffled(node)).map(|(place, _)| place).collect()
}

/// The sleepers that it has woken.
pub(crate) fn awake_after<P: Admission>(queue: &[Waiter]) -> Vec<usize> {
    let after = after::<P>(queue, state::HEAD).into_iter();
    let woken = |&(place, node): &(usize, &Node<Bench>)| {
        place > 0 && queue[place].asleep && node.state.load(Relaxed) == state::WAITING
    };
    after.filter(woken).map(|(place, _)| place).collect()
}

/// Sets the chosen policy.
pub(crate) fn choose(policy: u32) {
    TUNABLES.set(Box::leak(Box::new(Tunables { policy, ..Tunables::DEFAULT })));
}

std::thread_local! {
    static NODES: RefCell<Vec<&'static Node<Bench>>> = const { RefCell::new(Vec::new()) };
    static TUNABLES: Cell<&'static Tunables> = const { Cell::new(&Tunables::DEFAULT) };
    static PRIORITY: Cell<i32> = const { Cell::new(0) };
}

fn after<P: Admission>(queue: &[Waiter], first: u32) -> Vec<(usize, &'static Node<Bench>)> {
    let handles: Vec<Handle> = queue.iter().map(|_| Bench::take_node()).collect();
    for (place, waiter) in queue.iter().enumerate() {
        let node = handles[place].node::<Bench>();
        node.prepare_on(waiter.numa, if waiter.asleep { state::PARKED } else { state::WAITING });
        node.role.store(waiter.role, Relaxed);
        node.next.store(handles.get(place + 1).map_or(0, |next| next.word()), Relaxed);
    }
    let lock = ShflQueue::<Bench>::new();
    lock.tail.store(handles[queue.len() - 1].word(), Relaxed);
    let shuffler = handles[0].node::<Bench>();
    shuffler.state.store(first, Relaxed);
    start_at_head(shuffler);
    walk::<Bench, P>(handles[0], &lock, || false);

    let (mut order, mut here) = (Vec::new(), Some(handles[0]));
    while let Some(handle) = here {
        let place = handles.iter().position(|known| *known == handle).expect("one of the queue");
        order.push((place, handle.node::<Bench>()));
        assert!(order.len() <= handles.len(), "the queue is a ring");
        here = Handle::from_word(handle.node::<Bench>().next.load(Relaxed));
    }
    assert_eq!(order.len(), handles.len(), "nobody is lost");
    assert_eq!(order.last().map(|(place, _)| handles[*place].word()), Some(lock.tail.load(Relaxed)), "the tail");
    order
}

/// The machine.
pub(crate) struct Bench;

/// Its word.
pub(crate) struct Plain(AtomicU32);

impl Word for Plain {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, ok, err)
    }
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }
    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_or(value, order)
    }
    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_and(value, order)
    }
}

impl Machine for Bench {
    type Word = Plain;

    fn node(handle: Handle) -> &'static Node<Self> {
        NODES.with_borrow(|nodes| nodes[handle.word() as usize - 2])
    }
    fn take_node() -> Handle {
        NODES.with_borrow_mut(|nodes| {
            nodes.push(Box::leak(Box::new(Node::new())));
            Handle::from_word(nodes.len() as u32 + 1).expect("neither 0 nor 1")
        })
    }
    fn any_node(look: impl FnMut(Handle) -> bool) -> bool {
        let nodes = NODES.with_borrow(Vec::len) as u32;
        (0..nodes).filter_map(|index| Handle::from_word(index + 2)).any(look)
    }
    fn light_fence() {}
    fn heavy_fence() {}
    fn distance(a: u32, b: u32) -> u32 {
        a.abs_diff(b)
    }
    fn priority() -> i32 {
        PRIORITY.get()
    }
    fn tunables() -> &'static Tunables {
        TUNABLES.get()
    }
    fn crowded() -> bool {
        false
    }
    fn wake(_: *const Plain, _: u32) -> u32 {
        1
    }
    fn epoch() -> u32 {
        1
    }
    fn numa_node() -> u32 {
        0
    }

    // No lock has a side block here.
    fn block(_: Name) -> &'static Block<Self> {
        unreachable!()
    }
    fn take_block() -> Name {
        unreachable!()
    }
    fn give_block(_: Name) {
        unreachable!()
    }

    // No thread waits here.
    fn give_node(_: Handle) {
        unreachable!()
    }
    fn spin_until(_: &Plain, _: Ordering, _: Patience, _: impl FnMut(u32) -> bool) -> Option<u32> {
        unreachable!()
    }
    fn relax(_: u32) {
        unreachable!()
    }
    fn pause(_: u32) {
        unreachable!()
    }
    fn park(_: &Plain, _: u32, _: Option<Deadline>) -> Unparked {
        unreachable!()
    }
    fn requeue(_: &Node<Self>, _: *const Plain) {
        unreachable!()
    }
    fn expired(_: &Deadline) -> bool {
        unreachable!()
    }
    fn sooner(_: u32, _: Option<Deadline>) -> Deadline {
        unreachable!()
    }
    fn micros() -> u32 {
        unreachable!()
    }
    fn random() -> u32 {
        unreachable!()
    }
    fn local(_: Local) -> u32 {
        unreachable!()
    }
    fn set_local(_: Local, _: u32) {
        unreachable!()
    }
    fn left_behind(_: *const Plain) -> &'static LeftBehind<Self> {
        Box::leak(Box::new(LeftBehind::new())) // No waiter leaves these queues.
    }
    fn drain_word(_: *const Plain) -> &'static Plain {
        unreachable!()
    }
}
