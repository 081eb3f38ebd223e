//! `rcl` with pools of workers: sections that block, nested ones, locks that move, servers that close.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use flashlock_locks::for_each_standalone_lock;
use flashlock_locks::parts::wait::{Park, SpinThenPark, WaitPolicy};
use flashlock_model::shuttle::thread::{self, JoinHandle};
use flashlock_model::shuttle::{By, Shuttled, explore, find};
use flashlock_model::{Access, Fault, Field, Instead, Op, Setup};
use shuttle::sync::atomic::AtomicU32;

use crate::common::{STILL, both};
use crate::modelled::each;
use crate::rcl_printed::{AsPrinted, Printed, Then};
use crate::rcl_ring::{Inside, Ring, plain};

/// Sleeps end for no reason.
const RESTLESS: Setup = Setup { spurious: 10, ..STILL };

type Servers<W> = Ring<Shuttled, W>;

/// What a client does: sections of these locks, with that inside.
type Part<W> = &'static [(usize, Inside<Shuttled, W>)];

/// So many servers, each with a manager that makes up to `cap` workers; the locks are theirs as said. A client for each
/// part, which it plays so often.
struct Play<W: WaitPolicy> {
    servers: u32,
    cap: u32,
    of: [u32; 3],
    rounds: u32,
    parts: &'static [Part<W>],
    /// How often a manager looks, at most; 0: until all clients have gone.
    looks: u32,
    /// A bug: [`Ring::seed_carelessness`].
    careless: bool,
    /// A bug: [`Ring::seed_laziness`].
    lazy: bool,
}

impl<W: WaitPolicy> Clone for Play<W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: WaitPolicy> Copy for Play<W> {}

impl<W: WaitPolicy> Play<W> {
    const fn new(parts: &'static [Part<W>]) -> Self {
        Self { servers: 1, cap: 3, of: [1, 1, 1], rounds: 1, parts, looks: 0, careless: false, lazy: false }
    }

