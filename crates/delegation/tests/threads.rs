//! The library's own threads: neither what the thread that opens a server is bound to, nor its scheduling policy, nor
//! the program's signals, are theirs.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use common::limited;
use flashlock_delegation::{Delegated, Options, Server};

/// The value of that field in a thread's status.
fn field(task: &str, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    line.unwrap_or_default().to_owned()
}

fn tasks() -> BTreeSet<String> {
    let entries = fs::read_dir("/proc/self/task").unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Gives the calling thread the lowest policy, for which no privilege is needed.
fn idle() {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter is readable.
    assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority) }, 0);
}

fn policy(task: &str) -> libc::c_int {
    // SAFETY: no memory is passed.
    unsafe { libc::sched_getscheduler(task.parse().unwrap()) }
}

/// Binds the calling thread to the first CPU that it may use.
fn bind() {
    // SAFETY: sets of plain bits, which are readable and writable.
    unsafe {
        let mut may: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&may), &raw mut may), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &may)).unwrap();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
    }
}

#[test]
fn they_are_not_the_openers() {
    limited("threads of a server that a bound thread has opened", || {
        let before = tasks();
        let opened = thread::spawn(|| {
            bind();
            idle();
            let server = Server::open(Options { timeout: Duration::from_millis(1), ..Options::default() }).unwrap();
            let data = Delegated::<u32>::on(&server, 0);
            // Two workers: the first one is stuck for a while, and the manager makes another.
            thread::scope(|scope| {
                scope.spawn(|| data.run(|_| thread::sleep(Duration::from_millis(50))));
            });
            server
        });
        let server = opened.join().unwrap();
        let own: Vec<_> =
            tasks().difference(&before).filter(|task| field(task, "Name").starts_with("rcl-")).cloned().collect();
        assert!(own.len() >= 2, "a manager and a worker: {own:?}");
        let process = std::process::id().to_string();
        for task in own {
            let name = field(&task, "Name");
            assert_eq!(field(&task, "Cpus_allowed_list"), field(&process, "Cpus_allowed_list"), "{name}");
            assert_eq!(policy(&task), policy(&process), "{name}");
            let blocked = u64::from_str_radix(&field(&task, "SigBlk"), 16).unwrap();
            let is_blocked = |signal: libc::c_int| blocked >> (signal - 1) & 1 == 1;
            assert!([libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGALRM].map(is_blocked) == [true; 4], "{name}");
            // The C library's own (32 and 33), and what a thread gets for what it does itself.
            assert!([libc::SIGSEGV, libc::SIGABRT, 32, 33].map(is_blocked) == [false; 4], "{name}");
        }
        drop(server);
    });
}
