//! `rcl`: requests, sleep, elections, client numbers, locks that move; the orderings that they rest on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::closure::rcl::Look;
use flashlock_locks::for_each_standalone_lock;
use flashlock_locks::parts::wait::{Park, Spin, WaitPolicy};
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread::{self, JoinHandle};
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::world::World;
use flashlock_model::{Access, Fault, Field, Instead, Op, Setup, Weaken};

use crate::common::ALL;
use crate::modelled::each;
use crate::rcl_ring::{Inside, Ring, plain};

const SETUP: Setup = Setup { polls: 1, ..Setup::new(1) };

type Servers<W> = Ring<Loomed, W>;

fn spawn<W: WaitPolicy>(ring: &Arc<Servers<W>>, act: impl FnOnce(Arc<Servers<W>>) + 'static) -> JoinHandle<()> {
    let ring = ring.clone();
    thread::spawn(move || act(ring))
}

/// A client thread for each entry, and this thread, which serves them until all have gone.
fn served<W: WaitPolicy>(rounds: &'static [u32]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = Servers::<W>::with_locks(1, 1, 1, [1; 3]);
        let gone = Arc::new(loom::sync::atomic::AtomicUsize::new(rounds.len()));
        let clients: Vec<_> = rounds
            .iter()
            .map(|&rounds| {
                let gone = gone.clone();
                spawn(&ring, move |ring| {
                    (0..rounds).for_each(|_| ring.section(0, plain));
                    ring.leave();
                    if gone.fetch_sub(1, AcqRel) == 1 {
                        ring.host(1).close();
                    }
                })
            })
            .collect();
        ring.work(1, 0);
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        assert_eq!((ring.visits(0), ring.host(1).clients()), (rounds.iter().sum(), 0));
        ring.end();
    }
}

/// A client that has polled sleeps, for there are more threads than CPUs: otherwise it polls on, for a while.
const CROWDED: Setup = Setup { crowded: true, ..SETUP };

macro_rules! serving {
    ($lock:literal, $wait:ident, $type:ty) => {
        #[test]
        fn a_client_and_a_server() {
            let name = concat!($lock, ":wait=", stringify!($wait), " 1");
            explore(name, Preemptions(2), CROWDED, served::<$type>(&[1]));
        }
    };
}

macro_rules! standalone {
    ($($rows:tt)*) => { each! { of: serving, crate::modelled::served: $($rows)* } };
}
for_each_standalone_lock!(standalone);

#[test]
fn two_clients_and_a_server() {
    explore("rcl 1+1, park", Preemptions(1), SETUP, served::<Park>(&[1, 1]));
}

/// A request is posted, run and answered without a single read-modify-write, on either side, as long as no thread
/// sleeps.
#[test]
fn a_section_takes_no_atomic() {
    explore("rcl, read-modify-writes", ALL, SETUP, || {
        let ring = Servers::<Spin>::with_locks(1, 1, 1, [1; 3]);
        let client = ring.host(1).join().expect("room");
        assert!(ring.host(1).await_turn(0));
        let before = World::<Loomed>::current(World::atomics);
        assert!(before > 0, "those of the client number and of the turn");
        for _ in 0..2 {
            ring.post_as(client, 1, 0, plain);
            assert_eq!(ring.scan(1, 0).sections, 1);
            assert!(ring.host(1).wait::<Spin>(client, || ()));
        }
        assert_eq!(World::<Loomed>::current(World::atomics), before);
        ring.end();
    });
}

/// A break in a section: others may come in here.
fn breaks<W: WaitPolicy>(ring: &Arc<Servers<W>>) {
    ring.host(1).serving();
    ring.host(1).serving();
}

