//! A mutex of any rival.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use crate::functions::{Functions, GUARD_BYTES, MUTEX_BYTES};

/// A mutex of any rival. It does not move and is not destroyed, because some rivals' mutexes need destroying. So it
/// lives as long as the process.
#[derive(Debug)]
pub struct Mutex {
    functions: Functions,
    memory: &'static Memory,
}

/// On a pair of cache lines of its own, because CPUs fetch lines in pairs.
#[repr(align(128))]
#[derive(Debug)]
struct Memory(UnsafeCell<[u8; MUTEX_BYTES]>);

const _: () = assert!(align_of::<Memory>() >= MUTEX_BYTES);

// SAFETY: only the rival's functions access its contents, and they allow concurrent calls.
unsafe impl Sync for Memory {}

/// What a holder keeps, on its stack.
#[derive(Debug, Default)]
#[repr(align(8))]
pub struct Guard([u8; GUARD_BYTES]);

impl Mutex {
    /// A free mutex.
    ///
    /// # Safety
    ///
    /// The functions are those of one lock, and keep to [`MUTEX_BYTES`] and [`GUARD_BYTES`].
    pub unsafe fn new(functions: Functions) -> Self {
        let memory: &'static Memory = Box::leak(Box::new(Memory(UnsafeCell::new([0; MUTEX_BYTES]))));
        // SAFETY: there is room, and nothing else uses it.
        unsafe { (functions.init)(memory.0.get().cast::<c_void>()) };
        Self { functions, memory }
    }

    /// Runs `inside` while no other thread holds the mutex.
    #[inline]
    pub fn with<T>(&self, inside: impl FnOnce() -> T) -> T {
        let mut guard = Guard::default();
        self.lock(&mut guard);
        let value = inside();
        // SAFETY: this thread has just acquired it with this guard.
        unsafe { self.unlock(&mut guard) };
        value
    }

    /// Acquires the mutex.
    #[inline]
    pub fn lock(&self, guard: &mut Guard) {
        // SAFETY: the mutex was made by `init` and lives for ever; the guard has room.
        unsafe { (self.functions.lock)(self.memory.0.get().cast(), (&raw mut guard.0).cast()) }
    }

    /// Releases the mutex.
    ///
    /// # Safety
    ///
    /// This thread has acquired the mutex with this guard, and has not released it since.
    #[inline]
    pub unsafe fn unlock(&self, guard: &mut Guard) {
        // SAFETY: as above, and the callers' promise.
        unsafe { (self.functions.unlock)(self.memory.0.get().cast(), (&raw mut guard.0).cast()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;
    use crate::{Code, RIVALS};

    #[test]
    fn the_rivals_in_rust_exclude() {
        const THREADS: u32 = 4;
        const SECTIONS: u32 = 2000;
        let mut tried = 0;
        for rival in RIVALS {
            let Code::Rust(functions) = rival.code else { continue };
            // SAFETY: the functions belong to one lock of this crate.
            let mutex = unsafe { Mutex::new(functions) };
            let count = AtomicU32::new(0);
            let work = || {
                for _ in 0..SECTIONS {
                    mutex.with(|| {
                        // Two accesses, between which another thread would be noticed.
                        let before = count.load(Relaxed);
                        std::thread::yield_now();
                        count.store(before + 1, Relaxed);
                    });
                }
            };
            std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
            assert_eq!(count.into_inner(), THREADS * SECTIONS, "{}", rival.name);
            tried += 1;
        }
        assert_eq!(tried, 3);
    }
}