    fn body(self) -> impl Fn() + Send + Sync + Clone + 'static {
        move || {
            let ring = Servers::<W>::with_locks(self.servers, 1, self.cap as usize, self.of);
            if self.careless {
                ring.seed_carelessness();
            }
            if self.lazy {
                ring.seed_laziness();
            }
            let gone = Arc::new(AtomicU32::new(0));
            let managers: Vec<_> = (1..=self.servers).map(|number| self.manager(&ring, number, gone.clone())).collect();
            let clients: Vec<_> = self
                .parts
                .iter()
                .map(|part| {
                    let (ring, gone) = (ring.clone(), gone.clone());
                    thread::spawn(move || {
                        for _ in 0..self.rounds {
                            part.iter().for_each(|&(lock, inside)| ring.section(lock, inside));
                        }
                        ring.leave();
                        gone.fetch_add(1, SeqCst);
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
            (1..=self.servers).for_each(|number| ring.close(number));
            managers.into_iter().for_each(|manager| manager.join().expect("no panic"));
            let asked: usize = self.parts.iter().map(|part| part.len()).sum();
            assert!(
                (0..3).map(|lock| ring.visits(lock)).sum::<u32>() >= asked as u32 * self.rounds,
                "sections were lost"
            );
            ring.end();
        }
    }

    /// A manager's thread, which waits for its workers in the end.
    fn manager(self, ring: &Arc<Servers<W>>, number: u32, gone: Arc<AtomicU32>) -> JoinHandle<()> {
        let ring = ring.clone();
        thread::spawn(move || {
            let mut workers = Vec::new();
            let looked = AtomicU32::new(0);
            let over = || {
                let looked = looked.fetch_add(1, SeqCst);
                gone.load(SeqCst) == self.parts.len() as u32 || self.looks > 0 && looked >= self.looks
            };
            ring.manage_until(number, self.cap, over, |me| {
                let ring = ring.clone();
                workers.push(thread::spawn(move || ring.work(number, me)));
            });
            workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        })
    }
}

fn breaks<W: WaitPolicy>(_: &Arc<Servers<W>>) {
    (0..3).for_each(|_| thread::yield_now());
}

fn awaits_flag<W: WaitPolicy>(ring: &Arc<Servers<W>>) {
    ring.await_flag();
}

fn sets_flag<W: WaitPolicy>(ring: &Arc<Servers<W>>) {
    ring.set_flag();
}

/// A section of the other lock inside this one.
fn nests<W: WaitPolicy>(ring: &Arc<Servers<W>>) {
    ring.section(1, plain);
}

/// The same, after a while.
fn breaks_and_nests<W: WaitPolicy>(ring: &Arc<Servers<W>>) {
    breaks(ring);
    nests(ring);
}

/// A section of the second lock inside this one, and inside that one a section of the third.
fn nests_twice<W: WaitPolicy>(ring: &Arc<Servers<W>>) {
    ring.section(1, |ring| ring.section(2, plain));
}

fn moves_to<const TO: u32, W: WaitPolicy>(ring: &Arc<Servers<W>>) {
    ring.assign(0, TO);
    ring.visit(0);
}

fn four<W: WaitPolicy>() -> Play<W> {
    Play { rounds: 3, ..Play::new(&[&[(0, plain)], &[(0, plain)], &[(0, breaks), (1, plain)], &[(1, breaks)]]) }
}

macro_rules! serving {
    ($lock:literal, $wait:ident, $type:ty) => {
        #[test]
        fn clients_are_served() {
            both(concat!($lock, ":wait=", stringify!($wait), " 4 x 3"), 2000, STILL, four::<$type>().body());
        }
    };
}

macro_rules! standalone {
    ($($rows:tt)*) => { each! { of: serving, crate::modelled::served: $($rows)* } };
}
for_each_standalone_lock!(standalone);

#[test]
fn clients_are_served_restlessly() {
    both("rcl 4 x 3, stp, restless", 2000, RESTLESS, four::<SpinThenPark>().body());
}

/// One section waits for what another one does.
fn waiting<W: WaitPolicy>() -> Play<W> {
    Play::new(&[&[(0, awaits_flag)], &[(1, sets_flag)], &[(0, plain), (1, plain)]])
}

/// The owner of a nested lock is blocked until another section has run; that one is not of these locks' holders.
fn nested<W: WaitPolicy>() -> Play<W> {
    Play { rounds: 2, ..Play::new(&[&[(0, nests)], &[(1, breaks)], &[(0, breaks), (1, plain)]]) }
}

#[test]
fn sections_that_block() {
    both("rcl, a flag, park", 3000, STILL, waiting::<Park>().body());
    both("rcl, a flag, stp, restless", 3000, RESTLESS, waiting::<SpinThenPark>().body());
    both("rcl, nested, park", 3000, STILL, nested::<Park>().body());
    both("rcl, nested, stp, restless", 3000, RESTLESS, nested::<SpinThenPark>().body());
}

/// With one worker it hangs, and the checker detects that. (The manager ends after a while, so that no thread is left
/// that could act.)
#[test]
fn one_worker_hangs() {
    let one = Play { cap: 1, looks: 50, ..waiting::<Park>() };
    find("rcl: a flag, one worker", By::Random, 2000, STILL, one.body());
}

/// One worker may be made. Its section outlasts the time-out, and asks for a free lock only then.
fn at_the_cap<W: WaitPolicy>() -> Play<W> {
    Play { cap: 1, ..Play::new(&[&[(0, breaks_and_nests)], &[(1, plain), (2, plain)]]) }
}

/// Two workers may be made. Both are in sections that want the same lock: one gets it when the other has released it.
fn two_at_the_cap<W: WaitPolicy>() -> Play<W> {
    Play { cap: 2, ..Play::new(&[&[(0, breaks_and_nests)], &[(2, breaks_and_nests)], &[(1, plain)]]) }
}

/// The only worker's section waits for another one's, and the server is closed: that one is run under an ordinary lock.
fn closing_at_the_cap<W: WaitPolicy>(lazy: bool) -> impl Fn() + Send + Sync + Clone + 'static {
    move || {
        let play = Play { looks: if lazy { 100 } else { 0 }, ..waiting::<W>() };
        let ring = Servers::<W>::with_locks(1, 1, 1, [1; 3]);
        if lazy {
            ring.seed_laziness();
        }
        let clients = [(0, awaits_flag as Inside<Shuttled, W>), (1, sets_flag)].map(|(lock, inside)| {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.section(lock, inside);
                ring.leave();
            })
        });
        let gone = Arc::new(AtomicU32::new(0));
        let manager = Play { cap: 1, ..play }.manager(&ring, 1, gone.clone());
        thread::yield_now();
        ring.close(1);
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        gone.store(play.parts.len() as u32, SeqCst);
        ring.close(1); // The manager may sleep.
        manager.join().expect("no panic");
        assert_eq!((ring.visits(0), ring.visits(1)), (1, 1));
        ring.end();
    }
}

