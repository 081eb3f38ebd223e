//! `flashlock run --stats`: what is counted is reported, however the program ends.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{AGAINST_HANGS, binary, flashlock, preload, scratch, threads};
use flashlock_report::run_stats::{Object, Outcome, Reason, RunStats, Why};
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
    // The process that runs the tests may ignore signals, as `nohup` does, and children inherit that.
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
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10), ("ALRM", 14), ("PROF", 27), ("IO", 29)] {
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
    for signal in ["USR2", "ABRT", "WINCH", "URG"] {
        let file = scratch("handled.json");
        let line = format!("trap 'exit 42' {signal}; echo $$ ready; while :; do sleep 0.01; done");
        let (mut child, _) = long_run(&file, &line);
        send(&child, &format!("-{signal}"));
        assert_eq!(child.wait().unwrap().code(), Some(42), "{signal}");
        assert_eq!(RunStats::read(&file).unwrap().outcome, Outcome::Exited { status: 42 });
    }
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

/// A program of this directory, compiled.
fn compiled(name: &str, program: &str) -> PathBuf {
    let program = scratch(program);
    let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler.args(["-D_GNU_SOURCE", "-Wall", "-Werror", "-O1", "-g", "-pthread", &source, "-o"]).arg(&program);
    assert!(compiler.status().unwrap().success());
    program
}

fn object<'a>(stats: &'a RunStats, symbol: &str) -> &'a Object {
    let found = stats.objects.iter().find(|object| object.symbol.as_deref() == Some(symbol));
    found.unwrap_or_else(|| panic!("no {symbol}: {:?}", stats.objects))
}

/// What a program does is the same whichever lock serves it, and so is what is counted of it.
#[test]
fn every_kind_is_counted_alike_under_glibcs_locks_and_ours() {
    let (program, file) = (compiled("contended", "contended"), scratch("contended.json"));
    for locks in [
        &[][..],
        &["--lock", "mcs:wait=park"],
        &["--lock", "flash"],
        &["--lock", "glibc", "--rw", "cst-rw"],
        &["--rw", "shfl-rw"],
    ] {
        let mut command = flashlock();
        command.args(["run", "--stats=json", "--stats-file"]).arg(&file).args(locks).arg("--").arg(&program);
        command.assert().success();
        let stats = RunStats::read(&file).unwrap();
        if locks.is_empty() {
            assert_eq!(
                (stats.lock.name.as_str(), stats.lock.rw.as_str(), stats.lock.why),
                ("glibc", "glibc", Why::Today)
            );
        } else {
            assert_eq!(stats.lock.why, Why::Argument, "{locks:?}");
        }
        // glibc does not say which threads sleep, and which a post wakes. A lock that does is not glibc's.
        let ours = ["parks", "wakes", "sem_wakes"].map(|name| stats.events.of(name) > 0);
        match *locks {
            [] => assert_eq!(ours, [false; 3], "{locks:?}"),
            ["--lock", "mcs:wait=park"] => assert_eq!(ours, [true; 3], "{locks:?}"),
            ["--lock", "glibc", ..] => assert!(!ours[2], "{locks:?}"),
            _ => assert!(ours[2], "{locks:?}"),
        }
        // The C library, and flashlock itself, use others.
        let at_least = |name: &str, count| assert!(stats.events.of(name) >= count, "{locks:?}: {name}");
        at_least("acquisitions", 22);
        at_least("contended", 1);
        for (name, count) in [
            ("rw_reads", 2),
            ("rw_writes", 2),
            ("rw_contended", 2),
            ("sem_acquisitions", 1001),
            ("sem_queued", 1),
            ("sem_posts", 1001),
            ("spin_acquisitions", 10),
            ("spin_contended", 0),
        ] {
            assert_eq!(stats.events.of(name), count, "{locks:?}: {name}");
        }
        let others = &stats.waits_of;
        for (what, waits) in [("read", &others.rw_read), ("write", &others.rw_write), ("semaphore", &others.semaphore)]
        {
            assert_eq!(waits.count, 1, "{locks:?}: {what}");
            // The holder has looked three times before it gave it back.
            assert!(waits.p50_ns >= Some(2_000_000), "{locks:?}: {what}: {waits:?}");
        }
        let mutex = object(&stats, "the_static_mutex");
        assert_eq!((mutex.kind.as_deref(), mutex.acquisitions, mutex.contended), (Some("mutex"), 2, 1), "{locks:?}");
        assert!(mutex.waited_ns >= 2_000_000 && mutex.longest_ns == mutex.waited_ns, "{locks:?}: {mutex:?}");
        assert!(mutex.module.as_deref().is_some_and(|module| module.ends_with("-contended")), "{mutex:?}");
        let lock = object(&stats, "the_table+0x8");
        assert_eq!((lock.kind.as_deref(), lock.acquisitions, lock.contended), (Some("rwlock"), 4, 2), "{locks:?}");
        assert_eq!(object(&stats, "spinlock").acquisitions, 10, "{locks:?}");
        for (kind, acquisitions, contended) in [("mutex", 10, 0), ("semaphore", 1001, 1)] {
            let made = |object: &&Object| {
                let place = object.place.as_ref();
                place.is_some_and(|place| place.function.as_deref() == Some("make_objects") && object.symbol.is_none())
                    && object.kind.as_deref() == Some(kind)
            };
            let object =
                stats.objects.iter().find(made).unwrap_or_else(|| panic!("{locks:?}: {kind}: {:?}", stats.objects));
            let place = object.place.as_ref().unwrap();
            assert_eq!((object.acquisitions, object.contended), (acquisitions, contended), "{locks:?}: {kind}");
            assert_eq!(place.reason, Reason::Initialised, "{locks:?}: {kind}");
            assert!(
                place.source.as_ref().is_some_and(|source| source.contains("contended.c:")),
                "{locks:?}: {place:?}"
            );
        }
        // Waits for permits are none for locks.
        assert!(stats.derived.waiting_threads > 0.0 && stats.derived.rw_contention == Some(0.5), "{:?}", stats.derived);
        assert!(stats.objects.is_sorted_by_key(|object| u64::MAX - object.waited_ns));
    }
}

