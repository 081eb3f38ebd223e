//! `flashlock simulate`, interrupted: what is done is shown.

mod common;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{AGAINST_HANGS, interruptible};
use flashlock_report::results::Results;

/// A simulation that would take hours, of many short runs.
fn long(more: &[&str]) -> Child {
    let mut command = interruptible();
    command.args(["simulate", "--seeds", "1000", "--placements", "1000"]);
    command.args(["--threads", "1,4", "--locks", "mcs,cna"]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Once its threads have used so much CPU time that they have done something (ticks of 10 ms).
fn await_work(child: &Child, ticks: u64) {
    let started = Instant::now();
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[14 - 3].parse::<u64>().unwrap()
    };
    while used() < ticks {
        assert!(started.elapsed() < AGAINST_HANGS, "it does not run");
        thread::sleep(Duration::from_millis(10));
    }
}

fn interrupt(mut child: Child, signal: &str) -> (Option<i32>, String, String) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (child.wait().unwrap().code(), out, err)
}

#[test]
fn what_is_done_is_shown() {
    for signal in ["-INT", "-TERM"] {
        let child = long(&["--millis", "0.1"]);
        await_work(&child, 100);
        let (code, out, err) = interrupt(child, signal);
        assert_eq!(code, Some(130), "{err}");
        assert!(out.contains("Interrupted: ") && out.contains(" of 4,000,000 runs were done."), "{out}");
        assert!(out.contains("Operations per microsecond"), "{out}");
    }
    let child = long(&["--millis", "0.1", "--json"]);
    await_work(&child, 100);
    let (code, out, _) = interrupt(child, "-INT");
    let results: Results = serde_json::from_str(&out).unwrap();
    assert!(code == Some(130) && results.method.interrupted);
    // Something of each lock and number of threads, before any of them has much more.
    let done: Vec<usize> = results.points.iter().map(|point| point.runs.len()).collect();
    assert!(done.iter().all(|runs| *runs >= 1 && *runs + 3 >= done[0]), "{done:?}");
}

/// A key that was pressed twice, or a tool that sends a second signal, must not cost what was done.
#[test]
fn a_second_interruption_just_after_the_first_changes_nothing() {
    let child = long(&["--millis", "0.1"]);
    await_work(&child, 100);
    let id = child.id().to_string();
    let mut again = Command::new("sh");
    again.args(["-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.004; kill -INT \"$0\" || exit 0; done", &id]);
    let mut again = again.stderr(Stdio::null()).spawn().unwrap();
    let (code, out, err) = interrupt(child, "-INT");
    again.wait().unwrap();
    assert!(code == Some(130) && out.contains("Operations per microsecond"), "{code:?}: {err}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" of 1,000,000 runs: seed 1, with up to 1,000 placements of the threads each."), "{out}");
}

/// Nobody reads what it writes, so it does not end otherwise.
#[test]
fn a_later_interruption_ends_it() {
    let mut child = long(&["--millis", "0.1", "--json"]);
    await_work(&child, 300);
    let started = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success()),
        }
        assert!(started.elapsed() < AGAINST_HANGS, "it does not end");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.signal(), Some(2), "{status}");
}

#[test]
fn if_nothing_is_done_that_is_said() {
    // The first run takes much longer than it takes to interrupt it.
    let child = long(&["--millis", "100000"]);
    await_work(&child, 5);
    let (code, out, err) = interrupt(child, "-INT");
    assert_eq!((code, out.as_str()), (Some(130), ""), "{err}");
    assert!(err.contains("interrupted before the first run was done"), "{err}");
}
