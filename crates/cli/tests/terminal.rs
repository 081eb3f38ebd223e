//! On a terminal: a key's signal reaches the program once, not once more through the command.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use common::{binary, preload, scratch};
use flashlock_report::run_stats::{Outcome, RunStats};

/// A terminal: the end of the user, who types and reads, and the end of the programs.
fn terminal() -> (File, OwnedFd) {
    let (mut user, mut programs) = (-1, -1);
    // SAFETY: both descriptors are written; nothing else is asked for.
    let opened = unsafe { libc::openpty(&raw mut user, &raw mut programs, null_mut(), null_mut(), null_mut()) };
    assert_eq!(opened, 0, "no terminal can be made");
    // SAFETY: both were made just now.
    unsafe { (File::from_raw_fd(user), OwnedFd::from_raw_fd(programs)) }
}

/// Reads up to a text, or to the end.
fn read_until(user: &mut File, text: &str, seen: &mut String) {
    let mut bytes = [0; 256];
    while !seen.contains(text) {
        match user.read(&mut bytes) {
            // A terminal without programs answers EIO.
            Ok(0) | Err(_) => break,
            Ok(got) => seen.push_str(&String::from_utf8_lossy(&bytes[..got])),
        }
    }
}

/// Runs a shell under `--stats` on a terminal, hits the interrupt key once it runs, and counts how often the shell
/// feels it.
fn interrupted(name: &str, shell: &[&str]) -> usize {
    let (mut user, programs) = terminal();
    let file = scratch(name);
    let line = "trap 'echo felt' INT; echo ready; sleep 1; sleep 0.3; echo over; exit 4";
    let mut command = Command::new(binary());
    command.args(["run", "--stats=json", "--stats-file"]).arg(&file).arg("--").args(shell).args(["-c", line]);
    command.env("FLASHLOCK_PRELOAD_PATH", preload());
    command.stdin(Stdio::from(programs.try_clone().unwrap()));
    command.stdout(Stdio::from(programs.try_clone().unwrap()));
    command.stderr(Stdio::from(programs));
    // SAFETY: both calls may be made between fork and exec. The command gets the terminal for itself, as from a login.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    // The ends of the terminal that the command holds for its children would keep it open.
    drop(command);
    let mut seen = String::new();
    read_until(&mut user, "ready", &mut seen);
    user.write_all(b"\x03").unwrap();
    read_until(&mut user, "over", &mut seen);
    assert_eq!(child.wait().unwrap().code(), Some(4), "{seen}");
    assert_eq!(RunStats::read(&file).unwrap().outcome, Outcome::Exited { status: 4 });
    seen.matches("felt").count()
}

#[test]
fn the_program_feels_the_interrupt_key() {
    assert_eq!(interrupted("key.json", &["sh"]), 1);
}

/// The terminal sends nothing to a program that has left it, and neither does the command: those that stay would get it
/// twice.
#[test]
fn the_command_does_not_pass_the_key_on() {
    assert_eq!(interrupted("left.json", &["setsid", "sh"]), 0);
}
