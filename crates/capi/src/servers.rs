//! Servers, and their statistics.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use flashlock_delegation::{Options, Scheduling, Server, Statistics, named};

use crate::errors::{Failure, code};
use crate::text;

/// `struct flashlock_rcl_server_options`
#[repr(C)]
pub(crate) struct COptions {
    cpu: i32,
    threads: u32,
    timeout_ns: u64,
    real_time: i32,
}

/// `struct flashlock_rcl_statistics`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CStatistics {
    scans: u64,
    busy_scans: u64,
    mixed_scans: u64,
    sections: u64,
    elections: u64,
    threads_short: u64,
    use_rate: f64,
    false_serialization_rate: f64,
    threads: u32,
    clients: u32,
    real_time: u32,
    membarrier: u32,
    waits_sampled: u64,
    longest_wait_ns: u64,
    queueing_latency_ns: f64,
}

const _: () = assert!(size_of::<COptions>() == 24 && size_of::<CStatistics>() == 104);

impl From<Statistics> for CStatistics {
    fn from(of: Statistics) -> Self {
        Self {
            scans: of.scans,
            busy_scans: of.busy_scans,
            mixed_scans: of.mixed_scans,
            sections: of.sections,
            elections: of.elections,
            threads_short: of.threads_short,
            use_rate: of.use_rate(),
            false_serialization_rate: of.false_serialization_rate(),
            threads: of.threads,
            clients: of.clients,
            real_time: of.real_time.into(),
            membarrier: of.membarrier.into(),
            waits_sampled: of.waits_sampled,
            longest_wait_ns: of.longest_wait_ns,
            queueing_latency_ns: of.queueing_latency(),
        }
    }
}

fn options(given: &COptions) -> Result<Options, Failure> {
    let usual = Options::default();
    let cpu =
        match given.cpu {
            -1 => None,
            cpu => Some(u32::try_from(cpu).map_err(|_| {
                Failure::new(libc::EINVAL, format!("cpu must be the number of a CPU, or -1, not {cpu}"))
            })?),
        };
    Ok(Options {
        cpu,
        threads: if given.threads == 0 { usual.threads } else { given.threads },
        timeout: if given.timeout_ns == 0 { usual.timeout } else { Duration::from_nanos(given.timeout_ns) },
        scheduling: if given.real_time == 0 { Scheduling::Ordinary } else { Scheduling::RealTime },
    })
}

fn given<T>(pointer: *mut T) -> Result<*mut T, Failure> {
    if pointer.is_null() { Err(Failure::new(libc::EINVAL, "the server is NULL")) } else { Ok(pointer) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn flashlock_rcl_server_open(at: *mut *mut Server, asked: *const COptions) -> c_int {
    code(|| {
        let at = given(at)?;
        // SAFETY: null, or options.
        let options = unsafe { asked.as_ref() }.map_or(Ok(Options::default()), options)?;
        let server = Box::into_raw(Box::new(Server::open(options)?));
        // SAFETY: not null, so writable.
        unsafe { at.write(server) };
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn flashlock_rcl_server_named(at: *mut *mut Server, name: *const c_char) -> c_int {
    code(|| {
        let at = given(at)?;
        let name = text(name)?.ok_or(Failure::new(libc::EINVAL, "the name is NULL"))?;
        let server = std::ptr::from_ref(named::server(name)?).cast_mut();
        // SAFETY: not null, so writable. Nothing writes to a server through the pointer.
        unsafe { at.write(server) };
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn flashlock_rcl_server_close(at: *mut Server) -> c_int {
    code(|| {
        let at = given(at)?;
        // SAFETY: an open server.
        let server = unsafe { &*at };
        if named::is_named(server) {
            return Err(Failure::new(libc::EINVAL, "a named server is never closed"));
        }
        if server.is_here() {
            return Err(Failure::new(libc::EDEADLK, "a section of a server cannot close it: it would wait for itself"));
        }
        // SAFETY: made by `flashlock_rcl_server_open`, and not used any more, as the header requires.
        drop(unsafe { Box::from_raw(at) });
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn flashlock_rcl_server_number(at: *const Server) -> u32 {
    // SAFETY: null, or an open server.
    unsafe { at.as_ref() }.map_or(0, Server::number)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn flashlock_rcl_server_statistics(at: *const Server, to: *mut u8, size: usize) -> c_int {
    code(|| {
        let at = given(at.cast_mut())?;
        if to.is_null() {
            return Err(Failure::new(libc::EINVAL, "the statistics are NULL"));
        }
        // SAFETY: an open server.
        let statistics = CStatistics::from(unsafe { &*at }.statistics());
        let known = size.min(size_of::<CStatistics>());
        // SAFETY: so many bytes are readable here, and writable there.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const statistics).cast(), to, known);
            to.add(known).write_bytes(0, size - known);
        }
        Ok(())
    })
}
