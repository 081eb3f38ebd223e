//! Every admission policy around data that is not atomic, on an imagined machine with several NUMA nodes and last-level
//! caches. `cargo xtask races` builds this test with ThreadSanitizer. The policy belongs to the process, as when a user
//! chooses it. So each policy has its own process, which runs this program again.

use std::cell::UnsafeCell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Machine as _, Special as _, Time as _, Tunables};
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::parts::policy::chosen::NAMES;
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark, Umwait};
use flashlock_native::machine::Sink;
use flashlock_native::{Native, near, numa, settings, spin};

const NODES: u32 = 2;
const THREADS: u32 = 9;
/// The least number of critical sections.
const SECTIONS: u64 = 3_000;
/// A machine that is too slow to show a result in this time fails the test.
const LIMIT: Duration = Duration::from_secs(600);
/// Tells the child process its policy.
const CHILD: &str = "FLASHLOCK_TEST_POLICY";

/// Counts the waiters that the policy has moved.
struct Moves;

static MOVED: AtomicU64 = AtomicU64::new(0);
/// The range of the threads' priorities. Under SCHED_IDLE, nice values make no difference, and a process cannot lower
/// its own nice value. Then all priorities are equal.
static HIGHEST: AtomicI32 = AtomicI32::new(i32::MIN);
static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);

impl Sink for Moves {
    fn event(event: Event) {
        MOVED.fetch_add(u64::from(event == Event::Shuffle), Relaxed);
    }
    fn stamp() -> u64 {
        0
    }
    fn waited(_: u64) {}
}

type Here = Native<Moves>;

struct Guarded<L: RawLock<Here>> {
    lock: Raw<Here, L>,
    count: UnsafeCell<u64>,
}

// SAFETY: only the lock holder accesses the count, which is what is tested.
unsafe impl<L: RawLock<Here, Queue: Sync>> Sync for Guarded<L> {}

/// Threads contend until they have done enough and the policy has moved `moves` waiters. Some waiters time out now and
/// then.
fn contend<L: RawLock<Here, Queue: Send + Sync + 'static> + 'static>(what: &str, moves: u64) {
    MOVED.store(0, Relaxed);
    let shared = Arc::new(Guarded::<L> { lock: Raw::new(), count: UnsafeCell::new(0) });
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (shared, stop, done) = (shared.clone(), stop.clone(), done.clone());
            std::thread::spawn(move || {
                // SAFETY: sets the calling thread's own nice value, so that priorities differ.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, thread as i32 % 3) };
                HIGHEST.fetch_max(Here::priority(), Relaxed);
                LOWEST.fetch_min(Here::priority(), Relaxed);
                let mut mine = 0;
                while !stop.load(Relaxed) {
                    let held = match (mine + u64::from(thread)) % 8 {
                        0 => shared.lock.lock_until(Here::sooner(300, None)).is_ok(),
                        _ => {
                            shared.lock.lock();
                            true
                        }
                    };
                    if !held {
                        continue;
                    }
                    // SAFETY: we hold the lock.
                    unsafe { *shared.count.get() += 1 };
                    for _ in 0..200 {
                        std::hint::spin_loop();
                    }
                    // SAFETY: this thread holds it.
                    unsafe { shared.lock.unlock() };
                    mine += 1;
                    done.fetch_add(1, Relaxed);
                }
                mine
            })
        })
        .collect();
    let begun = Instant::now();
    let equal = || HIGHEST.load(Relaxed) == LOWEST.load(Relaxed);
    let by_priority = NAMES[Here::tunables().policy as usize] == "priority";
    let shown = || MOVED.load(Relaxed) >= moves || by_priority && equal();
    let enough = || done.load(Relaxed) >= SECTIONS && shown();
    while !enough() && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let in_time = enough();
    stop.store(true, Relaxed);
    let made: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    // SAFETY: all threads are done.
    assert_eq!(unsafe { *shared.count.get() }, made, "{what}: exclusion");
    assert!(in_time, "{what}: {done:?} sections, {MOVED:?} waiters moved");
    let remark = if by_priority && equal() { ", whose priorities are equal" } else { "" };
    println!("{what}: {made} sections, {} waiters moved{remark}", MOVED.load(Relaxed));
}

/// Runs in the child process.
fn under(policy: &str) {
    numa::prepare(Some(NODES));
    near::prepare();
    spin::prepare();
    let index = NAMES.iter().position(|name| *name == policy).expect("a policy") as u32;
    assert!(settings::set_tunables(Tunables { policy: index, ..Tunables::DEFAULT }), "nobody came before");
    let some = if matches!(policy, "numa" | "llc" | "levels" | "priority") { 10 } else { 0 };
    contend::<Shfl<SpinThenPark>>("shfl", if policy == "cr" { 1 } else { some });
    contend::<Shfl<Umwait>>("shfl:wait=umwait", 0);
    contend::<Shfl<Spin>>("shfl:wait=spin", 0);
    contend::<Shfl<Park>>("shfl:wait=park", 0);
    contend::<ShflSpin>("shfl-spin", some);
}

#[test]
fn every_policy() {
    if let Ok(policy) = std::env::var(CHILD) {
        return under(&policy);
    }
    for policy in NAMES {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", "every_policy", "--nocapture"]).env(CHILD, policy).output().unwrap();
        let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(
            output.status.success() && out.contains("shfl-spin: "),
            "policy={policy}: {}\n{out}{said}",
            output.status
        );
        println!("policy={policy}\n{out}");
    }
}
