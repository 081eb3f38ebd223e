//! `flashlock compare -- PROGRAM`: every message, every exit status, and results that can be read again.

mod common;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::comparison::{ANSWER_OR_NONE, LOCKS, compare, read};
use common::{AGAINST_HANGS, eventually, interruptible, preload, scratch};
use flashlock_report::results::Results;
use flashlock_report::statistics::Direction;
use predicates::prelude::*;
use predicates::str::{contains, is_empty, starts_with};

/// Fails under one lock and nowhere else.
const FAILS_UNDER_MCS: &str = "case $FLASHLOCK in mcs*) echo broken >&2; exit 3;; esac; sleep 0.06";

#[test]
fn an_unknown_lock_lists_the_known_ones() {
    let unknown = compare(&["--locks", "shfl,nothing", "--", "true"]).assert().code(2).stdout(is_empty());
    unknown.stderr(starts_with("flashlock: --locks: unknown lock 'nothing'; known locks: tas"));
    compare(&["--locks", "shfl:bound=soon", "--", "true"]).assert().code(2).stderr(contains("microseconds"));
    compare(&["--locks", "glibc", "--", "true"]).assert().code(2).stderr(contains("name another one"));
}

#[test]
fn wrong_usage() {
    compare(&["--threads", "2", "--", "true"]).assert().code(2).stderr(contains("write {threads} in CMD"));
    compare(&["--metric", "(", "--", "true"])
        .assert()
        .code(2)
        .stderr(contains("--metric '(' is not a regular expression"));
    for args in [&["--lower-is-better"][..], &["--lower-is-better", "--", "true"]] {
        compare(args).assert().code(2).stderr("flashlock: --lower-is-better needs --metric REGEX\n");
    }
    compare(&["--locks", "cst-rw"]).assert().code(2).stderr(contains("--locks takes mutexes"));
    compare(&["--threads", "0"]).assert().code(2).stderr(contains("must be 1 to 4096, not 0"));
    for args in [
        &["--metric", "x"][..],
        &["--json", "--csv", "--", "true"],
        &["--runs", "0", "--", "true"],
        &["--runs", "2", "--time", "3", "--", "true"],
        &["--time", "soon", "--", "true"],
        &["--threads", "0"],
        &["--external", "1", "--", "true"],
        &["--rivals", "std", "--", "true"],
        &["--rivals", "tbbb"],
    ] {
        compare(args).assert().code(2).stdout(is_empty()).stderr(starts_with("flashlock: "));
    }
}

#[test]
fn a_program_that_fails_under_glibc_is_not_compared() {
    let failing = compare(&["--", "sh", "-c", "echo so sad >&2; exit 9"]).assert().code(4).stdout(is_empty());
    failing.stderr(contains("fails under glibc itself (exit status 9)").and(contains("so sad")));
    let killed = compare(&["--", "sh", "-c", "kill -SEGV $$"]).assert().code(4);
    killed.stderr(contains("killed by SIGSEGV").and(contains("It printed nothing")));
    let hanging = compare(&["--timeout", "0.3", "--", "sleep", "30"]).assert().code(4);
    hanging.stderr(contains("timed out after 0.3 s, killed").and(contains("--timeout")));
}

#[test]
fn a_metric_that_never_matches_is_no_result() {
    let none = compare(&["--metric", "ops=([0-9]+)", "--", "echo", "op=7"]).assert().code(5).stdout(is_empty());
    none.stderr(contains("--metric matches nothing").and(contains("op=7")));
    let word = compare(&["--metric", "ops=(.*)", "--", "echo", "ops=many"]).assert().code(5);
    word.stderr(contains("'many', which is not a number"));
}

#[test]
fn a_metric_of_0_is_neither_missing_nor_a_failure() {
    let p99 = ["--metric", "p99=([0-9.]+)", "--lower-is-better", "--locks", LOCKS, "--runs", "3"];
    let always = compare(&[&p99[..], &["--", "echo", "p99=0.00"]].concat()).assert().code(3).stdout(is_empty());
    always.stderr(contains("under glibc, the metric is 0: 0 cannot be compared as a ratio; print more digits"));
    let good = "case $FLASHLOCK in mcs*) echo p99=0.00;; *) echo p99=$$.5;; esac";
    let (code, results) = read("zero.json", &[&p99[..], &["--", "sh", "-c", good]].concat());
    let (title, group) = (&results.groups[0].title, &results.groups[0]);
    assert_eq!((code, results.failures(title, "mcs").0, results.zeros(group, "mcs")), (0, 0, (2, 2)));
    let text = compare(&[&p99[..], &["--", "sh", "-c", good]].concat()).assert().success().get_output().stdout.clone();
    let told = String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("Under mcs, the metric was 0 in 2 of 2 runs: 0 cannot be compared"), "{told}");
    assert!(!told.contains("failed") && !told.contains("Do not use"), "{told}");
}

