//! Queues built by hand, watched from outside.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use flashlock_locks::machine::Word as _;
use flashlock_locks::machine::node::state;
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::shuffle::front::naming;
use flashlock_locks::parts::wait::Park;
use flashlock_model::Shuttle;
use flashlock_model::arena::{named, take_node};
use flashlock_model::shuttle::thread;

use crate::common::{Mutex, SCHEDULES, STILL, both, world};

/// While another holds the lock, the head times out, its successor gives up, and a third is made head. A releaser that
/// looked at `head` meanwhile would act on the node named there: it must not be one that was given back, and may be the
/// head of another lock by now.
fn head_names_no_free_node() {
    type Lock = Shfl<Park>;
    let mutex = Arc::new(Mutex::<Lock>::new());
    mutex.lock();
    let nodes = [(); 3].map(|()| take_node::<Shuttle>());
    for (i, handle) in nodes.iter().enumerate() {
        let node = handle.node::<Shuttle>();
        node.prepare(state::CLAIMED);
        node.next.store(nodes.get(i + 1).map_or(0, |next| next.word()), Relaxed);
    }
    // SAFETY: the callers' promise.
    unsafe { <Lock as RawLock<Shuttle>>::adopt(&mutex.word, &mutex.queue, Chain::new(nodes[0], nodes[2])) };

    let gives_up = thread::spawn(move || {
        let node = nodes[1].node::<Shuttle>();
        let _ = node.state.compare_exchange(state::PARKED, state::ABANDONED, AcqRel, Relaxed);
    });
    let watches = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            for _ in 0..20 {
                let named = named(mutex.queue.head.peek());
                assert!(named.is_none_or(|node| world().arena.taken().contains(&node)), "head names a free node");
                thread::yield_now();
            }
        })
    };
    assert!(mutex.queue.change_head(naming(nodes[0]), 0));
    mutex.queue.pass(nodes[0], None);
    gives_up.join().expect("no panic");
    watches.join().expect("no panic");
    while let Some(head) = named(mutex.queue.head.load(Relaxed)) {
        mutex.queue.pass(head, None);
    }
    mutex.unlock();
}

#[test]
fn the_head_named_is_never_a_free_node() {
    both("head and free nodes", SCHEDULES, STILL, head_names_no_free_node);
}
