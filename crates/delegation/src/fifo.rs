//! # Real-time scheduling
//!
//! `SCHED_FIFO` lets a servicing thread run until it sleeps. It needs a privilege (`CAP_SYS_NICE`, or `ulimit -r`). So
//! it is tried, never assumed: a refusal leaves the ordinary policy.
//!
//! It could starve two threads:
//! - a client that is bound to the server's CPU. So a thread that serves without end takes a [`Breath`] now and then;
//! - the thread that serves, if a section that has lost the turn polls on the same CPU. So a thread that loses the turn
//!   is ordinary until it serves again ([`steps_down`], [`steps_up`]).

use flashlock_native::{clock, sys};

/// Priorities: the manager outranks the servicing threads.
pub(crate) const WORKER: i32 = 2;
pub(crate) const MANAGER: i32 = 3;

fn set(thread: u32, policy: libc::c_int, priority: i32) -> bool {
    let arguments = [thread as usize, policy as usize, &raw const priority as usize, 0, 0, 0];
    // SAFETY: a `sched_param` is its priority, which is readable.
    unsafe { sys::syscall(libc::SYS_sched_setscheduler, arguments) == 0 }
}

/// Asks for `SCHED_FIFO` for the calling thread. Returns whether it was granted.
pub(crate) fn ask(priority: i32) -> bool {
    set(0, libc::SCHED_FIFO, priority)
}

/// Gives that servicing thread, which serves, its priority.
pub(crate) fn steps_up(thread: u32) {
    set(thread, libc::SCHED_FIFO, WORKER);
}

/// Makes that servicing thread, which does not serve, an ordinary one. (With the main thread's policy, as servicing
/// threads have it that are not real-time, a section that polls could keep the CPU from the thread that serves.)
pub(crate) fn steps_down(thread: u32) {
    set(thread, libc::SCHED_OTHER, 0);
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
/// The clock is read once in so many scans and sections.
const EVERY: u32 = 64;

/// Lets others have the CPU now and then.
#[derive(Default)]
pub(crate) struct Breath {
    /// Scans and sections since the clock was read.
    work: u32,
    last: u64,
}

impl Breath {
    /// After a scan that ran so many sections.
    pub(crate) fn take(&mut self, sections: u32) {
        if self.is_time_to_look(sections) {
            let now = clock::now();
            if now.saturating_sub(self.last) > AFTER {
                sys::nap(FOR);
                self.last = clock::now();
            }
        }
    }

    /// Sections count, because they may be long: a client waits for those of one scan, or for [`EVERY`].
    fn is_time_to_look(&mut self, sections: u32) -> bool {
        self.work = self.work.saturating_add(sections).saturating_add(1);
        let is_time = self.work >= EVERY;
        if is_time {
            self.work = 0;
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many sections are run between two looks at the clock.
    fn between_looks(a_scan: u32) -> u32 {
        let mut breath = Breath::default();
        (1..).find(|_| breath.is_time_to_look(a_scan)).expect("some time") * a_scan
    }

    #[test]
    fn the_clock_is_read_after_few_sections() {
        for a_scan in [1, 7, 40, 1_000] {
            assert!(between_looks(a_scan) < EVERY + a_scan, "{a_scan} sections a scan");
        }
        let mut idle = Breath::default();
        assert_eq!((1..).find(|_| idle.is_time_to_look(0)), Some(EVERY), "it costs little where nothing is found");
    }
}
