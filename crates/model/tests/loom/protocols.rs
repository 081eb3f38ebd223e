//! Protocol bugs, one at a time: each must be found.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::cond::Outcome;
use flashlock_locks::machine::node::{Node, SHUFFLER, state};
use flashlock_locks::machine::{Handle, Machine, Memory as _, Word as _};
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::shuffle::front::naming;
use flashlock_locks::parts::wait::Park;
use flashlock_model::arena::handle_in;
use flashlock_model::erased::erased;
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::{Fault, Field, Loom, Setup};

use crate::common::Racers::Three;
use crate::common::{ALL, HASTY, Mutex, last_frees, sections, sleepers, timed};
use crate::cond::Shared;
use crate::culling::{self, LEAVES, STAYS};
use crate::culling_mutants::*;
use crate::mutants::*;
use crate::{states, walks};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(6) };
const BOUND: Depth = Preemptions(3);

#[test]
fn futex() {
    find("release wakes nobody", BOUND, SETUP, sections::<MutantFutex<WakesNobody>>(&[1, 1]));
    find("who slept acquires with 1", BOUND, SETUP, sections::<MutantFutex<Forgets>>(&[1, 1, 1]));
    find("acquires by a store", BOUND, SETUP, sections::<MutantFutex<StoresItsTurn>>(&[1, 1]));
    find("release looks back", BOUND, SETUP, last_frees::<MutantFutex<LooksBack>>);
    let blind = Setup { fault: Some(Fault::ParkBlindly), ..SETUP };
    find("sleeps without a look at the word", BOUND, blind, sections::<Futex>(&[1, 1]));
}

/// Hand-offs that wake no thread, of the locks whose waiters sleep on nodes.
#[test]
fn lost_wake_ups() {
    use flashlock_locks::mutex::malthusian::{LifoCr, Mcscrn};
    use flashlock_locks::mutex::queue::{Clh, McsTp};

    let unheard = Setup { fault: Some(Fault::NoWake(Field::NodeState)), ..SETUP };
    find("clh: a release wakes nobody", BOUND, unheard, sections::<Clh<Park>>(&[1, 1]));
    find("mcs-tp: a release wakes nobody", BOUND, unheard, sections::<McsTp<Park>>(&[1, 1]));
    find("mcscrn: a release wakes nobody", BOUND, unheard, sections::<Mcscrn<Park>>(&[1, 1]));
    find("lifo-cr: a release wakes nobody", BOUND, unheard, sections::<LifoCr<Park>>(&[1, 1]));
}

#[test]
fn mcs() {
    explore("the mutants' skeleton", BOUND, SETUP, sections::<MutantMcs<SOUND>>(&[1, 1]));
    explore("the mutants' skeleton, timed", BOUND, SETUP, timed::<MutantMcs<SOUND>>());
    find("next cleared late", BOUND, SETUP, sections::<MutantMcs<CLEARS_LATE>>(&[1, 1, 1]));
    find("no wait for the link", BOUND, SETUP, sections::<MutantMcs<DOES_NOT_AWAIT>>(&[1, 1, 1]));
    find("abandons by a store", BOUND, SETUP, timed::<MutantMcs<ABANDONS_BY_STORE>>());
    find("hands over to the abandoned", BOUND, SETUP, timed::<MutantMcs<GRANTS_ABANDONED>>());
    find("lets the successor sleep", BOUND, SETUP, sections::<MutantMcs<LETS_SLEEP>>(&[1, 1]));
}

