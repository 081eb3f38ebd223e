//! Limits the memory of all simulations that run at once: if they are large, fewer of them run.

use std::sync::{Condvar, Mutex};

/// The memory for all simulations together: a GiB, less other memory of the command, and the error of estimates.
const ALL: u64 = 800 << 20;
/// After a simulation of at least this size, freed memory is returned to the system, before the next one takes as much
/// on another CPU.
const LARGE: u64 = 32 << 20;

/// The remaining budget.
#[derive(Debug)]
pub(super) struct Budget {
    left: Mutex<Left>,
    changed: Condvar,
}

#[derive(Debug)]
struct Left {
    bytes: u64,
    /// The number of simulations in progress.
    running: u32,
}

impl Budget {
    /// The full budget.
    pub(super) fn new() -> Self {
        Self { left: Mutex::new(Left { bytes: ALL, running: 0 }), changed: Condvar::new() }
    }

    /// Runs `act`, which takes so many bytes, as soon as there is room. If it takes more than the full budget, it runs
    /// alone.
    pub(super) fn within<T>(&self, bytes: u64, act: impl FnOnce() -> T) -> T {
        let mut left = self.left.lock().expect("nobody panics while it holds this");
        while left.running > 0 && left.bytes < bytes {
            left = self.changed.wait(left).expect("nobody panics while it holds this");
        }
        let taken = bytes.min(left.bytes);
        left.bytes -= taken;
        left.running += 1;
        drop(left);
        let done = act();
        if bytes >= LARGE {
            trim();
        }
        let mut left = self.left.lock().expect("nobody panics while it holds this");
        left.bytes += taken;
        left.running -= 1;
        drop(left);
        self.changed.notify_all();
        done
    }
}

/// Returns freed memory to the system. Otherwise, each thread's heap keeps its freed memory for itself.
fn trim() {
    // SAFETY: returns unused memory; any thread may call it at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;

    use super::*;

    #[test]
    fn no_more_than_all_of_it_is_taken_and_what_is_too_large_runs_alone() {
        let (budget, now, most) = (Budget::new(), AtomicU64::new(0), AtomicU64::new(0));
        let sizes = [ALL / 2, ALL / 3, ALL, ALL / 5, 2 * ALL, 1, ALL / 2];
        thread::scope(|scope| {
            for bytes in sizes.into_iter().cycle().take(28) {
                let (budget, now, most) = (&budget, &now, &most);
                scope.spawn(move || {
                    budget.within(bytes, || {
                        most.fetch_max(now.fetch_add(bytes, SeqCst) + bytes, SeqCst);
                        thread::yield_now();
                        now.fetch_sub(bytes, SeqCst);
                    });
                });
            }
        });
        assert_eq!(most.load(SeqCst), 2 * ALL, "the largest one, and nothing beside it");
        assert_eq!(budget.left.lock().unwrap().bytes, ALL);
    }
}
