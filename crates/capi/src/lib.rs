//! # The C interface to delegated locks
//!
//! `include/flashlock_rcl.h` says what each function does; `include/flashlock_rcl.hpp` builds the C++ interface on it.
//! This crate says what C objects are made of, and how errors become numbers.
//!
//! | C object | is |
//! |---|---|
//! | `flashlock_rcl_t` | [`Raw`], and room for more |
//! | `flashlock_rcl_cond_t` | [`Cond`], and room for more |
//! | `flashlock_rcl_server_t` | [`Server`]: in a box, or a named one |
//!
//! ## A section
//! is a C function. Its address, its context and its lock travel in the client's line. What it returns comes back in
//! the place of the context. It must return: if it unwinds the stack, the program ends.

mod errors;
mod servers;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;

use flashlock_delegation::raw::Raw;
use flashlock_delegation::{Cond, Kind, Server, named};
use flashlock_locks::closure::rcl::Section;
use flashlock_locks::closure::rcl::slot::Inline;
use flashlock_locks::machine::{Clock, Deadline};

use errors::{Answer, Failure, code};

/// `flashlock_rcl_t`
#[repr(C, align(8))]
pub struct CLock {
    raw: Raw,
    room: [u64; 5],
}

/// `flashlock_rcl_cond_t`
#[repr(C, align(8))]
pub struct CCond {
    cond: Cond,
    room: [u64; 1],
}

const _: () = assert!(size_of::<CLock>() == 64 && align_of::<CLock>() == 8);
const _: () = assert!(size_of::<CCond>() == 16 && align_of::<CCond>() == 8);

/// `flashlock_rcl_section_t`
type Work = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What travels in a line.
#[repr(C)]
struct Call {
    lock: *const CLock,
    work: Work,
    /// The context; after the call, what the section returned.
    context: *mut c_void,
}

const _: () = assert!(size_of::<Call>() <= size_of::<Inline>() && align_of::<Call>() <= align_of::<Inline>());

/// Ends the program if it is dropped while the stack is unwound.
struct NoUnwinding;

impl Drop for NoUnwinding {
    fn drop(&mut self) {
        eprintln!(
            "flashlock: a section was left by a C++ exception, by pthread_exit() or by cancellation: its thread may be \
             a server's, so the program ends. A section must return. (flashlock_rcl.hpp hands exceptions on.)"
        );
        std::process::abort();
    }
}

impl Call {
    /// # Safety
    /// The place holds a call that has not been made. Its lock is held.
    unsafe fn act(place: *mut ()) {
        let place: *mut Self = place.cast();
        // SAFETY: the callers' promise; the lock is valid until its client has the answer.
        unsafe {
            let Self { lock, work, context } = place.read();
            let guard = NoUnwinding;
            let result = (*lock).raw.inside(|| work(context));
            core::mem::forget(guard);
            (*place).context = result;
        }
    }
}

fn lock<'a>(lock: *const CLock) -> Result<&'a CLock, Failure> {
    // SAFETY: null, or a lock that the caller has made, as the header requires.
    unsafe { lock.as_ref() }.ok_or(Failure::new(libc::EINVAL, "the lock is NULL"))
}

fn cond<'a>(cond: *const CCond) -> Result<&'a Cond, Failure> {
    // SAFETY: as above.
    unsafe { cond.as_ref() }.map(|c| &c.cond).ok_or(Failure::new(libc::EINVAL, "the condition variable is NULL"))
}

/// A name that may be null.
fn text<'a>(name: *const c_char) -> Result<Option<&'a str>, Failure> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: a C string, as the header requires.
    let name = unsafe { CStr::from_ptr(name) }.to_str();
    name.map(Some).map_err(|_| Failure::new(libc::EINVAL, "the name is not UTF-8"))
}

