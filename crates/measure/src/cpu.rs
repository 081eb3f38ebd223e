//! The CPUs that this process may use, and threads that stay on one CPU.

use std::mem::MaybeUninit;
use std::thread;

/// The CPUs that the calling thread may use.
pub fn usable() -> Option<Vec<u32>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the set is writable and has the given size, and all-zero is a valid set.
    let set = unsafe {
        let failed = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) != 0;
        (!failed).then_some(set.assume_init())?
    };
    // SAFETY: every number is below the set's size.
    Some((0..libc::CPU_SETSIZE as u32).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) }).collect())
}

/// Runs `work` in a new thread on this CPU. `None` if the CPU or a thread is not available.
pub fn on<T: Send>(cpu: u32, work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let here = move || bind(cpu).then(work);
        thread::Builder::new().spawn_scoped(scope, here).ok()?.join().ok()?
    })
}

/// Runs two functions at once, each on its CPU, if both CPUs are available. Returns the result of the first.
pub fn both<T: Send>(cpus: [u32; 2], first: impl FnOnce() -> T + Send, second: impl FnOnce() + Send) -> Option<T> {
    // Otherwise, a thread might wait for ever for a thread that could not start.
    cpus.iter().all(|&cpu| on(cpu, || ()).is_some()).then_some(())?;
    thread::scope(|scope| {
        let other = scope.spawn(move || on(cpus[1], second));
        let said = on(cpus[0], first);
        other.join().ok()??;
        said
    })
}

/// Binds the calling thread to this CPU. Returns whether that succeeded.
pub fn bind(cpu: u32) -> bool {
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

    #[test]
    fn a_bound_thread_stays_where_it_is() {
        let last = usable().unwrap().pop().unwrap();
        assert_eq!(on(last, usable), Some(Some(vec![last])));
    }
}
