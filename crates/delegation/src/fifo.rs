//! # Real-time scheduling
//!
//! `SCHED_FIFO` lets a servicing thread run until it sleeps. It needs a privilege (`CAP_SYS_NICE`, or `ulimit -r`). So
//! it is tried, never assumed: a refusal leaves the ordinary policy. A thread that serves without end would starve a
//! client that is bound to its CPU, so it takes a [`Breath`] now and then.

use flashlock_native::{clock, sys};

/// Priorities: the manager outranks the servicing threads.
pub(crate) const WORKER: i32 = 2;
pub(crate) const MANAGER: i32 = 3;
const LOWER: i32 = 1;

fn set(thread: u32, priority: i32) -> bool {
    let arguments = [thread as usize, libc::SCHED_FIFO as usize, &raw const priority as usize, 0, 0, 0];
    // SAFETY: a `sched_param` is its priority, which is readable.
    unsafe { sys::syscall(libc::SYS_sched_setscheduler, arguments) == 0 }
}

/// Asks for `SCHED_FIFO` for the calling thread. Returns whether it was granted.
pub(crate) fn ask(priority: i32) -> bool {
    set(0, priority)
}

/// Gives the calling thread the policy and the priority of the process's main thread; if the kernel refuses, the
/// ordinary policy.
pub(crate) fn like_main_thread() {
    /// The priority of threads that are not scheduled in real time.
    static ORDINARY: i32 = 0;
    let mut priority = ORDINARY;
    // SAFETY: a thread's id is the process's if it is the main thread; a `sched_param` is its priority, which is
    // readable and writable.
    unsafe {
        let process = sys::syscall(libc::SYS_getpid, [0; 6]) as usize;
        let policy = sys::syscall(libc::SYS_sched_getscheduler, [process, 0, 0, 0, 0, 0]);
        let policy = (policy.max(0) as i32 & !libc::SCHED_RESET_ON_FORK) as usize;
        sys::syscall(libc::SYS_sched_getparam, [process, &raw mut priority as usize, 0, 0, 0, 0]);
        let set = |policy, priority: *const i32| {
            sys::syscall(libc::SYS_sched_setscheduler, [0, policy, priority as usize, 0, 0, 0])
        };
        if set(policy, &raw const priority) < 0 {
            set(libc::SCHED_OTHER as usize, &raw const ORDINARY);
        }
    }
}

/// Whether the calling thread is scheduled in real time.
pub(crate) fn is_real_time() -> bool {
    // SAFETY: no memory is passed.
    let policy = unsafe { sys::syscall(libc::SYS_sched_getscheduler, [0; 6]) };
    matches!(policy as i32 & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR)
}

/// Moves a thread behind all others of its priority.
pub(crate) fn requeue(thread: u32) {
    let _ = set(thread, LOWER) && set(thread, WORKER);
}

/// Binds the calling thread to a CPU, if it may use that CPU.
pub(crate) fn pin(cpu: u32) {
    let mut mask = [0_u64; 16];
    if let Some(word) = mask.get_mut(cpu as usize / 64) {
        *word = 1 << (cpu % 64);
        // SAFETY: the mask is readable.
        unsafe { sys::syscall(libc::SYS_sched_setaffinity, [0, size_of_val(&mask), mask.as_ptr() as usize, 0, 0, 0]) };
    }
}

/// A thread sleeps after so long (ns) without sleep …
const AFTER: u64 = 5_000_000;
/// … for so long (µs).
const FOR: u32 = 100;
/// The clock is read once in so many scans.
const EVERY: u32 = 64;

/// Lets others have the CPU now and then.
#[derive(Default)]
pub(crate) struct Breath {
    scans: u32,
    last: u64,
}

impl Breath {
    pub(crate) fn take(&mut self) {
        self.scans = self.scans.wrapping_add(1);
        if self.scans.is_multiple_of(EVERY) {
            let now = clock::now();
            if now.saturating_sub(self.last) > AFTER {
                sys::nap(FOR);
                self.last = clock::now();
            }
        }
    }
}
