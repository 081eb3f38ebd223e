//! `flashlock run --stats`: what is counted is reported, however the program ends.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{AGAINST_HANGS, binary, flashlock, preload, scratch, threads};
use flashlock_report::run_stats::{Outcome, RunStats};
use predicates::prelude::*;
use predicates::str::contains;

#[test]
fn json_has_acquisitions_and_their_waits() {
    let mut command = flashlock();
    let file = scratch("stats.json");
    command.args(["run", "--lock", "mcs:wait=park", "--stats=json", "--stats-file"]).arg(&file);
    command.args(["--", "sh", "-c", &threads(50)]);
    command.assert().success().stdout(contains("operations"));
    let stats = RunStats::read(&file).unwrap();
    assert!(stats.events.of("acquisitions") > 0);
    assert_eq!(stats.outcome, Outcome::Exited { status: 0 });
    assert_eq!((stats.lock.name.as_str(), stats.lock.wait.as_str()), ("mcs", "park"));
    assert_eq!(stats.provenance.command[0], "sh");
    assert!(stats.processes >= 1 && stats.resources.elapsed_ns >= 50_000_000);
    let waits: u64 = stats.waits.buckets.iter().map(|bucket| bucket.count).sum();
    assert_eq!(waits, stats.waits.count);
}

#[test]
fn json_goes_to_standard_output_and_text_to_standard_error() {
    let mut command = flashlock();
    let output = command.args(["run", "--stats=json", "--", "true"]).output().unwrap();
    let stats: RunStats = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stats.provenance.command, ["true"]);
    let mut command = flashlock();
    command.args(["run", "--stats", "--", "sh", "-c", &threads(20)]);
    command.assert().success().stderr(contains("acquisitions").and(contains("exit status 0")));
    let file = scratch("stats.txt");
    let mut command = flashlock();
    command.arg("run").arg("--stats-file").arg(&file).args(["--", "true"]);
    command.assert().success().stdout("").stderr("");
    assert!(std::fs::read_to_string(&file).unwrap().contains("flashlock run:"));
}

#[test]
fn a_killed_program_is_reported() {
    for (name, number) in [("KILL", 9), ("SEGV", 11), ("ABRT", 6)] {
        let mut command = flashlock();
        let file = scratch(&format!("killed-{name}.json"));
        command.args(["run", "--stats=json", "--stats-file"]).arg(&file);
        command.args(["--", "sh", "-c", &format!("{}; kill -{name} $$", threads(20))]);
        let status = command.output().unwrap().status;
        assert_eq!(status.signal(), Some(number), "{status}");
        let stats = RunStats::read(&file).unwrap();
        assert_eq!(stats.outcome, Outcome::Signalled { signal: number, name: format!("SIG{name}") });
        assert!(stats.events.of("acquisitions") > 0, "{name}");
    }
}

/// A program that would run for a minute, under `--stats`, once it is ready.
fn long_run(file: &std::path::Path, line: &str) -> (std::process::Child, String) {
    // Who runs the tests may ignore signals, as `nohup` does, and children inherit that.
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(binary());
    command.args(["run", "--stats=json", "--stats-file"]).arg(file).args(["--", "sh", "-c", line]);
    command.env("FLASHLOCK_PRELOAD_PATH", preload()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = line.strip_suffix(" ready\n").unwrap_or_else(|| panic!("not ready: {line}"));
    (child, pid.to_owned())
}

/// The same with threads that have used their locks already: they do nothing else, and have used CPU time.
fn long_run_of_threads(file: &std::path::Path) -> (std::process::Child, String) {
    let (child, pid) = long_run(file, &format!("echo $$ ready; exec {}", threads(3_600_000)));
    let has_locked = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        // See proc(5): utime, in ticks of 10 ms, and num_threads.
        let [ticks, threads] = [fields[14 - 3], fields[20 - 3]].map(|field| field.parse::<u64>().unwrap());
        threads > 4 && ticks > 5
    };
    let started = Instant::now();
    while !has_locked() {
        assert!(started.elapsed() < AGAINST_HANGS, "its threads do not run");
        thread::sleep(Duration::from_millis(10));
    }
    (child, pid)
}

