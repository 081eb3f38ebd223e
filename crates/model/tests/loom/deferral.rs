//! Signals by the holder of the mutex. The wake-up is left to the release of the mutex: it is not lost and not given
//! twice, and neither the mutex nor the condition variable is touched after it is freed.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use flashlock_locks::cond::deferral::{Place, leave, take};
use flashlock_locks::cond::{AtOnce, Defer, Outcome};
use flashlock_locks::machine::node::{is_claimed, state};
use flashlock_locks::machine::{Handle, Memory as _, Waiting as _, Word as _};
use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::adoption::{signal, until_notified};
use flashlock_locks::parts::wait::Park;
use flashlock_model::erased::erased;
use flashlock_model::harness::{Release, ToRelease, finish};
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread::{self, JoinHandle};
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::tag::cond_words;
use flashlock_model::word::Word;
use flashlock_model::{Loom, Setup};

use crate::common::{AnyMutex, Cond, Lock, world};
use crate::cond::Shared;

const SETUP: Setup = Setup { polls: 1, ..Setup::new(4) };
/// Nodes are used again.
const REUSED: Setup = Setup { recycles: true, ..SETUP };

fn spawn(shared: &Arc<Shared>, body: impl Fn(&Shared) + Send + 'static) -> JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

/// A mutex that is held, and so many waiters of the condition variable, which do not run yet.
fn held<const N: usize>(new: fn() -> AnyMutex) -> (Arc<Shared>, [Handle; N]) {
    let shared = Shared::new(new);
    shared.mutex.lock();
    let waiters = [(); N].map(|()| shared.cond.enqueue(shared.mutex.address()));
    (shared, waiters)
}

/// The end of a wait, by the only waiter: it frees the mutex.
fn ends(shared: &Shared, outcome: Outcome) {
    finish(outcome, &shared.mutex);
    shared.mutex.visit();
    shared.mutex.unlock();
    shared.mutex.free();
}

/// How a waiter waits.
type Wait = fn(&Shared, Handle);
const WAITS: Wait = |shared, me| ends(shared, shared.cond.queue.wait(me, None));

/// Afterwards it waits elsewhere, where no thread wakes it. (It may have the same node there.)
const WAITS_AGAIN: Wait = |shared, me| {
    WAITS(shared, me);
    let elsewhere = Cond::new();
    let again = elsewhere.enqueue(0);
    assert!(elsewhere.queue.withdraw(again), "woken twice");
};

/// What the holder does.
type Act = fn(&Shared);
const SIGNALS: Act = |shared| shared.cond.signal();
const BROADCASTS: Act = |shared| shared.cond.broadcast(&shared.mutex, true);

/// The holder wakes the only waiter, which cannot go on before the release. `destroy`: it also destroys the condition
/// variable before the release.
fn woken_by_the_holder(new: fn() -> AnyMutex, wait: Wait, wake: Act, destroy: Option<Act>) {
    let (shared, [me]) = held(new);
    let waiter = spawn(&shared, move |shared| wait(shared, me));
    wake(&shared);
    assert!(is_claimed(me.node::<Loom>().state.load(Relaxed)), "woken too early");
    if let Some(destroy) = destroy {
        destroy(&shared);
    }
    shared.mutex.visit();
    shared.mutex.unlock();
    waiter.join().expect("no panic");
    if destroy.is_none() {
        assert!(shared.cond.destroy());
    }
}

const DESTROYS: Act = |shared| assert!(shared.cond.destroy());

fn by_the_holder<L: Lock>(wake: Act, destroy: Option<Act>) -> impl Fn() + Send + Sync + 'static {
    move || woken_by_the_holder(erased::<Loomed, L>, WAITS, wake, destroy)
}

#[test]
fn a_waiter_is_woken_by_the_release() {
    for (name, wake) in [("signalled", SIGNALS), ("broadcast", BROADCASTS)] {
        explore(&format!("deferred, {name}, futex"), Preemptions(4), SETUP, by_the_holder::<Futex>(wake, None));
        explore(&format!("deferred, {name}, mcs"), Preemptions(3), SETUP, by_the_holder::<Mcs<Park>>(wake, None));
        explore(&format!("deferred, {name}, shfl"), Preemptions(3), SETUP, by_the_holder::<Shfl<Park>>(wake, None));
        explore(&format!("deferred, {name}, flash"), Preemptions(2), SETUP, by_the_holder::<Flash>(wake, None));
    }
}

#[test]
fn a_holder_may_destroy_the_condition_variable() {
    let destroy = Some(DESTROYS);
    explore("deferred, destroyed by the holder", Preemptions(4), SETUP, by_the_holder::<Futex>(SIGNALS, destroy));
    explore("deferred, broadcast, destroyed", Preemptions(4), SETUP, by_the_holder::<Futex>(BROADCASTS, destroy));
}

/// The holder waits for the waiter, which waits for the holder.
const WAITS_FOR_THE_WAITER: Act = |shared| assert!(shared.cond.queue.destroy(&AtOnce).is_ok());