/// What waits for nothing but a free lock does not wait for a worker.
#[test]
fn the_manager_stands_in() {
    both("rcl, nested at the cap, park", 3000, STILL, at_the_cap::<Park>().body());
    both("rcl, nested at the cap, stp, restless", 3000, RESTLESS, at_the_cap::<SpinThenPark>().body());
    both("rcl, two nested at the cap, park", 3000, STILL, two_at_the_cap::<Park>().body());
    both("rcl, two nested at the cap, stp, restless", 3000, RESTLESS, two_at_the_cap::<SpinThenPark>().body());
    both("rcl, closing at the cap, park", 3000, STILL, closing_at_the_cap::<Park>(false));
    both("rcl, closing at the cap, stp, restless", 3000, RESTLESS, closing_at_the_cap::<SpinThenPark>(false));
}

#[test]
fn a_manager_that_does_not_stand_in_is_found() {
    let lazy = |play| Play { lazy: true, looks: 100, ..play };
    broken("at the cap, a nested lock is never granted", STILL, lazy(at_the_cap::<Park>()).body());
    broken("at the cap, two nested locks are never granted", STILL, lazy(two_at_the_cap::<Park>()).body());
    broken("at the cap, a server is never closed", STILL, closing_at_the_cap::<Park>(true));
}

/// A section of server 1 nests into a lock of server 2, whose section nests into another lock of server 1.
fn across<W: WaitPolicy>() -> Play<W> {
    Play {
        servers: 2,
        of: [1, 2, 1],
        ..Play::new(&[&[(0, nests_twice)], &[(1, breaks), (2, plain)], &[(0, nests_twice)]])
    }
}

#[test]
fn sections_nest_across_servers() {
    both("rcl, across, park", 1000, STILL, across::<Park>().body());
    both("rcl, across, stp, restless", 1000, RESTLESS, across::<SpinThenPark>().body());
}

/// Locks go from ordinary to server 1, to server 2, and back, while others ask.
fn moving<W: WaitPolicy>() -> Play<W> {
    let parts: &'static [Part<W>] = &[
        &[(0, moves_to::<1, W>), (0, plain), (0, moves_to::<2, W>)],
        &[(0, moves_to::<0, W>), (0, breaks)],
        &[(0, plain), (0, plain), (0, breaks)],
    ];
    Play { servers: 2, of: [0, 0, 0], rounds: 2, ..Play::new(parts) }
}

#[test]
fn locks_move() {
    both("rcl, moving, park", 4000, STILL, moving::<Park>().body());
    both("rcl, moving, stp, restless", 4000, RESTLESS, moving::<SpinThenPark>().body());
}

