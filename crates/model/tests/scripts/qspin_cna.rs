//! CNA in the kernel's lock, as the patch series tells it: exactly these queues after each step of the head.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::{Node, URGENT, state};
use flashlock_locks::machine::{Handle, Tunables, Word as _};
use flashlock_locks::mutex::numa::QspinCna;
use flashlock_locks::mutex::numa::qspin_cna::{NodeFirst, Order};
use flashlock_locks::mutex::queue::qspin::line::{Line, Succession};
use flashlock_locks::mutex::queue::qspin::word::{LOCKED, is_busy, tail_word};
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::adoption::claimed;
use flashlock_locks::parts::queue::link::Link;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::Park;
use flashlock_model::arena::{handle_in, link_in, take_node};
use flashlock_model::harness::Mutex;
use flashlock_model::shuttle::{By, Shuttled, explore};
use flashlock_model::{Setup, Shuttle};

use crate::script::{Id, world};

type Lock = QspinCna<Park>;

/// A lock that is held. One thread plays all: the waiters, the head, the holder.
struct Script {
    mutex: Mutex<Shuttled, Lock>,
    /// The threads that have arrived, in order.
    nodes: RefCell<Vec<Handle>>,
    /// The head of the queue.
    head: Cell<Option<Id>>,
}

impl Script {
    fn new() -> Self {
        let script = Self { mutex: Mutex::new(), nodes: RefCell::default(), head: Cell::new(None) };
        script.mutex.lock();
        script
    }

    fn line(&self) -> Line<'_, Shuttle> {
        Line { word: &self.mutex.word }
    }

    fn node(&self, id: Id) -> &'static Node<Shuttle> {
        self.nodes.borrow()[id].node()
    }

    /// One waiter for each NUMA node named joins; those of a node from 100 on are priority waiters, of the node
    /// less 100.
    fn arrive(&self, numa: &[u32]) {
        for &numa in numa {
            let me = take_node::<Shuttle>();
            let node: &Node<Shuttle> = me.node();
            node.prepare_on(numa % 100, state::CLAIMED);
            node.state.store(claimed(node), Relaxed);
            self.nodes.borrow_mut().push(me);
            if numa < 100 {
                // SAFETY: the callers' promise.
                unsafe { <Lock as RawLock<Shuttle>>::adopt(&self.mutex.word, &(), Chain::new(me, me)) };
                let _ = node.state.compare_exchange(claimed(node), state::PARKED, Relaxed, Relaxed);
            } else {
                node.state.store(state::PARKED, Relaxed);
                node.batch.store(URGENT, Relaxed);
                let link = Link::new(me, u32::MAX);
                self.line().join::<NodeFirst>(self.mutex.word.load(Relaxed), link, me, false, true);
            }
            if node.state.load(Relaxed) == state::HEAD {
                self.head.set(Some(self.nodes.borrow().len() - 1));
            }
        }
    }

    /// The head looks at the queue, and goes on with that while the lock is held.
    fn pre_scan(&self) -> Order {
        let order = NodeFirst::order(self.line(), self.nodes.borrow()[self.head.get().expect("a head")]);
        self.go_on(order);
        order
    }

    /// The head looks again, and again until it changes nothing, if the lock is held.
    fn go_on(&self, order: Order) {
        let head = self.nodes.borrow()[self.head.get().expect("a head")];
        while is_busy::<Shuttle>(self.mutex.word.load(Relaxed)) && NodeFirst::reorder::<Shuttle>(head, order) {}
    }

    /// The lock is released, and the head acquires it, which hands the front on, with what was found before that.
    fn acquire(&self, order: Order) {
        let head = self.nodes.borrow()[self.head.get().expect("a head")];
        self.mutex.unlock();
        self.line().acquire::<NodeFirst, Park>(head, self.mutex.word.load(Relaxed), order).expect("the lock is free");
        assert!(!world().arena.taken().contains(&head), "who holds the lock keeps no node");
        let taken = world().arena.taken();
        let is_head =
            |id: &Id| taken.contains(&self.nodes.borrow()[*id]) && self.node(*id).state.load(Relaxed) == state::HEAD;
        let heads: Vec<Id> = (0..self.nodes.borrow().len()).filter(is_head).collect();
        assert!(heads.len() <= 1, "heads: {heads:?}");
        self.head.set(heads.first().copied());
        assert_eq!(self.head.get().is_some(), tail_word(self.mutex.word.load(Relaxed)) != 0, "work conservation");
    }

    /// Both.
    fn hand_over(&self) {
        let order = self.pre_scan();
        self.acquire(order);
    }

    fn give_up(&self, id: Id) {
        self.line().left().add();
        assert!(self.node(id).state.compare_exchange(state::PARKED, state::ABANDONED, Relaxed, Relaxed).is_ok());
    }

    fn ids(&self, first: u32, last: Option<Handle>) -> Vec<Id> {
        let mut ids = Vec::new();
        let mut here = link_in(first).map(Link::to);
        while let Some(handle) = here {
            // A node may serve again: the latest.
            ids.push(self.nodes.borrow().iter().rposition(|&node| node == handle).expect("it has arrived"));
            assert!(ids.len() <= 100, "a ring: {ids:?}");
            let next = link_in(handle.node::<Shuttle>().next.load(Relaxed)).map(Link::to);
            here = next.filter(|_| Some(handle) != last);
        }
        ids
    }

    /// Head, main queue behind it, and secondary queue, first to last.
    fn queues(&self) -> (Option<Id>, Vec<Id>, Vec<Id>) {
        let Some(head) = self.head.get() else {
            assert_eq!(self.mutex.word.load(Relaxed), LOCKED);
            return (None, Vec::new(), Vec::new());
        };
        let node = self.node(head);
        let main = self.ids(node.next.load(Relaxed), None);
        let last = self.nodes.borrow()[*main.last().unwrap_or(&head)];
        assert_eq!(tail_word(self.mutex.word.load(Relaxed)), last.word(), "the tail");
        let secondary = handle_in(node.prev.load(Relaxed));
        let secondary =
            secondary.map_or(Vec::new(), |end| self.ids(end.node::<Shuttle>().next.load(Relaxed), Some(end)));
        (Some(head), main, secondary)
    }

    fn expect(&self, head: Id, main: &[Id], secondary: &[Id]) {
        assert_eq!(self.queues(), (Some(head), main.to_vec(), secondary.to_vec()));
    }

    /// Serves all waiters.
    fn drain(&self) {
        while self.head.get().is_some() {
            self.hand_over();
        }
        self.mutex.unlock();
        assert_eq!((self.mutex.word.load(Relaxed), self.line().left().count()), (0, 0));
    }
}