#[test]
fn a_failing_lock_is_reported_and_the_others_are_compared() {
    let args = ["--locks", LOCKS, "--runs", "3", "--", "sh", "-c", FAILS_UNDER_MCS];
    let text = compare(&args).assert().success().get_output().stdout.clone();
    let text = String::from_utf8(text).unwrap();
    // Lines are broken to fit the screen.
    let told = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["failed under mcs, 2 of 2 runs: exit status 3", " broken", " 2 of 2", "Do not use mcs: the program failed"]
    {
        assert!(told.contains(part), "no '{part}' in\n{text}");
    }
    let (code, results) = read("failing.json", &args);
    assert_eq!(code, 0);
    let failures = |lock: &str| results.failures(&results.groups[0].title, lock);
    assert_eq!((failures("glibc"), failures("shfl"), failures("mcs")), ((0, 3), (0, 3), (2, 2)));
}

#[test]
fn a_lock_under_which_the_program_hangs_is_tried_once() {
    let hangs = "case $FLASHLOCK in mcs*) sleep 3600;; esac; sleep 0.06";
    let args = ["--locks", LOCKS, "--runs", "3", "--timeout", "8", "--", "sh", "-c", hangs];
    let (code, results) = read("hanging.json", &args);
    let point = results.points.iter().find(|point| point.lock == "mcs").unwrap();
    assert_eq!((code, point.runs.len(), point.failures.len()), (0, 0, 1));
    assert_eq!((point.failures[0].how.as_str(), point.failures[0].timed_out), ("timed out after 8 s, killed", true));
    let text = compare(&args).assert().success().get_output().stdout.clone();
    let told = String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["timed out under mcs, 1 of 1 run: after 8 s, killed; under glibc", "Do not use mcs: the program timed out"]
    {
        assert!(told.contains(part) && !told.contains("failed"), "no '{part}' in\n{told}");
    }
}

#[test]
fn every_run_is_under_its_lock_and_has_its_number_of_threads() {
    let file = scratch("log");
    let log = format!("echo \"$FLASHLOCK ${{LD_PRELOAD##*/}} $0\" >> '{}'; sleep 0.06", file.display());
    let locks = ["--locks", "shfl:bound=5,ahead=0,mcs", "--runs", "2", "--threads", "3,1"];
    let (code, results) = read("threads.json", &[&locks[..], &["--", "sh", "-c", &log, "-t{threads}"]].concat());
    assert_eq!((code, results.method.rounds), (0, 2));
    assert_eq!(results.groups[0].cells, ["1", "3"]);
    assert_eq!(results.locks, ["glibc", "shfl:bound=5,ahead=0", "mcs"]);
    let log = std::fs::read_to_string(&file).unwrap();
    for threads in ["1", "3"] {
        let library = "libflashlock_preload.so";
        let count = |line: &str| log.lines().filter(|other| *other == line).count();
        // Under glibc there are one to three trials more.
        assert!((3..=5).contains(&count(&format!("  -t{threads}"))), "{log}");
        assert_eq!(count(&format!("shfl:bound=5,ahead=0 {library} -t{threads}")), 2, "{log}");
        assert_eq!(count(&format!("mcs {library} -t{threads}")), 2, "{log}");
    }
}

#[test]
fn the_readers_writer_lock_goes_with_each_lock_and_is_named() {
    let show = "echo n=1";
    let args = ["--locks", "mcs", "--runs", "1", "--metric", "n=([0-9]+)"];
    let with = |rw: &[&str]| {
        let mut command = compare(&[&args[..], rw, &["--", "sh", "-c", show]].concat());
        command.env("COLUMNS", "400");
        command
    };
    with(&[]).assert().success().stdout(contains("readers-writer locks are cst-rw (see --rw)"));
    with(&["--rw", "shfl-rw"]).assert().success().stdout(contains("readers-writer locks are shfl-rw (see --rw)"));
    with(&[]).env("FLASHLOCK_RW", "futex-rw").assert().success().stdout(contains("locks are futex-rw (see --rw)"));
    with(&["--rw", "glibc"]).assert().success().stdout(contains("and readers-writer locks glibc's"));
    with(&[]).env("FLASHLOCK_RW", "bogus").assert().code(2).stderr(contains("FLASHLOCK_RW"));
    let log = scratch("rw-log");
    let told = format!("echo n=1; echo $FLASHLOCK.$FLASHLOCK_RW >> {}", log.display());
    compare(&[&args[..], &["--rw", "shfl-rw", "--", "sh", "-c", &told]].concat()).assert().success();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.lines().any(|line| line == ".") && log.lines().any(|line| line == "mcs.shfl-rw"), "{log}");
}

