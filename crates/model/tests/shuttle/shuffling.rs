//! The four rules of shuffling (slide 57), asserted at every step of every walk.

use flashlock_locks::event::Event;
use flashlock_locks::machine::{Handle, Machine};
use flashlock_locks::node::{Node, SHUFFLER, state};
use flashlock_locks::policy::{Admission, SameNumaNode};
use flashlock_locks::shuffle::Shfl;
use flashlock_locks::wait::{Spin, SpinThenPark};
use flashlock_model::shuttle::{By, explore};
use flashlock_model::{Setup, Shuttle};

use crate::common::{FLOWING, Load, OVERDUE, STILL, rounds, world};

/// Groups as [`SameNumaNode`] does, and checks the rules.
struct ByTheRules;

/// The model's nodes that wait in the queue, one lock being all there is.
fn waiting() -> Vec<&'static Node<Shuttle>> {
    let nodes = world().arena.taken().into_iter().map(Handle::node::<Shuttle>);
    let in_queue = [state::WAITING, state::PARKED, state::HEAD, state::NAPPING];
    nodes.filter(|node| in_queue.contains(&node.state.peek())).collect()
}

impl Admission for ByTheRules {
    fn together<M: Machine>(shuffler: &Node<M>, waiter: &Node<M>) -> bool {
        let answer = SameNumaNode::together(shuffler, waiter);
        let is = |node: &Node<Shuttle>, other: &Node<M>| {
            std::ptr::from_ref(node).cast::<()>() == std::ptr::from_ref(other).cast()
        };

        // Rules 1 and 4: who shuffles has the role, and nobody else has.
        let roles: Vec<_> = waiting().into_iter().filter(|node| node.batch.peek() & SHUFFLER != 0).collect();
        let nodes = || {
            roles.iter().map(|node| [&node.state, &node.next, &node.batch].map(|word| word.peek())).collect::<Vec<_>>()
        };
        assert!(roles.len() == 1 && is(roles[0], shuffler), "shufflers: state, next, batch {:x?}", nodes());

        // Rule 2: the first shuffler of a group is the head.
        if roles[0].batch.peek() & !SHUFFLER == 1 {
            assert_eq!(roles[0].state.peek(), state::HEAD, "a group was begun elsewhere than at the head");
        }

        // Rule 3: what it moves is behind it.
        let mut here = roles[0];
        while !is(here, waiter) {
            let next = Handle::from_word(here.next.peek());
            here = next.expect("the waiter is behind the shuffler").node();
        }
        answer
    }
}

/// Polls enough for a walk.
const POLLS: u32 = 40;

fn shuffles<L: crate::common::Lock>(name: &str, setup: Setup, timed: bool, shows: &[Event]) {
    let setup = Setup { polls: POLLS, ..setup };
    for nodes in [2, 3] {
        let load = Load { threads: 5, rounds: 2, nodes, timed, hold: 90 };
        explore(name, By::Random, 1000, setup, rounds::<L>(load)).shows(shows);
        explore(name, By::Pct(4), 1000, setup, rounds::<L>(load));
    }
}

#[test]
fn spinning() {
    shuffles::<Shfl<Spin, ByTheRules>>("shuffle spin", STILL, false, &[Event::Shuffle]);
}

#[test]
fn spinning_then_parking() {
    let shows = [Event::Shuffle, Event::WakeAhead];
    shuffles::<Shfl<SpinThenPark, ByTheRules>>("shuffle stp", STILL, false, &shows);
    shuffles::<Shfl<SpinThenPark, ByTheRules>>("shuffle stp overdue", OVERDUE, false, &[Event::Grant]);
}

#[test]
fn with_time_outs() {
    let shows = [Event::Shuffle, Event::TimedOut];
    shuffles::<Shfl<SpinThenPark, ByTheRules>>("shuffle stp flowing", FLOWING, true, &shows);
    let fast = Setup { micros_step: 4000, ..FLOWING };
    shuffles::<Shfl<SpinThenPark, ByTheRules>>("shuffle stp fast", fast, true, &[Event::TimedOut]);
    shuffles::<Shfl<Spin, ByTheRules>>("shuffle spin fast", fast, true, &[Event::TimedOut]);
}
