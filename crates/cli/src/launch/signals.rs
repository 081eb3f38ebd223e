//! Signals: names, sets, dispositions.

use std::mem::MaybeUninit;
use std::ptr;
use std::thread;
use std::time::Duration;

/// The signals that are forwarded to the program, besides the real-time signals: those that others send, or timers and
/// limits that it inherits. What a fault in this process causes is not among them, and neither is what stops a process,
/// because SIGSTOP cannot be forwarded.
const FORWARDED: &[libc::c_int] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGURG,
    libc::SIGXCPU,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGWINCH,
    libc::SIGIO,
];

/// The signals by which a user or the system asks a command to end early.
pub(crate) const INTERRUPTING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

const NAMES: &[(libc::c_int, &str)] = &[
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGSYS, "SIGSYS"),
];

/// The name of a signal.
pub(crate) fn name(signal: libc::c_int) -> String {
    match NAMES.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => (*name).to_owned(),
        None if signal >= libc::SIGRTMIN() => format!("SIGRTMIN+{}", signal - libc::SIGRTMIN()),
        None => format!("signal {signal}"),
    }
}

/// The set of the forwarded signals and SIGCHLD.
pub(crate) fn watched() -> libc::sigset_t {
    let realtime = libc::SIGRTMIN()..=libc::SIGRTMAX();
    set_of(FORWARDED.iter().copied().chain(realtime).chain([libc::SIGCHLD]))
}

/// The set of these signals.
pub(crate) fn set_of(signals: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initialises the set; invalid numbers are refused.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks the signals of a set. Returns the previous mask.
pub(crate) fn block(set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are valid; the call initialises the second.
    unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, set, before.as_mut_ptr());
        before.assume_init()
    }
}

/// Sets the signal mask.
pub(crate) fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: the set is valid.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Waits for a signal of the set, which is blocked.
pub(crate) fn wait(set: &libc::sigset_t) -> Option<libc::siginfo_t> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the set is valid and `info` writable; it is initialised if the call succeeds.
    unsafe { (libc::sigwaitinfo(set, info.as_mut_ptr()) > 0).then(|| info.assume_init()) }
}

/// Waits for a signal of the set, which is blocked, but no longer than `limit`.
pub(crate) fn wait_until(set: &libc::sigset_t, limit: Duration) -> Option<libc::c_int> {
    let seconds = libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX);
    let limit = libc::timespec { tv_sec: seconds, tv_nsec: limit.subsec_nanos().into() };
    // SAFETY: the set and the time are valid; only the signal's number is requested.
    let signal = unsafe { libc::sigtimedwait(set, ptr::null_mut(), &limit) };
    (signal > 0).then_some(signal)
}

/// Discards pending signals of the set, which is blocked.
pub(crate) fn discard_pending(set: &libc::sigset_t) {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set and the time are valid; no information about the signals is requested.
    while unsafe { libc::sigtimedwait(set, ptr::null_mut(), &now) } > 0 {}
}

/// Signals that arrive within this time belong to one interruption.
const TOGETHER: Duration = Duration::from_millis(500);

/// While it exists, the user's interrupting signals are blocked in the calling thread and in the threads that it
/// starts. They are polled instead. Ignored signals stay ignored.
pub(crate) struct Interruption {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Interruption {
    /// Starts blocking. Call it before there is a second thread.
    pub(crate) fn begin() -> Self {
        let set = set_of(INTERRUPTING.into_iter().filter(|signal| !is_ignored(*signal)));
        Self { set, before: block(&set) }
    }

    /// Whether an interruption has arrived.
    pub(crate) fn has_come(&self) -> bool {
        wait_until(&self.set, Duration::ZERO).is_some()
    }

    /// After an interruption: another one ends this process, so that nobody has to wait for what is still to be done.
    /// Those of the next half second are discarded: a key may be pressed twice, and a tool may send several signals.
    pub(crate) fn end_at_the_next(self) {
        let Self { set, before } = self;
        thread::spawn(move || {
            thread::sleep(TOGETHER);
            discard_pending(&set);
            // The other threads still block them. So the kernel delivers the next one to this thread.
            set_mask(&before);
            loop {
                thread::park();
            }
        });
        std::mem::forget(self);
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        discard_pending(&self.set);
        set_mask(&self.before);
    }
}

/// The disposition of a signal.
pub(crate) fn action(signal: libc::c_int) -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads the disposition of a valid signal; all-zero is a valid sigaction.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// Sets a signal's disposition.
pub(crate) fn set_action(signal: libc::c_int, action: &libc::sigaction) {
    // SAFETY: the action came from the kernel, or is the default.
    unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
}

/// Whether a signal is ignored.
pub(crate) fn is_ignored(signal: libc::c_int) -> bool {
    action(signal).sa_sigaction == libc::SIG_IGN
}

/// Sets a signal's default disposition. Returns the previous one.
pub(crate) fn set_default(signal: libc::c_int) -> libc::sigaction {
    let before = action(signal);
    let mut default = before;
    default.sa_sigaction = libc::SIG_DFL;
    default.sa_flags = 0;
    set_action(signal, &default);
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!([9, 15, libc::SIGRTMIN() + 2, 16].map(name), ["SIGKILL", "SIGTERM", "SIGRTMIN+2", "signal 16"]);
    }

    #[test]
    fn rust_ignores_sigpipe() {
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGTERM));
    }
}