fn recursive<E>(_: E) -> Failure {
    let text = "the calling thread runs a section of this lock: it would wait for itself";
    Failure::new(libc::EDEADLK, text)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_init(at: *mut CLock, kind: c_int, name: *const c_char) -> c_int {
    code(|| {
        lock(at)?;
        let kind = match kind {
            0 => Kind::Ordinary,
            1 => Kind::Delegated,
            2 => Kind::Adaptive,
            other => return Err(Failure::new(libc::EINVAL, format!("{other} is no enum flashlock_rcl_kind"))),
        };
        let raw = named::lock(kind, text(name)?)?;
        // SAFETY: not null, so a place for a lock. There was no lock, or it was destroyed.
        unsafe { at.write(CLock { raw, room: [0; 5] }) };
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_destroy(at: *mut CLock) -> c_int {
    code(|| {
        if lock(at)?.raw.is_held() {
            return Err(Failure::new(libc::EBUSY, "the lock is held"));
        }
        // SAFETY: a lock that is not used any more, as the header requires. It is left as an ordinary lock, which owns
        // nothing.
        drop(unsafe { std::mem::replace(&mut (*at).raw, Raw::new(0)) });
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_exec(
    at: *mut CLock,
    work: Option<Work>,
    context: *mut c_void,
    result: *mut *mut c_void,
) -> c_int {
    let (Some(lock), Some(work)) = (
        // SAFETY: null, or a lock.
        unsafe { at.as_ref() },
        work,
    ) else {
        return code(|| Err(Failure::new(libc::EINVAL, "the lock or the section is NULL")));
    };
    if lock.raw.is_inside() {
        return code(|| Err(recursive(())));
    }
    let mut bytes: Inline = [MaybeUninit::uninit(); 4];
    let place: *mut Call = (&raw mut bytes).cast();
    // SAFETY: it has room there. The section is called once, under the lock. The header requires that any thread may do
    // so, and that the lock stays. The section does not unwind.
    unsafe {
        place.write(Call { lock, work, context });
        lock.raw.run(Section::inline(Call::act, &mut bytes));
        if let Some(result) = result.as_mut() {
            let place: *const Call = (&raw const bytes).cast();
            *result = (*place).context;
        }
    }
    0
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_assign(at: *mut CLock, server: *const Server) -> c_int {
    code(|| {
        // SAFETY: null, or an open server.
        let server = unsafe { server.as_ref() }.map_or(0, Server::number);
        lock(at)?.raw.assign(server).map_err(recursive)
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_unpin(at: *mut CLock) -> c_int {
    code(|| lock(at).map(|lock| lock.raw.unpin()))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_server_of(at: *const CLock) -> u32 {
    // SAFETY: null, or a lock.
    unsafe { at.as_ref() }.map_or(0, |lock| lock.raw.server())
}

fn wait(of: *mut CCond, at: *mut CLock, until: Option<Deadline>) -> Answer {
    let timed_out = lock(at)?.raw.wait(cond(of)?, until).map_err(|_| {
        let text = "the calling thread runs no section of this lock: it cannot wait there";
        Failure::new(libc::EPERM, text)
    })?;
    if timed_out { Err(Failure::new(libc::ETIMEDOUT, "the time came first")) } else { Ok(()) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_cond_wait(of: *mut CCond, at: *mut CLock) -> c_int {
    code(|| wait(of, at, None))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_cond_clockwait(
    of: *mut CCond,
    at: *mut CLock,
    clock: c_int,
    until: *const libc::timespec,
) -> c_int {
    code(|| {
        let clock = match clock {
            libc::CLOCK_MONOTONIC => Clock::Monotonic,
            libc::CLOCK_REALTIME => Clock::Realtime,
            _ => return Err(Failure::new(libc::EINVAL, "the clock must be CLOCK_MONOTONIC or CLOCK_REALTIME")),
        };
        // SAFETY: null, or a time.
        let until = unsafe { until.as_ref() }.ok_or(Failure::new(libc::EINVAL, "the time is NULL"))?;
        let nsec = u32::try_from(until.tv_nsec).ok().filter(|nsec| *nsec < 1_000_000_000);
        let nsec = nsec.ok_or(Failure::new(libc::EINVAL, "the time's nanoseconds must be 0 to 999999999"))?;
        wait(of, at, Some(Deadline { clock, sec: until.tv_sec, nsec }))
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_cond_signal(of: *mut CCond) -> c_int {
    code(|| cond(of).map(Cond::notify_one))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flashlock_rcl_cond_broadcast(of: *mut CCond) -> c_int {
    code(|| cond(of).map(Cond::notify_all))
}
