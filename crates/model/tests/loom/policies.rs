//! A policy that chooses, against every thread that may be at the queue at the same time: whichever waiter it chooses,
//! none is lost.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::state;
use flashlock_locks::machine::{Handle, Memory as _, Word as _};
use flashlock_locks::parts::policy::HighestFirst;
use flashlock_locks::parts::shuffle::shuffler::walk;
use flashlock_model::loom::thread;
use flashlock_model::loom::{explore, find};
use flashlock_model::{Loom, Setup};

use crate::common::{ALL, sleepers, world};
use crate::walks::{Queue, complete, dissolve, gives_up, notified, order, queue};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(7) };

/// What the waiters' roles are: the least is chosen.
fn with_roles(nodes: &[Handle], roles: &[u32]) {
    nodes.iter().zip(roles).for_each(|(node, role)| node.node::<Loom>().role.store(*role, Relaxed));
}

fn choose(mutex: &Queue, me: Handle) {
    walk::<Loom, HighestFirst>(me, &mutex.queue, || false);
}

/// The tail is the best; it may have a successor by the time when it is moved, and then another one.
fn tail_chosen(joiners: usize) {
    let (mutex, mut nodes) = queue(&[0, 0, 0]);
    with_roles(&nodes, &[5, 5, 1]);
    let joining: Vec<_> = (0..joiners)
        .map(|_| {
            let joiner = sleepers(&[0])[0];
            with_roles(&[joiner], &[5]);
            nodes.push(joiner);
            let mutex = mutex.clone();
            thread::spawn(move || assert!(!mutex.queue.join(joiner, joiner)))
        })
        .collect();
    choose(&mutex, nodes[0]);
    for joined in joining {
        joined.join().expect("no panic");
    }
    complete(&mutex, &nodes);
    assert_eq!(order(&mutex)[..2], [nodes[0], nodes[2]]);
    dissolve(&mutex);
}

#[test]
fn the_tail_is_chosen() {
    explore("choose the tail", ALL, SETUP, || tail_chosen(0)).shows(&[Event::Shuffle]);
    explore("choose the tail, join", ALL, SETUP, || tail_chosen(1)).shows(&[Event::Shuffle]);
    explore("choose the tail, two join", flashlock_model::loom::Depth::Preemptions(3), SETUP, || tail_chosen(2));
}

/// A joiner is not lost, whether or not the choice sees it.
#[test]
fn against_a_joiner() {
    let totals = explore("choose, join", ALL, SETUP, || {
        let (mutex, mut nodes) = queue(&[0; 4]);
        with_roles(&nodes, &[5, 5, 1, 5]);
        let joiner = sleepers(&[0])[0];
        with_roles(&[joiner], &[0]);
        let joins = {
            let mutex = mutex.clone();
            thread::spawn(move || assert!(!mutex.queue.join(joiner, joiner)))
        };
        choose(&mutex, nodes[0]);
        joins.join().expect("no panic");
        nodes.push(joiner);
        complete(&mutex, &nodes);
        let next = order(&mutex)[1];
        assert!(next == nodes[2] || next == joiner, "{next:?}");
        dissolve(&mutex);
    });
    totals.shows(&[Event::Shuffle, Event::WakeAhead]);
}

/// A waiter gives up: the chosen one, the one before it, or the one behind it.
#[test]
fn against_a_waiter_that_gives_up() {
    for fickle in 1..4 {
        explore("choose, abandon", ALL, SETUP, move || {
            let (mutex, nodes) = queue(&[0; 5]);
            with_roles(&nodes, &[5, 5, 1, 5, 5]);
            let gives_up = gives_up(&mutex, nodes[fickle]);
            choose(&mutex, nodes[0]);
            gives_up.join().expect("no panic");
            let stayed = world().arena.taken().contains(&nodes[fickle]);
            let expected: Vec<_> = nodes.iter().copied().filter(|node| stayed || *node != nodes[fickle]).collect();
            complete(&mutex, &expected);
            dissolve(&mutex);
        });
    }
}

/// A holder throws the head out, thinking that it does not run; but it chooses, the tail or another.
#[test]
fn against_an_eviction() {
    for roles in [[5, 5, 1, 5], [5, 5, 5, 1]] {
        explore("choose, evict", ALL, SETUP, move || {
            let (mutex, nodes) = queue(&[0; 4]);
            with_roles(&nodes, &roles);
            let head = nodes[0];
            let evicts = {
                let mutex = mutex.clone();
                thread::spawn(move || mutex.queue.evict(head, Some(&mutex.word)))
            };
            choose(&mutex, head);
            evicts.join().expect("no panic");
            if head.node::<Loom>().state.load(Relaxed) == state::EVICTED {
                notified(&mutex);
                Loom::give_node(head);
                complete(&mutex, &nodes[1..]);
            } else {
                complete(&mutex, &nodes);
            }
            dissolve(&mutex);
        });
    }
}

/// Three threads are in the queue; the last is put behind the head in a wrong way, while another thread joins.
fn broken(name: &str, mover: fn(&Queue, &[Handle])) {
    find(name, ALL, SETUP, move || {
        let (mutex, mut nodes) = queue(&[0, 0, 0]);
        let joiner = sleepers(&[0])[0];
        let joins = {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.queue.join(joiner, joiner))
        };
        mover(&mutex, &nodes);
        joins.join().expect("no panic");
        nodes.push(joiner);
        complete(&mutex, &nodes);
        dissolve(&mutex);
    });
}

/// Moving the tail as the shuffler moves others, though a joiner is about to write its link.
#[test]
fn a_tail_that_is_moved_as_others_are() {
    broken("moves the chosen tail", |_, nodes| {
        let [head, before, tail] = [0, 1, 2].map(|place| nodes[place].node::<Loom>());
        before.next.store(tail.next.load(Relaxed), Release);
        tail.next.store(nodes[1].word(), Release);
        head.next.store(nodes[2].word(), Release);
    });
}

/// The waiters that the chosen tail passes join anew, without a look at which node is the tail by then.
#[test]
fn those_who_are_passed_join_behind_the_chosen() {
    broken("puts them behind the chosen", |mutex, nodes| {
        let [head, before, tail] = [0, 1, 2].map(|place| nodes[place].node::<Loom>());
        head.next.store(nodes[2].word(), Release);
        before.next.store(0, Relaxed);
        mutex.queue.tail.swap(nodes[1].word(), AcqRel);
        tail.next.swap(nodes[1].word(), AcqRel);
    });
}
