//! Sections that end only after another section of the same server has run. With one servicing thread they hang, and
//! this is reported; with the pool they end.

mod common;

use std::cell::UnsafeCell;
use std::io::{Read, Write, pipe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use common::{again, await_flag, is_again, limited, server, with_threads};
use flashlock_delegation::{Cond, Delegated, Server};

/// How often the time-out passes with one thread before it is taken for a hang.
const TIMEOUTS: u64 = 30;

/// A case: a section that waits, of one lock, and one that ends the wait, of another one.
struct Case<'a> {
    name: &'a str,
    waits: &'a (dyn Fn() + Sync),
    ends: &'a (dyn Fn() + Sync),
}

/// There was an election. (The manager counts it after the elected thread has begun.)
fn await_election(server: &Server) {
    while server.statistics().elections == 0 {
        thread::yield_now();
    }
}

/// No section of this server ends, while the time-out passes again and again.
fn await_hang(server: &Server, name: &str) {
    while server.statistics().threads_short < TIMEOUTS {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.statistics().sections, 0, "{name}: a section has ended with one servicing thread");
}

impl Case<'_> {
    /// The waiting section is in its wait when the other one is asked for. `rescue`: whether a thread from outside ends
    /// the wait at last.
    fn play(&self, server: &Server, rescue: bool) {
        let (first, second) = (Delegated::<u32>::on(server, 0), Delegated::<u32>::on(server, 0));
        let inside = AtomicBool::new(false);
        thread::scope(|scope| {
            let (first, second, inside) = (&first, &second, &inside);
            let (waits, ends) = (self.waits, self.ends);
            scope.spawn(move || {
                first.run(|count| {
                    inside.store(true, Relaxed);
                    waits();
                    *count += 1;
                });
            });
            scope.spawn(move || {
                while !inside.load(Relaxed) {
                    thread::yield_now();
                }
                second.run(|count| {
                    ends();
                    *count += 1;
                });
            });
            if rescue {
                await_hang(server, self.name);
                (self.ends)();
            }
        });
        assert_eq!((first.into_inner(), second.into_inner()), (1, 1), "{}", self.name);
        if rescue {
            (self.waits)(); // For it was ended twice.
        }
    }

    /// With one servicing thread.
    fn hangs(&self) {
        limited(self.name, || self.play(&with_threads(1), true));
    }

    /// With many.
    fn ends(&self) {
        limited(self.name, || {
            let server = server();
            self.play(&server, false);
            await_election(&server);
            assert_eq!(server.statistics().threads_short, 0, "{}", self.name);
        });
    }

    fn both(&self) {
        self.hangs();
        self.ends();
    }
}

#[test]
fn a_flag_that_another_section_sets() {
    for _ in 0..3 {
        let flag = AtomicBool::new(false);
        let waits = || {
            while !flag.load(Relaxed) {
                std::hint::spin_loop();
            }
            flag.store(false, Relaxed);
        };
        Case { name: "a flag", waits: &waits, ends: &|| flag.store(true, Relaxed) }.both();
    }
}

#[test]
fn a_pipe() {
    let (reader, writer) = pipe().unwrap();
    let waits = || _ = (&reader).read(&mut [0]).unwrap();
    Case { name: "a pipe", waits: &waits, ends: &|| (&writer).write_all(&[1]).unwrap() }.both();
}

/// What the mutex's owner is to see is written by a section.
#[test]
fn a_mutex_and_a_condition_variable() {
    let (mutex, cond) = (Mutex::new(false), Condvar::new());
    let waits = || {
        let mut set = cond.wait_while(mutex.lock().unwrap(), |set| !*set).unwrap();
        *set = false;
    };
    let ends = || {
        *mutex.lock().unwrap() = true;
        cond.notify_all();
    };
    Case { name: "a condition variable", waits: &waits, ends: &ends }.both();
}

