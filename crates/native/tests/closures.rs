//! Closure locks on threads: every request is executed once, in exclusion; caught panics are returned; locks are
//! created and destroyed. `cargo xtask races` builds this test with ThreadSanitizer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flashlock_locks::closure::{CcSynch, Delegate, FlatCombining, RawClosure};
use flashlock_locks::for_each_standalone_lock;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_native::pool;
use flashlock_native::{Native, NoStats};

type Here = Native<NoStats>;

const THREADS: u64 = 4;
const ROUNDS: u64 = 4_000;

/// For each thread, a count of its rounds; and a count of all rounds.
type Data = (Vec<u64>, u64);

/// Each thread adds to two counts and gets both back; in the end nothing is missing.
fn torture<L: RawClosure<Here, State: Send + Sync>>(name: &str) {
    let lock = Arc::new(Delegate::<Here, L, Data>::new((vec![0; THREADS as usize], 0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let lock = lock.clone();
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    let (mine, all) = lock.with(|(own, all)| {
                        own[me as usize] += 1;
                        *all += 1;
                        (own[me as usize], *all)
                    });
                    assert_eq!(mine, round + 1);
                    assert!((mine..=THREADS * ROUNDS).contains(&all));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut lock = Arc::into_inner(lock).unwrap();
    assert_eq!(*lock.get_mut(), (vec![ROUNDS; THREADS as usize], THREADS * ROUNDS), "{name}");
}

/// Runs only closure locks, because a [`Delegate`] needs one.
macro_rules! only_closures {
    (closure, $name:expr, $type:ty) => {
        torture::<$type>($name)
    };
    ($other:ident, $name:expr, $type:ty) => {};
}

macro_rules! for_all {
    ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        #[test]
        fn every_closure_lock_does_all_of_it() {
            $($(only_closures!($interface, concat!($name, ":wait=", stringify!($wait)), $type);)+)*
        }
    };
}
for_each_standalone_lock!(for_all);

#[test]
fn the_role_goes_round() {
    torture::<CcSynch<SpinThenPark, 1>>("one request each");
    torture::<CcSynch<Park, 2>>("two requests each");
    torture::<FlatCombining<SpinThenPark, 1, 1>>("one pass each, all of which clean up");
    torture::<FlatCombining<Spin, 2, 3>>("two passes each");
}

/// What a thread remembers of one lock must not affect another, even if that has the same nodes.
#[test]
fn locks_come_and_go() {
    type Lock = Delegate<Here, FlatCombining<Park, 1, 2>, u64>;
    let lasting = Arc::new(Lock::new(0));
    for _ in 0..50 {
        let brief = Arc::new(Lock::new(0));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (lasting, brief) = (lasting.clone(), brief.clone());
                std::thread::spawn(move || {
                    for _ in 0..100 {
                        lasting.with(|count| *count += 1);
                        brief.with(|count| *count += 1);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(brief.with(|count| *count), THREADS * 100);
    }
    assert_eq!(lasting.with(|count| *count), 50 * THREADS * 100);
    assert!(pool::size() < 10_000, "records were not given back: {}", pool::size());
}

#[test]
fn a_panic_that_is_caught_inside_comes_back_to_who_asked() {
    let lock = Arc::new(Delegate::<Here, CcSynch, u64>::new(0));
    let panicked = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (lock, panicked) = (lock.clone(), panicked.clone());
            std::thread::spawn(move || {
                for round in 0..200 {
                    let outcome = lock.with(|count| {
                        catch_unwind(AssertUnwindSafe(|| {
                            *count += 1;
                            if round % 50 == 0 {
                                std::panic::resume_unwind(Box::new("on purpose"));
                            }
                        }))
                    });
                    assert_eq!(outcome.is_err(), round % 50 == 0);
                    panicked.fetch_add(u64::from(outcome.is_err()), Relaxed);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((lock.with(|count| *count), panicked.load(Relaxed)), (THREADS * 200, THREADS * 4));
}

/// A panic that is not caught ends the program: no thread is unwound through another thread's work. (This test runs
/// itself, as another process.)
#[test]
fn a_panic_that_is_not_caught_ends_the_program() {
    const CHILD: &str = "FLASHLOCK_TEST_PANICS";
    if std::env::var_os(CHILD).is_some() {
        let lock = Delegate::<Here, CcSynch, u64>::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| lock.with(|_| panic!("on purpose"))));
        panic!("it came out: {}", outcome.is_err());
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let name = "a_panic_that_is_not_caught_ends_the_program";
    let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6), "{text}");
    assert!(text.contains("on purpose") && text.contains("under a closure lock"), "{text}");
}

/// Values that a closure captures or returns are dropped once.
#[test]
fn values_go_in_and_out() {
    let lock = Delegate::<Here, FlatCombining, Vec<String>>::new(Vec::new());
    let text = String::from("moved in");
    let length = lock.with(move |all| {
        all.push(text);
        all.len()
    });
    let back = lock.with(|all| all.pop());
    assert_eq!((length, back.as_deref()), (1, Some("moved in")));
}
