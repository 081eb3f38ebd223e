//! For `cargo xtask atomics`: a client posts a request, the servicing thread that has the turn finds it, runs it under
//! its lock and answers, and the client sees the answer. Both are this thread, in turns, so that nobody sleeps: what is
//! executed is the fast path of both sides, and nothing else. A second thread is there, asleep.
//!
//! `post_and_answer SECTIONS` prints how many were run.

use std::process::ExitCode;

use flashlock_locks::closure::rcl::{Head, Lock, Roster, Server, Slot, Worker, slot};
use flashlock_locks::machine::Word as _;
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_native::{Native, NoStats, Word32, membarrier};

type Machine = Native<NoStats>;

/// One server, and nobody in a section.
struct One<'a>(Server<'a, Machine>);

// SAFETY: there is one server, and this thread is no worker in a section. The client's number is not asked for.
unsafe impl Roster<Machine> for One<'_> {
    fn server(&self, _: u32) -> Server<'_, Machine> {
        self.0
    }

    fn client(&self, _: u32) -> u32 {
        unreachable!("requests are posted by number")
    }

    fn worker(&self) -> Option<(u32, u32)> {
        None
    }
}

/// # Safety
/// The context is a number that nobody else accesses.
unsafe fn add(context: *mut ()) {
    // SAFETY: the callers' promise.
    unsafe { *context.cast::<u64>() += 1 };
}

/// What is measured, with all that it calls.
#[unsafe(no_mangle)]
#[inline(never)]
fn flashlock_post_and_answer(server: &One<'_>, client: u32, lock: &Lock<Machine>, count: *mut u64, sections: u64) {
    for _ in 0..sections {
        let section = (add as slot::Function, count.cast());
        // SAFETY: the number is the caller's; the lock and the count outlive this; `add` does not unwind.
        assert!(unsafe { server.0.post(client, (slot::RUN, lock), section) });
        assert_eq!(server.0.pass(0, server).sections, 1);
        assert!(server.0.wait::<SpinThenPark>(client, || unreachable!("it was answered")));
    }
}

fn main() -> ExitCode {
    let Some(sections) = std::env::args().nth(1).and_then(|word| word.parse().ok()) else {
        eprintln!("usage: post_and_answer SECTIONS");
        return ExitCode::from(2);
    };
    let second = std::thread::spawn(std::thread::park);
    let free = membarrier::prepare();
    let words = || [Word32::new(0)];
    let (head, live, busy) = (Head::new(), words(), words());
    let slots: [Slot<Machine>; 32] = std::array::from_fn(|_| Slot::new());
    let workers = [Worker::new()];
    // SAFETY: the parts are new, and this thread alone uses them.
    let server = unsafe { Server::new(&head, (&live, &busy), &slots, &workers) };
    server.open(1);
    assert!(server.await_turn(0));
    let (client, lock, mut count) = (server.join().expect("room"), Lock::of(1), 0);
    flashlock_post_and_answer(&One(server), client, &lock, &raw mut count, sections);
    println!("sections={count} membarrier={free}");
    second.thread().unpark();
    if second.join().is_ok() && count == sections { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