fn play(name: &str, tunables: &'static Tunables, body: impl Fn() + Send + Sync + 'static) {
    explore(name, By::Random, 1, Setup { recycles: false, tunables, ..Setup::new(200) }, body);
}

/// The series' own picture: pre-scan, post-scan, splice-tail, splice-head (patch 3).
#[test]
fn the_two_queues() {
    play("qspin-cna, queues", &Tunables::DEFAULT, || {
        let script = Script::new();
        script.arrive(&[0, 1, 1, 0, 1]);
        script.expect(0, &[1, 2, 3, 4], &[]);
        // The pre-scan finds waiter 3, and moves the two before it: splice-tail makes a secondary queue.
        let order = script.pre_scan();
        assert!(matches!(order, Order::Found));
        script.expect(0, &[3, 4], &[1, 2]);
        script.acquire(order);
        script.expect(3, &[4], &[1, 2]);
        // The next head finds no local waiter up to waiter 4, from where it goes on when it has the lock: 5 is local.
        // Splice-tail appends.
        let order = script.pre_scan();
        assert!(matches!(order, Order::NotUpTo(last) if last == script.nodes.borrow()[4]));
        script.arrive(&[0, 1]);
        script.acquire(order);
        script.expect(5, &[6], &[1, 2, 4]);
        // Neither scan finds one: splice-head, before the main queue, and the longest waiter of those is the head.
        script.hand_over();
        script.expect(1, &[2, 4, 6], &[]);
        assert_eq!(world().events(Event::Alteration), 3);
        script.drain();
    });
}

/// The main queue is empty: the secondary queue becomes the main queue (cna_try_clear_tail).
#[test]
fn an_empty_main_queue() {
    play("qspin-cna, empty", &Tunables::DEFAULT, || {
        let script = Script::new();
        script.arrive(&[0, 1, 2, 0]);
        script.hand_over();
        script.expect(3, &[], &[1, 2]);
        script.hand_over();
        script.expect(1, &[2], &[]);
        // On node 1 now: waiter 2 has the front though it is on another node, because no other thread waits.
        script.hand_over();
        script.expect(2, &[], &[]);
        script.hand_over();
        assert_eq!(script.queues().0, None);
        script.drain();
    });
}

