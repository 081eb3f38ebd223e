//! # Threads of this library
//!
//! They are not the program's: they may use the CPUs that the program's main thread may use, whatever the thread that
//! happened to start them is bound to. (They also take its scheduling policy:
//! [`like_main_thread`](crate::fifo::like_main_thread).) And they take no signals, so that the program's own threads
//! do: a worker may be in the middle of somebody's section.

use std::io;
use std::sync::Once;
use std::thread::{Builder, JoinHandle};

use flashlock_native::{membarrier, registry, spin, sys};

use crate::process::PerProcess;

/// Signals that a thread gets for what it does itself. If the first ones were blocked, the kernel would kill the
/// process without calling its handlers; the last two would be lost.
const OWN: [libc::c_int; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGPIPE,
    libc::SIGXFSZ,
];

/// What must be done once in a process, before there are servers.
pub(crate) fn prepare() {
    static ONCE: PerProcess<Once> = PerProcess::new();
    ONCE.get_or(Once::new).call_once(|| {
        membarrier::prepare();
        spin::prepare();
        registry::prepare();
    });
}

/// The signal mask of the calling thread, which is restored on drop.
struct Mask(libc::sigset_t);

impl Mask {
    /// Blocks all signals but [`OWN`], and those that the C library needs itself (which `sigfillset` leaves out).
    fn block() -> Self {
        // SAFETY: a set of plain bits; `sigfillset` and `pthread_sigmask` write what is passed to them.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            for signal in OWN {
                libc::sigdelset(&raw mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `pthread_sigmask`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Starts a thread of this library. It begins with the policy of the thread that starts it.
///
/// # Errors
/// The system's, if it refuses the thread.
pub(crate) fn start(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // A thread begins with the mask of the thread that starts it.
    let _mask = Mask::block();
    Builder::new().name(name).spawn(move || {
        use_all_cpus();
        body();
    })
}

/// Lets the calling thread use the CPUs that the process's main thread may use. If the kernel refuses, it keeps its
/// own.
fn use_all_cpus() {
    let mut mask = [0_u64; 128];
    let at = mask.as_mut_ptr() as usize;
    // SAFETY: the mask is writable for its size. A thread's id is the process's if it is the main thread.
    let bytes = unsafe {
        let process = sys::syscall(libc::SYS_getpid, [0; 6]) as usize;
        sys::syscall(libc::SYS_sched_getaffinity, [process, size_of_val(&mask), at, 0, 0, 0])
    };
    if bytes > 0 {
        // SAFETY: so many bytes of the mask were written.
        unsafe { sys::syscall(libc::SYS_sched_setaffinity, [0, bytes as usize, at, 0, 0, 0]) };
    }
}