/// Two requests wait. One worker serves them; the manager looks twice, and if the worker is stuck, another one comes.
/// The worker that has the turn in the end does what is left.
///
/// The manager does not look at `turn` before it revokes that: loom tries no store that comes before another thread's
/// load, where the storing thread itself has loaded last.
fn election(second: usize, looks: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = Servers::<Spin>::with_locks(1, 1, 2, [1; 3]);
        let clients = [ring.post(1, 0, breaks), ring.post(1, second, breaks)];
        assert!(ring.host(1).await_turn(0));
        let first = spawn(&ring, |ring| ring.serve(1, 0));
        let wanted =
            if looks { ring.manage(1, 2).contains(&Look::Wanted) } else { ring.host(1).revoke(0) == Look::Wanted };
        if wanted {
            assert!(ring.host(1).await_turn(1));
            ring.serve(1, 1);
        }
        first.join().expect("no panic");
        let serving = ring.host(1).serving().unwrap_or_else(|| {
            assert!(ring.host(1).await_turn(1));
            1
        });
        ring.serve(1, serving);
        for client in clients {
            assert!(ring.host(1).wait::<Spin>(client, || ()), "moved");
        }
        assert_eq!(ring.visits(0) + if second == 0 { 0 } else { ring.visits(1) }, 2);
        ring.end();
    }
}

#[test]
fn elections() {
    for (second, name) in [(0, "one lock"), (1, "two locks")] {
        explore(&format!("rcl, {name}, the turn is revoked"), Preemptions(3), SETUP, election(second, false));
        explore(&format!("rcl, {name}, the manager looks"), Preemptions(3), SETUP, election(second, true));
    }
}

/// The same with two workers that live on, one of which is free, and a manager.
fn free_worker() -> impl Fn() + Send + Sync + 'static {
    || {
        let ring = Servers::<Park>::with_locks(1, 1, 2, [1; 3]);
        let clients = [ring.post(1, 0, breaks), ring.post(1, 0, breaks)];
        assert!(ring.host(1).await_turn(0));
        let workers = [spawn(&ring, |ring| ring.work(1, 0)), spawn(&ring, |ring| ring.work(1, 1))];
        ring.host(1).revoke(0);
        for client in clients {
            assert!(ring.host(1).wait::<Park>(client, || ()), "moved");
        }
        ring.host(1).close();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        assert_eq!(ring.visits(0), 2);
        ring.end();
    }
}

#[test]
fn an_election_of_a_free_worker() {
    explore("rcl, a free worker", Preemptions(1), SETUP, free_worker());
}

/// No thread can be made for a worker that is stuck in a section, and that section then asks for a free lock.
fn nested_at_the_cap() -> impl Fn() + Send + Sync + 'static {
    || {
        let ring = Servers::<Park>::with_locks(1, 1, 1, [1; 3]);
        assert!(ring.host(1).await_turn(0));
        let client = ring.post(1, 0, |ring| ring.section(1, plain));
        let worker = spawn(&ring, |ring| {
            ring.serve(1, 0);
            ring.leave();
            ring.host(1).close();
            ring.work(1, 0);
        });
        ring.host(1).revoke(0);
        while !ring.host(1).is_closed() {
            ring.host(1).stand_in();
            thread::yield_now();
        }
        assert!(ring.host(1).wait::<Park>(client, || ()), "moved");
        worker.join().expect("no panic");
        assert_eq!((ring.visits(0), ring.visits(1)), (1, 1));
        ring.end();
    }
}

/// The manager stands in while the first worker comes. A section is to be run under the same lock that a thread asks
/// for.
fn stands_in() -> impl Fn() + Send + Sync + 'static {
    || {
        let ring = Servers::<Park>::with_locks(1, 1, 1, [1; 3]);
        let client = ring.post(1, 1, breaks);
        let worker = spawn(&ring, |ring| ring.work(1, 0));
        let asks = spawn(&ring, |ring| {
            ring.locked(1);
            ring.leave();
            ring.host(1).close();
        });
        ring.host(1).stand_in();
        [worker, asks].into_iter().for_each(|thread| thread.join().expect("no panic"));
        // Done, or moved by the server that was closed.
        let done = ring.host(1).wait::<Park>(client, || ());
        assert_eq!(ring.visits(1), 1 + u32::from(done));
        ring.end();
    }
}

#[test]
fn the_manager_stands_in() {
    explore("rcl, nested at the cap", Preemptions(2), SETUP, nested_at_the_cap());
    explore("rcl, the manager stands in", Preemptions(2), SETUP, stands_in());
}

