//! The kernel's lock, and CNA in it: fronts of queues built by hand, and raced from there.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::{Node, state};
use flashlock_locks::machine::{Handle, Tunables, Word as _};
use flashlock_locks::mutex::numa::QspinCna;
use flashlock_locks::mutex::queue::Qspin;
use flashlock_locks::mutex::queue::qspin::line::Line;
use flashlock_locks::mutex::queue::qspin::word::{LOCKED, pending_mark, tail_word};
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::queue::link::Link;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::harness::Totals;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::thread::{self, JoinHandle};
use flashlock_model::loom::{explore, find};
use flashlock_model::{Fault, Field, Loom};

use crate::common::{
    ALL, Lock, Mutex, Racers, adopt, adopted_section, all_done, come_back, gives_up, joins, puts_himself, sections,
    serve, sleepers, world,
};
use crate::qspin_mutants::{DoesNotRestore, DropsElsewhere, ForgetsThem, InheritsNothing, MutantQspin};

/// Enough nodes for both queues.
pub(crate) const SETUP: flashlock_model::Setup = flashlock_model::Setup { polls: 1, ..flashlock_model::Setup::new(7) };
/// A head flushes as soon as anybody is in the secondary queue.
const FLUSHES: flashlock_model::Setup =
    flashlock_model::Setup { tunables: &Tunables { flush: 0, ..Tunables::DEFAULT }, ..SETUP };

/// A lock that is its word.
pub(crate) trait OneWord: Lock<Queue = ()> {}
impl<L: Lock<Queue = ()>> OneWord for L {}

/// The lock is held by this thread; the head of its queue is on NUMA node 0, behind it are these, and these are in the
/// secondary queue.
pub(crate) struct Front<L: OneWord> {
    mutex: Arc<Mutex<L>>,
    head: Handle,
    /// Main queue first.
    asleep: Vec<Handle>,
}

impl<L: OneWord> Front<L> {
    pub(crate) fn new(main: &[u32], secondary: &[u32]) -> Self {
        let mutex = Arc::new(Mutex::<L>::new());
        mutex.lock();
        let mut numa = vec![0];
        numa.extend(main);
        let nodes = sleepers(&numa);
        let head = nodes[0];
        for behind in &nodes[1..] {
            behind.node::<Loom>().state.store(state::PARKED, Relaxed);
        }
        mutex.adopt(Chain::new(head, nodes[nodes.len() - 1]));
        assert_eq!(node(head).state.load(Relaxed), state::HEAD);
        let ring = sleepers(secondary);
        if let (Some(first), Some(last)) = (ring.first(), ring.last()) {
            node(*last).next.store(first.word(), Relaxed);
            node(head).prev.store(last.word(), Relaxed);
        }
        let asleep = nodes[1..].iter().chain(&ring).copied().collect();
        Self { mutex, head, asleep }
    }

    /// This thread releases, and goes on as the head; the others come back. The lock is free in the end.
    fn run(self, others: impl IntoIterator<Item = JoinHandle<()>>) {
        let threads = [come_back(&self.mutex, self.asleep.clone())];
        self.mutex.visit();
        self.mutex.unlock();
        adopted_section(&self.mutex, self.head);
        all_done(&self.mutex, others.into_iter().chain(threads));
        self.is_clear();
    }

    /// The same, and a thread of node 0 comes meanwhile.
    fn run_as_one_comes(self, racers: Racers) {
        if racers == Racers::Three {
            let joiner = joins(&self.mutex, 0);
            return self.run([joiner]);
        }
        let (me, queues) = puts_himself(&self.mutex, 0);
        self.mutex.visit();
        self.mutex.unlock();
        adopted_section(&self.mutex, self.head);
        queues.join().expect("no panic");
        serve(&self.mutex, self.asleep.iter().copied().chain([me]).collect());
        self.is_clear();
    }

    fn is_clear(&self) {
        assert_eq!(self.mutex.word.load(Relaxed), 0, "nothing is left in the word");
    }
}

