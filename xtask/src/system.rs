//! What the standard library does not offer of the system: all `unsafe` code of the tasks.
//!
//! By way of `libc`, which the command uses as well: other libraries would have features of theirs built a second time.

#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use anyhow::Result;

/// Whether this process may do what only root may.
pub(crate) fn is_root() -> bool {
    // SAFETY: it has no precondition and does not fail.
    unsafe { libc::geteuid() == 0 }
}

/// A process group, by the process that leads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(libc::pid_t);

impl Group {
    /// The group of this child, which leads it.
    pub(crate) fn led_by(child: &std::process::Child) -> Option<Self> {
        // 0 and 1 would be this process's own group, and all processes.
        libc::pid_t::try_from(child.id()).ok().filter(|&leader| leader > 1).map(Self)
    }

    /// Kills what is left of it. That nothing is, is the good case.
    pub(crate) fn kill(self) {
        // SAFETY: no memory is concerned; the number is not -1, 0 or 1.
        unsafe { libc::kill(-self.0, libc::SIGKILL) };
    }
}

/// Another number for what a descriptor stands for, at least this one. Programs that are started inherit it.
pub(crate) fn inherited(descriptor: &impl AsFd, least: i32) -> Result<OwnedFd> {
    // SAFETY: no memory is concerned.
    let number = unsafe { libc::fcntl(descriptor.as_fd().as_raw_fd(), libc::F_DUPFD, least) };
    if number < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the number is new, so nobody else closes it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_group_is_killed() {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", "sleep 3600; true"]).process_group(0).spawn().expect("a shell");
        Group::led_by(&child).expect("a leader").kill();
        assert!(!child.wait().expect("it was not waited for").success());
    }

    #[test]
    fn a_program_inherits_the_number() {
        let (read, _write) = io::pipe().expect("a pipe");
        let high = inherited(&read, 700).expect("a number");
        let number = high.as_raw_fd();
        let seen = Command::new("test").args(["-e", &format!("/proc/self/fd/{number}")]).status().expect("a program");
        assert!(number >= 700 && seen.success(), "{number}");
    }
}
