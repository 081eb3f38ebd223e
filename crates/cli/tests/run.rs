//! `flashlock run`: the program behaves as if it had been started directly.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use common::{binary, flashlock, scratch, threads};
use flashlock_locks::catalogue::DEFAULT;
use predicates::prelude::*;
use predicates::str::{contains, is_empty, starts_with};

#[test]
fn an_unknown_lock_lists_the_known_ones() {
    for (name, said) in [
        ("nothing", "unknown lock 'nothing'; known locks: tas futex ticket "),
        ("mcx", "unknown lock 'mcx'; did you mean 'mcs'?"),
        ("SHFL", ": unknown lock 'SHFL'; did you mean 'shfl'? (see 'flashlock locks shfl')"),
        ("RCL", ": lock rcl cannot replace the locks of a program: "),
        ("rcl", " (see 'flashlock locks rcl')"),
        ("cst-rw", "'cst-rw' is a readers-writer lock; use it with "),
    ] {
        let run = |args: &[&str], variable: &str| {
            let mut command = flashlock();
            command.arg("run").args(args).env("FLASHLOCK", variable);
            let said = starts_with("flashlock: ").and(contains(said));
            command.assert().code(2).stdout(is_empty()).stderr(said);
        };
        run(&["--lock", name, "--", "true"], "");
        run(&["--", "true"], name);
        run(&["--stats", "--", "true"], name);
        run(&["--lock", name], "");
    }
}

#[test]
fn options_that_do_not_exist_are_guessed_at_too() {
    for (args, said) in [
        (&["run", "--sats", "--", "true"][..], "--stats"),
        (&["run", "--lock", "shfl:buond=5", "--", "true"], "did you mean 'bound'?"),
        (&["run", "--lock", "mcs:wait=prak", "--", "true"], "did you mean 'park'?"),
        (&["run", "--rw", "mcs", "--", "true"], "use it with --lock mcs or FLASHLOCK=mcs"),
        (&["run", "--lock", "flash,shfl", "--", "true"], "flashlock compare --locks flash,shfl -- CMD"),
        (&["locks", "Flash"], "did you mean 'flash'?"),
        (&["comprae"], "similar subcommand exists: 'compare'"),
        (&["rnu"], "similar subcommand exists: 'run'"),
        (&["compare", "--rivals", "tbbb"], "did you mean 'tbb'?"),
        (&["simulate", "kvmpa"], "'kvmap'"),
        (&["simulate", "--machine", "2x18"], "did you mean '2x18x2'?"),
        (&["simulate", "--locks", "cst-rv"], "did you mean 'cst-rw'?"),
    ] {
        flashlock().args(args).assert().code(2).stdout(is_empty()).stderr(contains(said));
    }
}

/// Nothing of ours serves a lock then; by the command, and by the library on its own.
#[test]
fn glibcs_own_locks_are_a_choice() {
    let show = "echo $FLASHLOCK $FLASHLOCK_RW";
    for (args, variables) in [
        (&["--lock", "glibc"][..], "glibc glibc\n"),
        (&["--lock", "mcs", "--rw", "glibc"], "mcs glibc\n"),
        (&["--lock", "glibc", "--rw", "cst-rw"], "glibc cst-rw\n"),
    ] {
        let mut command = flashlock();
        command.arg("run").args(args).args(["--", "sh", "-c", &format!("{show}; {} >/dev/null", threads(5))]);
        command.assert().success().stdout(variables).stderr(is_empty());
    }
    let mut command = flashlock();
    command.args(["run", "--lock", "glibc:wait=park", "--", "true"]);
    command.assert().code(2).stderr(contains("glibc's locks have no options"));
    let mut command = flashlock();
    command.args(["run", "--lock", "glibc"]);
    command.assert().code(2).stderr(contains("name a program"));
    let mut command = flashlock();
    command
        .arg("--version")
        .env("LD_PRELOAD", common::preload())
        .env("FLASHLOCK", "glibc")
        .env("FLASHLOCK_RW", "glibc");
    command.assert().success().stderr(is_empty());
}