/// The holder broadcasts to two waiters; if it `destroys` the condition variable then, they are woken there. The last
/// of them frees the mutex.
fn both_woken_by_the_holder(new: fn() -> AnyMutex, destroys: bool) {
    let (shared, waiters) = held::<2>(new);
    let threads = waiters.map(|me| {
        spawn(&shared, move |shared| {
            finish(shared.cond.queue.wait(me, None), &shared.mutex);
            let last = shared.mutex.visit() == 1;
            shared.mutex.unlock();
            if last {
                shared.mutex.free();
            }
        })
    });
    shared.cond.broadcast(&shared.mutex, false);
    assert!(waiters.iter().all(|me| is_claimed(me.node::<Loom>().state.load(Relaxed))), "woken too early");
    if destroys {
        assert!(shared.cond.destroy());
    }
    shared.mutex.unlock();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(destroys || shared.cond.destroy());
}

#[test]
fn a_few_waiters_are_woken_by_the_release() {
    let futex = |destroys| move || both_woken_by_the_holder(erased::<Loomed, Futex>, destroys);
    explore("deferred, two, futex", Preemptions(2), SETUP, futex(false));
    explore("deferred, two, destroyed, futex", Preemptions(1), SETUP, futex(true));
    explore("deferred, two, flash", Preemptions(1), SETUP, || both_woken_by_the_holder(erased::<Loomed, Flash>, false));
}

/// Another thread destroys the condition variable, at any time after the signal.
fn destroyed_by_another(wait: Wait, destroy: Act) {
    let (shared, [me]) = held(erased::<Loomed, Futex>);
    let waiter = spawn(&shared, move |shared| wait(shared, me));
    shared.cond.signal();
    let destroyer = spawn(&shared, destroy);
    shared.mutex.unlock();
    waiter.join().expect("no panic");
    destroyer.join().expect("no panic");
}

#[test]
fn another_thread_may_destroy_the_condition_variable() {
    explore("deferred, destroyed by another", Preemptions(2), REUSED, || {
        destroyed_by_another(WAITS_AGAIN, DESTROYS);
    });
}

/// Looks whether the waiter is still there, and then takes it.
struct Torn;

// SAFETY: none: it is a seeded bug.
unsafe impl Defer for Torn {
    fn defer(&self, mutex: u64, waiter: Handle) -> bool {
        ToRelease::<Loomed>::NEW.defer(mutex, waiter)
    }

    fn recall(&self, mutex: u64, waiter: Handle) -> bool {
        let word = Release::<Loomed>::waiter_in(mutex);
        let is_there = word.load(Relaxed) == waiter.word();
        if is_there {
            word.store(0, Relaxed);
        }
        is_there
    }
}

const DESTROYS_TORN: Act = |shared| {
    assert!(shared.cond.queue.destroy(&Torn).is_ok());
    shared.cond.free();
};

/// A waiter that clears `deferred` only when it has had the mutex.
const CLEARS_LATE: Wait = |shared, me| {
    let node = me.node::<Loom>();
    assert_eq!(until_notified(node), state::SIGNALED);
    shared.mutex.lock_woken();
    shared.mutex.unlock();
    shared.mutex.free();
    Loom::give_node(me);
    let [.., refs, _, deferred] = cond_words::<Loomed>(&shared.cond.queue);
    deferred.store(0, Relaxed);
    let before = refs.fetch_add(u32::MAX, std::sync::atomic::Ordering::AcqRel);
    if before & !(1 << 31) == 1 {
        Loom::wake(refs, u32::MAX);
    }
};

/// A mutex's place for a waiter, whose owner's id is a word that threads race for.
struct Raced {
    owner: Word<Loomed>,
    waiter: Word<Loomed>,
    epoch: AtomicU32,
    fences: bool,
}

/// The id of the owner that signals.
const ME: u32 = 7;

impl Place<Loom> for Raced {
    fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == ME
    }

    fn waiter(&self) -> &Word<Loomed> {
        &self.waiter
    }

    fn mark(&self, epoch: u32) {
        self.epoch.store(epoch, Relaxed);
    }

    fn unmark(&self) {
        self.epoch.store(0, Relaxed);
    }

    fn is_marked(&self, epoch: u32) -> bool {
        self.epoch.load(Relaxed) == epoch
    }

    fn fence(&self) {
        if self.fences {
            loom::sync::atomic::fence(SeqCst);
        }
    }
}

/// The owner leaves a waiter while another thread releases the mutex. One of them wakes it.
fn released_by_another(fences: bool) {
    let (owner, waiter, epoch) = (Word::new(ME), Word::new(0), AtomicU32::new(0));
    let place = Arc::new(Raced { owner, waiter, epoch, fences });
    // SAFETY: a model may do anything with it: see `arena::handle_in`.
    let waiter = unsafe { Loom::take_node() };
    let releases = {
        let place = place.clone();
        thread::spawn(move || {
            place.owner.store(0, Relaxed);
            place.fence();
            // SAFETY: a model may do anything with it: see `arena::handle_in`.
            unsafe { take(&*place) }
        })
    };
    let is_left = leave(&*place, waiter);
    let taken = releases.join().expect("no panic");
    // Left and not taken: it sleeps although the mutex is free. Taken and not left: it is woken twice.
    assert_eq!(is_left.then_some(waiter), taken);
    Loom::give_node(waiter);
}

