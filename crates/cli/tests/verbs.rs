//! The verbs that tell something: locks, topology, doctor, generate, help.

mod common;

use std::process::{Command, Stdio};

use common::{binary, flashlock, preload, scratch};
use predicates::prelude::*;
use predicates::str::{contains, is_empty, starts_with};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let output = flashlock().args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_catalogue_as_json() {
    let locks = json(&["locks", "--json"]);
    let locks = locks.as_array().unwrap();
    let fields = [
        "name",
        "title",
        "paper",
        "bytes",
        "bytes_per_waiter",
        "atomics_lock",
        "atomics_unlock",
        "numa_aware",
        "fair",
        "strict",
        "waits",
        "default",
        "interposable",
        "exceptions",
    ];
    let of_a_mutex = ["atomics_lock", "atomics_unlock", "strict"];
    for lock in locks {
        for field in fields {
            let wanted = lock["kind"] == "mutex" && lock["why_standalone"].is_null() || !of_a_mutex.contains(&field);
            assert_eq!(!lock[field].is_null(), wanted, "{field}: {lock}");
        }
        assert_eq!(lock["interposable"], lock["why_standalone"].is_null(), "{lock}");
        assert!(lock["interposable"] == false || lock["kind"] == "mutex" || lock["kind"] == "rw", "{lock}");
    }
    for kind in ["mutex", "rw"] {
        let is_default = |lock: &&Value| lock["default"] == true && lock["kind"] == kind;
        assert_eq!(locks.iter().filter(is_default).count(), 1, "{kind}");
    }
    assert_eq!(json(&["locks", "cst-rw", "--json"])["atomics_read"], 2);
    assert_eq!(json(&["locks", "mcs", "--json"])["name"], "mcs");
}

/// What `run` refuses is a problem.
#[test]
fn the_doctor_finds_an_environment_with_which_nothing_starts() {
    let mut command = flashlock();
    let output = command.args(["doctor", "--json"]).env("FLASHLOCK_TOPOLOGY", "foo").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["verdict"]), (Some(1), &Value::from("problem")));
}

#[test]
fn a_lock_in_detail_and_an_unknown_one() {
    flashlock().args(["locks", "mcs"]).assert().success().stdout(contains("Mellor-Crummey"));
    let unknown = flashlock().args(["locks", "nothing"]).assert().code(2).stdout(is_empty());
    unknown.stderr(starts_with("flashlock: unknown lock 'nothing'; known locks: tas"));
}

#[test]
fn locks_for_no_program_are_listed_and_say_why() {
    let list = flashlock().arg("locks").env("COLUMNS", "200").output().unwrap().stdout;
    let list = String::from_utf8(list).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, kind, why) in [
        ("null", "none", "it does not exclude other threads; it is for measuring benchmarks"),
        ("cas", "mutex", "it collapses under contention; it is for comparison with papers"),
        ("flat-combining", "closure", "it runs closures, which programs with pthread mutexes do not have"),
        ("cc-synch", "closure", "it runs closures, which programs with pthread mutexes do not have"),
        (
            "rcl",
            "served",
            "it needs a server thread, so programs are written for it, with libflashlock_rcl (C, C++) or the crate \
             flashlock-delegation (Rust)",
        ),
    ] {
        assert!(list.contains(&format!(" {name} {why}")), "{name}: {list}");
        let row = json(&["locks", name, "--json"]);
        assert_eq!(
            (&row["kind"], &row["interposable"], &row["why_standalone"]),
            (&kind.into(), &false.into(), &why.into())
        );
        flashlock().args(["locks", name]).assert().success().stdout(contains("flashlock run cannot use it"));
    }
}

#[test]
fn the_machine_and_an_imagined_one() {
    flashlock().arg("topology").assert().success().stdout(contains("This machine").and(contains("NUMA node")));
    assert!(json(&["topology", "--json"])["cpus"].as_u64() > Some(0));
    let mut command = flashlock();
    let output = command.args(["topology", "--json"]).env("FLASHLOCK_TOPOLOGY", "2x18x2").output().unwrap();
    let machine: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&machine["cpus"], &machine["lock_nodes"], &machine["imagined"]),
        (&72.into(), &2.into(), &"2x18x2".into())
    );
    for wrong in ["2x18", "4096x4096x4096"] {
        flashlock()
            .arg("topology")
            .env("FLASHLOCK_TOPOLOGY", wrong)
            .assert()
            .code(2)
            .stderr(contains("FLASHLOCK_TOPOLOGY"));
    }
}

