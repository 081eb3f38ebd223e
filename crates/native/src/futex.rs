//! # Parking: futexes
//!
//! Waiters park and are woken through these functions: private futexes, absolute deadlines on either clock, no `errno`.

use core::sync::atomic::AtomicU32;

use flashlock_locks::machine::{Clock, Deadline, Unparked};

use crate::sys;

/// Sleeps while `word` holds `expected`.
pub fn park(word: &AtomicU32, expected: u32, until: Option<Deadline>) -> Unparked {
    let mut op = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut time_at = 0;
    if let Some(deadline) = until {
        if deadline.clock == Clock::Realtime {
            op |= libc::FUTEX_CLOCK_REALTIME;
        }
        if deadline.sec < 0 {
            return Unparked::TimedOut; // The kernel would reject it as invalid.
        }
        time = libc::timespec { tv_sec: deadline.sec, tv_nsec: libc::c_long::from(deadline.nsec) };
        time_at = &raw const time as usize;
    }
    let any = libc::FUTEX_BITSET_MATCH_ANY as u32 as usize;
    let args = [word.as_ptr() as usize, op as usize, expected as usize, time_at, 0, any];
    // SAFETY: the word and the timespec are readable for the duration of the call.
    match unsafe { sys::syscall(libc::SYS_futex, args) } {
        error if error == -(libc::ETIMEDOUT as isize) => Unparked::TimedOut,
        error if error == -(libc::EFAULT as isize) => Unparked::Gone,
        error if error == -(libc::EAGAIN as isize) => Unparked::Changed,
        error if error == -(libc::EINTR as isize) => Unparked::Interrupted,
        _ => {
            let _ = time;
            Unparked::Woken
        }
    }
}

/// Whether the word can be read. Uses the futex call, which every program that uses locks must be allowed to make; a
/// sandbox may kill the program for another call.
pub fn is_there(word: &AtomicU32) -> bool {
    /// A value that hardly any word holds. If one does, the sleeper wakes up at once.
    const UNLIKELY: usize = 0xDEAD_BEA7;
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let args = [word.as_ptr() as usize, op as usize, UNLIKELY, &raw const at_once as usize, 0, 0];
    // SAFETY: the kernel itself checks whether the address can be read; the timespec is readable.
    let answer = unsafe { sys::syscall(libc::SYS_futex, args) };
    answer != -(libc::EFAULT as isize)
}

/// Moves one sleeper, if there is one, from the word at `from` to the word at `to`. Neither word is accessed.
pub fn requeue(from: *const AtomicU32, to: *const AtomicU32) {
    let op = libc::FUTEX_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    let (wake, move_one) = (0, 1);
    // SAFETY: FUTEX_REQUEUE on private addresses reads no memory. For an unmapped one it returns an error, which is
    // harmless.
    unsafe { sys::syscall(libc::SYS_futex, [from as usize, op as usize, wake, move_one, to as usize, 0]) };
}

/// Wakes up to `count` sleepers of the address, which is not accessed (the kernel hashes it). Returns how many it woke.
pub fn wake(address: *const AtomicU32, count: u32) -> u32 {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let count = count.min(i32::MAX as u32);
    let args = [address as usize, op as usize, count as usize, 0, 0, 0];
    // SAFETY: FUTEX_WAKE on a private address reads no memory. For an unmapped one it returns an error, which is
    // harmless.
    unsafe { sys::syscall(libc::SYS_futex, args) }.max(0) as u32
}
