//! # Raw system calls
//!
//! Functions for lock paths to call the kernel directly. libc's wrappers set `errno`, and the program may interpose
//! them; a lock path must allow neither. These functions return the kernel's answer: a value, or minus an error number.

use core::arch::asm;
use core::ffi::CStr;

use flashlock_locks::machine::REAL_TIME;

/// A system call with up to six arguments.
///
/// # Safety
/// The arguments must be valid for the call.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel's calling convention; callers vouch for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A system call with up to six arguments.
///
/// # Safety
/// The arguments must be valid for the call.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel's calling convention; callers vouch for the arguments.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// The calling thread's id, from the kernel; `None` if a sandbox refuses the call.
pub fn gettid() -> Option<u32> {
    // SAFETY: no arguments.
    u32::try_from(unsafe { syscall(libc::SYS_gettid, [0; 6]) }).ok()
}

/// Yields the CPU to another runnable thread, if there is one.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}

/// How strongly the scheduler prefers the calling thread: minus the nice value, or [`REAL_TIME`] and more.
/// 0, the ordinary priority, if the kernel does not say.
pub fn priority() -> i32 {
    /// A flag that may be set in a policy.
    const SCHED_RESET_ON_FORK: isize = 0x4000_0000;
    /// Not in the `libc` crate for all targets.
    const SCHED_DEADLINE: i32 = 6;
    let mut parameter = 0_i32; // The only field of a `sched_param`.
    // SAFETY: asks about the calling thread; `parameter` is writable.
    let (policy, nice) = unsafe {
        syscall(libc::SYS_sched_getparam, [0, &raw mut parameter as usize, 0, 0, 0, 0]);
        let policy = syscall(libc::SYS_sched_getscheduler, [0; 6]);
        (policy, syscall(libc::SYS_getpriority, [libc::PRIO_PROCESS as usize, 0, 0, 0, 0, 0]))
    };
    match (policy & !SCHED_RESET_ON_FORK) as i32 {
        _ if policy < 0 => 0,
        libc::SCHED_FIFO | libc::SCHED_RR => REAL_TIME + parameter,
        SCHED_DEADLINE => 2 * REAL_TIME,
        libc::SCHED_IDLE => -20,
        // The kernel says 20 - nice, which is never negative.
        _ if nice > 0 => nice as i32 - 20,
        _ => 0,
    }
}

/// Reads the beginning of a file, without allocating. Empty if it cannot be read.
pub fn read<'a>(path: &CStr, text: &'a mut [u8]) -> &'a [u8] {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: the path is a C string, `text` is writable, and the descriptor is this function's.
    let read = unsafe {
        let fd = syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0]);
        if fd < 0 {
            return &[];
        }
        let read = syscall(libc::SYS_read, [fd as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
        read
    };
    &text[..read.max(0) as usize]
}

