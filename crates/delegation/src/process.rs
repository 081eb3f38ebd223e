//! # What each process has of its own
//!
//! Another thread may hold a mutex, or may be about to fill a cell, while a thread forks: in the child nobody ever
//! finishes. So the child starts with new ones.

use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

use flashlock_locks::machine::Memory as _;

use crate::Machine;

/// A value for each process that asks for it.
pub(crate) struct PerProcess<T>(AtomicPtr<Made<T>>);

struct Made<T> {
    /// The epoch of the process that has made it.
    epoch: u32,
    value: T,
}

impl<T> PerProcess<T> {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// This process's value, which is made with the first call.
    pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> &T {
        let epoch = Machine::epoch();
        let of_this_process = |at: *mut Made<T>| {
            // SAFETY: null, or from a box below, which is freed with `self` at the earliest.
            unsafe { at.as_ref() }.filter(|made| made.epoch == epoch).map(|made| &made.value)
        };
        let seen = self.0.load(Acquire);
        if let Some(value) = of_this_process(seen) {
            return value;
        }
        let made = Box::into_raw(Box::new(Made { epoch, value: make() }));
        let now = match self.0.compare_exchange(seen, made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(now) => {
                // SAFETY: from the box above; no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                now
            }
        };
        of_this_process(now).expect("made by a thread of this process")
    }
}

impl<T: Default> PerProcess<T> {
    /// The same, if there is nothing to choose.
    pub(crate) fn get(&self) -> &T {
        self.get_or(T::default)
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let at = *self.0.get_mut();
        // SAFETY: null, or from a box of `get_or`; there are no other references to it.
        let is_own = unsafe { at.as_ref() }.is_some_and(|made| made.epoch == Machine::epoch());
        // That of a parent may be in the middle of a change: it is leaked.
        if is_own {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(at) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn threads_of_a_process_share_it() {
        static COUNT: PerProcess<Mutex<u32>> = PerProcess::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| *COUNT.get().lock().expect("no panic") += 1);
            }
        });
        assert_eq!(*COUNT.get().lock().expect("no panic"), 4);
    }

    /// Another thread holds the parent's mutex meanwhile.
    #[test]
    fn a_child_has_its_own() {
        static NAMES: PerProcess<Mutex<Vec<u32>>> = PerProcess::new();
        let (holds, held) = std::sync::mpsc::channel();
        let (over, ends) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut names = NAMES.get().lock().expect("no panic");
                names.push(1);
                holds.send(()).expect("awaited");
                ends.recv().expect("sent below");
            });
            held.recv().expect("sent above");
            // SAFETY: the child uses only what it checks, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_new = NAMES.get().try_lock().is_ok_and(|names| names.is_empty());
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!is_new)) };
            }
            let mut status = 0;
            // SAFETY: `status` is writable.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            over.send(()).expect("awaited");
            assert_eq!(status, 0);
        });
    }
}
