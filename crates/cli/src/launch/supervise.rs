//! Runs a program as a child that behaves like this process itself: it receives this process's signals, dies with it,
//! and this process ends as the child ended.

use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use super::{OWN_FAILURE, Program, signals};
use crate::failure::Failure;

/// How a child ended, and the resources that it used.
pub(crate) struct Ended {
    /// The status from `wait4`.
    status: libc::c_int,
    /// The resources of the child and of those of its children that it waited for.
    pub(crate) resources: Resources,
}

/// The resources that a process used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resources {
    /// From its start to its end.
    pub(crate) elapsed: Duration,
    /// CPU time in user space.
    pub(crate) user: Duration,
    /// CPU time in the kernel.
    pub(crate) system: Duration,
    /// Context switches because a thread had to wait.
    pub(crate) voluntary_switches: u64,
    /// Context switches because another thread was to run.
    pub(crate) involuntary_switches: u64,
}

impl Resources {
    /// Converted from the kernel's structure.
    pub(crate) fn new(elapsed: Duration, usage: &libc::rusage) -> Self {
        let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Self {
            elapsed,
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }
}

impl Ended {
    /// The exit status (`Ok`) or the signal (`Err`).
    pub(crate) fn how(&self) -> Result<i32, i32> {
        if libc::WIFSIGNALED(self.status) {
            Err(libc::WTERMSIG(self.status))
        } else {
            Ok(libc::WEXITSTATUS(self.status))
        }
    }

    /// Ends this process in the same way. If that is not possible, it returns an exit status to end with.
    pub(crate) fn imitate(&self) -> u8 {
        let signal = match self.how() {
            Ok(status) => return status as u8,
            Err(signal) => signal,
        };
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid limit. The program has dumped its core; another dump would say nothing, and might replace it.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &no_core) };
        signals::set_default(signal);
        // SAFETY: signals only this process.
        unsafe { libc::raise(signal) };
        128 + signal as u8
    }
}

/// Runs the program to its end.
pub(crate) fn supervise(program: &Program) -> Result<Ended, Failure> {
    let own = |what: &str| {
        let error = io::Error::last_os_error();
        Failure::new(format_args!("cannot {what}: {}", crate::screen::reason(&error))).with_code(OWN_FAILURE)
    };
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(own("make a pipe"));
    }
    let watched = signals::watched();
    let mask = signals::block(&watched);
    // If SIGCHLD is ignored, a child's status is lost.
    let on_child = signals::set_default(libc::SIGCHLD);
    // SAFETY: reads this process's id.
    let parent = unsafe { libc::getpid() };
    let start = Instant::now();
    // SAFETY: this process has one thread, so the child may call any function.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(own("start a process")),
        0 => {
            signals::set_action(libc::SIGCHLD, &on_child);
            signals::set_mask(&mask);
            become_program(program, parent, pipe[1])
        }
        child => child,
    };
    let failed = exec_error(pipe);
    let ended = wait_for(child, &watched, start);
    // A signal that came too late for the child (such as the key that ended it, seen after its end) must not end this
    // process before it has reported.
    signals::discard_pending(&watched);
    signals::set_mask(&mask);
    match failed {
        Some(error) => Err(program.cannot_run(&error)),
        None => Ok(ended),
    }
}

/// In the child: becomes the program, or reports through the pipe why it cannot.
fn become_program(program: &Program, parent: libc::pid_t, pipe: i32) -> ! {
    // SAFETY: plain calls. If this command had become the program, killing one would kill the other; prctl achieves the
    // same. The parent may have died before that call.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(libc::EXIT_FAILURE);
        }
    }
    let error = program.exec().raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
    // SAFETY: writes four readable bytes, then ends without running the parent's exit handlers.
    unsafe {
        libc::write(pipe, error.as_ptr().cast(), error.len());
        libc::_exit(libc::EXIT_FAILURE)
    }
}

/// Waits until the child has become the program. Returns the error if it could not.
fn exec_error([read, write]: [i32; 2]) -> Option<io::Error> {
    let mut error = [0; 4];
    // SAFETY: both descriptors belong to this function, and `error` has four bytes. At most four are written, at once.
    let got = unsafe {
        libc::close(write);
        let got = loop {
            let got = libc::read(read, error.as_mut_ptr().cast(), error.len());
            if got >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break got;
            }
        };
        libc::close(read);
        got
    };
    (got == 4).then(|| io::Error::from_raw_os_error(i32::from_ne_bytes(error)))
}

/// Forwards signals until the child has ended.
fn wait_for(child: libc::pid_t, watched: &libc::sigset_t, start: Instant) -> Ended {
    loop {
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both are writable; all-zero is a valid rusage.
        let (got, usage) = unsafe {
            let got = libc::wait4(child, &raw mut status, libc::WNOHANG, usage.as_mut_ptr());
            (got, usage.assume_init())
        };
        if got == child {
            return Ended { status, resources: Resources::new(start.elapsed(), &usage) };
        }
        if let Some(info) = signals::wait(watched).filter(concerns_child) {
            // SAFETY: the child has not been waited for, so the number still belongs to it.
            unsafe { libc::kill(child, info.si_signo) };
        }
    }
}

/// Whether a signal is forwarded: not SIGCHLD, and not a signal that the terminal has also sent to the child.
fn concerns_child(info: &libc::siginfo_t) -> bool {
    let of_terminal = matches!(info.si_signo, libc::SIGINT | libc::SIGQUIT | libc::SIGWINCH);
    info.si_signo != libc::SIGCHLD && !(of_terminal && info.si_code == libc::SI_KERNEL)
}