#[test]
fn the_doctor_tries_every_lock() {
    let report = json(&["doctor", "--json"]);
    let locks = json(&["locks", "--json"]);
    let tried = report["sections"][1]["findings"].as_array().unwrap();
    let usable = locks.as_array().unwrap().iter().filter(|lock| lock["interposable"] == true).count();
    assert_eq!(tried.len(), usable);
    for finding in tried {
        assert_eq!(finding["level"], "ok", "{finding}");
        assert!(finding["text"].as_str().unwrap().starts_with("works: "), "{finding}");
    }
}

/// Files that may not be large enough for counters.
#[test]
fn a_lock_that_cannot_be_counted_works_for_the_doctor() {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -f 100; exec \"$0\" doctor --json"]).arg(binary());
    let output = shell.env("FLASHLOCK_PRELOAD_PATH", preload()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = |section: usize| report["sections"][section]["findings"].as_array().unwrap();
    assert!(found(0).iter().any(|finding| finding["subject"] == "statistics" && finding["level"] == "warn"));
    for finding in found(1) {
        assert!(finding["level"] == "ok" && finding["text"].as_str().unwrap().contains("not counted"), "{finding}");
    }
}

#[test]
fn the_doctor_looks_at_programs() {
    let mut command = flashlock();
    command.arg("doctor").arg(binary());
    // Of the program first.
    let first = starts_with(format!("{}\n  ok", binary().display()));
    let told = first.and(contains("flashlock replaces its mutexes")).and(contains("replaced, in flashlock"));
    command.assert().success().stdout(told.and(contains("\nSystem\n")));
    let script = scratch("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    flashlock().arg("doctor").arg(&script).assert().success().stdout(contains("a script, run by /bin/sh"));
}

#[test]
fn a_static_program_is_a_problem() {
    let source = scratch("static.c");
    let program = scratch("static");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let compiled = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler and a static C library are needed");
    flashlock().arg("doctor").arg(&program).assert().code(1).stdout(contains("statically linked"));
    let mut command = flashlock();
    command.args(["run", "--stats", "--"]).arg(&program);
    command.assert().success().stderr(contains("warning: ").and(contains("flashlock: no process reported")));
}

#[test]
fn the_doctor_sees_a_broken_environment() {
    let mut command = flashlock();
    command.arg("doctor").env("FLASHLOCK", "mcz").env("COLUMNS", "140");
    command.assert().code(1).stdout(contains("unknown lock 'mcz'; did you mean 'mcs'?"));
    let mut command = flashlock();
    command.arg("doctor").env("FLASHLOCK", "glibc").env("FLASHLOCK_RW", "glibc");
    command.assert().success().stdout(contains("glibc: the lock, unless --lock is given"));
    let mut command = flashlock();
    command.arg("doctor").env("FLASHLOCK_PRELOAD_PATH", "/nowhere");
    command.assert().code(1).stdout(contains("cannot find libflashlock_preload.so"));
    // A library of that name which replaces nothing must not pass for one that works.
    let other = scratch("empty.c");
    let library = scratch("libflashlock_preload.so");
    std::fs::write(&other, "int pthread_flashlock_nothing;\n").unwrap();
    let compiled = Command::new("cc").arg("-shared").arg("-o").arg(&library).arg(&other).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler is needed");
    let mut command = flashlock();
    command.arg("doctor").env("FLASHLOCK_PRELOAD_PATH", &library);
    command.assert().code(1).stdout(contains("problem"));
}

#[test]
fn help_teaches_and_usage_errors_are_two() {
    flashlock().arg("--help").assert().success().stdout(contains("Where to begin"));
    for verb in ["run", "compare", "locks", "topology", "doctor"] {
        flashlock().args([verb, "--help"]).assert().success().stdout(contains("Examples:"));
        flashlock().args([verb, "--no-such-option"]).assert().code(2).stderr(starts_with("flashlock: "));
    }
    flashlock().assert().code(2);
    flashlock().arg("--version").assert().success().stdout(starts_with("flashlock "));
}

#[test]
fn colours_obey() {
    let escape = "\u{1b}[";
    flashlock().args(["locks", "mcs", "--color=always"]).assert().success().stdout(contains(escape));
    for args in [&["locks", "mcs"][..], &["locks", "mcs", "--color=never"], &["--help"]] {
        flashlock().args(args).assert().success().stdout(contains(escape).not());
    }
    flashlock().args(["--color=always", "--help"]).assert().success().stdout(contains(escape));
}

#[test]
fn tables_fit_the_screen() {
    for columns in [80, 120] {
        for args in [&["locks"][..], &["locks", "shfl"], &["topology"]] {
            let output = flashlock().args(args).env("COLUMNS", columns.to_string()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        }
    }
}

#[test]
fn a_broken_pipe_is_no_panic() {
    for args in ["locks", "topology", "doctor", "--help", "locks --json"] {
        let line = format!("{{ sleep 0.2; '{}' {args}; }} | true", binary().display());
        let mut command = Command::new("sh");
        command.args(["-c", &line]).env("FLASHLOCK_PRELOAD_PATH", preload()).stderr(Stdio::piped());
        let complaint = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert_eq!(complaint, "", "{args}");
    }
    let line = format!("'{}' locks > /dev/full", binary().display());
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to standard output: No space left"));
}

#[test]
fn documents_are_generated() {
    let directory = scratch("generated");
    for what in ["man", "completions", "markdown"] {
        flashlock().args(["generate", what]).arg(&directory).assert().success().stdout(is_empty());
    }
    for name in
        ["flashlock.1", "flashlock-run.1", "flashlock.bash", "_flashlock", "flashlock.fish", "flashlock-doctor.md"]
    {
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        assert!(text.contains("flashlock") && !text.contains("map-worker"), "{name}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
    flashlock().args(["generate", "man", "/proc/nowhere"]).assert().code(1).stderr(contains("cannot write into"));
}

#[test]
fn the_reference_in_the_documentation_is_the_current_one() {
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli/reference");
    let made = scratch("reference");
    flashlock().args(["generate", "markdown"]).arg(&made).assert().success();
    let mut names: Vec<_> = std::fs::read_dir(&made).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let expected = std::fs::read_to_string(made.join(&name)).unwrap();
        let found = std::fs::read_to_string(kept.join(&name)).unwrap_or_default();
        let name = name.display();
        assert!(found == expected, "{name} is old; make it anew: flashlock generate markdown docs/cli/reference");
    }
    std::fs::remove_dir_all(&made).unwrap();
}

/// As the list of variables says.
#[test]
fn variables_decide_about_colours() {
    let coloured = |variables: &[(&str, &str)], color: &str| {
        let mut command = flashlock();
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env_remove("CLICOLOR");
        let said = command.args([color, "locks", "mcs"]).envs(variables.iter().copied()).assert().success();
        said.get_output().stdout.contains(&0x1b)
    };
    let force = ("CLICOLOR_FORCE", "1");
    assert!(!coloured(&[], "--color=auto") && coloured(&[force], "--color=auto"));
    assert!(!coloured(&[force], "--color=never") && !coloured(&[force, ("NO_COLOR", "1")], "--color=auto"));
    assert!(coloured(&[("NO_COLOR", "1")], "--color=always"));
}

#[test]
fn glibc_is_explained_where_it_is_none_of_our_locks() {
    let explained = contains("glibc is none of flashlock's locks").and(contains("unknown lock").not());
    flashlock().args(["locks", "glibc"]).assert().code(2).stderr(explained);
    let mut command = flashlock();
    let option = contains("did you mean 'bound'?").and(contains("(see 'flashlock locks shfl')"));
    command.args(["simulate", "--locks", "shfl:buond=5"]).assert().code(2).stderr(option);
}