/// Adaptive locks: a governor, which does not hold the lock, says where the lock is to be, and its holders follow:
/// `follow` is what they do at the end of their sections.
fn adaptive(
    follow: Inside<Shuttled, Park>,
    governs: fn(&Servers<Park>, u32),
    looks: u32,
) -> impl Fn() + Send + Sync + Clone {
    move || {
        let ring = Servers::<Park>::with_locks(2, 1, 2, [0, 1, 2]);
        let gone = Arc::new(AtomicU32::new(0));
        let play = Play { servers: 2, cap: 2, looks, ..Play::new(&[&[], &[], &[]]) };
        let managers: Vec<_> = (1..=2).map(|number| play.manager(&ring, number, gone.clone())).collect();
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (ring, gone) = (ring.clone(), gone.clone());
                thread::spawn(move || {
                    (0..3).for_each(|_| ring.section(0, follow));
                    ring.leave();
                    gone.fetch_add(1, SeqCst);
                })
            })
            .collect();
        for server in [1, 2, 0, 2] {
            governs(&ring, server);
            thread::yield_now();
        }
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        (1..=2).for_each(|number| ring.close(number));
        managers.into_iter().for_each(|manager| manager.join().expect("no panic"));
        assert!(ring.visits(0) >= 9, "sections were lost");
        ring.end();
    }
}

fn follows(ring: &Arc<Servers<Park>>) {
    thread::yield_now();
    ring.follow();
}

#[test]
fn adaptive_locks_go_where_they_are_wanted() {
    both("rcl, adaptive, park", 3000, STILL, adaptive(follows, |ring, server| ring.want(server), 0));
    both("rcl, adaptive, restless", 3000, RESTLESS, adaptive(follows, |ring, server| ring.want(server), 0));
}

/// A governor that moves the lock itself, as though it had it.
#[test]
fn who_moves_a_lock_must_hold_it() {
    broken("moves a lock without it", STILL, adaptive(breaks, |ring, server| ring.assign(0, server), 300));
}

/// The server is closed while clients ask: what is left is done under an ordinary lock.
fn closing<W: WaitPolicy>() -> impl Fn() + Send + Sync + Clone + 'static {
    || {
        let ring = Servers::<W>::with_locks(1, 1, 1, [1, 1, 1]);
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let ring = ring.clone();
                thread::spawn(move || {
                    (0..3).for_each(|_| ring.section(0, breaks));
                    ring.leave();
                })
            })
            .collect();
        let worker = {
            let ring = ring.clone();
            thread::spawn(move || ring.work(1, 0))
        };
        thread::yield_now();
        ring.host(1).close();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        worker.join().expect("no panic");
        assert_eq!(ring.visits(0), 9);
        ring.end();
    }
}

#[test]
fn a_server_closes() {
    both("rcl, closing, park", 4000, STILL, closing::<Park>());
    both("rcl, closing, stp, restless", 4000, RESTLESS, closing::<SpinThenPark>());
}

fn broken(name: &str, setup: Setup, body: impl Fn() + Send + Sync + 'static) {
    find(&format!("rcl: {name}"), By::Random, 5000, setup, body);
}

