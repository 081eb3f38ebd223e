//! NUMA paths on a machine that need not have several nodes: threads are assigned round-robin to imagined nodes, as
//! with `FLASHLOCK_TOPOLOGY`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::Mcscr;
use flashlock_locks::mutex::numa::Cna;
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_native::machine::Sink;
use flashlock_native::{Native, numa};

const NODES: usize = 3;
const THREADS: usize = 9;
/// A machine that is too slow to show a result in this time fails the test.
const LIMIT: Duration = Duration::from_secs(600);

/// Counts hand-offs made on each node, and how often waiters were moved.
struct ByNode;

static SAME: [AtomicU64; NODES] = [const { AtomicU64::new(0) }; NODES];
static OTHER: [AtomicU64; NODES] = [const { AtomicU64::new(0) }; NODES];
static MOVED: AtomicU64 = AtomicU64::new(0);

impl Sink for ByNode {
    fn event(event: Event) {
        let here = numa::node() as usize;
        match event {
            Event::HandoffSame => SAME[here].fetch_add(1, Relaxed),
            Event::HandoffOther => OTHER[here].fetch_add(1, Relaxed),
            Event::Shuffle | Event::Alteration | Event::Cull => MOVED.fetch_add(1, Relaxed),
            _ => 0,
        };
    }
    fn stamp() -> u64 {
        0
    }
    fn waited(_: u64) {}
}

struct Guarded<L: RawLock<Native<ByNode>>> {
    lock: Raw<Native<ByNode>, L>,
    count: AtomicU64,
}

/// Threads contend for one lock until `enough` is true. No increment of the counter may be lost.
fn contend<L: RawLock<Native<ByNode>>>(enough: impl Fn() -> bool)
where
    L::Queue: Send + Sync,
{
    let shared = Arc::new(Guarded::<L> { lock: Raw::new(), count: AtomicU64::new(0) });
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (shared, stop) = (shared.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut mine = 0;
                while !stop.load(Relaxed) {
                    shared.lock.lock();
                    let seen = shared.count.load(Relaxed);
                    for _ in 0..200 {
                        std::hint::spin_loop();
                    }
                    shared.count.store(seen + 1, Relaxed);
                    // SAFETY: this thread holds it.
                    unsafe { shared.lock.unlock() };
                    mine += 1;
                }
                mine
            })
        })
        .collect();
    let begun = Instant::now();
    while !enough() && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let in_time = enough();
    stop.store(true, Relaxed);
    let made: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(shared.count.load(Relaxed), made, "exclusion");
    assert!(in_time, "same {SAME:?}, other {OTHER:?}, moved {MOVED:?}");
}

fn reset() {
    for counter in SAME.iter().chain(&OTHER).chain([&MOVED]) {
        counter.store(0, Relaxed);
    }
}

fn all_positive(counters: &[AtomicU64]) -> bool {
    counters.iter().all(|counter| counter.load(Relaxed) > 0)
}

/// A single test, because the counters and the topology belong to the process.
#[test]
fn every_node_hands_over_to_itself_and_to_others() {
    numa::prepare(Some(NODES as u32));
    let everywhere = || all_positive(&SAME) && all_positive(&OTHER);
    contend::<Mcs>(everywhere);
    reset();
    contend::<Cna>(|| everywhere() && MOVED.load(Relaxed) > 0);
    reset();
    contend::<Mcscr>(|| everywhere() && MOVED.load(Relaxed) > 0);
    reset();
    contend::<Shfl>(|| everywhere() && MOVED.load(Relaxed) > 0);
}
