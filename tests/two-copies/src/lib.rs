//! A shared object that has flashlock's locks in it, as any library might. The test beside it loads it twice.

use flashlock_locks::mutex::numa::Cna;
use flashlock_locks::mutex::queue::Qspin;
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::parts::raw::RawLock;
use flashlock_native::{Native, NoStats, Word32, registry};

type Machine = Native<NoStats>;

/// What a lock is made of, wherever the caller has it; all-zero is a free one.
#[repr(C)]
pub struct Lock {
    word: Word32,
    queue: [Word32; 4],
}

impl Lock {
    fn queue<Q>(&self) -> &Q {
        const { assert!(size_of::<Q>() <= size_of::<[Word32; 4]>() && align_of::<Q>() <= align_of::<Word32>()) };
        // SAFETY: a lock's queue is made of words, any of which are valid.
        unsafe { &*(&raw const self.queue).cast() }
    }

    fn lock<L: RawLock<Machine>>(&self) {
        // SAFETY: the state is used by this kind of lock only, in both copies.
        unsafe { L::lock(&self.word, self.queue()) };
    }

    fn unlock<L: RawLock<Machine>>(&self) {
        // SAFETY: as in `lock`; the caller holds it.
        unsafe { L::unlock(&self.word, self.queue()) };
    }
}

/// Acquires the lock, which is of the kind 0 (`qspin`), 1 (`cna`) or 2 (`shfl`).
#[unsafe(no_mangle)]
pub extern "C" fn two_copies_lock(kind: u32, lock: &Lock) {
    match kind {
        0 => lock.lock::<Qspin>(),
        1 => lock.lock::<Cna>(),
        _ => lock.lock::<Shfl>(),
    }
}

/// Releases it.
#[unsafe(no_mangle)]
pub extern "C" fn two_copies_unlock(kind: u32, lock: &Lock) {
    match kind {
        0 => lock.unlock::<Qspin>(),
        1 => lock.unlock::<Cna>(),
        _ => lock.unlock::<Shfl>(),
    }
}

/// Where this copy's registry is.
#[unsafe(no_mangle)]
pub extern "C" fn two_copies_registry() -> usize {
    core::ptr::from_ref(registry::get()) as usize
}