#[test]
fn a_lock_that_is_for_no_program_is_refused_and_says_why() {
    for (name, why) in [
        ("cc-synch", "it runs closures"),
        ("flat-combining:wait=park", "it runs closures"),
        ("null", "it does not exclude other threads"),
    ] {
        let said = || contains(" cannot replace the locks of a program: ").and(contains(why));
        let mut command = flashlock();
        command.args(["run", "--lock", name, "--", "true"]);
        command.assert().code(2).stdout(is_empty()).stderr(starts_with("flashlock: ").and(said()));
        let mut command = flashlock();
        command.args(["run", "--", "true"]).env("FLASHLOCK", name);
        command.assert().code(2).stdout(is_empty()).stderr(said());
        let mut command = flashlock();
        command.args(["compare", "--locks", &format!("mcs,{name}"), "--", "true"]);
        command.assert().code(2).stdout(is_empty()).stderr(said());
    }
}

/// By the command, and by the library on its own, which goes on under the default lock.
#[test]
fn a_wait_that_this_cpu_does_not_have_is_refused() {
    let run = || {
        let mut command = flashlock();
        command.args(["run", "--lock", "mcs:wait=umwait", "--", "true"]);
        command.assert()
    };
    let alone = || {
        let mut command = flashlock();
        command.arg("--version").env("LD_PRELOAD", common::preload()).env("FLASHLOCK", "mcs:wait=umwait");
        command.assert().code(0)
    };
    let doctor = flashlock().arg("doctor").assert().code(0);
    if flashlock_native::umwait::is_there() {
        run().code(0).stderr(is_empty());
        alone().stderr(is_empty());
        doctor.stdout(contains("this CPU has it"));
        return;
    }
    let why = "lock mcs cannot use wait=umwait: this CPU lacks the instruction (WAITPKG)";
    run().code(2).stdout(is_empty()).stderr(starts_with("flashlock: ").and(contains(why)));
    let default = format!("; using the default lock, {}\n", DEFAULT.info().name);
    alone().stderr(contains(why).and(contains(default)));
    doctor.stdout(contains("this CPU lacks it (WAITPKG), so wait=umwait is refused"));
}

#[test]
fn a_bad_option_says_what_is_right() {
    let mut command = flashlock();
    command.args(["run", "--lock", "shfl:bound=soon", "--", "true"]);
    command.assert().code(2).stderr(contains("microseconds"));
}

#[test]
fn a_bad_topology_is_refused() {
    let mut command = flashlock();
    command.args(["run", "--", "true"]).env("FLASHLOCK_TOPOLOGY", "many");
    command.assert().code(2).stderr(contains("NODESxCORESxSMT"));
}