#[test]
fn the_text_names_what_carries_the_traffic_and_under_which_locks_it_was_counted() {
    let program = compiled("contended", "traffic");
    let mut command = flashlock();
    let output = command.args(["run", "--stats", "--"]).arg(&program).env("COLUMNS", "140").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    for said in [
        "under glibc: the locks that your program uses today (--lock NAME counts under another lock)",
        "Semaphores have most of the operations: 1,001 of ",
        "Waits for a readers-writer lock, to read: 1, 50% under ",
        "Waits for a permit of a semaphore: 1, 50% under ",
        "the_static_mutex in ",
        "initialised by make_objects (contended.c:",
        "To see whether another lock helps, run: flashlock compare",
    ] {
        assert!(text.contains(said), "{said}:\n{text}");
    }
    for name in ["steals", "grants", "cohort_passes", "none:"] {
        assert!(!text.contains(name), "{name}:\n{text}");
    }
}

/// Time is lost in a wait that times out, and in one that never ends. So it must not be said that no lock would help.
#[test]
fn waits_without_an_acquisition_are_reported() {
    let (program, file) = (compiled("gives_up", "gives_up"), scratch("gives_up.json"));
    let counted = |locks: &[&str], how: &[&str]| {
        let mut command = flashlock();
        command.args(["run", "--stats=json", "--stats-file"]).arg(&file).args(locks).arg("--").arg(&program).args(how);
        command.output().unwrap();
        RunStats::read(&file).unwrap()
    };
    for locks in [&[][..], &["--lock", "flash"], &["--lock", "mcs"]] {
        let stats = counted(locks, &[]);
        let held = object(&stats, "held");
        assert_eq!((held.acquisitions, held.contended), (1, 20), "{locks:?}");
        assert!(held.waited_ns >= 500_000_000 && held.longest_ns >= 50_000_000, "{locks:?}: {held:?}");
        let derived = &stats.derived;
        assert!(derived.waiting_threads > 0.05 && derived.unfinished_waits == 0, "{locks:?}: {derived:?}");
        assert!(derived.contention.is_some_and(|share| share < 1.0), "{locks:?}: {derived:?}");
        let derived = counted(locks, &["never"]).derived;
        assert!(derived.unfinished_waits == 4 && derived.contention.is_some_and(|share| share < 1.0), "{derived:?}");
    }
    let said = |how: &[&str]| {
        let output = flashlock().args(["run", "--stats", "--"]).arg(&program).args(how).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (how, part) in [(&[][..], "20 attempts timed out"), (&["never"], "without 4 waits that had not ended when the")]
    {
        let text = said(how);
        assert!(text.contains(part) && !text.contains("no other lock will help"), "{text}");
    }
}

/// glibc takes the mutex again inside its condition variable. Nobody can count that, so nothing is concluded from it.
#[test]
fn waits_at_the_end_of_a_condition_wait_are_named_under_glibc_and_counted_under_the_lock_that_is_named() {
    let program = compiled("wakes_all", "wakes_all");
    let said = |locks: &[&str]| {
        let output = flashlock().args(["run", "--stats"]).args(locks).arg("--").arg(&program).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = said(&[]);
    assert!(text.contains("without those for taking a mutex again at the end of "), "{text}");
    assert!(!text.contains("no other lock will help"), "{text}");
    let named = text.split("run: flashlock run --stats --lock ").nth(1).and_then(|rest| rest.split(' ').next());
    let name = named.unwrap_or_else(|| panic!("{text}"));
    let text = said(&["--lock", name]);
    let average = text.split("On average ").nth(1).and_then(|rest| rest.split(' ').next());
    let average: f64 = average.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    assert!(average > 0.2 && !text.contains("without those"), "{name}: {text}");
}

#[test]
fn more_objects_than_can_be_told_apart_are_counted_together() {
    let (program, file) = (compiled("contended", "many"), scratch("many.json"));
    let mut command = flashlock();
    command.args(["run", "--stats=json", "--stats-file"]).arg(&file).arg("--").arg(&program).arg("many");
    command.assert().success();
    let stats = RunStats::read(&file).unwrap();
    assert!(stats.events.of("acquisitions") >= 200_000);
    let crowd = stats.objects.iter().find(|object| object.address.is_none()).expect("there is no room for so many");
    assert!(crowd.acquisitions > 150_000, "{crowd:?}");
    assert_eq!(crowd.place.as_ref().and_then(|place| place.function.as_deref()), Some("main"), "{crowd:?}");
}

/// One line, and nothing of what was not counted.
#[test]
fn if_no_process_reports_nothing_else_is_said() {
    let (source, program) = (scratch("alone.c"), scratch("alone"));
    std::fs::write(&source, "int main(void) { return 3; }\n").unwrap();
    let compiled = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler and a static C library are needed");
    let mut command = flashlock();
    command.args(["run", "--stats", "--"]).arg(&program).env("COLUMNS", "80");
    let said = command.assert().code(3).stdout("");
    let text = String::from_utf8(said.get_output().stderr.clone()).unwrap();
    let (warning, report) = text.split_once('\n').unwrap();
    assert!(warning.contains("warning: "), "{text}");
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        report.starts_with("flashlock: no process reported") && report.ends_with("flashlock doctor PROGRAM"),
        "{text}"
    );
    assert!(!text.contains("machine") && !text.contains("event"), "{text}");
    let mut command = flashlock();
    command.args(["run", "--stats=json", "--"]).arg(&program).env("COLUMNS", "140");
    let zeros = contains("\"processes\": 0");
    command.assert().code(3).stdout(zeros).stderr(contains("flashlock: no process reported, so nothing was counted."));
}

#[test]
fn objects_left_to_glibc_are_counted_by_reason() {
    let (program, file) = (compiled("left_to_glibc", "left_to_glibc"), scratch("left_to_glibc.json"));
    for lock in ["shfl", "mcs", "glibc"] {
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
    command.assert().success().stderr(contains("not replaceable:").and(contains("priority-inheriting")));
    let mut command = flashlock();
    command.args(["run", "--stats", "--lock", "shfl", "--"]).arg(&program);
    command.assert().success().stderr(contains("left to glibc:").and(contains("priority-inheriting")));
}

#[test]
fn what_cannot_be_written_is_said_before_the_program_runs() {
    let mut command = flashlock();
    command.args(["run", "--stats-file", "/no/such/directory/f", "--", "echo", "ran"]);
    command.assert().code(125).stdout("").stderr(contains("/f': the directory '/no/such/directory' does not exist"));
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_no_death() {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -f 100; '{}' run --stats -- echo ran", binary().display())]);
    let output = command.env("FLASHLOCK_PRELOAD_PATH", preload()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]), "{said}");
    assert!(said.contains("cannot create shared counters: File too large; run without --stats"), "{said}");
}

#[test]
fn an_ignored_sigchld_does_not_lose_the_status() {
    let mut command = Command::new("sh");
    let line = format!("trap '' CHLD; '{}' run --stats -- sh -c 'exit 5'", binary().display());
    command.args(["-c", &line]).env("FLASHLOCK_PRELOAD_PATH", preload());
    assert_eq!(command.output().unwrap().status.code(), Some(5));
}

/// libc's own constructor has not run then, and the program's environment is not where it will be.
#[test]
fn calls_before_the_c_librarys_constructor_obey_the_settings() {
    let program = compiled("preinit", "preinit");
    let mut command = flashlock();
    command.args(["run", "--stats", "--lock", "mcs", "--"]).arg(program);
    command.assert().success().stderr(contains("1,000 acquisitions"));
}