/// The C library's, which is not this library's.
struct Posix(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: any thread may lock it, and its address does not change while it is held.
unsafe impl Sync for Posix {}

impl Posix {
    fn held<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: initialised; the thread that locks it unlocks it.
        unsafe {
            assert_eq!(libc::pthread_mutex_lock(self.0.get()), 0);
            let result = act();
            assert_eq!(libc::pthread_mutex_unlock(self.0.get()), 0);
            result
        }
    }
}

/// A thread holds a mutex until a section of the server has run; another section wants the mutex.
#[test]
fn a_posix_mutex() {
    let mutex = Posix(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    let let_go = AtomicBool::new(false);
    let (waits, ends) = (|| mutex.held(|| ()), || let_go.store(true, Relaxed));
    let case = Case { name: "a POSIX mutex", waits: &waits, ends: &ends };
    let while_held = |play: &dyn Fn()| {
        let_go.store(false, Relaxed);
        let (holds, held) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                mutex.held(|| {
                    holds.send(()).unwrap();
                    await_flag(&let_go);
                });
            });
            held.recv().unwrap();
            play();
        });
    };
    while_held(&|| case.hangs());
    while_held(&|| case.ends());
}

/// Server A's section nests into B, whose section nests into another lock of A.
fn nest(a: &Server, b: &Server, clients: u32, rounds: u32) {
    let (outer, middle) = (Delegated::<u32>::on(a, 0), Delegated::<u32>::on(b, 0));
    let inner = Delegated::<u32>::on(a, 0);
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                for _ in 0..rounds {
                    outer.run(|outer| {
                        *outer += 1;
                        middle.run(|middle| {
                            *middle += 1;
                            inner.run(|inner| *inner += 1);
                        });
                    });
                    inner.run(|inner| *inner += 1);
                }
            });
        }
    });
    let all = clients * rounds;
    assert_eq!((outer.into_inner(), middle.into_inner(), inner.into_inner()), (all, all, 2 * all));
}

#[test]
fn servers_that_nest_into_each_other() {
    limited("servers that nest", || nest(&server(), &server(), 3, if cfg!(debug_assertions) { 20 } else { 200 }));
}

/// The same, if A has one servicing thread. Nothing ends that: it is a process of its own that ends.
#[test]
fn servers_that_nest_with_one_thread() {
    const HANGS: i32 = 17;
    if is_again() {
        let (a, b) = (with_threads(1), server());
        thread::scope(|scope| {
            scope.spawn(|| nest(&a, &b, 1, 1));
            scope.spawn(|| {
                await_hang(&a, "servers that nest");
                std::process::exit(HANGS);
            });
        });
    }
    limited("servers that nest, one thread", || {
        let done = again("servers_that_nest_with_one_thread", |_| ());
        assert_eq!(done.status.code(), Some(HANGS), "{done:?}");
    });
}

/// A nested section of the same server, whose lock is held by a section that waits for a third lock's. With one
/// servicing thread, `rescue` ends the wait from outside.
fn nested_lock_whose_owner_is_blocked(server: &Server, rescue: bool) {
    let (outer, nested) = (Delegated::<u32>::on(server, 0), Delegated::<u32>::on(server, 0));
    let third = Delegated::<u32>::on(server, 0);
    let (owned, goes) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            nested.run(|count| {
                owned.store(true, Relaxed);
                await_flag(&goes);
                *count += 1;
            });
        });
        scope.spawn(|| {
            await_flag(&owned);
            outer.run(|count| {
                third.run(|third| *third += 1);
                nested.run(|nested| *nested += 1);
                *count += 1;
            });
        });
        scope.spawn(|| {
            await_flag(&owned);
            while third.run(|third| *third) == 0 {
                thread::yield_now();
            }
            third.run(|_| goes.store(true, Relaxed));
        });
        if rescue {
            await_hang(server, "a nested lock");
            goes.store(true, Relaxed);
        }
    });
    assert_eq!((outer.into_inner(), nested.into_inner(), third.into_inner()), (1, 2, 1));
}

