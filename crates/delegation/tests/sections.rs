//! Sections on a server: done, once, alone; what goes in and comes out; whatever the lock is meanwhile.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use common::{Data, THREADS, limited, server, torture};
use flashlock_delegation::{Delegated, Options, Server};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark, Umwait, WaitPolicy};

const ROUNDS: u64 = 5_000;

fn every_wait<W: WaitPolicy>(rounds: u64) {
    let server = server();
    torture(&Delegated::<Data, W>::waiting_on(&server, Data::default()), rounds, |_, _| ());
    torture(&Delegated::<Data, W>::waiting(Data::default()), rounds, |_, _| ());
    // A scan counts when it ends, which may be after its last client has gone on.
    while server.statistics().sections < THREADS * rounds + 1 {
        thread::yield_now();
    }
    let statistics = server.statistics();
    assert_eq!(statistics.sections, THREADS * rounds + 1, "sections that the server has run");
    assert!(statistics.use_rate() > 0.0 && statistics.use_rate() <= 1.0, "{statistics:?}");
    assert_eq!((statistics.mixed_scans, statistics.threads_short), (0, 0));
}

#[test]
fn clients_wait_in_every_way() {
    limited("clients wait in every way", || {
        every_wait::<SpinThenPark>(ROUNDS);
        every_wait::<Park>(ROUNDS / 5);
        every_wait::<Umwait>(ROUNDS);
        every_wait::<Spin>(ROUNDS / 50);
    });
}

/// Between two servers and none, as fast as it goes.
#[test]
fn locks_move_while_they_are_used() {
    limited("locks move", || {
        let (first, second) = (server(), server());
        torture(&Delegated::<Data>::new(Data::default()), ROUNDS, |data, over| {
            for turn in 0.. {
                if over() {
                    break;
                }
                data.assign([Some(&first), None, Some(&second), Some(&first), Some(&second)][turn % 5]);
                thread::yield_now();
            }
        });
    });
}

/// What is left is done under an ordinary lock.
#[test]
fn a_server_closes_while_it_is_used() {
    limited("a server closes", || {
        for _ in 0..20 {
            let server = server();
            let data = Delegated::<Data>::on(&server, Data::default());
            torture(&data, 500, |_, _| server.close());
            assert_eq!(data.server(), None);
        }
    });
}

#[test]
fn values_go_in_and_out() {
    let server = server();
    let all = Delegated::<Vec<String>>::on(&server, Vec::new());
    let text = String::from("moved in");
    let length = all.run(move |all| {
        all.push(text);
        all.len()
    });
    assert_eq!((length, all.run(|all| all.pop()).as_deref()), (1, Some("moved in")));
    // More than rides in a line; and a value that can only be moved.
    let large = [7_u64; 100];
    assert_eq!(all.run(move |all| (all.len() as u64 + large.iter().sum::<u64>(), large)).1, large);
    let boxed: Box<dyn Fn() -> u32 + Send> = all.run(|_| Box::new(|| 42_u32) as _);
    assert_eq!(boxed(), 42);
}

/// Of each 251 requests of a thread one is timed, from when it was posted until its section begins.
#[test]
fn waits_are_sampled() {
    limited("waits", || {
        const REQUESTS: u64 = 251;
        let server = server();
        let data = Delegated::<u32>::on(&server, 0);
        assert_eq!((server.statistics().waits_sampled, server.statistics().queueing_latency()), (0, 0.0));
        for round in 1..=3 {
            (0..REQUESTS).for_each(|_| data.run(|count| *count += 1));
            // The first one of a thread only says where it begins.
            let sampled = server.statistics().waits_sampled;
            assert!((round - 1..=round).contains(&sampled), "{sampled} of {round} times {REQUESTS}");
        }
        let found = server.statistics();
        assert!(0 < found.wait_ns && found.longest_wait_ns <= found.wait_ns, "{found:?}");
        assert!(found.queueing_latency() <= found.longest_wait_ns as f64, "{found:?}");
        // An ordinary lock has no server to wait for; nested sections are not timed.
        let (ordinary, outer) = (Delegated::<u32>::new(0), Delegated::<u32>::on(&server, 0));
        (0..2 * REQUESTS).for_each(|_| ordinary.run(|count| *count += 1));
        outer.run(|_| (0..2 * REQUESTS).for_each(|_| data.run(|count| *count += 1)));
        assert!(server.statistics().waits_sampled <= found.waits_sampled + 1);
    });
}

