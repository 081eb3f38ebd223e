//! The four rules of shuffling (slide 57), asserted at every step of every walk.

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::{Node, SHUFFLER, state};
use flashlock_locks::machine::{Handle, Machine};
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::parts::policy::chosen::NAMES;
use flashlock_locks::parts::policy::{Admission, Chosen, Place, Waiter};
use flashlock_locks::parts::wait::{Spin, SpinThenPark};
use flashlock_model::arena::handle_in;
use flashlock_model::shuttle::{By, explore};
use flashlock_model::{Setup, Shuttle};

use crate::common::{FLOWING, Load, OVERDUE, STILL, any, rounds, world};

/// Groups as the chosen policy does, and checks the rules.
struct ByTheRules;

/// The model's nodes that wait in the queue, one lock being all there is.
fn waiting() -> Vec<&'static Node<Shuttle>> {
    let nodes = world().arena.taken().into_iter().map(Handle::node::<Shuttle>);
    let in_queue = [state::WAITING, state::PARKED, state::HEAD, state::NAPPING];
    nodes.filter(|node| in_queue.contains(&node.state.peek())).collect()
}

impl Admission for ByTheRules {
    fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
        let answer = Chosen::place(shuffler, waiter);
        // SAFETY: they are only looked at.
        let (shuffler, waiter) = unsafe { (shuffler.node(), waiter.node()) };
        let is = |node: &Node<Shuttle>, other: &Node<M>| {
            std::ptr::from_ref(node).cast::<()>() == std::ptr::from_ref(other).cast()
        };

        // Rules 1 and 4: the shuffler has the role, and no other waiter has.
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
            let next = handle_in(here.next.peek());
            here = next.expect("the waiter is behind the shuffler").node();
        }
        answer
    }

    /// Two kinds of threads, whatever the policy tells them apart by.
    fn role<M: Machine>() -> u32 {
        Chosen::role::<M>().wrapping_add(any(2))
    }

    fn walks<M: Machine>(at_front: bool) -> bool {
        Chosen::walks::<M>(at_front)
    }

    fn finishes<M: Machine>() -> bool {
        Chosen::finishes::<M>()
    }

    fn wakes<M: Machine>(shuffler: Waiter<'_, M>, tuned: u32) -> u32 {
        Chosen::wakes(shuffler, tuned)
    }
}

/// Polls enough for a walk.
const POLLS: u32 = 40;

fn shuffles<L: crate::common::Lock>(name: &str, setup: Setup, timed: bool, shows: &[Event]) {
    shuffles_for::<L>(name, 1000, setup, timed, shows);
}

fn shuffles_for<L: crate::common::Lock>(name: &str, schedules: usize, setup: Setup, timed: bool, shows: &[Event]) {
    let setup = Setup { polls: POLLS, ..setup };
    for nodes in [2, 3] {
        let load = Load { threads: 5, rounds: 2, nodes, timed, hold: 90 };
        explore(name, By::Random, schedules, setup, rounds::<L>(load)).shows(shows);
        explore(name, By::Pct(4), schedules, setup, rounds::<L>(load));
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

/// Every policy that can be chosen: all but the default, which the others run through, with groups that are soon over.
#[test]
fn by_each_policy() {
    for (policy, name) in (0..).zip(NAMES).skip(1) {
        let tunables = Box::leak(Box::new(Tunables { policy, max_shuffles: 4, ..Tunables::DEFAULT }));
        let still = Setup { tunables, ..STILL };
        let shows: &[Event] = if matches!(*name, "ahead" | "none") { &[] } else { &[Event::Shuffle] };
        shuffles_for::<Shfl<SpinThenPark, ByTheRules>>(&format!("stp, {name}"), 400, still, false, shows);
        shuffles_for::<ShflSpin<ByTheRules>>(&format!("spin, {name}"), 400, still, false, &[]);
        let fast = Setup { micros_step: 4000, tunables, ..FLOWING };
        shuffles_for::<Shfl<SpinThenPark, ByTheRules>>(&format!("stp fast, {name}"), 400, fast, true, &[]);
        shuffles_for::<ShflSpin<ByTheRules>>(&format!("spin fast, {name}"), 400, fast, true, &[Event::TimedOut]);
    }
}
