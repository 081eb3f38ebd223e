//! `FLASHLOCK_RCL_TRACE`: each decision of the process's governor is a line of that file.

mod common;

use std::fs;

use common::{again, is_again, limited};
use flashlock_delegation::Delegated;
use flashlock_delegation::adapt::policy::{Lock, Seen};
use flashlock_delegation::adapt::{Governor, governor};

/// A hot lock, and a CPU to spare: made up. The governor's own thread measures in between, and finds nothing.
fn decides() {
    let governor = Governor::of_process().unwrap();
    let data = Delegated::adaptive("index", 0_u32).unwrap();
    let lock =
        Lock { id: 1, sections: 100_000, share: Some(0.9), warm: Some(50.0), cold: Some(200.0), ..Lock::default() };
    let seen = Seen { seconds: 0.1, locks: vec![lock], servers: Vec::new(), cpus: 4.0, busy: 1.0 };
    while governor.step(&seen).is_empty() {}
    data.run(|count| *count += 1);
    assert!(!governor.decisions().is_empty());
}

#[test]
fn decisions_are_lines() {
    if is_again() {
        return limited("a trace", decides);
    }
    let directory = std::env::temp_dir().join(format!("flashlock-trace-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let file = directory.join("decisions.txt");
    fs::write(&file, "a line of an earlier program\n").unwrap();
    let done = again("decisions_are_lines", |command| _ = command.env(governor::ENV_TRACE, &file));
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    assert!(done.status.success(), "{done:?}");
    let lines: Vec<&str> = text.lines().collect();
    // On a slow machine, the governor's own thread may decide that the lock comes back.
    let [earlier, decision, ..] = lines[..] else { panic!("{text}") };
    assert_eq!(earlier, "a line of an earlier program");
    let (at, what) = decision.split_once(" s: ").expect("a time");
    assert!(at.parse::<f64>().is_ok(), "{decision}");
    assert_eq!(
        what,
        "lock index: ordinary -> server 1: hot; 100000 sections, 90 % of its threads' time, 50 ns warm, 200 ns cold"
    );

    let done = again("decisions_are_lines", |command| _ = command.env(governor::ENV_TRACE, "-"));
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("flashlock: ") && text.contains(&format!(" s: {what}\n")), "{text}");
}