/// A section waits for the one before it.
#[test]
fn a_wait_is_that_for_the_section_before() {
    use std::time::{Duration, Instant};
    limited("a wait behind another section", || {
        let server = server();
        let data = Delegated::<u32>::on(&server, 0);
        let long = Duration::from_millis(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while server.statistics().longest_wait_ns < 1_000_000 {
                        data.run(|_| {
                            let begun = Instant::now();
                            while begun.elapsed() < long {
                                std::hint::spin_loop();
                            }
                        });
                    }
                });
            }
        });
    });
}

/// What a closure owns is dropped once, whether it rides in the line or not, and whether it panics or not.
#[test]
fn what_goes_in_is_dropped_once() {
    struct Counted<'a>(&'a AtomicU32);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let server = server();
    let (drops, data) = (AtomicU32::new(0), Delegated::<u32>::on(&server, 0));
    let small = Counted(&drops);
    data.run(move |_| drop(small));
    let large = (Counted(&drops), [0_u64; 50]);
    data.run(move |_| drop(large));
    let panics = Counted(&drops);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        data.run(move |_| {
            let _dropped_by_unwinding = panics;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
    }));
    assert!(outcome.is_err());
    let comes_back = data.run(|_| Counted(&drops));
    assert_eq!(drops.load(Relaxed), 3);
    drop(comes_back);
    assert_eq!(drops.load(Relaxed), 4);
}

#[test]
fn a_panic_travels_to_its_client_and_leaves_the_lock_usable() {
    let server = server();
    let data = Delegated::<u64>::on(&server, 0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..200 {
                    let section = || {
                        data.run(|count| {
                            *count += 1;
                            if round % 50 == 0 {
                                std::panic::resume_unwind(Box::new(round));
                            }
                        });
                    };
                    let outcome = catch_unwind(AssertUnwindSafe(section));
                    assert_eq!(outcome.is_err(), round % 50 == 0);
                    if let Err(panic) = outcome {
                        assert_eq!(panic.downcast_ref(), Some(&round), "the panic is another client's");
                    }
                }
            });
        }
    });
    assert_eq!(data.into_inner(), THREADS * 200);
}

/// A section runs in another thread while the lock is delegated, and here while it is not.
#[test]
fn sections_run_where_the_lock_says() {
    let server = server();
    let data = Delegated::<()>::new(());
    let runs_here = || data.run(|()| thread::current().id()) == thread::current().id();
    assert!(runs_here() && data.server().is_none());
    data.assign(Some(&server));
    assert!(!runs_here() && data.server() == Some(server.number()));
    data.assign(None);
    assert!(runs_here() && data.server().is_none());
}

/// A nested section of the same server is run in place, by the same thread.
#[test]
fn nested_sections_run_in_place() {
    let server = server();
    let (outer, inner) = (Delegated::<u32>::on(&server, 1), Delegated::<u32>::on(&server, 2));
    let (there, in_place, sum) = outer.run(|outer| {
        let there = thread::current().id();
        let (here, inner) = inner.run(|inner| (thread::current().id(), *inner));
        (there, here == there, *outer + inner)
    });
    assert!(in_place && there != thread::current().id() && sum == 3);
}

#[test]
fn ten_thousand_threads_come_and_go() {
    limited("ten thousand threads", || {
        const AT_ONCE: u32 = 50;
        let server = server();
        let data = Delegated::<u64>::on(&server, 0);
        for _ in 0..10_000 / AT_ONCE {
            thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(|| data.run(|count| *count += 1));
                }
            });
        }
        assert_eq!(data.run(|count| *count), 10_000);
        // Numbers are used again, and the range has shrunk: this thread's is left. (A scope ends a little earlier than
        // its threads do.)
        let few = || {
            let statistics = server.statistics();
            statistics.clients == 1 && statistics.range <= 2 * AT_ONCE
        };
        while !few() {
            thread::yield_now();
        }
    });
}

/// A destructor that runs after the thread's client numbers were given back has its section done, too.
#[test]
fn sections_in_destructors_of_thread_local_values() {
    static SERVER: std::sync::OnceLock<Server> = std::sync::OnceLock::new();
    static DATA: std::sync::OnceLock<Delegated<u32>> = std::sync::OnceLock::new();
    struct Late(Cell<u32>);
    impl Drop for Late {
        fn drop(&mut self) {
            let more = self.0.get();
            DATA.get().unwrap().run(|count| *count += more);
        }
    }
    thread_local!(static LATE: Late = const { Late(Cell::new(0)) });
    limited("sections in destructors", || {
        let server = SERVER.get_or_init(server);
        let data = DATA.get_or_init(|| Delegated::on(server, 0));
        for _ in 0..20 {
            // Made before the client number is, and so dropped after it.
            thread::spawn(|| {
                LATE.with(|late| late.0.set(1));
                data.run(|count| *count += 1);
            })
            .join()
            .unwrap();
        }
        assert_eq!(data.run(|count| *count), 40);
        while server.statistics().clients > 1 {
            thread::yield_now();
        }
    });
}

