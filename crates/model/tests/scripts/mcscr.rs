//! MCSCR's active circulating set and its passive list (Malthusian Locks, §4).

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::mcscr::Fewest;
use flashlock_locks::parts::queue::culling::CullingLock;
use flashlock_locks::parts::wait::Park;

use crate::script::{NO, Script, YES, play, world};

type Mcscr = Script<CullingLock<Fewest, Park>>;

/// What a release must leave: the holder, the active waiters, the passive waiters (newest first).
fn expect(script: &Mcscr, served: Option<usize>, holder: usize, active: &[usize], passive: &[usize]) {
    assert_eq!(served, Some(holder), "who is served");
    assert_eq!(script.main(), active, "active, #{holder} holding");
    assert_eq!(script.secondary(), passive, "passive, #{holder} holding");
}

/// One surplus waiter is culled at each release, until one active waiter is left; then it is MCS.
#[test]
fn culling() {
    play("culling", 1, &Tunables::DEFAULT, || {
        let script = Mcscr::new();
        script.arrive(&[0, 0, 0, 0, 0, 0]);
        expect(&script, script.release(0), 1, &[2, 3, 4, 5], &[0]);
        expect(&script, script.release(0), 3, &[4, 5], &[2, 0]);
        expect(&script, script.release(0), 5, &[], &[4, 2, 0]);
        // A thread that circulates finds the lock with no active waiter, and is served next: nothing to cull.
        script.arrive(&[0]);
        expect(&script, script.release(0), 6, &[], &[4, 2, 0]);
        assert_eq!(world().events(Event::Cull), 3);
        assert_eq!(world().events(Event::Reprovision), 0);
        script.drain();
    });
}

/// No active thread waits: the newest passive waiter has the lock, then the next newest. The lock is never free.
#[test]
fn re_provision() {
    play("re-provision", 1, &Tunables::DEFAULT, || {
        let script = Mcscr::new();
        script.arrive(&[0, 0, 0, 0]);
        expect(&script, script.release(0), 1, &[2, 3], &[0]);
        expect(&script, script.release(0), 3, &[], &[2, 0]);
        expect(&script, script.release(0), 2, &[], &[0]);
        script.arrive(&[0, 0, 0]);
        expect(&script, script.release(0), 5, &[6], &[4, 0]);
        expect(&script, script.release(0), 6, &[], &[4, 0]);
        expect(&script, script.release(0), 4, &[], &[0]);
        expect(&script, script.release(0), 0, &[], &[]);
        assert_eq!(script.release(0), None);
        assert_eq!(world().events(Event::Reprovision), 3);
    });
}

/// The trial says yes: the eldest passive waiter is served before the active waiters, and also if there are none.
#[test]
fn the_eldest() {
    play("eldest", 1, &Tunables::DEFAULT, || {
        let script = Mcscr::new();
        script.arrive(&[0, 0, 0, 0, 0, 0]);
        script.release(0);
        script.release(0);
        expect(&script, script.release(0), 5, &[], &[4, 2, 0]);
        script.arrive(&[0]);
        world().set_random(YES);
        expect(&script, script.release(0), 0, &[6], &[4, 2]);
        world().set_random(NO);
        expect(&script, script.release(0), 6, &[], &[4, 2]);
        world().set_random(YES);
        expect(&script, script.release(0), 2, &[], &[4]);
        expect(&script, script.release(0), 4, &[], &[]);
        assert_eq!(script.release(0), None);
        assert_eq!(world().events(Event::Eldest), 3);
    });
}

/// `eldest=1`: the degenerate case, no waiter is passive for long, and all are served.
#[test]
fn always_the_eldest() {
    static ALWAYS: Tunables = Tunables { eldest: 1, ..Tunables::DEFAULT };
    play("always the eldest", 1, &ALWAYS, || {
        let script = Mcscr::new();
        script.arrive(&[0, 0, 0, 0]);
        let served: Vec<_> = (0..4).map(|_| script.release(0).expect("somebody waits")).collect();
        assert_eq!(served, [1, 0, 3, 2]);
        assert_eq!(script.release(0), None);
    });
}

/// `evict=1`: a successor that does not run is passed over, whichever list it is from; no other waiter is.
#[test]
fn successors_that_do_not_run() {
    static EVICT: Tunables = Tunables { evict: 1, ..Tunables::DEFAULT };
    play("evict", 1, &EVICT, || {
        let script = Mcscr::new();
        script.arrive(&[0, 0, 0, 0, 0]);
        script.lose_cpu(0);
        script.lose_cpu(1);
        expect(&script, script.release(0), 3, &[4], &[2, 0]);
        assert_eq!(script.evicted(), [1], "0 was surplus: it is passive like 2");
        script.lose_cpu(4);
        expect(&script, script.release(0), 2, &[], &[0]);
        assert_eq!(script.evicted(), [4]);
        assert_eq!(script.release(0), None, "nobody waits who runs");
        assert_eq!(script.evicted(), [0]);
        assert_eq!(world().events(Event::Evict), 3);
    });
}

/// A waiter that queued before it knew of `evict=1` would not understand an eviction: it is handed the lock.
#[test]
fn who_does_not_publish_is_served() {
    static EVICT: Tunables = Tunables { evict: 1, ..Tunables::DEFAULT };
    play("evict, unseen", 1, &EVICT, || {
        let script = Mcscr::new();
        script.arrive(&[0, 0]);
        script.lose_cpu_unseen(1);
        expect(&script, script.release(0), 1, &[], &[0]);
        assert_eq!(world().events(Event::Evict), 0);
        script.drain();
    });
}

/// A forked child, whose parent had active and passive waiters.
#[test]
fn a_forked_child_forgets_both_lists() {
    for newcomers in [&[][..], &[0, 0]] {
        play("fork", 1, &Tunables::DEFAULT, move || {
            let script = Mcscr::new();
            script.arrive(&[0, 0, 0, 0]);
            expect(&script, script.release(0), 1, &[2, 3], &[0]);
            script.fork();
            let lost = world().arena.taken();
            script.arrive_singly(newcomers);
            if !newcomers.is_empty() {
                expect(&script, script.release(0), 5, &[], &[4]);
                assert_eq!(script.release(0), Some(4));
            }
            assert_eq!(script.release(0), None);
            script.lose(lost);
        });
    }
}
