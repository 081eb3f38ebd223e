//! A bench for policies: the production shuffler on a queue that a test describes, without other threads.

extern crate std;

use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use crate::machine::bench::{Bench, prefer, stop_clock};
use crate::machine::node::{Node, state};
use crate::machine::{Handle, Memory as _, Word};
use crate::parts::policy::{Admission, HighestFirst};
use crate::parts::shuffle::ShflQueue;
use crate::parts::shuffle::batch::{is_shuffled, start_at_head};
use crate::parts::shuffle::shuffler::walk;
use crate::parts::zeroed::Zeroed as _;

/// A waiter as a test describes it. The first of a queue is the shuffler.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) numa: u32,
    /// What it would write into its node; [`Waiter::with_priority`] computes it.
    pub(crate) role: u32,
    pub(crate) asleep: bool,
    /// How long (µs) it has queued.
    pub(crate) waited: u32,
}

impl Waiter {
    /// On that NUMA node.
    pub(crate) const fn on(numa: u32) -> Self {
        Self::of(numa, 0)
    }

    /// On that NUMA node, with that role.
    pub(crate) const fn of(numa: u32, role: u32) -> Self {
        Self { numa, role, asleep: false, waited: 0 }
    }

    /// With that priority.
    pub(crate) fn with_priority(priority: i32) -> Self {
        prefer(priority);
        Self::of(0, HighestFirst::role::<Bench>())
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

fn take() -> Handle {
    // SAFETY: the queue is this thread's, and no node is given back.
    unsafe { Bench::take_node() }
}

fn after<P: Admission>(queue: &[Waiter], first: u32) -> Vec<(usize, &'static Node<Bench>)> {
    const NOW: u32 = 10_000_000;
    stop_clock(NOW);
    let handles: Vec<Handle> = queue.iter().map(|_| take()).collect();
    for (place, waiter) in queue.iter().enumerate() {
        let node = handles[place].node::<Bench>();
        node.prepare_on(waiter.numa, if waiter.asleep { state::PARKED } else { state::WAITING });
        node.role.store(waiter.role, Relaxed);
        node.queued_at.store(NOW - waiter.waited, Relaxed);
        node.next.store(handles.get(place + 1).map_or(0, |next| next.word()), Relaxed);
    }
    let lock = ShflQueue::<Bench>::zeroed();
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