#[test]
fn another_thread_may_release_the_mutex() {
    explore("deferred, released by another", Depth::Exhaustive, SETUP, || released_by_another(true));
}

/// The holder wakes the only waiter, while another thread releases the mutex for it. The waiter frees the mutex, and
/// with it the place in which the holder leaves the waiter.
fn released_while_woken(wake: Act) {
    let (shared, [me]) = held(erased::<Loomed, Futex>);
    let waiter = spawn(&shared, move |shared| WAITS(shared, me));
    let releases = spawn(&shared, |shared| shared.mutex.unlock_for_owner());
    wake(&shared);
    waiter.join().expect("no panic");
    releases.join().expect("no panic");
    assert!(shared.cond.destroy());
}

#[test]
fn the_waiter_frees_the_place() {
    for (name, wake) in [("signalled", SIGNALS), ("broadcast", BROADCASTS)] {
        explore(&format!("deferred, {name}, freed meanwhile"), Preemptions(4), SETUP, move || {
            released_while_woken(wake);
        });
    }
}

/// Two wait. The first is cancelled, and the signal goes to the second, unless the first had gone before.
fn passed_on(cancel: fn(&Shared, Handle) -> Outcome) {
    let (shared, [first, second]) = held(erased::<Loomed, Futex>);
    let threads = [(first, true), (second, false)].map(|(me, cancelled)| {
        spawn(&shared, move |shared| {
            let outcome = if cancelled { cancel(shared, me) } else { shared.cond.queue.wait(me, None) };
            finish(outcome, &shared.mutex);
            shared.mutex.visit();
            shared.mutex.unlock();
        })
    });
    shared.cond.signal();
    shared.mutex.unlock();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(shared.cond.destroy());
}

#[test]
fn a_cancelled_waiter_passes_the_signal_on() {
    explore("deferred, cancelled", Preemptions(2), SETUP, || passed_on(|shared, me| shared.cond.queue.cancel(me)));
}

/// The deadline of the only waiter passes about when the holder signals.
fn signal_against_deadline() {
    let (shared, [me]) = held(erased::<Loomed, Futex>);
    let until = world().first_tick();
    let waiter = spawn(&shared, move |shared| ends(shared, shared.cond.queue.wait(me, Some(until))));
    world().tick();
    shared.cond.signal();
    shared.mutex.unlock();
    waiter.join().expect("no panic");
    assert!(shared.cond.destroy());
}

#[test]
fn a_deadline_and_a_deferred_signal() {
    explore("deferred, deadline", Preemptions(3), SETUP, signal_against_deadline);
}

/// A process forks while its thread holds the mutex and has signalled. In the child, the waiter does not exist, and
/// another thread waits with its node.
fn forked(release: Act) {
    let (shared, [parents]) = held(erased::<Loomed, Futex>);
    shared.cond.signal();
    world().fork();
    Loom::give_node(parents); // As the pool does with the nodes of threads that do not exist.
    let elsewhere = Cond::new();
    let again = elsewhere.enqueue(0);
    assert_eq!(again, parents);
    release(&shared);
    assert!(elsewhere.queue.withdraw(again), "a thread of the child was woken");
}

#[test]
fn the_wake_up_is_left_to_the_parent() {
    explore("deferred, forked", Preemptions(1), REUSED, || forked(|shared| shared.mutex.unlock()));
}

#[test]
fn bugs() {
    find("deferred, the destroyer waits for the waiter", Preemptions(2), SETUP, || {
        woken_by_the_holder(erased::<Loomed, Futex>, WAITS, SIGNALS, Some(WAITS_FOR_THE_WAITER));
    });
    find("deferred, taken twice", Preemptions(2), REUSED, || destroyed_by_another(WAITS_AGAIN, DESTROYS_TORN));
    find("deferred, cleared too late", Preemptions(3), SETUP, || destroyed_by_another(CLEARS_LATE, DESTROYS));
    find("deferred, the child wakes a waiter of its parent", Preemptions(1), REUSED, || {
        forked(|shared| {
            let waiter = Release::<Loomed>::waiter_in(shared.mutex.address()).swap(0, Relaxed);
            shared.mutex.unlock();
            // SAFETY: none: it is a seeded bug.
            if let Some(waiter) = unsafe { Handle::new(waiter) } {
                signal::<Loom>(waiter);
            }
        });
    });
    find("deferred, released by another without fences", Depth::Exhaustive, SETUP, || released_by_another(false));
    find("deferred, a cancelled waiter keeps the signal", Preemptions(2), SETUP, || {
        passed_on(|shared, me| shared.cond.queue.wait(me, None));
    });
}