fn node(handle: Handle) -> &'static Node<Loom> {
    handle.node()
}

/// The head is the only one in the queue, and a thread joins: alone, as the next, or to inherit the front.
fn front_against_joiner<L: OneWord>(racers: Racers) {
    let front = Front::<L>::new(&[], &[]);
    front.run_as_one_comes(racers);
}

/// Two threads join behind the head.
pub(crate) fn two_join() {
    let front = Front::<Qspin<Park>>::new(&[], &[]);
    let joiners = [joins(&front.mutex, 0), joins(&front.mutex, 0)];
    front.run(joiners);
}

/// A waiter is put into the queue of a free lock, which another thread tries to take: that thread does not take the
/// queue for dead.
pub(crate) fn tried_as_somebody_queues() {
    let mutex = Arc::new(Mutex::<Qspin<Park>>::new());
    let queues = {
        let mutex = mutex.clone();
        thread::spawn(move || {
            let asleep = sleepers(&[0]);
            adopt(&mutex, &asleep);
            adopted_section(&mutex, asleep[0]);
        })
    };
    if mutex.try_lock() {
        mutex.visit();
        mutex.unlock();
    }
    queues.join().expect("no panic");
    assert_eq!(mutex.word.load(Relaxed), 0);
}

/// The same with one in the secondary queue: the speculative break, and its restoration if the joiner was faster.
fn break_against_joiner<L: OneWord>(count: usize, racers: Racers) {
    let front = Front::<L>::new(&[], &[1, 1][..count]);
    front.run_as_one_comes(racers);
}

/// A waiter of another node is behind the head, and a local one joins: found by the post-scan, or not.
fn scan_against_joiner<L: OneWord>(racers: Racers) {
    let front = Front::<L>::new(&[1], &[]);
    front.run_as_one_comes(racers);
}

/// The front goes to the next waiter, with a waiter in the secondary queue.
pub(crate) fn front_goes_on<L: OneWord>() {
    Front::<L>::new(&[0], &[1]).run([]);
}

/// The same, if the waiter behind the head has promised to stay: a plain store passes the front to it. As it waits for
/// the word, it finds a waiter of its own node behind another one; the other one joins the secondary queue that came
/// with the front.
pub(crate) fn front_goes_on_by_a_store() {
    let mut front = Front::<QspinCna<Spin>>::new(&[0, 1, 0], &[1]);
    let &[waiter, other, local, secondary] = &front.asleep[..] else { unreachable!("four wait") };
    front.asleep = vec![waiter, local, secondary, other]; // As they are served.
    node(waiter).state.store(state::WAITING, Relaxed);
    node(front.head).next.store(Link::new(waiter, 0).word(), Relaxed);
    front.run([]);
}

/// The head, which has made a secondary queue, leaves before its joiner has linked itself: nothing that the front
/// carries is lost.
pub(crate) fn left_to_joiner<L: OneWord>() {
    let front = Front::<L>::new(&[], &[1]);
    let (mutex, head) = (front.mutex.clone(), front.head);
    let secondary = node(head).prev.swap(0, Relaxed);
    let heads = thread::spawn(move || {
        node(head).prev.store(secondary, Relaxed);
        mutex.visit();
        mutex.unlock();
        adopted_section(&mutex, head);
    });
    let others = come_back(&front.mutex, front.asleep);
    front.mutex.section();
    for thread in [heads, others] {
        thread.join().expect("no panic");
    }
    assert_eq!(front.mutex.word.load(Relaxed), 0);
}

/// The only waiter behind the head, or in the secondary queue, gives up as the front comes to it. The lock is free
/// then.
fn front_against_time_out<L: OneWord>(secondary: bool) {
    let front = if secondary { Front::<L>::new(&[], &[1]) } else { Front::<L>::new(&[1], &[]) };
    let (mutex, me) = (front.mutex.clone(), front.asleep[0]);
    let leaving = gives_up(me);
    mutex.unlock();
    adopted_section(&mutex, front.head);
    if !leaving.join().expect("no panic") {
        adopted_section(&mutex, me);
    }
    assert_eq!((mutex.word.load(Relaxed), world().arena.left().count()), (0, 0));
}