/// Client numbers of the second word are taken and given back by two threads: each is within the range as long as a
/// client has it.
fn renaming(rounds: u32) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = Servers::<Spin>::new(1, 2, 1);
        for expected in 0..32 {
            assert_eq!(ring.host(1).join(), Some(expected));
        }
        let comes_and_goes = move |ring: Arc<Servers<Spin>>| {
            for _ in 0..rounds {
                let client = ring.host(1).join().expect("room");
                assert!((32..34).contains(&client));
                assert!(ring.host(1).range() > client, "out of range");
                ring.host(1).leave(client);
            }
        };
        let other = spawn(&ring, comes_and_goes);
        comes_and_goes(ring.clone());
        other.join().expect("no panic");
        assert_eq!((ring.host(1).range(), ring.host(1).clients()), (32, 32));
    }
}

#[test]
fn client_numbers() {
    explore("rcl, client numbers", ALL, SETUP, renaming(1));
    explore("rcl, client numbers again", Preemptions(3), SETUP, renaming(2));
}

/// Two clients with a section each, the first of which moves the lock, and a server.
fn moves(from: u32, inside: Inside<Loomed, Park>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = Servers::<Park>::with_locks(1, 1, 1, [from, 0, 0]);
        let gone = Arc::new(loom::sync::atomic::AtomicUsize::new(2));
        let client = |inside: Inside<Loomed, Park>| {
            let gone = gone.clone();
            move |ring: Arc<Servers<Park>>| {
                ring.section(0, inside);
                ring.leave();
                if gone.fetch_sub(1, AcqRel) == 1 {
                    ring.host(1).close();
                }
            }
        };
        let clients = [spawn(&ring, client(inside)), spawn(&ring, client(plain))];
        ring.work(1, 0);
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        assert_eq!(ring.visits(0), 2);
        ring.end();
    }
}

fn to_server(ring: &Arc<Servers<Park>>) {
    ring.assign(0, 1);
}

/// A client makes the lock the server's, has a request posted there, and only then touches the data once more.
fn delegates() -> impl Fn() + Send + Sync + 'static {
    || {
        let ring = Servers::<Spin>::with_locks(1, 1, 1, [0; 3]);
        assert!(ring.host(1).await_turn(0));
        let client = spawn(&ring, |ring| {
            ring.section(0, |ring| {
                ring.assign(0, 1);
                ring.post(1, 0, plain);
                ring.visit(0);
            });
        });
        while ring.scan(1, 0).sections == 0 {
            thread::yield_now();
        }
        client.join().expect("no panic");
        assert_eq!(ring.visits(0), 3);
        ring.end();
    }
}

fn to_ordinary(ring: &Arc<Servers<Park>>) {
    ring.assign(0, 0);
}

#[test]
fn a_lock_becomes_a_servers() {
    explore("rcl, ordinary to delegated", Preemptions(1), SETUP, moves(0, to_server));
    explore("rcl, delegated with a request", Preemptions(2), SETUP, delegates());
}

#[test]
fn a_lock_becomes_ordinary() {
    explore("rcl, delegated to ordinary", Preemptions(1), SETUP, moves(1, to_ordinary));
}

/// A server closes when it has run what it found. Its client then finds it closed, and must know whether its request
/// was run.
fn closes_after_a_scan() -> impl Fn() + Send + Sync + 'static {
    || {
        let ring = Servers::<Park>::with_locks(1, 1, 1, [1; 3]);
        assert!(ring.host(1).await_turn(0));
        let client = ring.host(1).join().expect("room");
        ring.host(1).close(); // Here: otherwise this thread would be the last to look at `sleep`, see `election`.
        let done = Arc::new(AtomicBool::new(false));
        let asks = {
            let done = done.clone();
            spawn(&ring, move |ring| done.store(ring.offer(client, 1, 0, plain), Relaxed))
        };
        ring.scan(1, 0);
        ring.work(1, 0);
        asks.join().expect("no panic");
        assert_eq!(ring.visits(0), u32::from(done.load(Relaxed)));
        ring.end();
    }
}

/// The worker that runs a section loses the turn.
fn is_revoked(ring: &Arc<Servers<Park>>) {
    ring.host(1).revoke(0);
}