/// A thread that runs no section before its thread-specific data are destroyed.
#[test]
fn sections_in_destructors_of_thread_specific_data() {
    static SERVER: std::sync::OnceLock<Server> = std::sync::OnceLock::new();
    static DATA: std::sync::OnceLock<Delegated<u32>> = std::sync::OnceLock::new();
    unsafe extern "C" fn late(_: *mut libc::c_void) {
        DATA.get().unwrap().run(|count| *count += 1);
    }
    limited("sections in destructors of thread-specific data", || {
        let mut key = 0;
        // SAFETY: the key is writable.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(late)) }, 0);
        let server = SERVER.get_or_init(server);
        let data = DATA.get_or_init(|| Delegated::on(server, 0));
        for _ in 0..20 {
            // SAFETY: the key exists.
            thread::spawn(move || unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) }).join().unwrap();
        }
        assert_eq!(data.run(|count| *count), 20);
        while server.statistics().clients > 1 {
            thread::yield_now();
        }
    });
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |options| Server::open(options).err().map(|error| error.to_string());
    let threads = refused(Options { threads: 0, ..Options::default() });
    assert!(threads.is_some_and(|text| text.contains("1 to 4094 servicing threads, not 0")));
    let timeout = refused(Options { timeout: std::time::Duration::ZERO, ..Options::default() });
    assert!(timeout.is_some_and(|text| text.contains("time-out")));
}

/// Asked for real-time scheduling, a server works whether it has it or not, and says which.
#[test]
fn real_time_scheduling_is_tried_and_never_assumed() {
    use flashlock_delegation::Scheduling;
    limited("real-time scheduling", || {
        let options = Options { scheduling: Scheduling::RealTime, cpu: Some(0), ..Options::default() };
        let server = Server::open(options).unwrap();
        torture(&Delegated::<Data>::on(&server, Data::default()), 1_000, |_, _| ());
        // SAFETY: asks about the calling thread; SCHED_FIFO needs a privilege that this may show: as the server found
        // it.
        let policy = Delegated::<()>::on(&server, ()).run(|()| unsafe { libc::sched_getscheduler(0) });
        assert_eq!(server.statistics().real_time, policy == libc::SCHED_FIFO);
    });
}

/// A thread that would wait for itself gets a panic, and what it brought is dropped; the lock can be used on.
#[test]
fn a_section_of_the_same_value_inside_is_refused() {
    limited("a section inside", || {
        let server = server();
        for delegated in [false, true] {
            let new = || if delegated { Delegated::<u32>::on(&server, 0) } else { Delegated::new(0) };
            let (data, other) = (new(), new());
            let brought = std::sync::Arc::new(());
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                data.run(|_| {
                    let brought = brought.clone();
                    // Not even with another value's section in between.
                    other.run(|_| data.run(move |count| *count += std::sync::Arc::strong_count(&brought) as u32));
                });
            }));
            let text = outcome.err().and_then(|panic| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            assert!(text.is_some_and(|text| text.contains("would wait for itself")));
            assert!(catch_unwind(AssertUnwindSafe(|| data.run(|_| data.assign(None)))).is_err());
            assert_eq!(std::sync::Arc::strong_count(&brought), 1);
            data.run(|count| *count += 1);
            assert_eq!(data.into_inner(), 1);
        }
    });
}

/// A wait that no thread ends, ends when its time has come.
#[test]
fn a_wait_ends_when_its_time_has_come() {
    use flashlock_locks::machine::{Clock, Deadline};
    limited("a timed wait", || {
        let server = server();
        for data in [Delegated::<u32>::new(0), Delegated::on(&server, 0)] {
            let cond = flashlock_delegation::Cond::new();
            let long_ago = Deadline { clock: Clock::Monotonic, sec: 0, nsec: 1 };
            assert!(data.run_inside(|inside| inside.wait_until(&cond, long_ago)));
            assert_eq!(data.into_inner(), 0);
        }
    });
}
