//! CNA's hand-offs, as §4–6 of the paper tell them.

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::numa::cna::SameNode;
use flashlock_locks::parts::queue::culling::CullingLock;
use flashlock_locks::parts::wait::Park;

use crate::script::{NO, Script, YES, play, world};

type Cna = Script<CullingLock<SameNode, Park>>;

/// What a hand-off must leave: the holder, the main queue, the secondary queue.
fn expect(script: &Cna, served: Option<usize>, holder: usize, main: &[usize], secondary: &[usize]) {
    assert_eq!(served, Some(holder), "who is served");
    assert_eq!(script.main(), main, "main queue, t{holder} holding");
    assert_eq!(script.secondary(), secondary, "secondary queue, t{holder} holding");
}

/// Figure 1, with its two sockets. The first thread is number 1 there; here a waiter's number is that of its arrival,
/// and the first holder, which never waited, comes back as number 5.
#[test]
fn figure_1() {
    play("figure 1", 1, &Tunables::DEFAULT, || {
        let script = Cna::new();
        script.arrive_singly(&[1, 1, 0, 0, 1]);
        assert_eq!((script.main(), script.secondary()), (vec![0, 1, 2, 3, 4], vec![]), "(a)");
        // (b) Two of the other socket are between the holder and one of its own: they go to the secondary queue.
        expect(&script, script.release(0), 2, &[3, 4], &[0, 1]);
        // (c) The first holder comes back.
        script.arrive(&[0]);
        assert_eq!(script.main(), [3, 4, 5]);
        // (d) The next one is local: nothing moves.
        expect(&script, script.release(0), 3, &[4, 5], &[0, 1]);
        // (e) One more goes to the end of the secondary queue.
        expect(&script, script.release(0), 5, &[], &[0, 1, 4]);
        // (f) A thread of the other socket arrives.
        script.arrive(&[1]);
        assert_eq!(script.main(), [6]);
        // (g) No waiter is local: the secondary queue comes back, before the waiter that is there, and its first has
        // the lock.
        expect(&script, script.release(0), 0, &[1, 4, 6], &[]);
        assert_eq!(world().events(Event::Alteration), 3, "out at (b) and (e), back at (g)");
        script.drain();
    });
}

/// The main queue runs empty: the secondary queue becomes the main queue (figure 4, lines 19–27).
#[test]
fn the_secondary_queue_keeps_the_lock_busy() {
    play("main queue empty", 1, &Tunables::DEFAULT, || {
        let script = Cna::new();
        script.arrive_singly(&[1, 2, 1, 0]);
        expect(&script, script.release(0), 3, &[], &[0, 1, 2]);
        expect(&script, script.release(0), 0, &[1, 2], &[]);
        // On socket 1 now: waiter 1, of socket 2, is culled.
        expect(&script, script.release(1), 2, &[], &[1]);
        expect(&script, script.release(1), 1, &[], &[]);
        assert_eq!(script.release(2), None);
    });
}

/// No local waiter in the main queue, and no secondary queue: first come, first served (line 44). Nothing moves before
/// a local waiter is found.
#[test]
fn without_local_waiters_it_is_mcs() {
    play("nobody local", 1, &Tunables::DEFAULT, || {
        let script = Cna::new();
        script.arrive_singly(&[1, 2, 3]);
        expect(&script, script.release(0), 0, &[1, 2], &[]);
        expect(&script, script.release(0), 1, &[2], &[]);
        expect(&script, script.release(0), 2, &[], &[]);
        assert_eq!(world().events(Event::Alteration), 0);
        assert_eq!(script.release(0), None);
    });
}

/// The fairness threshold, by draw: the first of the secondary queue has the lock although there is a local waiter.
#[test]
fn a_draw_ends_the_preference() {
    play("threshold, draw", 1, &Tunables::DEFAULT, || {
        let script = Cna::new();
        script.arrive_singly(&[1, 0, 0, 0]);
        expect(&script, script.release(0), 1, &[2, 3], &[0]);
        expect(&script, script.release(0), 2, &[3], &[0]);
        world().set_random(YES);
        expect(&script, script.release(0), 0, &[3], &[]);
        world().set_random(NO);
        script.drain();
    });
}