/// The first of the main queue and one culled wait, and the draw says that the culled ones come back.
fn both_lists<L: culling::TwoLists>() {
    let (mutex, mut asleep) = culling::with_culled::<L>(&[1]);
    let behind = sleepers(&[0]);
    crate::common::adopt(&mutex, &behind);
    asleep.extend(behind);
    let threads: Vec<_> = asleep.into_iter().map(|me| culling::comes_back(&mutex, me)).collect();
    mutex.unlock();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// Two culled come back.
fn two_culled<L: culling::TwoLists>() {
    let (mutex, asleep) = culling::with_culled::<L>(&[1, 1]);
    let threads: Vec<_> = asleep.into_iter().map(|me| culling::comes_back(&mutex, me)).collect();
    mutex.unlock();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn cna() {
    use flashlock_locks::mutex::numa::Cna;

    let (two, leaving) = (Preemptions(2), culling::choice_against_time_out::<MutantCulling<GRANTS_GONE>>);
    explore("the mutants' skeleton", two, STAYS, || culling::recall_against_joiner::<MutantCulling<KEEPS>>(Three));
    find("frees with culled waiters", two, STAYS, || culling::recall_against_joiner::<MutantCulling<FREES>>(Three));
    find("tail by an exchange", two, STAYS, || culling::recall_against_joiner::<MutantCulling<SWAPS_TAIL>>(Three));
    find("wakes nobody culled", two, STAYS, || culling::recall_against_joiner::<MutantCulling<WAKES_NONE>>(Three));
    find("hands over to who has gone", two, STAYS, move || leaving(true));
    find("note by a store", two, STAYS, || culling::recall_against_joiner::<MutantCulling<GIVES_BY_STORE>>(Three));
    find("note in a node given back", two, STAYS, || {
        culling::recall_against_joiner::<MutantCulling<KEEPS_NOTE>>(Three);
    });
    find("unlinked culled", two, STAYS, || {
        culling::choice_against_joiner::<MutantCulling<CULLS_UNLINKED>>(Three);
    });
    for secondary in [false, true] {
        find("front not cleared", two, STAYS, move || culling::contended_anew::<MutantCulling<KEEPS_FRONT>>(secondary));
    }
    explore("two culled", two, STAYS, two_culled::<Cna<Park>>);
    find("other culled ones forgotten", two, STAYS, two_culled::<Mutant<DropsTheRest>>);
    explore("both lists", two, LEAVES, both_lists::<Cna<Park>>);
}

#[test]
fn shfl_releases() {
    find("the moved are forgotten", BOUND, SETUP, sections::<MutantShfl<ForgetsTheMoved>>(&[1, 1, 1]));
    let lost = Setup { fault: Some(Fault::NoWake(Field::LockWord)), tunables: &HASTY, micros_step: 3, ..SETUP };
    find("a grant wakes nobody", BOUND, lost, states::grant_against_doze::<Shfl<Park>>);
}

/// The front as it must not be: a head that leaves and finds its successor unlinked gives up instead of leaving `LEFT`.
#[test]
fn shfl_leaves_without_left() {
    find("a thread that leaves does not say LEFT", ALL, SETUP, || {
        let mutex = Arc::new(Mutex::<Shfl<Park>>::new());
        let nodes = sleepers(&[0, 0]);
        let (head, joiner) = (nodes[0], nodes[1]);
        head.node::<Loom>().next.store(0, Relaxed);
        assert!(mutex.queue.join(head, head));
        mutex.queue.set_head(naming(head));
        let joins = {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.queue.join(joiner, joiner))
        };
        let node = head.node::<Loom>();
        mutex.queue.set_head(0);
        let notified = node.next.load(Acquire) != 0;
        if !notified {
            let _ = mutex.queue.tail.compare_exchange(head.word(), 0, AcqRel, Relaxed);
        }
        let first = joins.join().expect("no panic");
        Loom::give_node(head);
        Loom::give_node(joiner);
        assert!(notified != first, "the joiner waits to be notified, and no thread notifies it");
    });
}

/// A walk that moves a waiter without knowing that it has a successor: the tail, perhaps.
fn walk_to_the_end(me: Handle) {
    let node = me.node::<Loom>();
    let (mut last, mut before) = (me, me);
    while let Some(here) = handle_in(before.node::<Loom>().next.load(Acquire)) {
        let current: &Node<Loom> = here.node();
        let behind = current.next.load(Acquire);
        if node.numa.load(Relaxed) != current.numa.load(Relaxed) {
            before = here;
            continue;
        }
        if before == last {
            before = here;
        } else {
            before.node::<Loom>().next.store(behind, Release);
            current.next.store(last.node::<Loom>().next.load(Relaxed), Release);
            last.node::<Loom>().next.store(here.word(), Release);
        }
        last = here;
    }
}

#[test]
fn shuffler_moves_the_tail() {
    find("shuffler moves the tail", ALL, SETUP, || {
        let (mutex, mut nodes) = walks::queue(&[0, 1, 0]);
        let joiner = sleepers(&[1])[0];
        let joins = {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.queue.join(joiner, joiner))
        };
        walk_to_the_end(nodes[0]);
        joins.join().expect("no panic");
        nodes.push(joiner);
        walks::complete(&mutex, &nodes);
        walks::dissolve(&mutex);
    });
}