fn meddled(name: &str, meddle: fn(&mut Access<'_>) -> Instead, body: impl Fn() + Send + Sync + 'static) {
    broken(name, Setup { meddle: Some(meddle), ..STILL }, body);
}

#[test]
fn bugs_are_found() {
    let unmarked = |access: &mut Access<'_>| {
        if access.is(Field::RclBusy, Op::Or) { Instead::Nothing } else { Instead::AsTold }
    };
    meddled("a request that is run is not marked as busy", unmarked, Play { rounds: 2, ..nested::<Park>() }.body());
    let stays_marked = |access: &mut Access<'_>| {
        if access.is(Field::RclBusy, Op::And) { Instead::Nothing } else { Instead::AsTold }
    };
    meddled("a request stays marked as busy", stays_marked, Play { looks: 200, rounds: 2, ..waiting::<Park>() }.body());
    let delegated_in_ordinary = |access: &mut Access<'_>| {
        let takes = access.is(Field::RclWord, Op::Cas) && access.old == 0;
        if takes { Instead::Loosely(|seen| (seen & 3 == 0).then_some(seen | 1)) } else { Instead::AsTold }
    };
    meddled(
        "an ordinary client takes a server's lock",
        delegated_in_ordinary,
        Play { looks: 300, ..moving::<Park>() }.body(),
    );
    let careless = Play { careless: true, ..waiting::<Park>() };
    broken("a worker that need not sleep leaves the manager asleep", STILL, careless.body());
    for field in [Field::RclSleep, Field::RclCode, Field::RclBed] {
        let name = format!("wakes of {field:?} are lost");
        let play = Play { looks: 200, ..four::<Park>() };
        broken(&name, Setup { fault: Some(Fault::NoWake(field)), ..STILL }, Play { rounds: 1, ..play }.body());
    }
    let unwoken = Setup { fault: Some(Fault::NoWake(Field::RclWord)), ..STILL };
    broken("who moves the lock wakes nobody", unwoken, Play { looks: 300, ..moving::<Park>() }.body());
}

/// The algorithms as printed, or repaired: clients that play these parts, each section under one of two locks.
fn printed(
    as_printed: AsPrinted,
    parts: &'static [&'static [(u32, Then)]],
) -> impl Fn() + Send + Sync + Clone + 'static {
    move || {
        let server = Arc::new(Printed::<Shuttled>::new(as_printed, parts.len(), 3));
        let clients: Vec<_> = (0..parts.len())
            .map(|me| {
                let server = server.clone();
                thread::spawn(move || parts[me].iter().for_each(|&(lock, then)| server.client(me, lock, then)))
            })
            .collect();
        let manager = {
            let server = server.clone();
            thread::spawn(move || {
                let mut threads = Vec::new();
                server.management(100, |me| {
                    let server = server.clone();
                    threads.push(thread::spawn(move || server.servicing_thread(me)));
                });
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            })
        };
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        server.end();
        manager.join().expect("no panic");
    }
}

/// Two rounds in which one section waits for another one's.
const BLOCKING: &[&[(u32, Then)]] = &[
    &[(0, Then::Awaits(0)), (0, Then::Awaits(1)), (0, Then::Awaits(2))],
    &[(1, Then::Sets(0)), (1, Then::Sets(1)), (1, Then::Sets(2))],
];
/// Sections of two locks, one after another.
const BUSY: &[&[(u32, Then)]] = &[
    &[(0, Then::Breaks), (1, Then::Nothing), (0, Then::Nothing)],
    &[(1, Then::Breaks), (0, Then::Nothing), (1, Then::Nothing)],
    &[(0, Then::Breaks), (0, Then::Breaks), (1, Then::Nothing)],
];

#[test]
fn the_printed_algorithms_repaired() {
    let repaired = AsPrinted::default();
    explore("rcl as printed, repaired, blocking", By::Random, 1000, STILL, printed(repaired, BLOCKING));
    explore("rcl as printed, repaired, busy", By::Random, 1000, STILL, printed(repaired, BUSY));
}

#[test]
fn faults_of_the_printed_algorithms_are_found() {
    let repaired = AsPrinted::default;
    let through_the_slot = AsPrinted { releases_through_the_slot: true, ..repaired() };
    broken("as printed, (a): released through the slot", STILL, printed(through_the_slot, BUSY));
    let reads_once = AsPrinted { reads_once: true, ..repaired() };
    broken("as printed, (b): the slot is read once", STILL, printed(reads_once, BUSY));
    let stays_counted = AsPrinted { stays_counted: true, ..repaired() };
    broken("as printed, (c): who suspends stays counted", STILL, printed(stays_counted, BLOCKING));
    let once_a_scan = AsPrinted { alive_once_a_scan: true, ..repaired() };
    broken("as printed, (d): alive once a scan", STILL, printed(once_a_scan, BUSY));
}
