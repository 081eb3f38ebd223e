//! A machine for unit tests: it has no time, no CPUs and one thread; its NUMA nodes stand in a row.

extern crate std;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::vec::Vec;

use crate::machine::block::{Block, Name};
use crate::machine::node::Node;
use crate::machine::{
    Beside, Deadline, Handle, Listen, Local, Machine, Memory, Patience, Time, Topology, Tunables, Unparked, Waiting,
    Word,
};

/// Sets the chosen policy.
pub(crate) fn choose(policy: u32) {
    TUNABLES.set(Box::leak(Box::new(Tunables { policy, ..Tunables::DEFAULT })));
}

/// Sets how much the thread is preferred.
pub(crate) fn prefer(priority: i32) {
    PRIORITY.set(priority);
}

std::thread_local! {
    static NODES: RefCell<Vec<&'static Node<Bench>>> = const { RefCell::new(Vec::new()) };
    static TUNABLES: Cell<&'static Tunables> = const { Cell::new(&Tunables::DEFAULT) };
    static PRIORITY: Cell<i32> = const { Cell::new(0) };
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

impl Memory for Bench {
    type Word = Plain;

    fn node(handle: Handle) -> &'static Node<Self> {
        NODES.with_borrow(|nodes| nodes[handle.word() as usize - 2])
    }

    fn take_node() -> Handle {
        NODES.with_borrow_mut(|nodes| {
            // SAFETY: it joins the pool.
            nodes.push(Box::leak(Box::new(unsafe { Node::new() })));
            Handle::from_word(nodes.len() as u32 + 1).expect("neither 0 nor 1")
        })
    }

    fn any_node(look: impl FnMut(Handle) -> bool) -> bool {
        let nodes = NODES.with_borrow(Vec::len) as u32;
        (0..nodes).filter_map(|index| Handle::from_word(index + 2)).any(look)
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

    fn local(_: Local) -> u32 {
        unreachable!()
    }

    fn set_local(_: Local, _: u32) {
        unreachable!()
    }

    fn beside(which: Beside, _: *const Plain) -> &'static Plain {
        assert_eq!(which, Beside::LeftBehind);
        Box::leak(Box::new(Plain::new(0))) // No waiter leaves these queues.
    }
}

impl Time for Bench {
    fn expired(_: &Deadline) -> bool {
        unreachable!()
    }

    fn sooner(_: u32, _: Option<Deadline>) -> Deadline {
        unreachable!()
    }

    fn micros() -> u32 {
        unreachable!()
    }
}

impl Waiting for Bench {
    fn wake(_: *const Plain, _: u32) -> u32 {
        1
    }

    fn spin_until(_: &Plain, _: Ordering, _: Patience, _: impl FnMut(u32) -> bool) -> Option<u32> {
        unreachable!()
    }

    fn relax(_: u32) {
        unreachable!()
    }

    fn park(_: &Plain, _: u32, _: Option<Deadline>) -> Unparked {
        unreachable!()
    }

    fn requeue(_: &Node<Self>, _: *const Plain) {
        unreachable!()
    }
}

impl Topology for Bench {
    fn distance(a: u32, b: u32) -> u32 {
        a.abs_diff(b)
    }
}

impl Listen for Bench {}

// SAFETY: std's atomics; nodes are numbered once; no thread polls.
unsafe impl Machine for Bench {
    fn priority() -> i32 {
        PRIORITY.get()
    }

    fn tunables() -> &'static Tunables {
        TUNABLES.get()
    }

    fn random() -> u32 {
        unreachable!()
    }
}