/// The head gives up, and a thread joins: the joiner is the head then, and gets what the front carries.
fn head_leaves<L: OneWord>(secondary: &[u32]) {
    let front = Front::<L>::new(&[], secondary);
    let joiner = joins(&front.mutex, 0);
    let threads = [come_back(&front.mutex, front.asleep.clone())];
    let (line, head) = (Line::<Loom> { word: &front.mutex.word }, front.head);
    line.pass::<flashlock_locks::mutex::numa::qspin_cna::NodeFirst, Park>(head, unordered(head));
    front.mutex.visit();
    front.mutex.unlock();
    for thread in threads.into_iter().chain([joiner]) {
        thread.join().expect("no panic");
    }
    assert_eq!(front.mutex.word.load(Relaxed), 0);
}

fn unordered(front: Handle) -> flashlock_locks::mutex::numa::qspin_cna::Order {
    flashlock_locks::mutex::numa::qspin_cna::Order::NotUpTo(front)
}

fn check(name: &str, body: fn()) {
    explore(name, Preemptions(2), SETUP, body);
}

/// With two racers, and with three.
fn race(name: &str, setup: flashlock_model::Setup, body: fn(Racers)) -> [Totals; 2] {
    Racers::BOTH.map(|racers| explore(name, racers.depth(), setup, move || body(racers)))
}

#[test]
fn joining_as_the_front_goes_on() {
    race("qspin stp, joiner", SETUP, front_against_joiner::<Qspin<SpinThenPark>>);
    race("qspin park, joiner", SETUP, front_against_joiner::<Qspin<Park>>);
    check("qspin park, two joiners", two_join);
    check("qspin park, tried", tried_as_somebody_queues);
    race("qspin-cna park, joiner", SETUP, front_against_joiner::<QspinCna<Park>>);
}

#[test]
fn the_speculative_break() {
    let one = |racers| break_against_joiner::<QspinCna<Park>>(1, racers);
    race("qspin-cna, break", SETUP, one).iter().for_each(|totals| totals.shows(&[Event::Alteration]));
    race("qspin-cna, break, two", SETUP, |racers| break_against_joiner::<QspinCna<Park>>(2, racers));
    race("qspin-cna, break, flush", FLUSHES, one);
}

#[test]
fn found_by_the_post_scan_or_not() {
    let moved = race("qspin-cna, scan", SETUP, scan_against_joiner::<QspinCna<Park>>);
    moved.iter().for_each(|totals| totals.shows(&[Event::Alteration]));
    race("qspin-cna, scan, flush", FLUSHES, scan_against_joiner::<QspinCna<Park>>);
}

#[test]
fn giving_up_as_the_front_comes() {
    for secondary in [false, true] {
        explore("qspin-cna, time-out", ALL, SETUP, move || front_against_time_out::<QspinCna<Park>>(secondary));
    }
    explore("qspin, time-out", ALL, SETUP, || front_against_time_out::<Qspin<Park>>(false));
}

#[test]
fn the_head_gives_up() {
    check("qspin-cna, notified by a store", front_goes_on_by_a_store);
    check("qspin-cna, head leaves", || head_leaves::<QspinCna<Park>>(&[]));
    check("qspin-cna, head leaves, secondary", || head_leaves::<QspinCna<Park>>(&[1]));
    check("qspin-cna, left to the joiner", left_to_joiner::<QspinCna<Park>>);
}

/// A PENDING thread, the head behind it, a release: both sleep on the word, or are about to.
fn two_on_the_word<L: OneWord>() {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    let threads = [joins(&mutex, 0), joins(&mutex, 0)];
    mutex.visit();
    mutex.unlock();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(mutex.word.load(Relaxed), 0);
}

