//! `flashlock simulate` where it cannot do what it was asked for, is interrupted, or has little memory.

mod common;

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::simulated::{machine, simulate};
use common::{binary, interruptible, scratch};
use flashlock_report::results::Results;
use flashlock_sim::Description;
use predicates::prelude::*;
use predicates::str::{contains, is_empty, starts_with};

#[test]
fn a_file_that_cannot_be_written_is_named_at_once() {
    for (option, file, threads) in [("--plot", "/proc/nowhere.svg", "1,2"), ("--trace", "/proc/nowhere.json", "2")] {
        let args = ["--threads", threads, "--locks", "mcs", "--millis", "100000", option, file];
        let refused = simulate(&args).assert().code(1).stdout(is_empty());
        refused.stderr(starts_with(format!("flashlock: cannot write '{file}': ")));
    }
}

#[test]
fn a_run_without_an_operation_is_a_failure() {
    let short = ["buffers", "--threads", "2", "--locks", "mcs", "--seeds", "1", "--millis", "0.01"];
    let failed = simulate(&short).env("COLUMNS", "200").assert().code(1).stderr(is_empty());
    failed.stdout(contains("no operation was done in the 0.01 ms that count").and(contains("--millis")));
}

/// The project's limit: a large machine, on which every thread has an array, in less than a GiB, however many CPUs
/// simulate it.
#[test]
fn memory_is_limited_where_arrays_are_many() {
    let args = ["simulate", "randarray", "--machine", "2x128x2", "--threads", "512", "--locks", "mcs:wait=spin"];
    let child =
        Command::new(binary()).args(args).args(["--seeds", "3", "--millis", "0.3"]).stdout(Stdio::null()).spawn();
    let child = child.unwrap().id() as i32;
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both are writable, and all-zero is a valid rusage. No other thread waits for this child.
    let usage = unsafe {
        assert_eq!(libc::wait4(child, &raw mut status, 0, usage.as_mut_ptr()), child);
        usage.assume_init()
    };
    assert_eq!(status, 0);
    let mib = usage.ru_maxrss / 1024;
    assert!((200..1024).contains(&mib), "{mib} MiB; one run takes more than 200");
}

/// A hypervisor that is away for longer than a program may do nothing.
#[test]
fn a_run_that_hangs_is_a_failure() {
    let file = machine("away.toml", "[power]", "[hypervisor]\nrun_ms = 0.5\naway_ms = 60000.0\n\n[power]");
    let args = ["lock2", "--machine", &file, "--locks", "mcs", "--threads", "8", "--seeds", "2"];
    let failed = simulate(&args).assert().code(1).stderr(is_empty());
    failed.stdout(contains("Failed: mcs, 8 threads, 2 of 2 runs: no progress for 10 s").and(contains("thread 1 ")));
    let output = simulate(&args).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let file = scratch("failed.json");
    fs::write(&file, output.stdout).unwrap();
    let results = Results::read(&file).unwrap();
    assert_eq!(results.failures("lock2", "mcs"), (2, 2));
    let failure = &results.points[0].failures[0];
    assert!(
        failure.how.starts_with("no progress for 10 s of virtual time") && failure.output.contains("thread 1 "),
        "{failure:?}"
    );
}

#[test]
fn an_interrupted_simulation_leaves_nothing() {
    let file = scratch("interrupted.svg");
    let mut command = interruptible();
    command.args(["simulate", "--threads", "1,72", "--locks", "mcs", "--millis", "100000", "--plot"]).arg(&file);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Long enough for it to have begun, which nothing shows; it would go on for hours.
    thread::sleep(Duration::from_millis(500));
    // SAFETY: a signal to a child that was not waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    // It may have begun, or not yet.
    assert!(output.status.signal() == Some(libc::SIGINT) || output.status.code() == Some(130), "{output:?}");
    assert!(output.stdout.is_empty() && !Path::exists(&file), "{output:?}");
}

/// Two CPUs, one of which is away when its threads are in the middle of sections and waits.
#[test]
fn who_wants_which_lock_is_said_of_a_run_that_hangs() {
    let text = Description::shipped("sparc-t5").unwrap().replacen("cores_per_node = 16", "cores_per_node = 1", 1);
    let text = text.replacen("threads_per_core = 8", "threads_per_core = 2", 1);
    let text = text.replacen("slice_us = 10000.0", "slice_us = 50.0", 1);
    let file = scratch("standstill.toml");
    fs::write(&file, text + "\n[hypervisor]\nrun_ms = 1.0\naway_ms = 60000.0\n").unwrap();
    for (work, locks) in [("locktorture", &["the lock"][..]), ("open1", &["lock A", "lock B"])] {
        let args = [work, "--machine", file.to_str().unwrap(), "--locks", "mcs", "--threads", "8", "--seeds", "1"];
        let output = simulate(&args).args(["--millis", "4", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let file = scratch("standstill.json");
        fs::write(&file, output.stdout).unwrap();
        let failure = &Results::read(&file).unwrap().points[0].failures[0];
        let that = |what: &str| failure.output.lines().filter(|line| line.ends_with(what)).count();
        let wanted: usize = locks.iter().map(|lock| that(&format!(", wants {lock}"))).sum();
        assert!(wanted > 1, "{work}: {failure:?}");
        assert!(locks.iter().all(|lock| that(&format!(", has {lock}")) <= 1), "{work}: {failure:?}");
    }
}
