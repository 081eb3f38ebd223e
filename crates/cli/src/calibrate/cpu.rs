//! Threads that stay on a CPU.

use std::mem::MaybeUninit;
use std::thread;

/// Runs `work` in a thread of its own on that CPU. `None` if the CPU cannot be had, or no thread.
pub(super) fn on<T: Send>(cpu: u32, work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let here = move || bind(cpu).then(work);
        thread::Builder::new().spawn_scoped(scope, here).ok()?.join().ok()?
    })
}

/// Whether the calling thread runs on this CPU alone from now on.
pub(super) fn bind(cpu: u32) -> bool {
    let cpu = cpu as usize;
    if cpu >= libc::CPU_SETSIZE as usize {
        return false;
    }
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: all-zero is a valid set, the number is below its size, and the call only reads it.
    unsafe {
        let set = set.assume_init_mut();
        libc::CPU_SET(cpu, set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_does_not_exist_cannot_be_had() {
        assert_eq!(on(u32::MAX, || ()), None);
        assert_eq!(on(libc::CPU_SETSIZE as u32 - 1, || ()), None);
    }
}