/// The server is closed while a worker runs a section without the turn. The section's client asks again meanwhile.
fn closes_beside_a_section() -> impl Fn() + Send + Sync + 'static {
    || {
        let ring = Servers::<Park>::with_locks(1, 1, 2, [1; 3]);
        assert!(ring.host(1).await_turn(0));
        let client = ring.post(1, 0, is_revoked);
        ring.host(1).close();
        let closes = spawn(&ring, |ring| ring.work(1, 1));
        let asks = spawn(&ring, move |ring| {
            assert!(ring.host(1).wait::<Park>(client, || ()), "moved");
            assert!(!ring.offer(client, 1, 0, plain), "the other worker has found the server to be closed at once");
        });
        ring.scan(1, 0);
        [closes, asks].into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(ring.visits(0), 1);
        ring.end();
    }
}

/// The section that such a worker runs makes its lock ordinary. Another thread has seen the closed server meanwhile,
/// and waits for the lock.
fn leaves_a_closed_server() -> impl Fn() + Send + Sync + 'static {
    || {
        let ring = Servers::<Park>::with_locks(1, 1, 2, [1; 3]);
        assert!(ring.host(1).await_turn(0));
        let client = ring.post(1, 0, |ring| {
            is_revoked(ring);
            to_ordinary(ring);
        });
        ring.host(1).close();
        let closes = spawn(&ring, |ring| {
            ring.work(1, 1);
            ring.section(0, plain);
        });
        ring.scan(1, 0);
        assert!(ring.host(1).wait::<Park>(client, || ()), "moved");
        closes.join().expect("no panic");
        assert_eq!(ring.visits(0), 2);
        ring.end();
    }
}

#[test]
fn a_server_closes() {
    explore("rcl, closes after a scan", Preemptions(3), SETUP, closes_after_a_scan());
}

#[test]
fn a_server_closes_beside_a_section() {
    explore("rcl, closes beside a section", Preemptions(2), SETUP, closes_beside_a_section());
}

#[test]
fn a_lock_leaves_a_closed_server() {
    explore("rcl, a lock leaves a closed server", Preemptions(3), SETUP, leaves_a_closed_server());
}

/// A governor opens a server, and says that an ordinary lock is wanted there. Whoever runs a section follows.
fn follows() -> impl Fn() + Send + Sync + 'static {
    || {
        let ring = Servers::<Spin>::with_locks(1, 1, 1, [0; 3]);
        ring.opens(0);
        let governor = spawn(&ring, |ring| {
            ring.opens(1);
            ring.want(1);
        });
        ring.section(0, |ring| ring.follow());
        governor.join().expect("no panic");
        assert_eq!(ring.visits(0), 1);
        ring.end();
    }
}

#[test]
fn a_lock_goes_where_it_is_wanted() {
    explore("rcl, wanted at a new server", ALL, SETUP, follows());
}

const fn weak(field: Field, op: Op, from: Ordering, to: Ordering) -> Weaken {
    Weaken { field, op, from, to }
}

macro_rules! found {
    ($($name:ident: [$($weak:expr),+], $depth:expr, $model:expr;)*) => {$(
        #[test]
        fn $name() {
            const WEAKEN: &[Weaken] = &[$($weak),+];
            find(concat!("rcl: ", stringify!($name)), $depth, Setup { weaken: WEAKEN, ..SETUP }, $model);
        }
    )*};
}

found! {
    post_and_answer_release: [weak(Field::RclCode, Op::Store, Release, Relaxed)], Preemptions(2), served::<Spin>(&[1]);
    post_and_answer_acquire: [weak(Field::RclCode, Op::Load, Acquire, Relaxed)], Preemptions(2), served::<Spin>(&[1]);
    word_acquire: [weak(Field::RclWord, Op::Load, Acquire, Relaxed)], Preemptions(3), election(0, false);
    at_release: [weak(Field::RclAt, Op::Store, Release, Relaxed)], Preemptions(3), election(0, false);
    at_acquire: [weak(Field::RclAt, Op::Load, Acquire, Relaxed)], Preemptions(3), election(0, false);
    busy_acquire: [weak(Field::RclBusy, Op::Load, Acquire, Relaxed)], Preemptions(3), election(0, false);
    turn_exchanges: [weak(Field::RclTurn, Op::Cas, AcqRel, Relaxed)], Preemptions(2), stands_in();
    ordinary_release: [weak(Field::RclWord, Op::Swap, Release, Relaxed)], Preemptions(2), moves(0, plain);
    ordinary_acquire: [weak(Field::RclWord, Op::Cas, Acquire, Relaxed)], Preemptions(2), moves(0, plain);
    delegates_release: [weak(Field::RclWord, Op::Store, Release, Relaxed)], Preemptions(2), delegates();
    wanted_release: [weak(Field::RclWanted, Op::Swap, Release, Relaxed)], ALL, follows();
    wanted_acquire: [weak(Field::RclWanted, Op::Load, Acquire, Relaxed)], ALL, follows();
    range_shrinks_unordered: [
        weak(Field::RclRange, Op::Load, Acquire, Relaxed),
        weak(Field::RclLive, Op::Load, Acquire, Relaxed)
    ], ALL, renaming(2);
}

