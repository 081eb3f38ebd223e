//! The preload alone, without `flashlock run`: what it makes of an environment that anybody may have written.

mod common;

use flashlock_locks::catalogue::rw::RW_DEFAULT;
use flashlock_locks::catalogue::{DEFAULT, LOCKS};
use flashlock_native::stats::Block;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

use common::{preload, threads};

/// A shell under the preload that starts a program with threads, and then one more process; with these variables.
fn run_with(variables: &[(&str, &[u8])]) -> Output {
    let mut command = Command::new("sh");
    for name in ["FLASHLOCK", "FLASHLOCK_RW", "FLASHLOCK_TOPOLOGY", "FLASHLOCK_STATS_FD"] {
        command.env_remove(name);
    }
    command.args(["-c", &format!("{} && env true", threads(5))]).env("LD_PRELOAD", preload());
    command.envs(variables.iter().map(|&(name, value)| (name, OsStr::from_bytes(value)))).output().unwrap()
}

#[test]
fn what_is_wrong_is_reported_once_for_a_tree_of_processes() {
    let long = [b'x'; 300];
    let names: Vec<_> = LOCKS.iter().map(|lock| lock.name).collect();
    let unknown = |name: &str, meant: &str| {
        let (names, default) = (names.join(" "), DEFAULT.info().name);
        let known = format!("known locks: {names} glibc");
        format!("FLASHLOCK: unknown lock '{name}'{meant}; {known}; using the default lock, {default}")
    };
    let mistyped = unknown("mcz", " (did you mean 'mcs'?)");
    let forged = unknown("mcz?flashlock?[31m is well?", "");
    let unreadable = format!(
        "FLASHLOCK: the value is not UTF-8, or longer than 255 bytes; using the default lock, {}",
        DEFAULT.info().name
    );
    let option = format!(
        "FLASHLOCK: lock tas has no option 'cnod' (did you mean 'cond'?); its options: wait cond sem; \
         using the default lock, {}",
        DEFAULT.info().name
    );
    let mutex = format!(
        "FLASHLOCK_RW: 'mcs' is a lock for mutexes; use it with FLASHLOCK=mcs; using the default lock, {}",
        RW_DEFAULT.info().name
    );
    let cases: [(&str, &[u8], &str); 11] = [
        ("FLASHLOCK", b"mcz", &mistyped),
        ("FLASHLOCK", b"tas:cnod=lifo", &option),
        ("FLASHLOCK_RW", b"mcs", &mutex),
        ("FLASHLOCK", b"mcz\nflashlock\x1b[31m is well\n", &forged),
        ("FLASHLOCK_TOPOLOGY", b"2\n", "FLASHLOCK_TOPOLOGY='2?' is not NODESxCORESxSMT, such as 2x18x2; ignored"),
        ("FLASHLOCK", b"mcs\xff", &unreadable),
        ("FLASHLOCK", &long, &unreadable),
        ("FLASHLOCK_TOPOLOGY", b"many", "FLASHLOCK_TOPOLOGY='many' is not NODESxCORESxSMT, such as 2x18x2; ignored"),
        (
            "FLASHLOCK_TOPOLOGY",
            b"2x2x2\xc3",
            "FLASHLOCK_TOPOLOGY: the value is not UTF-8, or longer than 255 bytes; ignored",
        ),
        ("FLASHLOCK", b"", ""),
        ("FLASHLOCK_TOPOLOGY", b"2x2x2", ""),
    ];
    for (name, value, complaint) in cases {
        let output = run_with(&[(name, value)]);
        assert!(output.status.success(), "{complaint}: {output:?}");
        let expected = if complaint.is_empty() { String::new() } else { format!("flashlock: {complaint}\n") };
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    }
}

#[test]
fn a_descriptor_that_is_not_ours_changes_nothing() {
    for number in ["0", "1", "2", "-1", "99999", "999999999999999999999", "x", ""] {
        let output = run_with(&[("FLASHLOCK_STATS_FD", number.as_bytes())]);
        assert!(output.status.success() && output.stderr.is_empty(), "{number}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("operations"), "{number}: {output:?}");
    }
}

#[test]
fn only_counters_of_ours_are_counted_in() {
    let (ours, block) = Block::create().unwrap();
    let size = File::from(ours.try_clone().unwrap()).metadata().unwrap().len();
    // SAFETY: the name is a C string, and the new descriptor is nobody else's.
    let mut foreign = unsafe { File::from_raw_fd(libc::memfd_create(c"foreign".as_ptr(), libc::MFD_ALLOW_SEALING)) };
    foreign.set_len(size).unwrap();
    for (descriptor, are_ours) in [(foreign.as_raw_fd(), false), (ours.as_raw_fd(), true)] {
        for lock in ["mcs", "glibc"] {
            let before = block.totals().processes;
            let descriptor = descriptor.to_string();
            let variables = [("FLASHLOCK", lock.as_bytes()), ("FLASHLOCK_STATS_FD", descriptor.as_bytes())];
            let output = run_with(&variables);
            assert!(output.status.success() && output.stderr.is_empty(), "{lock}: {output:?}");
            assert_eq!(block.totals().processes > before, are_ours, "{lock}");
        }
    }
    let mut written = Vec::new();
    foreign.read_to_end(&mut written).unwrap();
    assert!(written.len() as u64 == size && written.iter().all(|&byte| byte == 0), "foreign memory was written to");
}