/// The same line and the same exit status from every verb that is given a program.
#[test]
fn programs_that_cannot_be_run() {
    let file = |name: &str, content: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let path = scratch(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let not_executable = file("not-executable", "", 0o644);
    let without_interpreter = file("without-interpreter", "#!/no/such/interpreter\n", 0o755);
    let without_program = file("without-program", "#!/usr/bin/env no-such-program\n", 0o755);
    let with_directory = file("with-directory", "#!/tmp\n", 0o755);
    let data = file("data", "bin\0ary", 0o755);
    let cut_off = file("cut-off", "\x7fELF", 0o755);
    // Where more formats of programs are registered, one of them could be such a file's.
    let others = std::fs::read_dir("/proc/sys/fs/binfmt_misc").is_ok_and(|mut formats| formats.next().is_some());
    let no_programs = [
        (data.as_str(), 126, "it is neither a program nor a script"),
        (cut_off.as_str(), 126, "it is a broken ELF file: it ends within its headers"),
    ];
    let cases = [
        ("no-such-program", 127, "it is not in PATH"),
        ("/no/such/program", 127, "there is no such file"),
        ("/", 126, "it is a directory"),
        (not_executable.as_str(), 126, "it is not executable"),
        (
            without_interpreter.as_str(),
            127,
            "it is a script, and its interpreter '/no/such/interpreter' does not exist",
        ),
        (without_program.as_str(), 127, "it is a script, and its interpreter 'no-such-program' is not in PATH"),
        (with_directory.as_str(), 126, "it is a script, and its interpreter '/tmp' is a directory"),
    ];
    for &(program, code, why) in cases.iter().chain(no_programs.iter().filter(|_| !others)) {
        for verb in [&["run", "--"][..], &["run", "--stats", "--"], &["compare", "--"], &["doctor"]] {
            let mut command = flashlock();
            let said = command.args(verb).arg(program).assert().code(code).stdout(is_empty());
            let line = starts_with(format!("flashlock: cannot run '{program}': {why}"));
            said.stderr(line.and(predicates::function::function(|text: &str| text.lines().count() == 1)));
        }
    }
}

/// It can be run; what is said of it is one line, wherever it is said.
#[test]
fn programs_out_of_reach_are_described_alike() {
    // Long enough to be ranked by `compare`.
    let source = "#include <unistd.h>\nint main(void) { return usleep(200000); }\n";
    let program = built("out-of-reach", source, &["-static"]);
    let line = format!("'{}' keeps its own locks: it is statically linked", program.display());
    for verb in [&["run", "--"][..], &["compare", "--runs", "1", "--locks", "tas", "--"]] {
        let mut command = flashlock();
        let warned = contains(format!("warning: {line}"));
        command.args(verb).arg(&program).env("COLUMNS", "140").assert().success().stderr(warned);
    }
    let said = doctor_says(&program);
    assert!(said.starts_with(&format!("{} problem in short {line}", program.display())), "{said}");
    assert!(said.contains("flashlock still reaches the programs that it starts"), "{said}");
    let mut command = flashlock();
    let compared = command.args(["compare", "--runs", "3", "--locks", "tas", "--"]).arg(&program).output().unwrap();
    let text = words(&compared.stdout);
    assert!(text.contains("only those of programs that it starts are replaced"), "{text}");
    assert!(text.contains("Advice: the program itself ran with the same locks each time;"), "{text}");
}

/// The dynamic linker removes `LD_PRELOAD` from its environment. Only root can make such a program that is another
/// user's.
#[test]
fn a_setuid_program_and_what_it_starts_are_out_of_reach() {
    const NOBODY: u32 = 65_534;
    // The program shows what it was started with.
    let source = "#include <stdlib.h>\nint main(void) { return getenv(\"LD_PRELOAD\") ? 1 : 0; }\n";
    let program = built("setuid", source, &["-pthread"]);
    if std::os::unix::fs::chown(&program, Some(NOBODY), Some(NOBODY)).is_err() {
        eprintln!("skipped: only root can give a file to another user");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let why = format!("'{}' keeps its own locks: {} is setuid", program.display(), program.display());
    let mut command = flashlock();
    command.args(["run", "--"]).arg(&program).assert().success().stderr(contains(format!("warning: {why}")));
    let said = doctor_says(&program);
    assert!(said.starts_with(&format!("{} problem in short {why}", program.display())), "{said}");
    assert!(said.contains("nor does flashlock reach the programs that it starts"), "{said}");
    let mut command = flashlock();
    let nothing = contains(format!("there is nothing to compare: {why}"));
    command.args(["compare", "--"]).arg(&program).assert().code(1).stdout(is_empty()).stderr(nothing);
}

/// A program out of reach has no lock that is replaced, whatever it calls.
#[test]
fn the_doctor_replaces_no_lock_of_a_program_that_has_its_own() {
    let source = "#include <pthread.h>\nint pthread_mutex_lock(pthread_mutex_t *mutex) { return 0; }\n\
                  int main(void) { return pthread_mutex_trylock(&(pthread_mutex_t){0}); }\n";
    let said = doctor_says(&built("own-lock", source, &["-rdynamic"]));
    let program = said.split(" System ").next().unwrap();
    assert!(program.contains("it defines pthread_mutex_lock itself") && !program.contains(" replaced"), "{said}");
}

/// A C program, built with these options.
fn built(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (file, program) = (scratch(&format!("{name}.c")), scratch(name));
    std::fs::write(&file, source).unwrap();
    let compiled = std::process::Command::new("cc").args(options).arg("-o").arg(&program).arg(&file).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler and a static C library are needed");
    program
}

/// What the doctor says of a program with a problem, in one line.
fn doctor_says(program: &Path) -> String {
    let output = flashlock().arg("doctor").arg(program).env("COLUMNS", "140").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    words(&output.stdout)
}

/// A text in one line.
fn words(text: &[u8]) -> String {
    String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_exit_status_is_the_programs() {
    for stats in [&["run", "--"][..], &["run", "--stats", "--"], &["run", "--stats=json", "--"]] {
        for status in [0, 1, 7, 255] {
            let mut command = flashlock();
            command.args(stats).args(["sh", "-c", &format!("exit {status}")]);
            command.assert().code(status);
        }
    }
}

#[test]
fn the_signal_is_the_programs() {
    for stats in [&["run", "--"][..], &["run", "--stats", "--"]] {
        for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("INT", 2), ("PIPE", 13)] {
            let mut command = flashlock();
            command.args(stats).args(["sh", "-c", &format!("kill -{name} $$")]);
            let status = command.output().unwrap().status;
            assert_eq!(status.signal(), Some(number), "{stats:?}: {status}");
        }
    }
}

#[test]
fn input_and_output_are_the_programs() {
    for stats in [&["run", "--"][..], &["run", "--stats", "--"]] {
        let mut command = flashlock();
        command.args(stats).args(["sh", "-c", "cat; echo $#"]).arg("sh").args(["--stats", "-x"]).write_stdin("in\n");
        command.assert().success().stdout("in\n2\n");
    }
}

#[test]
fn the_library_is_put_before_other_preloads() {
    let mut command = flashlock();
    let other = "/no/such/other.so";
    let show = "echo \"$LD_PRELOAD $FLASHLOCK\"";
    command.args(["run", "--lock", "mcs:wait=park", "--", "sh", "-c", show]).env("LD_PRELOAD", other);
    let expected = format!("{}:{other} mcs:wait=park\n", common::preload().canonicalize().unwrap().display());
    command.assert().success().stdout(expected);
}

#[test]
fn a_missing_library_says_where_it_was_searched() {
    let mut command = flashlock();
    command.args(["run", "--", "true"]).env("FLASHLOCK_PRELOAD_PATH", "/nowhere");
    command.assert().code(125).stderr(contains("FLASHLOCK_PRELOAD_PATH=/nowhere"));
    let lonely = scratch("lonely-flashlock");
    // Copied by another process: a descriptor for writing, inherited by a child of another test, would make the file
    // busy.
    assert!(std::process::Command::new("cp").arg(binary()).arg(&lonely).status().unwrap().success());
    let mut command = assert_cmd::Command::new(&lonely);
    command.args(["run", "--", "true"]).env_remove("FLASHLOCK_PRELOAD_PATH");
    command.assert().code(125).stderr(contains("searched").and(contains("lib/flashlock")));
    std::fs::remove_file(&lonely).unwrap();
}

#[test]
fn the_programs_locks_come_from_the_library() {
    let mut command = flashlock();
    command.args(["run", "--", "sh", "-c", &threads(20)]);
    command.assert().success().stdout(contains("libflashlock_preload.so"));
}

#[test]
fn a_program_out_of_reach_is_warned_about_and_run() {
    let script = scratch("foreign");
    // 32-bit, for i386; the kernel refuses it, and a shell is not asked.
    std::fs::write(&script, b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0").unwrap();
    make_executable(&script);
    let mut command = flashlock();
    command.args(["run", "--"]).arg(&script);
    command.assert().failure().stderr(contains("warning: ").and(contains("it is a 32-bit program for i386")));
}

#[test]
fn a_hostile_descriptor_does_nothing() {
    let file = scratch("hostile");
    std::fs::write(&file, "untouched").unwrap();
    let open = format!("exec 9<>'{}'; export FLASHLOCK_STATS_FD; ", file.display());
    for number in ["9", "0", "-1", "99999", "999999999999999999999", "x", ""] {
        let mut command = flashlock();
        let line = format!("{open} FLASHLOCK_STATS_FD={number}; {}", threads(5));
        command.args(["run", "--", "sh", "-c", &line]);
        command.assert().success();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "untouched", "{number}");
    }
}

#[test]
fn without_a_program_the_lock_is_compared_with_glibc() {
    let mut command = flashlock();
    command.args(["run", "--lock", "futex:wait=park"]);
    // Whether there is an answer depends on the machine's speed.
    command.assert().code(&[0, 3][..]).stdout(
        contains("Key-value map")
            .and(contains("glibc "))
            .and(contains("futex:wait=park "))
            .and(contains("synthetic benchmark")),
    );
}

#[test]
fn counting_needs_a_program() {
    let mut command = flashlock();
    command.args(["run", "--stats"]);
    command.assert().code(2).stderr(starts_with("flashlock: "));
}

/// The C compiler, for a file of this directory.
fn compiler(source: &str, compiled: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("cc");
    command.args(["-D_GNU_SOURCE", "-Wall", "-Werror", "-O1", "-pthread", "-o"]).arg(compiled);
    command.arg(format!("{}/tests/{source}.c", env!("CARGO_MANIFEST_DIR")));
    command
}

/// AddressSanitizer's runtime refuses to start behind another library, unless it is told to.
#[test]
fn programs_with_address_sanitizer_run() {
    let program = scratch("sanitized");
    let compiled = compiler("contended", &program).arg("-fsanitize=address").status();
    assert!(compiled.unwrap().success(), "a C compiler with AddressSanitizer is needed");
    // Its search for leaks needs ptrace, which a container may lack.
    let options = ["detect_leaks=0", "detect_leaks=0:verify_asan_link_order=1"];
    let run = |options: &str| flashlock().args(["run", "--"]).arg(&program).env("ASAN_OPTIONS", options).assert();
    run(options[0]).success();
    run(options[1]).failure().stderr(contains("does not come first"));
    let mut command = flashlock();
    command.args(["compare", "--runs", "1", "--locks", "flash", "--", "sh", "-c"]);
    // Short runs are not compared; whether there is an answer depends on the machine's speed.
    command.arg(format!("sleep 0.1; exec '{}'", program.display())).env("ASAN_OPTIONS", options[0]);
    command.assert().code(&[0, 3][..]).stdout(contains("flash ").and(contains("failed").not()));
}

/// Condition variables sleep in glibc's semaphores, not in those of a library that makes them of condition variables.
#[test]
fn a_library_may_have_semaphores_of_its_own() {
    let (library, program) = (scratch("own_semaphores.so"), scratch("own_semaphores"));
    assert!(compiler("own_semaphores", &library).args(["-shared", "-fPIC"]).status().unwrap().success());
    let linked = compiler("own_semaphores", &program).arg("-DPROGRAM").arg(&library).status();
    assert!(linked.unwrap().success());
    for lock in ["flash", "mcs"] {
        let mut command = flashlock();
        command.args(["run", "--lock", lock, "--"]).arg(&program).assert().success().stdout("1000 permits\n");
    }
}

/// musl's dynamic linker would not start the program together with the library. (This one is glibc's, by another name.)
#[test]
fn a_program_of_musl_runs_without_the_library() {
    let folder = scratch("musl");
    std::fs::create_dir_all(&folder).unwrap();
    let (program, linker) = (folder.join("program"), folder.join("ld-musl-x86_64.so.1"));
    let _ = std::fs::remove_file(&linker);
    std::os::unix::fs::symlink("/lib64/ld-linux-x86-64.so.2", &linker).unwrap();
    let option = format!("-Wl,--dynamic-linker={}", linker.display());
    assert!(compiler("unloaded", &program).arg(option).status().unwrap().success());
    flashlock().args(["run", "--"]).arg(&program).assert().success().stderr(contains("it is linked with musl"));
    flashlock().args(["compare", "--"]).arg(&program).assert().failure().stderr(contains("nothing to compare"));
}