/// An eviction that does not take the shuffler's role first.
#[test]
fn evicts_a_head_that_walks() {
    find("evicts a walking head", ALL, SETUP, || {
        let (mutex, nodes) = walks::queue(&[0, 1, 0, 0, 1]);
        let head = nodes[0];
        let evicts = {
            let mutex = mutex.clone();
            thread::spawn(move || {
                assert!(mutex.queue.change_head(naming(head), 0));
                let next = handle_in(head.node::<Loom>().next.load(Acquire)).expect("a successor");
                mutex.queue.install(next, Some(&mutex.word));
                head.node::<Loom>().state.store(state::EVICTED, Release);
            })
        };
        walks::shuffle(&mutex, head);
        evicts.join().expect("no panic");
        walks::notified(&mutex);
        Loom::give_node(head);
        walks::complete(&mutex, &nodes[1..]);
        walks::dissolve(&mutex);
    });
}

/// Two have the role, and walk.
#[test]
fn two_shufflers() {
    find("two shufflers", ALL, SETUP, || {
        let (mutex, nodes) = walks::queue(&[0, 1, 0, 1, 0, 1]);
        let second = nodes[1];
        second.node::<Loom>().batch.store(SHUFFLER | 1, Relaxed);
        let other = {
            let mutex = mutex.clone();
            thread::spawn(move || walks::shuffle(&mutex, second))
        };
        walks::shuffle(&mutex, nodes[0]);
        other.join().expect("no panic");
        walks::complete(&mutex, &nodes);
        walks::dissolve(&mutex);
    });
}

/// The first waiter is notified before the others are moved: it may free the mutex.
pub(crate) struct TellsFirst;
impl FutexBug for TellsFirst {
    fn adopt<M: Machine>(word: &M::Word, chain: Chain) {
        let first = chain.first().node::<M>();
        chain.park_followers::<M>(|_| ());
        first.state.store(state::PARKED, Release);
        M::unpark(first);
        M::unpark(chain.last().node::<M>());
        let _ = word.compare_exchange(1, 2, Relaxed, Relaxed);
    }
}

#[test]
fn adoption() {
    let moved = Preemptions(2);
    find("the moved are forgotten", moved, SETUP, crate::cond::moved_from_outside::<MutantFutex<MovedForgets>>);
    find("tells before it moves", moved, SETUP, crate::cond::moved_from_outside::<MutantFutex<TellsFirst>>);
}

#[test]
fn cond() {
    find("unlocks before it queues", BOUND, SETUP, || {
        let shared = Shared::new(erased::<Loomed, Futex>);
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.mutex.lock();
                while shared.flag.load(Relaxed) == 0 {
                    shared.mutex.unlock();
                    let me = shared.cond.enqueue(shared.mutex.address());
                    flashlock_model::harness::finish(shared.cond.queue.wait(me, None), &shared.mutex);
                }
                shared.mutex.unlock();
            })
        };
        shared.set_flag();
        shared.cond.signal();
        waiter.join().expect("no panic");
    });
    find("a cancelled waiter keeps the signal", Preemptions(2), SETUP, || {
        crate::cond::one_signal_for_two::<Futex>(|shared, me| {
            if shared.cond.queue.withdraw(me) { Outcome::TimedOut } else { shared.cond.queue.wait(me, None) }
        });
    });
    find("the baton is dropped", Preemptions(2), SETUP, || {
        let shared = Shared::new(erased::<Loomed, Futex>);
        shared.mutex.lock();
        let waiters = [(); 2].map(|()| shared.cond.enqueue(shared.mutex.address()));
        shared.mutex.unlock();
        let threads = waiters.map(|me| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.cond.queue.wait(me, None);
                shared.mutex.section();
            })
        });
        shared.cond.broadcast(&shared.mutex, false);
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
    find("destroy does not wait", BOUND, SETUP, || {
        let shared = Shared::new(erased::<Loomed, Futex>);
        shared.mutex.lock();
        let me = shared.cond.enqueue(shared.mutex.address());
        shared.mutex.unlock();
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.cond.queue.wait(me, None);
            })
        };
        shared.cond.signal();
        shared.cond.free();
        waiter.join().expect("no panic");
    });
}
