//! The shuffler's walk, against every thread that may be at the queue at the same time. It takes at least three nodes:
//! queues are built by hand.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Handle, Memory as _, Word as _};
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::parts::policy::SameNumaNode;
use flashlock_locks::parts::shuffle::batch::{has_role, start_at_head};
use flashlock_locks::parts::shuffle::front::naming;
use flashlock_locks::parts::shuffle::shuffler::walk;
use flashlock_locks::parts::wait::Park;
use flashlock_model::arena::{handle_in, named};
use flashlock_model::loom::explore;
use flashlock_model::loom::thread;
use flashlock_model::{Loom, Setup};

use crate::common::{ALL, Mutex, adopt, sleepers, world};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(7) };

/// A ShflLock whose waiters sleep.
pub(crate) type Queue = Mutex<Shfl<Park>>;

/// A held lock with a queue of sleepers, one for each NUMA node named; the first is head and shuffler.
pub(crate) fn queue(numa: &[u32]) -> (Arc<Queue>, Vec<Handle>) {
    let mutex = Arc::new(Queue::new());
    mutex.lock();
    let nodes = sleepers(numa);
    adopt(&mutex, &nodes);
    start_at_head(nodes[0].node::<Loom>());
    (mutex, nodes)
}

/// Two of the head's node that are not next to it, and two of another.
const MIXED: &[u32] = &[0, 1, 0, 0, 1];

/// One walk.
pub(crate) fn shuffle(mutex: &Queue, me: Handle) {
    shuffle_until(mutex, me, || false);
}

fn shuffle_until(mutex: &Queue, me: Handle, stop: impl FnMut() -> bool) {
    walk::<Loom, SameNumaNode>(me, &mutex.queue, stop);
}

/// The release tells the head that was installed by a holder.
pub(crate) fn notified(mutex: &Queue) {
    let head = named(mutex.queue.head.load(Relaxed)).expect("a head");
    mutex.queue.set_head(naming(head));
}

/// The nodes from the head on, in the order of their links.
pub(crate) fn order(mutex: &Queue) -> Vec<Handle> {
    let mut order = Vec::new();
    let mut here = named(mutex.queue.head.load(Relaxed));
    while let Some(handle) = here {
        order.push(handle);
        assert!(order.len() <= 6, "the queue is a ring: {order:?}");
        here = handle_in(handle.node::<Loom>().next.load(Relaxed));
    }
    order
}

/// Each waiter is in the queue once, and the tail is the last.
pub(crate) fn complete(mutex: &Queue, expected: &[Handle]) {
    let found = order(mutex);
    assert_eq!(found.last().map(|last| last.word()), Some(mutex.queue.tail.load(Relaxed)), "the tail");
    for handle in expected {
        assert_eq!(found.iter().filter(|other| *other == handle).count(), 1, "{handle:?} in {found:?}");
    }
    assert_eq!(found.len(), expected.len());
}

/// Takes the queue apart from the head on.
pub(crate) fn dissolve(mutex: &Queue) {
    while let Some(head) = named(mutex.queue.head.load(Relaxed)) {
        mutex.queue.pass(head, None);
    }
    assert_eq!(mutex.queue.tail.load(Relaxed), 0);
    assert_eq!(mutex.queue.left().0.load(Relaxed), 0, "abandoned nodes");
    mutex.unlock();
}

#[test]
fn against_a_joiner() {
    let totals = explore("walk, join", ALL, SETUP, || {
        let (mutex, mut nodes) = queue(MIXED);
        let joiner = sleepers(&[0])[0];
        let joins = {
            let mutex = mutex.clone();
            thread::spawn(move || assert!(!mutex.queue.join(joiner, joiner)))
        };
        shuffle(&mutex, nodes[0]);
        joins.join().expect("no panic");
        nodes.push(joiner);
        complete(&mutex, &nodes);
        assert_eq!(order(&mutex)[..4], [nodes[0], nodes[2], nodes[3], nodes[1]]);
        dissolve(&mutex);
    });
    totals.shows(&[Event::Shuffle, Event::WakeAhead]);
}

/// A waiter of the queue that gives up, and leaves its node behind.
pub(crate) fn gives_up(mutex: &Arc<Queue>, fickle: Handle) -> thread::JoinHandle<()> {
    let mutex = mutex.clone();
    thread::spawn(move || {
        mutex.queue.left().add();
        let state = &fickle.node::<Loom>().state;
        let gone = [state::PARKED, state::WAITING]
            .into_iter()
            .any(|seen| state.compare_exchange(seen, state::ABANDONED, AcqRel, Relaxed).is_ok());
        assert!(gone, "nobody else changes it but to WAITING");
    })
}

#[test]
fn against_a_waiter_that_gives_up() {
    explore("walk, abandon", ALL, SETUP, || {
        let (mutex, nodes) = queue(MIXED);
        let fickle = nodes[2];
        let gives_up = gives_up(&mutex, fickle);
        shuffle(&mutex, nodes[0]);
        gives_up.join().expect("no panic");
        // It stays behind, or the shuffler has come across it.
        let stayed = world().arena.taken().contains(&fickle);
        let expected: Vec<_> = nodes.into_iter().filter(|node| stayed || *node != fickle).collect();
        assert_eq!(mutex.queue.left().0.load(Relaxed), u32::from(stayed));
        complete(&mutex, &expected);
        dissolve(&mutex);
    });
}