/// A thread joins between the look at the word and the exchange: the circle is closed again (cna_splice_head's
/// restoration), and the joiner, which is local, has the front; the secondary queue is kept.
#[test]
fn the_break_is_restored() {
    play("qspin-cna, restored", &Tunables::DEFAULT, || {
        let script = Script::new();
        script.arrive(&[0, 1, 2, 0]);
        script.hand_over();
        script.expect(3, &[], &[1, 2]);
        let (order, head) = (script.pre_scan(), script.nodes.borrow()[3]);
        script.mutex.unlock();
        let stale = script.mutex.word.load(Relaxed);
        script.arrive(&[0]);
        let now = script.line().acquire::<NodeFirst, Park>(head, stale, order).expect_err("somebody has joined");
        assert_eq!(now, script.mutex.word.load(Relaxed));
        script.expect(3, &[4], &[1, 2]);
        script.line().acquire::<NodeFirst, Park>(head, now, order).expect("nobody else");
        script.head.set(Some(4));
        script.expect(4, &[], &[1, 2]);
        script.drain();
    });
}

/// The threshold in hand-offs (patch 4): with 2^1, the third hand-off in a row goes to the secondary queue.
#[test]
fn flush_by_count() {
    static TWO: Tunables = Tunables { flush: 1, ..Tunables::DEFAULT };
    play("qspin-cna, flush", &TWO, || {
        let script = Script::new();
        script.arrive(&[0, 1, 0, 0, 0, 0]);
        script.hand_over();
        script.expect(2, &[3, 4, 5], &[1]);
        script.hand_over();
        script.expect(3, &[4, 5], &[1]);
        assert!(matches!(script.pre_scan(), Order::Flush));
        script.hand_over();
        script.expect(1, &[4, 5], &[]);
        script.drain();
    });
}

/// The limit in time: what the count does not end, the clock does.
#[test]
fn flush_by_time() {
    static SOON: Tunables = Tunables { stay_us: 3, ..Tunables::DEFAULT };
    let setup = Setup { tunables: &SOON, micros_step: 1, ..Setup::new(20) };
    explore("qspin-cna, time", By::Random, 1, setup, || {
        let script = Script::new();
        script.arrive(&[0, 1, 0, 0, 0, 0]);
        script.hand_over(); // Reads the clock: waiter 1 is moved.
        script.hand_over();
        script.hand_over();
        script.expect(4, &[5], &[1]);
        script.hand_over(); // Three readings later.
        script.expect(1, &[5], &[]);
        script.drain();
    });
}

/// A priority waiter (patch 5) ends the scan and is never moved; it does not end the preference either.
#[test]
fn priority_waiters_stay() {
    play("qspin-cna, priority", &Tunables::DEFAULT, || {
        let script = Script::new();
        script.arrive(&[0, 1, 102, 1, 0]);
        script.hand_over();
        script.expect(2, &[3, 4], &[1]);
        // It runs on node 2, and prefers node 0, as the head before it did.
        script.hand_over();
        script.expect(4, &[], &[1, 3]);
        script.drain();
    });
}

/// Incremental culling: one waiter is moved at each hand-off, whatever is behind it; and the preference stays.
#[test]
fn incremental_culling() {
    static ONE: Tunables = Tunables { incremental: 1, ..Tunables::DEFAULT };
    play("qspin-cna, incremental", &ONE, || {
        let script = Script::new();
        script.arrive(&[0, 1, 2, 1, 2, 0, 1]);
        script.hand_over();
        script.expect(2, &[3, 4, 5, 6], &[1]);
        script.hand_over();
        script.expect(4, &[5, 6], &[1, 3]);
        script.hand_over();
        script.expect(5, &[6], &[1, 3]);
        // No waiter behind waiter 6 can take its place: the secondary queue comes back.
        script.hand_over();
        script.expect(1, &[3, 6], &[]);
        script.drain();
    });
}