#[test]
fn a_difference_is_found_and_its_direction_is_right() {
    // Far apart, for a busy machine; but not so far that one has collapsed.
    let slower = "case $FLASHLOCK in mcs*) sleep 1.4;; shfl*) sleep 0.08;; *) sleep 0.5;; esac";
    let counts = "r=$(($$ % 7)); case $FLASHLOCK in mcs*) echo n=50$r;; shfl*) echo n=200$r;; *) echo n=100$r;; esac";
    let common = ["--locks", LOCKS, "--runs", "5"];
    let directions = |name: &str, options: &[&str], program: &str| {
        let (code, results) = read(name, &[&common[..], options, &["--", "sh", "-c", program]].concat());
        assert_eq!(code, 0);
        let verdict = &results.verdicts[&results.groups[0].title];
        [verdict.standing("shfl").unwrap().direction, verdict.standing("mcs").unwrap().direction]
    };
    use Direction::{Better, Worse};
    assert_eq!(directions("more.json", &["--metric", "n=([0-9]+)"], counts), [Better, Worse]);
    assert_eq!(directions("less.json", &["--metric", "n=([0-9]+)", "--lower-is-better"], counts), [Worse, Better]);
    // One run that the machine delays by seconds hides a difference of time. It does not turn it round.
    eventually("differences of time are found", || {
        let [shfl, mcs] = directions("time.json", &[], slower);
        assert!(shfl != Worse && mcs != Better, "{shfl:?} {mcs:?}");
        [shfl, mcs] == [Better, Worse]
    });
    eventually("the faster lock is recommended", || {
        let text =
            compare(&[&common[..], &["--", "sh", "-c", slower]].concat()).assert().success().get_output().clone();
        String::from_utf8(text.stdout).unwrap().contains("Advice: use shfl. It ran")
    });
}

#[test]
fn csv_has_every_run() {
    let output =
        compare(&["--csv", "--locks", LOCKS, "--runs", "2", "--", "sh", "-c", FAILS_UNDER_MCS]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("group,cell,lock,round,seconds,cpu_seconds,"), "{text}");
    assert_eq!(lines.len(), 1 + 3 * 2, "{text}");
    assert_eq!(
        lines.iter().filter(|line| line.contains(",mcs,") && line.ends_with(",exit status 3")).count(),
        2,
        "{text}"
    );
}

#[test]
fn another_format_than_svg_is_refused() {
    let file = scratch("never-run");
    for name in ["x.png", "x", "x.svg.gz"] {
        let refused = compare(&["--plot", name, "--", "touch", file.to_str().unwrap()]).assert().code(2);
        refused.stderr(contains("name a file that ends in .svg"));
    }
    assert!(!file.exists(), "the program ran");
}

#[test]
fn a_program_that_only_starts_is_not_ranked() {
    let short = compare(&["--", "true"]).assert().code(3).stdout(is_empty());
    short.stderr(contains("is mostly start-up").and(contains("Nothing was ranked")));
    // What it prints can be compared all the same.
    compare(&["--locks", "shfl", "--runs", "3", "--metric", "n=([0-9]+)", "--", "echo", "n=7"]).assert().success();
    let some = "test $0 = 1 || sleep 0.1";
    let args = ["--locks", "shfl", "--runs", "3", "--threads", "1,2", "--", "sh", "-c", some, "{threads}"];
    let (code, results) = read("some-only-start.json", &args);
    assert_eq!((code, results.groups[0].cells.as_slice()), (0, &["2".to_owned()][..]));
    compare(&args).assert().success().stdout(contains("Not ranked: 1 threads."));
}