/// Sleeps for `micros` microseconds (less than a second), or until a signal arrives.
pub fn nap(micros: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(micros.min(999_999)) * 1000 };
    // SAFETY: `time` is a valid timespec; the remainder is not requested.
    unsafe { syscall(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// Writes to standard error, without stdio. Output that cannot be written is lost. Control characters, which a quoted
/// value may contain, are shown as `?`: they could command a terminal, or forge a line.
pub fn warn(parts: &[&[u8]]) {
    for chunk in parts.iter().flat_map(|part| part.chunks(64)) {
        let mut shown = [0u8; 64];
        for (to, &byte) in shown.iter_mut().zip(chunk) {
            *to = if byte.is_ascii_control() { b'?' } else { byte };
        }
        write_error(&shown[..chunk.len()]);
    }
}

/// Like [`warn()`], and ends the line.
pub fn warn_line(parts: &[&[u8]]) {
    warn(parts);
    write_error(b"\n");
}

fn write_error(bytes: &[u8]) {
    // SAFETY: the bytes are readable.
    unsafe { syscall(libc::SYS_write, [2, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) };
}

/// Maps `bytes` of zeroed private memory. `None` if there is no memory.
pub fn map_anonymous(bytes: usize) -> Option<*mut u8> {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let address = unsafe { syscall(libc::SYS_mmap, [0, bytes, prot, flags, usize::MAX, 0]) };
    (address > 0).then_some(address as *mut u8)
}

/// Maps `bytes` of private memory at this address if nothing is mapped there: zeroed, or the contents of a file. If
/// something is there, the error is `EEXIST`.
pub fn map_at(address: usize, bytes: usize, file: Option<usize>) -> Result<(), i32> {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let from = if file.is_some() { 0 } else { libc::MAP_ANONYMOUS };
    let flags = (libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE | from) as usize;
    // SAFETY: a fresh mapping, which replaces nothing.
    let mapped = unsafe { syscall(libc::SYS_mmap, [address, bytes, prot, flags, file.unwrap_or(usize::MAX), 0]) };
    if mapped < 0 {
        return Err(-mapped as i32);
    }
    if mapped as usize == address {
        return Ok(());
    }
    // A kernel before 4.17 takes the address as a hint.
    // SAFETY: mapped just now.
    unsafe { syscall(libc::SYS_munmap, [mapped as usize, bytes, 0, 0, 0, 0]) };
    Err(libc::EEXIST)
}

/// Calls `f` with the descriptor of an anonymous file that begins with these bytes. `None` if the file cannot be made.
pub fn with_file<R>(name: &CStr, bytes: &[u8], f: impl FnOnce(usize) -> R) -> Option<R> {
    /// Not in the `libc` crate for all targets. Linux 6.3; some systems refuse files without it.
    const MFD_NOEXEC_SEAL: usize = 8;
    let mut most = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let limit = [0, libc::RLIMIT_FSIZE as usize, 0, &raw mut most as usize, 0, 0];
    // SAFETY: reads a limit; `most` is writable.
    let asked = unsafe { syscall(libc::SYS_prlimit64, limit) };
    if asked == 0 && most.rlim_cur < bytes.len() as u64 {
        return None; // Writing would raise SIGXFSZ.
    }
    let create = |flags: usize| {
        let arguments = [name.as_ptr() as usize, flags | libc::MFD_CLOEXEC as usize, 0, 0, 0, 0];
        // SAFETY: the name is a C string.
        usize::try_from(unsafe { syscall(libc::SYS_memfd_create, arguments) }).ok()
    };
    let file = create(MFD_NOEXEC_SEAL).or_else(|| create(0))?;
    // SAFETY: the bytes are readable.
    let written = unsafe { syscall(libc::SYS_write, [file, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) };
    let result = (written == bytes.len() as isize).then(|| f(file));
    // SAFETY: the descriptor is this function's.
    unsafe { syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    result
}

/// Whether eight bytes can be read at the address. The kernel reads them before it rejects the invalid request.
pub fn is_readable(address: usize) -> bool {
    // SAFETY: `how` is invalid, so the call changes nothing.
    let answer = unsafe { syscall(libc::SYS_rt_sigprocmask, [usize::MAX, address, 0, 8, 0, 0]) };
    answer == -(libc::EINVAL as isize)
}

/// Blocks all signals of the thread that can be blocked. Returns those that were blocked before.
pub fn block_signals() -> u64 {
    let (all, mut before) = (u64::MAX, 0_u64);
    let sets = [libc::SIG_SETMASK as usize, &raw const all as usize, &raw mut before as usize, size_of::<u64>(), 0, 0];
    // SAFETY: both are sets of the kernel's size.
    unsafe { syscall(libc::SYS_rt_sigprocmask, sets) };
    before
}

/// Blocks these signals and no others.
pub fn restore_signals(before: u64) {
    let sets = [libc::SIG_SETMASK as usize, &raw const before as usize, 0, size_of::<u64>(), 0, 0];
    // SAFETY: a set of the kernel's size.
    unsafe { syscall(libc::SYS_rt_sigprocmask, sets) };
}

/// How many CPUs the process may use; 1 if the kernel does not say.
pub fn usable_cpus() -> u32 {
    let mut mask = [0u64; 128];
    let bytes = size_of_val(&mask);
    // SAFETY: `mask` is writable for `bytes`.
    let written = unsafe { syscall(libc::SYS_sched_getaffinity, [0, bytes, mask.as_mut_ptr() as usize, 0, 0, 0]) };
    if written <= 0 {
        return 1;
    }
    mask.iter().map(|word| word.count_ones()).sum::<u32>().max(1)
}