#[test]
fn against_a_waiter_that_falls_asleep() {
    explore("walk, wake ahead", ALL, SETUP, || {
        let (mutex, nodes) = queue(MIXED);
        let awake = nodes[2];
        awake.node::<Loom>().state.store(state::WAITING, Relaxed);
        let sleeps = thread::spawn(move || {
            let node = awake.node::<Loom>();
            let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
            // Woken ahead of its turn, or left asleep: then it is not woken for nothing.
            node.state.load(Relaxed)
        });
        shuffle(&mutex, nodes[0]);
        sleeps.join().expect("no panic");
        complete(&mutex, &nodes);
        dissolve(&mutex);
    });
}

/// The role has been passed to the second; the head leaves and makes it head, while it walks.
#[test]
fn against_the_head_that_leaves() {
    explore("walk, pass", ALL, SETUP, || {
        let (mutex, nodes) = queue(MIXED);
        let (head, second) = (nodes[0], nodes[1]);
        for handle in [head, second] {
            handle.node::<Loom>().batch.store(1, Relaxed);
        }
        second.node::<Loom>().batch.store(flashlock_locks::machine::node::SHUFFLER | 2, Relaxed);
        second.node::<Loom>().numa.store(0, Relaxed);
        nodes[2].node::<Loom>().numa.store(1, Relaxed);
        let leaves = {
            let mutex = mutex.clone();
            thread::spawn(move || {
                mutex.queue.pass(head, None);
            })
        };
        shuffle_until(&mutex, second, || second.node::<Loom>().state.load(Relaxed) == state::HEAD);
        leaves.join().expect("no panic");
        complete(&mutex, &nodes[1..]);
        dissolve(&mutex);
    });
}

/// A holder throws the head out, thinking that it does not run; but it walks.
#[test]
fn against_an_eviction() {
    explore("walk, evict", ALL, SETUP, || {
        let (mutex, nodes) = queue(MIXED);
        let head = nodes[0];
        let evicts = {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.queue.evict(head, Some(&mutex.word)))
        };
        shuffle(&mutex, head);
        evicts.join().expect("no panic");
        let evicted = head.node::<Loom>().state.load(Relaxed) == state::EVICTED;
        if evicted {
            notified(&mutex);
            Loom::give_node(head);
            complete(&mutex, &nodes[1..]);
        } else {
            complete(&mutex, &nodes);
        }
        dissolve(&mutex);
    });
}

/// A holder throws the head out when it has walked, or so it seems, and then lets the next one leave, which waits
/// elsewhere: there, nobody gives it a role.
#[test]
fn against_an_eviction_as_the_role_is_handed_over() {
    explore("walk, evict, leave", ALL, SETUP, || {
        let (mutex, nodes) = queue(&[0, 1, 0, 1]);
        let (head, second) = (nodes[0], nodes[2]);
        let takes_away = {
            let mutex = mutex.clone();
            thread::spawn(move || {
                mutex.queue.evict(head, Some(&mutex.word));
                let evicted = head.node::<Loom>().state.load(Acquire) == state::EVICTED;
                let next = second.node::<Loom>();
                let leaves = evicted && matches!(next.state.load(Acquire), state::HEAD | state::NAPPING);
                if leaves {
                    notified(&mutex);
                    mutex.queue.pass(second, None);
                    next.batch.store(0, Relaxed);
                }
                (evicted, leaves)
            })
        };
        shuffle(&mutex, head);
        let (evicted, left) = takes_away.join().expect("no panic");
        if left {
            assert!(!has_role(second.node::<Loom>()), "it has a role in a queue that it has left");
        } else if evicted {
            notified(&mutex);
        }
        let gone = |node: &Handle| evicted && *node == head || left && *node == second;
        complete(&mutex, &nodes.into_iter().filter(|node| !gone(node)).collect::<Vec<_>>());
        if evicted {
            Loom::give_node(head);
        }
        dissolve(&mutex);
    });
}

/// The role goes to the second of the group, which has just been moved there and walks on as soon as it has it.
pub(crate) fn hand_over() {
    let (mutex, nodes) = queue(&[0, 1, 0, 1, 0, 1]);
    let second = nodes[2];
    let other = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            if has_role(second.node::<Loom>()) {
                shuffle(&mutex, second);
            }
        })
    };
    let group_of_two = || second.node::<Loom>().batch.load(Relaxed) != 0;
    shuffle_until(&mutex, nodes[0], group_of_two);
    other.join().expect("no panic");
    complete(&mutex, &nodes);
    dissolve(&mutex);
}

#[test]
fn the_role_is_handed_over() {
    explore("walk, hand the role over", ALL, SETUP, hand_over).shows(&[Event::Shuffle]);
}
