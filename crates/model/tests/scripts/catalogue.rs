//! What the catalogue says of uncontended pairs.

use flashlock_locks::catalogue::{LOCKS, LockId, STANDALONE};
use flashlock_locks::closure::{RawClosure, Request};
use flashlock_locks::machine::Tunables;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::WaitPolicy;
use flashlock_locks::parts::zeroed::Zeroed as _;
use flashlock_locks::{for_each_lock, for_each_standalone_lock};
use flashlock_model::Shuttle;
use flashlock_model::harness::Mutex;
use flashlock_model::shuttle::Shuttled;
use flashlock_model::tag::Tag;

use crate::rcl_ring::{Ring, plain};
use crate::script::{play, world};

/// Atomic read-modify-writes in an acquisition and in a release, once the lock has its side block, if it takes one.
fn atomics<L: RawLock<Shuttle, Queue: Tag>>() -> (u32, u32) {
    let mutex = Mutex::<Shuttled, L>::new();
    (0..4).for_each(|_| mutex.section());
    let free = world().atomics();
    mutex.lock();
    let held = world().atomics();
    mutex.unlock();
    let end = world().atomics();
    mutex.free();
    (held - free, end - held)
}

macro_rules! define_check {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        fn measured(lock: LockId) -> Vec<(u32, u32)> {
            match lock {
                $(LockId::$variant => vec![$(atomics::<$type>()),+],)*
            }
        }
    };
}
for_each_lock!(define_check);

/// Of a section under a standalone lock.
struct Section;

impl Section {
    fn mutex<L: RawLock<Shuttle, Queue: Tag>>() -> u32 {
        let (lock, unlock) = atomics::<L>();
        lock + unlock
    }

    fn closure<L: RawClosure<Shuttle>>() -> u32 {
        let (state, mut request) = (L::State::zeroed(), Request::new(|_| ()));
        let before = world().atomics();
        // SAFETY: request and lock are there; the request does nothing.
        unsafe { L::run(&state, &raw mut request) };
        let atomics = world().atomics() - before;
        // SAFETY: it is not used any more.
        unsafe { L::destroy(&state) };
        atomics
    }
}

impl Section {
    /// Of the client and the server together, while neither sleeps.
    fn served<W: WaitPolicy>() -> u32 {
        let ring = Ring::<Shuttled, W>::with_locks(1, 1, 1, [1; 3]);
        let client = ring.host(1).join().expect("room");
        assert!(ring.host(1).await_turn(0));
        let before = world().atomics();
        ring.post_as(client, 1, 0, plain);
        assert_eq!(ring.scan(1, 0).sections, 1);
        assert!(ring.host(1).wait::<W>(client, || ()));
        let atomics = world().atomics() - before;
        ring.end();
        atomics
    }
}

macro_rules! define_sections {
    ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        const SECTIONS: &[&[fn() -> u32]] = &[$(&[$(Section::$interface::<$type>),+]),*];
    };
}
for_each_standalone_lock!(define_sections);

#[test]
fn an_uncontended_section_has_as_many_atomics_as_it_says() {
    play("atomics of sections", 1, &Tunables::DEFAULT, || {
        for (lock, sections) in STANDALONE.iter().zip(SECTIONS) {
            assert!(sections.iter().all(|section| section() == lock.atomics), "{}", lock.name);
        }
    });
}

#[test]
fn an_uncontended_pair_has_as_many_atomics_as_it_says() {
    play("atomics", 1, &Tunables::DEFAULT, || {
        for lock in LOCKS {
            // With the first way of waiting as many; with the others no more: a release for which no thread sleeps may
            // be a store.
            for (at, pair) in measured(lock.id).into_iter().enumerate() {
                let says = (lock.atomics_lock, lock.atomics_unlock);
                assert!(pair == says || at > 0 && pair.0 <= says.0 && pair.1 <= says.1, "{}: {pair:?}", lock.name);
            }
        }
    });
}
