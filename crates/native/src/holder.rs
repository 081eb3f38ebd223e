//! # The thread's id, as glibc stores it
//!
//! Debuggers read a mutex's `__owner` to see which thread holds it, so locks write the holder's id there. That costs
//! nothing measurable if the id is at hand. glibc keeps it in each thread's own storage, and describes the place for
//! debuggers in `_thread_db_pthread_tid`: bits, number and offset. The value found there is compared with the kernel's.
//! While the place is unknown, or if the values differ, mutexes name no owner. (Where an id decides who may do what,
//! [`thread::id`] is used, which also detects a child that was forked without glibc. This one decides at most when a
//! waiter is woken.)

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(target_arch = "x86_64")]
use crate::{sys, thread};

/// Offset of the id from the thread pointer, or of a zero word that each thread has. 0: not settled.
#[cfg(target_arch = "x86_64")]
static AT: AtomicUsize = AtomicUsize::new(0);

/// The calling thread's id; 0 if it is not at hand. Call [`settle`] first.
#[inline(always)]
pub fn id() -> u32 {
    #[cfg(target_arch = "x86_64")]
    return read(None);
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The word at an offset from the thread pointer, or at [`AT`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn read(at: Option<usize>) -> u32 {
    let id: u32;
    // SAFETY: `AT` is an offset in the thread's storage, or 0, where glibc keeps a pointer. Any other offset is that of
    // a word of glibc's. Neither is written.
    unsafe {
        match at {
            None => core::arch::asm!(
                "mov {at}, qword ptr [rip + {place}]",
                "mov {id:e}, dword ptr fs:[{at}]",
                at = out(reg) _,
                id = lateout(reg) id,
                place = sym AT,
                options(nostack, preserves_flags, readonly),
            ),
            Some(at) => core::arch::asm!(
                "mov {id:e}, dword ptr fs:[{at}]",
                at = in(reg) at,
                id = lateout(reg) id,
                options(nostack, preserves_flags, readonly),
            ),
        }
    }
    id
}

/// Before the first lock: mutexes name no owner, unless the place is known already.
pub fn settle() {
    #[cfg(target_arch = "x86_64")]
    let _ = AT.compare_exchange(0, thread::zero_at(), Relaxed, Relaxed);
}

/// At load time: asks glibc.
pub fn prepare() {
    #[cfg(target_arch = "x86_64")]
    if let Some(at) = look_up().filter(|&at| Some(read(Some(at))) == sys::gettid()) {
        AT.store(at, Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
fn look_up() -> Option<usize> {
    /// `struct pthread` is not larger.
    const MOST: u32 = 2048;
    // SAFETY: the name ends in NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_thread_db_pthread_tid".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: glibc's description of a field: three words.
    let [bits, count, offset] = unsafe { found.cast::<[u32; 3]>().read() };
    ((bits, count) == (32, 1) && offset < MOST && offset % 4 == 0).then_some(offset as usize)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn threads_have_their_ids_at_hand() {
        settle();
        prepare();
        settle();
        let right = || Some(id()) == sys::gettid();
        assert!(right() && std::thread::spawn(right).join().unwrap());
        assert_eq!(read(Some(thread::zero_at())), 0);
    }
}