#[test]
fn a_nested_lock_whose_owner_is_blocked() {
    limited("a nested lock", || {
        nested_lock_whose_owner_is_blocked(&with_threads(1), true);
        let server = server();
        nested_lock_whose_owner_is_blocked(&server, false);
        assert_eq!(server.statistics().threads_short, 0);
    });
}

/// One stands still in its section; sections of all other locks go on, and only its own lock waits.
#[test]
fn a_servicing_thread_that_stands_still() {
    limited("one that stands still", || {
        let server = server();
        let (stalls, others) = (Delegated::<u32>::on(&server, 0), Delegated::<u32>::on(&server, 0));
        let (inside, goes) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                stalls.run(|count| {
                    inside.store(true, Relaxed);
                    while !goes.load(Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    *count += 1;
                });
            });
            while !inside.load(Relaxed) {
                thread::yield_now();
            }
            let waits = scope.spawn(|| stalls.run(|count| *count += 1));
            (0..1_000).for_each(|_| others.run(|count| *count += 1));
            assert!(!waits.is_finished());
            goes.store(true, Relaxed);
        });
        assert_eq!((stalls.into_inner(), others.into_inner()), (2, 1_000));
    });
}

/// Producers and consumers, all of whose waits are inside sections.
#[test]
fn condition_variables_inside_sections() {
    limited("condition variables", || {
        const ITEMS: u32 = 300;
        let server = server();
        for delegated in [true, false] {
            let queue = Delegated::<Vec<u32>>::new(Vec::new());
            queue.assign(Some(&server).filter(|_| delegated));
            let (items, room, sum) = (Cond::new(), Cond::new(), AtomicU32::new(0));
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for item in 0..ITEMS {
                            queue.run_inside(|queue| {
                                while queue.len() >= 2 {
                                    queue.wait(&room);
                                }
                                queue.push(item);
                                items.notify_one();
                            });
                        }
                    });
                    scope.spawn(|| {
                        for _ in 0..ITEMS {
                            let item = queue.run_inside(|queue| {
                                while queue.is_empty() {
                                    queue.wait(&items);
                                }
                                room.notify_one();
                                queue.pop().unwrap()
                            });
                            sum.fetch_add(item, Relaxed);
                        }
                    });
                }
            });
            assert_eq!((queue.into_inner(), sum.into_inner()), (Vec::new(), 3 * ITEMS * (ITEMS - 1) / 2));
        }
    });
}

/// A section that polls by nested sections of the same server makes no progress, either.
#[test]
fn a_section_that_asks_again_and_again() {
    limited("a section that asks again and again", || {
        let server = server();
        let (outer, set) = (Delegated::<u32>::on(&server, 0), Delegated::<bool>::on(&server, false));
        let inside = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                outer.run(|count| {
                    inside.store(true, Relaxed);
                    while !set.run(|set| *set) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    *count += 1;
                });
            });
            scope.spawn(|| {
                while !inside.load(Relaxed) {
                    thread::yield_now();
                }
                set.run(|set| *set = true);
            });
        });
        assert_eq!(outer.into_inner(), 1);
    });
}

/// Two clients have long sections again and again, longer than two time-outs: whoever is elected finds one of them
/// first. The third one is served nevertheless.
#[test]
fn a_client_behind_two_that_block() {
    limited("a client behind two that block", || {
        let server = server();
        let data = [0; 3].map(|zero| Delegated::<u32>::on(&server, zero));
        data.iter().for_each(|data| {
            // Their client numbers are in this order.
            thread::scope(|scope| _ = scope.spawn(|| data.run(|count| *count += 1)));
        });
        let over = AtomicBool::new(false);
        let (begun, awaits) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            for data in &data[..2] {
                let (over, begun) = (&over, begun.clone());
                scope.spawn(move || {
                    while !over.load(Relaxed) {
                        data.run(|_| thread::sleep(Duration::from_millis(25)));
                        _ = begun.send(());
                    }
                });
                awaits.recv().expect("sent by that client");
            }
            data[2].run(|count| *count += 1);
            over.store(true, Relaxed);
        });
        let [.., last] = data;
        assert_eq!(last.into_inner(), 2);
    });
}
