//! Mostly-LIFO orders: few waiters circulate, and all are served in the long run.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use flashlock_locks::cond::{AtOnce, CondQueue, Outcome};
use flashlock_locks::machine::node::state;
use flashlock_locks::machine::order::Order;
use flashlock_locks::machine::{Handle, Memory as _, Tunables, Waiting as _, Word};
use flashlock_locks::sem::{Ended, Entry, SemQueue, Semaphore, Slept};
use flashlock_native::{Native, Word32, settings};

type M = Native;

const WAITERS: usize = 16;
const CALLS: usize = 100_000;
/// One waiter in this many is queued at the end.
const ONE_IN: u32 = 50;

fn state_of(handle: Handle) -> u32 {
    handle.node::<M>().state.load(Relaxed)
}

/// All waiters wait, and a waiter that is called waits again. Returns the waiters in the order of the calls.
fn history(mut call: impl FnMut(&HashMap<u32, usize>) -> Handle, mut queue: impl FnMut() -> Handle) -> Vec<usize> {
    let mut who: HashMap<u32, usize> = (0..WAITERS).map(|waiter| (queue().word(), waiter)).collect();
    (0..CALLS)
        .map(|_| {
            let called = call(&who);
            let waiter = who.remove(&called.word()).expect("one that waits");
            who.insert(queue().word(), waiter);
            waiter
        })
        .collect()
}

fn check(history: &[usize]) {
    let windows: Vec<usize> =
        history.chunks(ONE_IN as usize).map(|calls| calls.iter().collect::<BTreeSet<_>>().len()).collect();
    let circulating = windows.iter().sum::<usize>() as f64 / windows.len() as f64;
    assert!((1.0..4.0).contains(&circulating), "{circulating} waiters circulate");
    let mut longest = 0;
    for waiter in 0..WAITERS {
        let mut last = 0;
        for (at, _) in history.iter().enumerate().filter(|(_, called)| **called == waiter) {
            longest = longest.max(at - last);
            last = at;
        }
        longest = longest.max(history.len() - last);
    }
    // On average 16 x 50 calls; eight times as many occur only once in very many runs.
    assert!(longest < WAITERS * ONE_IN as usize * 8, "somebody was passed over {longest} times");
}

/// The handle in a word, of a node that waits here.
fn handle_in(word: u32) -> Option<Handle> {
    // SAFETY: its thread's waits end in the order of the calls, each by one `wait`.
    unsafe { Handle::new(word) }
}

/// One process has one choice, so both orders are tested here.
#[test]
fn few_circulate_and_nobody_is_forgotten() {
    let order = Order::lifo(ONE_IN);
    assert!(settings::set_tunables(Tunables { cond_order: order, sem_order: order, ..Tunables::DEFAULT }));

    let cond = CondQueue::<M>::new();
    let signal = |who: &HashMap<u32, usize>| {
        cond.signal(&AtOnce);
        let notified = |word: &&u32| handle_in(**word).is_some_and(|handle| state_of(handle) == state::SIGNALED);
        let called = who.keys().find(notified).and_then(|word| handle_in(*word)).expect("a signal tells one");
        assert_eq!(cond.wait(called, None), Outcome::Signaled(None));
        called
    };
    // SAFETY: the handle goes to `wait`, when its waiter is called.
    check(&history(signal, || unsafe { cond.enqueue(0) }));

    check(&semaphore_history());
    assert!(M::epoch() > 0);
}

/// The same with threads that sleep: a post checks whether a waiter sleeps.
fn semaphore_history() -> Vec<usize> {
    const CALLS: usize = 20_000;
    let (word, queue) = (<Word32 as Word>::new(0), SemQueue::<M>::new());
    // SAFETY: the two are used by it only.
    let semaphore = || unsafe { Semaphore::new(&word, &queue) };
    let (history, queued) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let wait = |me| {
        loop {
            // SAFETY: the handle goes to `wait_with`.
            let Entry::Queued(node) = (unsafe { semaphore().begin(None) }) else { panic!("there is no permit") };
            queued.fetch_add(1, Relaxed);
            let sleep = |word: &Word32, expected| {
                M::park(word, expected, None);
                Slept::Woken
            };
            assert_eq!(semaphore().wait_with(node, None, sleep), Ended::Acquired);
            let mut history = history.lock().expect("no panic");
            if history.len() >= CALLS {
                return;
            }
            history.push(me);
        }
    };
    std::thread::scope(|scope| {
        (0..WAITERS).for_each(|me| drop(scope.spawn(move || wait(me))));
        for call in 0..CALLS + WAITERS {
            while queued.load(Relaxed) < WAITERS + call.min(CALLS) {
                std::thread::yield_now();
            }
            semaphore().post().expect("room");
        }
    });
    history.into_inner().expect("no panic")
}