#[test]
fn it_says_how_long_it_will_take_and_leaves_out_what_does_not_fit() {
    let locks = "shfl,mcs,tas,futex,cna,mcscr,ticket";
    // How many locks fit depends on the machine's speed; on a very busy one, none.
    let some = compare(&["--locks", locks, "--time", "12", "--", "sleep", "1"]).assert().code(ANSWER_OR_NONE);
    let output = some.get_output();
    let (told, text) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    if !told.contains("the time is too short to compare anything") {
        assert!(told.contains("flashlock: this takes 12 s at most (--time): glibc and "), "{told}");
        assert!(told.contains("were left out:") && told.contains("ticket"), "{told}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("were left out:") && !text.contains(" ticket –"), "{text}");
    }
    let rounds = compare(&["--locks", "shfl", "--runs", "3", "--", "sleep", "0.06"]).assert().success();
    rounds.stderr(contains("flashlock: this takes about ").and(contains("3 rounds of glibc and 1 lock, ")));
    let mut map = compare(&["--locks", "shfl", "--rivals", "none", "--threads", "1", "--time", "2"]);
    map.assert().code(ANSWER_OR_NONE).stderr(starts_with("flashlock: this takes about 2 s (--time)\n"));
}

#[test]
fn a_time_in_which_nothing_can_be_compared_is_no_answer() {
    let short = compare(&["--time", "1", "--", "sleep", "0.4"]).assert().code(3).stdout(is_empty());
    short.stderr(contains("--time"));
    let longer = compare(&["--time", "0.3", "--", "sleep", "100"]).assert().code(3).stdout(is_empty());
    longer.stderr(contains("did not end under glibc before the time was up"));
}

/// Medians over other numbers of threads than those of other locks say nothing.
#[test]
fn a_lock_that_fails_with_some_threads_has_no_figures_over_all() {
    let fails = "case $FLASHLOCK.$0 in mcs*.2) exit 3;; esac; sleep 0.06";
    let args = ["--locks", LOCKS, "--runs", "3", "--threads", "1,2", "--", "sh", "-c", fails, "{threads}"];
    let text = String::from_utf8(compare(&args).output().unwrap().stdout).unwrap();
    let told = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(" mcs failed – – –") && told.contains("if the lock has figures for all"), "{text}");
}

#[test]
fn no_number_is_broken_on_a_narrow_screen() {
    let args = ["--locks", "shfl", "--runs", "1", "--threads", "1,2,3,4,5,6,7,8", "--metric", "n=([0-9]+)"];
    let mut command = compare(&[&args[..], &["--", "echo", "n=123456 {threads}"]].concat());
    let text = String::from_utf8(command.env("COLUMNS", "40").output().unwrap().stdout).unwrap();
    assert_eq!(text.matches(" 123,456").count(), 2 * 8, "{text}");
    assert!(text.lines().filter(|line| line.starts_with("  shfl ")).count() > 2, "{text}");
}

/// It works, but a run took longer than the comparison could wait.
#[test]
fn a_lock_that_worked_before_does_not_time_out_because_the_comparison_must_end() {
    let file = scratch("slow-later");
    let slow =
        format!("case $FLASHLOCK in mcs*) test -e '{0}' && sleep 9; touch '{0}';; esac; sleep 0.2", file.display());
    let args = ["--locks", LOCKS, "--time", "8", "--", "sh", "-c", &slow];
    eventually("a lock is given up in its second run", || {
        let _ = std::fs::remove_file(&file);
        let text = compare(&args).assert().code(ANSWER_OR_NONE).get_output().stdout.clone();
        let told = String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!told.contains("timed out") && !told.contains("Do not use"), "{told}");
        told.contains("Given up in round 2, to keep to the time: mcs (a run took more than ")
    });
}

/// In the last seconds of the comparison, a run gets less time than its limit, and a hang looks like a slow run.
#[test]
fn a_lock_under_which_the_program_hangs_late_is_not_recommended() {
    let file = scratch("hangs-later");
    let hangs = format!(
        "case $FLASHLOCK in mcs*) echo run >> '{0}'; test $(wc -l < '{0}') -gt 4 && sleep 600; sleep 0.06;; \
         *) sleep 0.2;; esac",
        file.display()
    );
    for limit in [&["--timeout", "30"][..], &[]] {
        // On a slow machine the time is over before the fifth run.
        eventually("the fifth run hangs", || {
            let _ = std::fs::remove_file(&file);
            let args = [&["--locks", "mcs", "--time", "6"][..], limit, &["--", "sh", "-c", &hangs]].concat();
            let (code, results) = read("hangs-late.json", &args);
            assert!(ANSWER_OR_NONE.contains(&code), "{code}");
            let point = results.points.iter().find(|point| point.lock == "mcs").unwrap();
            assert_eq!(point.failures.len(), 0, "{point:?}");
            let has_hung = point.unfinished.len() == 1;
            assert!(!has_hung || results.verdicts[&results.groups[0].title].best.is_none());
            has_hung
        });
    }
}