/// The kernel patch's rule: one by one while the lock is busy, at least one, none at the hand-off; and a waiter that is
/// not preferred keeps the preference going, unless it is alone.
#[test]
fn culling_while_busy() {
    static BUSY: Tunables = Tunables { incremental: 2, ..Tunables::DEFAULT };
    play("qspin-cna, while busy", &BUSY, || {
        let script = Script::new();
        script.arrive(&[0, 1, 2, 1, 0, 1]);
        // The lock is held: all up to waiter 4.
        script.hand_over();
        script.expect(4, &[5], &[1, 2, 3]);
        // Waiter 5 is alone.
        script.hand_over();
        script.expect(1, &[2, 3, 5], &[]);
        script.mutex.unlock();
        let order = script.pre_scan();
        assert!(script.mutex.word.fetch_or(LOCKED, Relaxed) & LOCKED == 0);
        script.acquire(order);
        // The lock was free: one step, to waiter 3, which is of node 1.
        script.expect(3, &[5], &[2]);
        script.drain();
    });
    play("qspin-cna, while busy, too late", &BUSY, || {
        let script = Script::new();
        script.arrive(&[0, 1, 2, 1, 0]);
        script.mutex.unlock();
        let order = script.pre_scan();
        assert!(script.mutex.word.fetch_or(LOCKED, Relaxed) & LOCKED == 0);
        script.acquire(order);
        // Waiter 2 has the front, and still prefers node 0.
        script.expect(2, &[3, 4], &[1]);
        script.hand_over();
        script.expect(4, &[], &[1, 3]);
        script.drain();
    });
    play("qspin-cna, while busy, waiters come later", &BUSY, || {
        let script = Script::new();
        script.arrive(&[0, 1]);
        let order = script.pre_scan();
        script.expect(0, &[1], &[]);
        script.arrive(&[2]);
        script.go_on(order);
        script.expect(0, &[2], &[1]);
        script.arrive(&[0, 1]);
        script.go_on(order);
        script.expect(0, &[3, 4], &[1, 2]);
        // A preferred waiter is next: there is nothing to do any more.
        script.go_on(order);
        script.acquire(order);
        script.expect(3, &[4], &[1, 2]);
        script.drain();
    });
    // The secondary queue's time has come: this head leaves all as it is.
    static EACH: Tunables = Tunables { incremental: 2, flush: 0, ..Tunables::DEFAULT };
    play("qspin-cna, while busy, flush", &EACH, || {
        let script = Script::new();
        script.arrive(&[0, 1, 0, 1]);
        script.hand_over();
        script.expect(2, &[3], &[1]);
        let order = script.pre_scan();
        script.arrive(&[0]);
        script.go_on(order);
        script.expect(2, &[3, 4], &[1]);
        script.acquire(order);
        script.expect(1, &[3, 4], &[]);
        script.drain();
    });
}

/// Shuffle reduction: a head that does not look leaves the queue as it is; but once a waiter is culled, each head
/// looks.
#[test]
fn shuffle_reduction() {
    // Practically never.
    static SELDOM: Tunables = Tunables { incremental: 2, reduction: 1_000_000_000, ..Tunables::DEFAULT };
    play("qspin-cna, reduction", &SELDOM, || {
        let script = Script::new();
        script.arrive(&[0, 1, 0, 0]);
        assert!(matches!(script.pre_scan(), Order::AsItIs));
        script.hand_over();
        script.expect(1, &[2, 3], &[]);
        script.drain();
    });
}

/// The limit of the scan once the lock is free: the pre-scan does not begin, the post-scan looks at two more.
#[test]
fn a_limited_scan() {
    static TWO: Tunables = Tunables { scan: 2, ..Tunables::DEFAULT };
    play("qspin-cna, scan", &TWO, || {
        let script = Script::new();
        script.arrive(&[0, 1, 1, 1, 0]);
        script.mutex.unlock();
        let order = script.pre_scan();
        assert!(matches!(order, Order::NotUpTo(from) if from == script.nodes.borrow()[0]), "the lock is free");
        assert!(script.mutex.word.fetch_or(LOCKED, Relaxed) & LOCKED == 0);
        script.acquire(order);
        script.expect(1, &[2, 3, 4], &[]);
        // While the lock is held the pre-scan looks at all of them.
        script.hand_over();
        script.expect(2, &[3, 4], &[]);
        script.drain();
    });
}

/// A waiter that gives up is skipped in either queue, and the front goes on from there.
#[test]
fn giving_up() {
    play("qspin-cna, giving up", &Tunables::DEFAULT, || {
        let script = Script::new();
        script.arrive(&[0, 1, 1, 0, 0]);
        script.give_up(3);
        script.give_up(1);
        script.hand_over();
        script.expect(4, &[], &[1, 2]);
        script.hand_over();
        script.expect(2, &[], &[]);
        script.drain();
    });
}

/// Many give up in a secondary queue that stays for long: the head goes through it.
#[test]
fn a_sweep() {
    play("qspin-cna, sweep", &Tunables::DEFAULT, || {
        let script = Script::new();
        script.arrive(&[0]);
        script.arrive(&[1; 20]);
        script.arrive(&[0, 0]);
        script.hand_over();
        (3..19).for_each(|id| script.give_up(id));
        script.hand_over();
        script.expect(22, &[], &[1, 2, 19, 20]);
        assert_eq!(script.line().left().count(), 0);
        script.drain();
    });
}
