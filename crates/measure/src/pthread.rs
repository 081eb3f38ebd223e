//! The C library's locks, condition variable and semaphore. They are called by their symbols, as from a C program, so
//! that the dynamic linker chooses their library.

#![expect(clippy::new_without_default, reason = "`new` is what a C program writes as an initialiser")]

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// A `pthread_mutex_t`, statically initialised. It is only used by reference, so it does not move.
pub struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is made for several threads.
unsafe impl Sync for Mutex {}
// SAFETY: an unlocked mutex belongs to no thread.
unsafe impl Send for Mutex {}

impl Mutex {
    /// An unlocked mutex.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    /// Acquires the mutex. Returns whether the function succeeded.
    pub fn lock(&self) -> bool {
        // SAFETY: the mutex is initialised.
        unsafe { libc::pthread_mutex_lock(self.0.get()) == 0 }
    }

    /// Releases the mutex, which the caller holds.
    pub fn unlock(&self) -> bool {
        // SAFETY: the mutex is initialised.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) == 0 }
    }
}

/// A `pthread_cond_t`, statically initialised.
pub struct Cond(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: a condition variable is made for several threads.
unsafe impl Sync for Cond {}
// SAFETY: it has no waiters while it is moved.
unsafe impl Send for Cond {}

impl Cond {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    /// Waits. The caller holds the mutex.
    pub fn wait(&self, mutex: &Mutex) -> bool {
        // SAFETY: both are initialised.
        unsafe { libc::pthread_cond_wait(self.0.get(), mutex.0.get()) == 0 }
    }

    /// Wakes a waiter.
    pub fn signal(&self) -> bool {
        // SAFETY: it is initialised.
        unsafe { libc::pthread_cond_signal(self.0.get()) == 0 }
    }
}

/// A `pthread_rwlock_t`, statically initialised.
pub struct RwLock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: a readers-writer lock is made for several threads.
unsafe impl Sync for RwLock {}
// SAFETY: a free readers-writer lock belongs to no thread.
unsafe impl Send for RwLock {}

impl RwLock {
    /// An unlocked readers-writer lock.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }

    /// Acquires the lock for reading. Returns whether the function succeeded.
    pub fn read(&self) -> bool {
        // SAFETY: the lock is initialised.
        unsafe { libc::pthread_rwlock_rdlock(self.0.get()) == 0 }
    }

    /// Acquires the lock for writing.
    pub fn write(&self) -> bool {
        // SAFETY: the lock is initialised.
        unsafe { libc::pthread_rwlock_wrlock(self.0.get()) == 0 }
    }

    /// Releases the lock, which the caller holds.
    pub fn unlock(&self) -> bool {
        // SAFETY: the lock is initialised.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) == 0 }
    }
}

/// A `pthread_spinlock_t`.
pub struct Spin(UnsafeCell<libc::pthread_spinlock_t>);

// SAFETY: a spinlock is made for several threads.
unsafe impl Sync for Spin {}

impl Spin {
    /// An unlocked spinlock.
    pub fn new() -> Self {
        let spin = Self(UnsafeCell::new(0));
        // SAFETY: there is memory for it, which nothing else uses yet. It may be moved, because it contains no address.
        unsafe { libc::pthread_spin_init(spin.0.get(), libc::PTHREAD_PROCESS_PRIVATE) };
        spin
    }

    /// Acquires the spinlock. Returns whether the function succeeded.
    pub fn lock(&self) -> bool {
        // SAFETY: the spinlock is initialised.
        unsafe { libc::pthread_spin_lock(self.0.get()) == 0 }
    }

    /// Releases the spinlock, which the caller holds.
    pub fn unlock(&self) -> bool {
        // SAFETY: the spinlock is initialised.
        unsafe { libc::pthread_spin_unlock(self.0.get()) == 0 }
    }
}

/// A process-private `sem_t`, which does not move.
pub struct Semaphore(Box<UnsafeCell<MaybeUninit<libc::sem_t>>>);

// SAFETY: a semaphore is made for several threads.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    /// A semaphore with so many permits.
    pub fn new(permits: u32) -> Self {
        let semaphore = Self(Box::new(UnsafeCell::new(MaybeUninit::uninit())));
        // SAFETY: there is memory for it, which nothing else uses yet.
        unsafe { libc::sem_init(semaphore.0.get().cast(), 0, permits) };
        semaphore
    }

    /// Takes a permit. Returns whether the function succeeded.
    pub fn wait(&self) -> bool {
        // SAFETY: the semaphore is initialised.
        unsafe { libc::sem_wait(self.0.get().cast()) == 0 }
    }

    /// Returns a permit.
    pub fn post(&self) -> bool {
        // SAFETY: the semaphore is initialised.
        unsafe { libc::sem_post(self.0.get().cast()) == 0 }
    }
}

/// The file from which the dynamic linker takes a function.
pub fn provider(function: &str) -> Option<String> {
    let name = CString::new(function).ok()?;
    // SAFETY: looks a symbol up; the name is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address and says whether it filled the structure.
    let file = unsafe {
        if address.is_null() || libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init().dli_fname
    };
    // SAFETY: the name is null or a C string that lives as long as the library is loaded.
    (!file.is_null()).then(|| unsafe { CStr::from_ptr(file) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_preload_the_functions_are_the_c_librarys() {
        let mutex = Mutex::new();
        assert!(mutex.lock() && mutex.unlock());
        assert!(provider("pthread_mutex_lock").unwrap().contains("libc.so"));
        assert_eq!(provider("flashlock_no_such_function"), None);
    }
}