fn fault(name: &str, depth: Depth, fault: Fault, model: impl Fn() + Send + Sync + 'static) {
    find(&format!("rcl: {name}"), depth, Setup { fault: Some(fault), ..SETUP }, model);
}

#[test]
fn half_a_barrier_is_none() {
    for (name, which) in [("light", Fault::NoLightFence), ("heavy", Fault::NoHeavyFence)] {
        fault(&format!("sleeps without the {name} fence"), Preemptions(3), which, served::<Park>(&[1]));
        fault(&format!("closes without the {name} fence"), Preemptions(3), which, closes_beside_a_section());
        fault(&format!("elects without the {name} fence"), Preemptions(3), which, election(0, false));
    }
}

/// One access is changed, whichever thread makes it.
fn meddled(name: &str, depth: Depth, meddle: fn(&mut Access<'_>) -> Instead, model: impl Fn() + Send + Sync + 'static) {
    find(&format!("rcl: {name}"), depth, Setup { meddle: Some(meddle), ..SETUP }, model);
}

#[test]
fn bugs_are_found() {
    let unmarked = |access: &mut Access<'_>| {
        if access.is(Field::RclBusy, Op::Or) { Instead::Nothing } else { Instead::AsTold }
    };
    meddled("a request that is run is not marked as busy", Preemptions(3), unmarked, election(0, false));
    let taken_blindly = |access: &mut Access<'_>| match access {
        access if access.is(Field::RclWord, Op::Load) => Instead::With(access.new & !3),
        _ => Instead::AsTold,
    };
    meddled("a lock is taken though it is held", Preemptions(3), taken_blindly, election(0, false));
    let outside = |access: &mut Access<'_>| match access {
        access if access.is(Field::RclAt, Op::Load) => Instead::With(access.new | 1),
        _ => Instead::AsTold,
    };
    meddled("the turn is taken from a worker outside", Preemptions(3), outside, election(0, false));
    let without_the_turn = |access: &mut Access<'_>| {
        let takes = access.is(Field::RclTurn, Op::Cas) && access.new & 0xfff == 0xfff;
        if takes { Instead::Nothing } else { Instead::AsTold }
    };
    meddled("the manager stands in without the turn", Preemptions(2), without_the_turn, stands_in());
    let shrinks_blindly = |access: &mut Access<'_>| {
        let lowers = access.is(Field::RclRange, Op::Cas) && access.new & 0xfff == 1;
        if lowers { Instead::Loosely(|seen| Some(seen & !0xfff | 1)) } else { Instead::AsTold }
    };
    meddled("the range is lowered whatever it is", ALL, shrinks_blindly, renaming(1));
    let unrung = |access: &mut Access<'_>| {
        let rings = access.is(Field::RclSleep, Op::Cas);
        if rings { Instead::Nothing } else { Instead::AsTold }
    };
    meddled("a client does not wake the server", Preemptions(3), unrung, served::<Park>(&[1]));
}

#[test]
fn lost_wakes_are_found() {
    fault("nobody wakes the server", Preemptions(2), Fault::NoWake(Field::RclSleep), served::<Park>(&[1]));
    fault(
        "a lock that leaves a closed server wakes nobody",
        Preemptions(3),
        Fault::NoWake(Field::RclWord),
        leaves_a_closed_server(),
    );
    fault("the manager that stood in wakes no worker", Preemptions(2), Fault::NoWake(Field::RclBed), stands_in());
    fault("an answer wakes nobody", Preemptions(2), Fault::NoWake(Field::RclCode), served::<Park>(&[1]));
}