#[test]
fn two_sleep_on_the_word() {
    explore("qspin park, two on the word", Preemptions(4), SETUP, two_on_the_word::<Qspin<Park>>);
    explore("qspin stp, two on the word", Preemptions(3), SETUP, two_on_the_word::<Qspin<SpinThenPark>>);
}

/// A child, forked while the lock was held, one thread was PENDING, and (unless `alone`) others queued; or such a
/// child's child, and so on, if there is more than one of these `generations`: no thread waits for them.
fn forked<L: OneWord>(alone: bool, generations: u32) {
    let mutex = Arc::new(Mutex::<L>::new());
    mutex.lock();
    let lost = sleepers(if alone { &[] } else { &[0, 0] });
    if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
        mutex.adopt(Chain::new(*first, *last));
    }
    mutex.word.fetch_or(pending_mark::<Loom>().expect("the first"), Relaxed);
    (0..generations).for_each(|_| world().fork());
    let other = joins(&mutex, 0);
    mutex.visit();
    mutex.unlock();
    mutex.section();
    other.join().expect("no panic");
    assert!(!mutex.is_locked() && mutex.try_lock());
    assert_eq!((mutex.word.load(Relaxed) & LOCKED, tail_word(mutex.word.load(Relaxed))), (LOCKED, 0));
    mutex.unlock();
    lost.into_iter().for_each(|node| world().arena.give(node));
}

#[test]
fn a_forked_child_waits_for_nobody_of_its_parent() {
    for (generations, alone) in (1..4).flat_map(|generations| [(generations, true), (generations, false)]) {
        explore("qspin, forked", Preemptions(3), SETUP, move || forked::<Qspin<SpinThenPark>>(alone, generations));
        explore("qspin-cna, forked", Preemptions(3), SETUP, move || forked::<QspinCna<Park>>(alone, generations));
    }
}

/// A release of a lock that no thread holds changes nothing, and lets no thread in.
fn released_twice() {
    let mutex = Arc::new(Mutex::<Qspin<Park>>::new());
    let threads = [joins(&mutex, 0), joins(&mutex, 0)];
    if mutex.word.load(Relaxed) == 0 {
        // (If the lock is held by then, this breaks exclusion, as it does with any lock.)
        for thread in threads {
            thread.join().expect("no panic");
        }
        mutex.unlock();
    } else {
        for thread in threads {
            thread.join().expect("no panic");
        }
    }
    assert_eq!(mutex.word.load(Relaxed), 0);
    mutex.section();
}

#[test]
fn releasing_a_free_lock() {
    explore("qspin, released twice", Preemptions(2), SETUP, released_twice);
}

#[test]
fn bugs() {
    let bound = Preemptions(2);
    let faulty = |fault| flashlock_model::Setup { fault: Some(fault), ..SETUP };
    find(
        "qspin: a release wakes nobody",
        bound,
        faulty(Fault::NoWake(Field::LockWord)),
        sections::<Qspin<Park>>(&[1, 1]),
    );
    find(
        "qspin: a new head is not woken",
        bound,
        faulty(Fault::NoWake(Field::NodeState)),
        front_goes_on::<QspinCna<Park>>,
    );
    find("qspin: sleeps without a look", bound, faulty(Fault::ParkBlindly), sections::<Qspin<Park>>(&[1, 1]));
    find("qspin-cna: the others elsewhere are forgotten", bound, SETUP, || {
        Front::<MutantQspin<DropsElsewhere>>::new(&[], &[1, 1]).run([]);
    });
    find("qspin-cna: the break is not restored", bound, SETUP, || {
        break_against_joiner::<MutantQspin<DoesNotRestore>>(2, Racers::Three);
    });
    find("qspin-cna: the secondary queue is not handed on", bound, SETUP, front_goes_on::<MutantQspin<ForgetsThem>>);
    find("qspin-cna: the heir looks at nothing", bound, SETUP, left_to_joiner::<MutantQspin<InheritsNothing>>);
}