#[test]
fn a_number_of_threads_may_be_in_the_programs_name() {
    use std::os::unix::fs::PermissionsExt;
    for threads in [1, 2] {
        let program = scratch(&format!("named-{threads}"));
        std::fs::write(&program, "#!/bin/sh\nsleep 0.06\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let name = scratch("named-{threads}");
    let name = name.to_str().unwrap();
    let args = |threads| ["--locks", "shfl", "--runs", "1", "--threads", threads, "--", name];
    let (code, results) = read("named.json", &args("1,2"));
    assert_eq!((code, results.groups[0].cells.len()), (0, 2));
    let missing = compare(&args("1,3")).assert().code(127).stdout(is_empty());
    missing.stderr(contains("named-3': there is no such file"));
}

#[test]
fn locks_that_take_too_long_do_not_keep_the_comparison_from_its_time() {
    // Each hangs, and with each of two numbers of threads.
    let hangs = "case $FLASHLOCK in mcs*|tas*|cna*) sleep 3600;; esac; sleep 0.06";
    let start = Instant::now();
    let args =
        ["--locks", "mcs,tas,cna,shfl", "--time", "60", "--threads", "1,2", "--", "sh", "-c", hangs, "{threads}"];
    let (code, results) = read("keeps-time.json", &args);
    assert!(start.elapsed() < AGAINST_HANGS, "{:?}", start.elapsed());
    assert_eq!(code, 0);
    let verdict = &results.verdicts[&results.groups[0].title];
    assert!(verdict.standing("shfl").is_some_and(|standing| standing.p.is_some()), "{verdict:?}");
}

#[test]
fn a_glibc_that_collapses_makes_no_gain_of_the_others() {
    let collapses = "r=$(($$ % 4)); case $FLASHLOCK in '') sleep 1.5;; *) sleep 0.06$r;; esac";
    let text = compare(&["--locks", "shfl", "--runs", "3", "--", "sh", "-c", collapses]).assert().success();
    let text = String::from_utf8_lossy(&text.get_output().stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["<0.1", "glibc collapsed (1.5", "Advice: use shfl: with it, the program runs at a usual speed"] {
        assert!(text.contains(part) && !text.contains("times as fast"), "no '{part}' in\n{text}");
    }
}

#[test]
fn a_picture_that_cannot_be_written_costs_no_time() {
    // It would leave a file.
    let file = scratch("costly");
    let command = ["--plot", "/no/such/directory/x.svg", "--", "touch", file.to_str().unwrap()];
    compare(&command).assert().code(1).stderr(contains("x.svg': the directory '/no/such/directory' does not exist"));
    assert!(!file.exists(), "the program ran");
}

#[test]
fn where_nothing_is_drawn_no_empty_picture_is_left() {
    let picture = scratch("nothing.svg");
    let plot = ["--plot", picture.to_str().unwrap()];
    compare(&[&plot[..], &["--", "false"]].concat()).assert().code(4);
    assert!(!picture.exists());
    let (status, text) = interrupted(&scratch("nothing-log"), &plot, 1, libc::SIGINT);
    assert_eq!((status.code(), picture.exists()), (Some(130), false), "{text}");
    // A file that was there is not ours to remove.
    std::fs::write(&picture, "").unwrap();
    compare(&[&plot[..], &["--", "false"]].concat()).assert().code(4);
    assert!(picture.exists());
}

#[test]
fn a_program_that_later_fails_under_glibc_alone_fails_by_itself() {
    let file = scratch("later");
    // There are up to three trials.
    let line = format!(
        "case $FLASHLOCK in '') echo run >> '{0}'; test $(grep -c . '{0}') -le 3 || exit 1;; esac; sleep 0.06",
        file.display()
    );
    compare(&["--locks", "shfl", "--runs", "1", "--", "sh", "-c", &line]).assert().code(4).stdout(contains("glibc"));
}

#[test]
fn retries_are_made_where_nothing_is_complete_yet() {
    // Fails once under the only lock, and works from then on.
    let file = scratch("once");
    let line = format!(
        "case $FLASHLOCK in shfl*) test -e '{0}' || {{ touch '{0}'; exit 1; }};; esac; sleep 0.06",
        file.display()
    );
    eventually("there is time for three rounds", || {
        let _ = std::fs::remove_file(&file);
        let (code, results) = read("retried.json", &["--locks", "shfl", "--time", "5", "--", "sh", "-c", &line]);
        assert!(ANSWER_OR_NONE.contains(&code), "{code}");
        code == 0 && results.method.rounds > 2
    });
}

#[test]
fn a_lock_given_up_does_not_keep_the_comparison_running() {
    let start = Instant::now();
    let fails = ["--locks", "mcs", "--time", "3600", "--", "sh", "-c", FAILS_UNDER_MCS];
    compare(&fails).assert().code(3);
    assert!(start.elapsed() < AGAINST_HANGS, "{:?}", start.elapsed());
}

#[test]
fn foreign_files_are_refused_with_a_reason() {
    let (_, good) = read("good.json", &["--locks", "shfl", "--runs", "1", "--", "sleep", "0.06"]);
    let good = good.json().unwrap();
    let error = |name: &str, text: String| {
        let file = scratch(name);
        std::fs::write(&file, text).unwrap();
        Results::read(&file).unwrap_err().to_string()
    };
    assert!(error("a", "{}".into()).contains("not a result file of flashlock"));
    assert!(
        error("b", good.replace("flashlock.results", "flashlock.run-stats"))
            .contains("is a 'flashlock.run-stats' file")
    );
    assert!(error("c", good.replacen("\"version\": 1", "\"version\": 2", 1)).contains("use a newer flashlock"));
    assert!(error("d", good.replacen("\"lock\":\"shfl\"", "\"lock\":\"nobody\"", 1)).contains("'locks' does not list"));
    assert!(error("e", good.replacen("\"merit\": \"seconds\"", "\"merit\": \"hours\"", 1)).contains("'hours'"));
}

/// Starts a comparison of a program that counts its runs in a file, and interrupts once there are enough.
fn interrupted(file: &Path, json: &[&str], runs: usize, signal: i32) -> (std::process::ExitStatus, String) {
    let line = format!("echo run >> '{}'; sleep 0.06", file.display());
    let mut command = interruptible();
    command.args(["compare", "--time", "3600", "--locks", LOCKS]).args(json).args(["--", "sh", "-c", &line]);
    command.env("FLASHLOCK_PRELOAD_PATH", preload()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let done = || std::fs::read_to_string(file).is_ok_and(|text| text.lines().count() >= runs);
    let start = Instant::now();
    while !done() && start.elapsed() < AGAINST_HANGS {
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: the child has not been waited for, so the number is its.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap(), text)
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    // Three trials, and four rounds of three.
    let (status, text) = interrupted(&scratch("interrupted-text"), &[], 16, libc::SIGINT);
    assert_eq!(status.code(), Some(130), "{text}");
    assert!(text.contains("interrupted") && text.contains("95 %") && text.contains("Advice:"), "{text}");
    let (status, text) = interrupted(&scratch("interrupted-json"), &["--json"], 16, libc::SIGINT);
    let file = scratch("interrupted.json");
    std::fs::write(&file, text).unwrap();
    let results = Results::read(&file).unwrap();
    assert_eq!((status.code(), results.method.interrupted), (Some(130), true));
    assert!(results.points.iter().all(|point| point.runs.len() >= 3), "{results:?}");
}

#[test]
fn an_interruption_before_anything_was_measured() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        let (status, text) = interrupted(&scratch("interrupted-early"), &[], 1, signal);
        assert_eq!(status.code(), Some(130), "{status}");
        assert!(text.contains("too few to tell a difference"), "{text}");
    }
}

#[test]
fn intervals_are_not_broken_where_a_lock_fails() {
    let program = "case $FLASHLOCK in mcs*) exit 3;; esac; sleep 0.1$(($$ % 5))";
    let mut command = compare(&["--locks", LOCKS, "--runs", "4", "--", "sh", "-c", program]);
    let text = String::from_utf8(command.env("COLUMNS", "80").output().unwrap().stdout).unwrap();
    let row = text.lines().find(|line| line.trim_start().starts_with("shfl ")).unwrap_or_else(|| panic!("{text}"));
    let interval = row.split_whitespace().find(|word| word.contains('–')).unwrap_or_else(|| panic!("{text}"));
    let ends: Vec<&str> = interval.split('–').collect();
    assert!(ends.len() == 2 && ends.iter().all(|end| end.parse::<f64>().is_ok()), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}