/// The same by countdown: the number drawn is the number of hand-offs to the next one elsewhere.
#[test]
fn a_countdown_ends_the_preference() {
    // With the draw in the middle of its range, 1 to 2 × 4 − 1, the thread's number is 4.
    static COUNTED: Tunables = Tunables { threshold: 4, countdown: 1, ..Tunables::DEFAULT };
    play("threshold, countdown", 1, &COUNTED, || {
        world().set_random(Some(1 << 31));
        let script = Cna::new();
        script.arrive_singly(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        // The first hand-off draws 4; then 4, 3, 2, 1.
        let served: Vec<_> = (0..5).map(|_| script.release(0).expect("somebody waits")).collect();
        assert_eq!(served, [1, 2, 3, 4, 0]);
        // Drawn anew, and counted again: with no waiter culled, the third waits for nothing.
        let served: Vec<_> = (0..5).map(|_| script.release(0).expect("somebody waits")).collect();
        assert_eq!(served, [5, 6, 7, 8, 9]);
        assert_eq!(script.release(0), None);
    });
}

/// Shuffle reduction (§6): with no waiter culled, the next one has the lock wherever it is, unless a draw says
/// otherwise; with a waiter culled, nothing is reduced.
#[test]
fn shuffle_reduction() {
    static REDUCED: Tunables = Tunables { reduction: 256, ..Tunables::DEFAULT };
    // A number that draws one in 256, but not one in 65,536.
    const LOOK: Option<u32> = Some(1 << 20);
    play("shuffle reduction", 1, &REDUCED, || {
        let script = Cna::new();
        script.arrive_singly(&[1, 1, 0, 1, 0]);
        expect(&script, script.release(0), 0, &[1, 2, 3, 4], &[]);
        world().set_random(LOOK);
        expect(&script, script.release(0), 2, &[3, 4], &[1]);
        world().set_random(NO);
        expect(&script, script.release(0), 4, &[], &[1, 3]);
        script.drain();
    });
}

/// A thread that asks for its node at one contended acquisition in three believes in the old one meanwhile, queueing
/// and releasing.
#[test]
fn a_node_number_that_is_refreshed() {
    use flashlock_locks::parts::queue::succession::Succession;
    use flashlock_model::Shuttle;

    static REFRESHED: Tunables = Tunables { refresh: 3, ..Tunables::DEFAULT };
    play("refresh", 1, &REFRESHED, || {
        let arrive = |really: u32| {
            world().set_numa(really);
            (SameNode::arrive::<Shuttle>(), SameNode::here::<Shuttle>())
        };
        assert_eq!(arrive(1), (1, 1));
        assert_eq!(arrive(2), (1, 1));
        assert_eq!(arrive(2), (1, 1), "believed for the last time");
        assert_eq!(arrive(0), (0, 0));
    });
    play("no refresh", 1, &Tunables::DEFAULT, || {
        world().set_numa(5);
        assert_eq!((SameNode::arrive::<Shuttle>(), SameNode::here::<Shuttle>()), (5, 5));
    });
}

/// A forked child, whose parent had waiters in both queues: the lock is free after one release, or serves the threads
/// that came since.
#[test]
fn a_forked_child_forgets_both_queues() {
    for newcomers in [&[][..], &[1, 0]] {
        play("fork", 1, &Tunables::DEFAULT, move || {
            let script = Cna::new();
            script.arrive_singly(&[1, 0, 1, 0]);
            expect(&script, script.release(0), 1, &[2, 3], &[0]);
            script.fork();
            let lost = world().arena.taken();
            script.arrive_singly(newcomers);
            if !newcomers.is_empty() {
                assert_eq!(script.release(0), Some(5), "the local one of the two");
                assert_eq!(script.secondary(), [4]);
                assert_eq!(script.release(0), Some(4));
            }
            assert_eq!(script.release(0), None);
            script.lose(lost);
        });
    }
}