fn send(child: &std::process::Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn signals_are_passed_on_and_the_report_is_written() {
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10)] {
        let file = scratch(&format!("signalled-{name}.json"));
        let (mut child, _) = long_run_of_threads(&file);
        send(&child, &format!("-{name}"));
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{name}");
        let stats = RunStats::read(&file).unwrap();
        assert!(stats.events.of("acquisitions") > 0, "{name}");
        assert_eq!(stats.outcome, Outcome::Signalled { signal: number, name: format!("SIG{name}") });
    }
}

#[test]
fn a_program_that_handles_a_signal_goes_on() {
    let file = scratch("handled.json");
    let line = "trap 'exit 42' USR2; echo $$ ready; while :; do sleep 0.01; done";
    let (mut child, _) = long_run(&file, line);
    send(&child, "-USR2");
    assert_eq!(child.wait().unwrap().code(), Some(42));
    assert_eq!(RunStats::read(&file).unwrap().outcome, Outcome::Exited { status: 42 });
}

#[test]
fn the_program_dies_with_the_command() {
    let file = scratch("orphan.json");
    let (mut child, pid) = long_run_of_threads(&file);
    send(&child, "-KILL");
    child.wait().unwrap();
    let gone = (0..12_000).any(|_| {
        thread::sleep(Duration::from_millis(50));
        !std::path::Path::new("/proc").join(&pid).join("exe").exists()
    });
    assert!(gone, "the program outlived the command");
}

#[test]
fn programs_that_it_starts_are_counted_too() {
    let mut command = flashlock();
    let line = format!("exec 3</dev/null; {} & {}; wait", threads(20), threads(20));
    let output = command.args(["run", "--stats=json", "--stats-file"]).arg(scratch("family.json"));
    output.args(["--", "sh", "-c", &line]).assert().success();
    let stats = RunStats::read(
        &std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-family.json", std::process::id())),
    );
    assert!(stats.unwrap().processes >= 2);
}

#[test]
fn objects_left_to_glibc_are_counted_by_reason() {
    let (program, file) = (scratch("left_to_glibc"), scratch("left_to_glibc.json"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/left_to_glibc.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-D_GNU_SOURCE", "-Wall", "-Werror", "-pthread", source, "-o"]).arg(&program);
    assert!(compiler.status().unwrap().success());
    for lock in ["shfl", "mcs"] {
        let mut command = flashlock();
        command.args(["run", "--lock", lock, "--stats=json", "--stats-file"]).arg(&file).arg("--").arg(&program);
        command.assert().success();
        let stats = RunStats::read(&file).unwrap();
        let objects = ["robust", "pi", "pp", "shared"].map(|why| stats.events.of(&format!("glibc_{why}_objects")));
        assert_eq!((objects, stats.derived.objects_left_to_glibc), ([2, 1, 1, 2], 6), "{lock}");
        assert_eq!((stats.events.of("glibc_pi"), stats.derived.left_to_glibc), (2, 2), "{lock}");
    }
    let mut command = flashlock();
    command.args(["run", "--stats", "--"]).arg(&program);
    command.assert().success().stderr(contains("left to glibc:").and(contains("priority-inheriting")));
}

#[test]
fn what_cannot_be_written_is_said_before_the_program_runs() {
    let mut command = flashlock();
    command.args(["run", "--stats-file", "/no/such/directory/f", "--", "echo", "ran"]);
    command.assert().code(125).stdout("").stderr(contains("cannot write /no/such/directory/f: No such file"));
}

#[test]
fn an_ignored_sigchld_does_not_lose_the_status() {
    let mut command = Command::new("sh");
    let line = format!("trap '' CHLD; '{}' run --stats -- sh -c 'exit 5'", binary().display());
    command.args(["-c", &line]).env("FLASHLOCK_PRELOAD_PATH", preload());
    assert_eq!(command.output().unwrap().status.code(), Some(5));
}
